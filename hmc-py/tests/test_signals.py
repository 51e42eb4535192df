"""Signals: Ctrl-C ends what waits and what copies; other handlers run meanwhile."""

import os
import signal
import threading
import time

import pytest

import hmc
from conftest import unscheduled


#: Makes calls that wait, one after the other, and says when each was interrupted.
EACH = """
    import signal, sys, threading, time, hmc
    # Whoever runs in the background inherits that it is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def each(calls):
        for name, call in calls.items():
            try:
                print(name, flush=True)
                call()
            except KeyboardInterrupt:
                print(time.monotonic(), flush=True)
                sys.stdin.readline()
            else:
                print("not interrupted", flush=True)
"""


def lateness(process, count):
    """How many seconds after its signal each of ``count`` calls of a process came back."""
    late, here = {}, (os.getpid(), threading.get_native_id())
    for _ in range(count):
        name = process.line()
        process.asleep()
        # What either end waits for a processor is no time of the call's.
        waited, own = unscheduled(process.pid), unscheduled(*here)
        when = time.monotonic()
        process.signal(signal.SIGINT)
        own = unscheduled(*here) - own
        raised = float(process.line())
        late[name] = raised - when - own - (unscheduled(process.pid) - waited)
        process.tell()
    return late


def test_ctrl_c_ends_waits(run):
    process = run(EACH + """
    a = hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=1 << 20)
    b = hmc.Session(rank=1, buffer_size=1 << 20)
    peer = b.connect(0, a.address)
    mute = __import__("socket").create_server(("127.0.0.1", 0))
    op = peer.irecv_data(bytearray(8))
    other = hmc.Session(rank=5, buffer_size=0)
    calls = {
        "recv_tag": lambda: peer.recv_tag(timeout=30),
        "ctrl_recv": lambda: b.ctrl_recv(0, timeout=30),
        "peer": lambda: b.peer(9, timeout=30),
        "recv_data": lambda: peer.recv_data(bytearray(8), timeout=30),
        "wait": lambda: op.wait(timeout=30),
        "window": lambda: peer.window(1, timeout=30),
        "connect": lambda: other.connect(7, "tcp://127.0.0.1:%d" % mute.getsockname()[1], timeout=30),
        "send_data": lambda: peer.send_data(bytes(8), timeout=30),
    }
    each(calls)
    print("cleanup", flush=True)
    peer.send_tag(1)
    assert a.ctrl_recv(1) == 1
    """)
    late = lateness(process, 8)
    process.expect("cleanup")
    process.end()
    # The promise is 100 ms, and the look at signals comes every 50.
    assert max(late.values()) < 0.1 + 0.2, late


def test_ctrl_c_ends_transfers(run):
    """To a peer that is stopped, so that none ends by itself. Whatever was begun before goes on."""
    target = run("""
    import hmc, sys
    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=4096, heartbeat=None) as s:
        print(s.address)
        sys.stdin.readline()
    """)
    process = run(EACH + """
    s = hmc.Session(rank=1, buffer_size=4096, heartbeat=None, redial=False)
    TCP, there = hmc.ConnType.TCP, ("127.0.0.1", 2025)
    peer = s.connect(0, sys.argv[1], TCP)
    print("connected", flush=True)
    sys.stdin.readline()
    batch, op, shared = peer.prepare_put([(0, 0, 8)]), peer.put_nb(nbytes=8), peer.get_nb(nbytes=8)
    numbers = [s.put_nb(*there, 0, 0, 8, TCP) for _ in range(100)]
    # It waits first; whoever comes second waits for it.
    first = threading.Thread(target=shared.wait, args=(60,))
    first.start()
    each({
        "put": lambda: peer.put(nbytes=8, timeout=30), "get": lambda: peer.get(nbytes=8, timeout=30),
        "put_notify": lambda: peer.put_notify(None, 1, nbytes=8, timeout=30), "run": lambda: batch.run(timeout=30),
        "put_remote": lambda: s.put_remote(*there, 0, 0, 8, TCP, timeout=30),
        "wait of an operation": lambda: op.wait(timeout=30), "wait of numbers": lambda: s.wait(numbers, timeout=30),
        "wait beside another thread": lambda: shared.wait(timeout=30),
    })
    print("ended", flush=True)
    op.wait(timeout=30)
    s.wait(numbers, timeout=30)
    first.join()
    print(shared.wait(timeout=0))
    """, target.line())
    process.expect("connected")
    target.stop()
    process.tell()
    late = lateness(process, 8)
    process.expect("ended")
    target.signal(signal.SIGCONT)
    process.expect("8")
    process.end()
    target.tell()
    assert max(late.values()) < 0.1 + 0.2, late


def test_ctrl_c_ends_the_wait_for_a_buffer(run):
    """While the thread that takes its pages goes on. The session can be used then."""
    with open("/proc/meminfo") as f:
        free = next(int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable"))
    if free < 4 << 30:
        pytest.skip(f"{free >> 20} MiB of memory: taking the pages of a large buffer must last a while")
    run("""
    import hmc, os, signal, threading, time
    TCP = hmc.ConnType.TCP
    signal.signal(signal.SIGALRM, signal.default_int_handler)

    def is_being_made():
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/comm") as f:
                if f.read() == "hmc-buffer\\n":
                    return True
        return False

    for name, call in (("region", lambda s: s.buf.region), ("close", lambda s: s.close()),
                       ("init_server", lambda s: s.init_server("127.0.0.1", 0, TCP))):
        s = hmc.create_session(buffer_size=2 << 30)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            call(s)
            how = "it went through"
        except KeyboardInterrupt:
            how = is_being_made()
        assert how is True, (name, how)
        # Several threads may wait for it.
        others = [threading.Thread(target=lambda: s.buf.region) for _ in range(4)]
        for thread in others:
            thread.start()
        s.init_server("127.0.0.1", 0, TCP)
        for thread in others:
            thread.join()
        assert s.address and s.buffer.nbytes == 2 << 30
        s.close()
        del s
    """).end()


def test_packing_lets_others_run_and_ends_with_ctrl_c(run):
    """Another thread sends the signal, once it has seen that some of the 512 MiB are packed and others are not."""
    run("""
    import hmc, numpy as np, os, signal, threading
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has none
    region = hmc.IOBuffer.create(buffer_size=64).region
    src = np.zeros((1 << 14, 1 << 15), np.uint8).T

    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    before, seen, how = resident(), set(), None

    def beside():
        while how is None and resident() < before + (16 << 20):
            seen.add(resident() >> 20)
        if how is None:
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=beside)
    try:
        thread.start()
        region.write(src)
        how = "written"
    except KeyboardInterrupt:
        how = "interrupted"
    except hmc.OutOfRange:
        how = "packed to its end"
    assert how == "interrupted" and len(seen) > 2, (how, seen)
    thread.join()
    """).end()


def test_handlers_run_and_waits_go_on():
    ran = []
    with hmc.Session(rank=0, buffer_size=0, listen="tcp://127.0.0.1:0") as s:
        before = signal.signal(signal.SIGALRM, lambda *_: ran.append(1))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(hmc.DeadlineExceeded):
                s.peer(1, timeout=0.5)
        finally:
            signal.signal(signal.SIGALRM, before)
    assert ran == [1]
