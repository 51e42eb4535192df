"""The life of sessions: exits, children, busy interpreters, servers that close and open, and what is left behind."""

import logging
import multiprocessing
import os
import socket
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import hmc
from conftest import LIMIT, free_port, ran, until


def test_threads_that_use_a_session_while_others_close_it(run):
    """Of a call that raises no lock is held: another thread may want it, and has the interpreter."""
    run("""
    import hmc, sys, threading, time
    sys.setswitchinterval(1e-6)
    s, end = hmc.Session(buffer_size=0), time.monotonic() + 2

    def asks():
        while time.monotonic() < end:
            try:
                s.rank
            except hmc.HMCError:
                pass

    def closes():
        while time.monotonic() < end:
            s.close()

    threads = [threading.Thread(target=f) for f in (asks, asks, closes, closes)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    """).end()


def test_the_interpreter_ends_with_a_live_session(run):
    out = run("""
    import hmc, numpy as np
    a = hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=1 << 20)
    b = hmc.Session(rank=1, buffer_size=1 << 20)
    peer = b.connect(0, a.address)
    op = peer.irecv_data(np.zeros(10))
    region = a.allocate(4096)
    view = np.frombuffer(region, np.uint8)
    ops = [peer.put_nb(np.zeros(1 << 16)) for _ in range(8)]
    print("end")
    """).end()
    assert out == "end\n"


@pytest.mark.parametrize("how", ["sys.exit(0)", "raise SystemExit(0)", "os._exit(0)"])
def test_an_exit_in_the_middle_of_everything(run, how):
    """One thread waits and another puts."""
    out = run(f"""
    import hmc, os, sys, threading, time
    a = hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=1 << 20)
    b = hmc.Session(rank=1, buffer_size=1 << 20)
    peer = b.connect(0, a.address)
    waits = threading.Thread(target=lambda: peer.recv_tag(timeout=30), daemon=True)
    waits.start()
    threading.Thread(target=lambda: [peer.put(bytes(1 << 20)) for _ in range(10 ** 9)], daemon=True).start()
    puts = lambda: b.stats()["peers"][0]["puts"]
    while puts() < 3:
        time.sleep(0.001)
    assert waits.is_alive()
    print("exits", flush=True)
    {how}
    """).end()
    assert out == "exits\n"


def _child(address):
    with hmc.Session(rank=1, buffer_size=4096) as s:
        peer = s.connect(0, address)
        peer.put(b"from a child")
        peer.send_tag(7)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_children_have_sessions_of_their_own(method):
    with hmc.Session(rank=0, listen=["tcp://127.0.0.1:0", "uds"], buffer_size=4096) as s:
        child = multiprocessing.get_context(method).Process(target=_child, args=(s.address,))
        child.start()
        assert s.ctrl_recv(1) == 7
        assert s.buffer.read(12) == b"from a child"
        child.join(20)
        assert child.exitcode == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_may_not_use_its_parent_s_session(pair):
    a, b, peer, back = pair
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = "nothing"
        try:
            peer.put(b"x")
        except hmc.Forked:
            told = "forked"
        except BaseException as e:
            told = repr(e)
        os.write(write, told.encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 100) == b"forked"
    peer.put(b"still works")
    assert b.buffer.read(11) == b"still works"


def test_a_session_lives_while_the_interpreter_is_busy(run):
    """One long call holds the interpreter lock for 4 s; meanwhile a message ends whose array nobody wants any more."""
    busy = run("""
    import ctypes, sys, hmc
    import numpy as np
    s = hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=4096)
    print(s.address)
    peer = s.peer(1)
    peer.irecv_data(np.zeros(1000))
    peer.send_tag(1)
    ctypes.PyDLL(None).sleep(4)  # with the interpreter lock
    peer.send_tag(2)
    sys.stdin.readline()
    """)
    with hmc.Session(rank=1, buffer_size=4096) as s:
        peer = s.connect(0, busy.line())
        assert peer.recv_tag() == 1
        busy.asleep()
        peer.send_data(np.ones(1000), timeout=2)
        assert peer.recv_tag(timeout=20) == 2
        assert peer.connected and s.stats()["peers_lost"] == 0
        busy.tell()
        busy.end()


def test_warnings_are_warnings(run):
    process = run("""
    import logging, os, resource, sys, hmc
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s %(levelname)s %(message)s")
    s = hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64)
    os.close(free := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
    print(s.address)
    sys.stdin.readline()
    """)
    host, port = process.line().removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))):
        assert process.line().startswith("hmc WARNING cannot accept connections")
    process.tell()


def test_dropped_log_messages_are_counted():
    """The queue to a slow handler holds 1,024 messages. Further ones are dropped, and the next message names their number."""
    taken, seen = threading.Event(), []

    class Slow(logging.Handler):
        def emit(self, record):
            seen.append(record.getMessage())
            taken.wait(LIMIT)

    def warn():
        hmc.Session(rank=0, buffer_size=0, accept_upstream=True).close()

    handler = Slow(logging.WARNING)
    logging.getLogger("hmc").addHandler(handler)
    try:
        warn()
        until("the first is there", lambda: seen)
        for _ in range(1024 + 50):
            warn()
        taken.set()
        until("those that waited are there", lambda: len(seen) == 1 + 1024)
        assert not any("dropped" in text for text in seen)
        warn()
        until("the last is there", lambda: len(seen) == 1 + 1024 + 1)
        assert "messages dropped before: 50" in seen[-1]
    finally:
        taken.set()
        logging.getLogger("hmc").removeHandler(handler)


