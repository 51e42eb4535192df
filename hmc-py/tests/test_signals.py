"""Signals: Ctrl-C ends what waits and what copies; other handlers run meanwhile."""

import os
import signal
import threading
import time

import pytest

import hmc
from conftest import unscheduled


def test_ctrl_c_ends_waits(run):
    process = run("""
    import signal, sys, time, hmc
    # Whoever runs in the background inherits that it is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
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
    for name, call in calls.items():
        try:
            print(name, flush=True)
            call()
        except KeyboardInterrupt:
            print(time.monotonic(), flush=True)
            sys.stdin.readline()
        else:
            print("not interrupted", flush=True)
    print("cleanup", flush=True)
    peer.send_tag(1)
    assert a.ctrl_recv(1) == 1
    """)
    late, here = {}, (os.getpid(), threading.get_native_id())
    for _ in range(8):
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
    process.expect("cleanup")
    process.end()
    # The promise is 100 ms, and the look at signals comes every 50.
    assert max(late.values()) < 0.1 + 0.2, late


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