#: A filter runs without the lock of a handler, for which the end of ``logging`` would wait.
SAID_AT_THE_END = """
    import logging, os, threading, time, hmc

    def slow(record):
        {body}
        os.write(1, b"heard\\n")

    logging.getLogger("hmc").addFilter(slow)
    logging.getLogger("hmc").addHandler(logging.NullHandler())
    for _ in range({count}):
        hmc.Session(rank=0, buffer_size=0, accept_upstream=True)
"""


def _said_at_the_end(body, count):
    done = ran("-c", textwrap.dedent(SAID_AT_THE_END.format(body=body, count=count)))
    assert done.returncode == 0, f"rc {done.returncode}: {done.stderr}"
    return done.stdout.splitlines()


def test_a_process_that_ends_while_a_handler_runs_ends_in_order():
    """And what was said is heard. The thread that runs handlers comes back to an interpreter that is gone if it is not stopped."""
    for _ in range(6):
        assert _said_at_the_end("[time.sleep(0.001) for _ in range(50)]", 2) == ["heard"] * 2


def test_a_handler_that_takes_too_long_is_ended():
    """It would come back to an interpreter that is gone, which aborts the process."""
    start = time.monotonic()
    assert _said_at_the_end("[time.sleep(0.001) for _ in range(10 ** 6)]", 2) == []
    assert time.monotonic() - start < LIMIT / 2


def test_a_handler_that_never_returns_does_not_keep_the_process():
    start = time.monotonic()
    assert _said_at_the_end("threading.Event().wait()", 2) == []
    assert time.monotonic() - start < LIMIT / 2


def test_nothing_is_left_behind():
    def once():
        with hmc.Session(rank=0, listen=["tcp://127.0.0.1:0", "uds"], buffer_size=1 << 20) as a, \
                hmc.Session(rank=1, buffer_size=1 << 20) as b:
            b.connect(0, a.address).put(np.zeros(1000))

    once()
    before = len(os.listdir("/proc/self/fd")), threading.active_count(), len(os.listdir("/proc/self/task"))
    for _ in range(30):
        once()
    after = len(os.listdir("/proc/self/fd")), threading.active_count(), len(os.listdir("/proc/self/task"))
    assert before == after


def test_sessions_over_one_buffer_are_one_until_they_have_ranks(tmp_path):
    tmp_path.chmod(0o700)
    buf = hmc.IOBuffer.create(buffer_size=4096)
    with hmc.Session(buf) as s:
        s.init_server(bind_ip="127.0.0.1", ctrl_tcp_port=free_port(), self_id=0, ctrl_uds_dir=tmp_path)
        other = hmc.Session(buf)
        assert other.rank == 0 and other.addresses == s.addresses
        with pytest.raises(hmc.InvalidArgument, match="rank 0 is another session's over this buffer"):
            hmc.Session(buf, rank=0)


def test_importing_takes_nothing_along(run):
    out = run("""
    import sys, hmc
    assert not {"numpy", "torch", "asyncio", "ctypes"} & set(sys.modules), sorted(sys.modules)
    print("ok")
    """).end()
    assert out == "ok\n"


def test_a_server_is_closed_and_opened_again(run):
    port = free_port()
    s = hmc.create_session(buffer_size=4096)
    serve = lambda: s.init_server(bind_ip="127.0.0.1", ucx_port=None, rdma_port=None, ctrl_tcp_port=port, self_id=0)
    serve()
    with hmc.Session(rank=1, buffer_size=4096) as a:
        peer = a.connect(0, f"tcp://127.0.0.1:{port}")
        s.close_server()
        peer.put(b"lives on")
        assert s.buf.buffer_get_cpu(nbytes=8) == b"lives on"
        with hmc.Session(rank=2, buffer_size=0) as b:
            with pytest.raises(hmc.Unavailable):
                b.connect(0, f"tcp://127.0.0.1:{port}", timeout=2)
            serve()
            b.connect(0, f"tcp://127.0.0.1:{port}")
    s.close()


def test_a_busy_port_is_told_by_the_call():
    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=0) as s:
        port = int(s.address.rsplit(":", 1)[1])
        other = hmc.create_session(buffer_size=4096)
        with pytest.raises(hmc.InvalidArgument, match="another process listens"):
            other.init_server(bind_ip="127.0.0.1", ucx_port=None, rdma_port=None, ctrl_tcp_port=port, self_id=1)
        # It can be tried again.
        other.init_server(bind_ip="127.0.0.1", ucx_port=None, rdma_port=None, ctrl_tcp_port=free_port(), self_id=1)
        other.close()


def test_doctests():
    import doctest
    import importlib
    import pkgutil

    names = ["hmc", *(f"hmc.{m.name}" for m in pkgutil.iter_modules(hmc.__path__))]
    tried = {name: doctest.testmod(importlib.import_module(name)) for name in names}
    assert not [name for name, result in tried.items() if result.failed]
    have = {name for name, result in tried.items() if result.attempted}
    assert have >= {"hmc", "hmc._hmc", "hmc.buffer", "hmc.collective", "hmc.errors", "hmc.session", "hmc.tensors"}, have


assert sys.version_info >= (3, 11)
