"""Deaths, forks, exits, and what is left behind."""

import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import hmc
from conftest import LIMIT, until

VICTIM = """
import sys, hmc
s = hmc.Session(rank=1, listen=["tcp://127.0.0.1:0", "uds"], buffer_size=64 << 20)
print(s.address)
sys.stdin.readline()
"""


@pytest.fixture(params=["shm", "tcp"])
def victim(request, run):
    """A peer that is another process."""
    process = run(VICTIM)
    with hmc.Session(rank=0, buffer_size=64 << 20) as s:
        peer = s.connect(1, process.line(), hmc.ConnType[request.param.upper()])
        yield s, peer, process


def test_an_array_outlives_its_session_while_the_peer_may_write_it(run):
    process = run("""
        import sys, hmc, numpy as np
        s = hmc.Session(rank=41, listen="uds", buffer_size=0)
        print(s.address)
        window = s.peer(0).expose(s.register(np.full(256 << 20, 7, np.uint8)), 5)
        sys.stdin.readline()
        """)
    s = hmc.Session(rank=0, buffer_size=0)
    peer = s.connect(41, process.line(), hmc.ConnType.SHM)
    array = np.zeros(256 << 20, np.uint8)
    gone = weakref.ref(array)
    op = peer.get_nb(s.register(array), window=peer.window(5))
    until("the copy begins", lambda: array[0] == 7)
    process.stop()
    with pytest.raises(hmc.HMCError):
        s.close(timeout=0.001)
    del s, peer, array, op
    gc.collect()
    (piece,) = [h for h in hmc.held() if h["peer"] == 41]
    assert piece["nbytes"] == 256 << 20 and abs(time.time() - piece["since"]) < LIMIT and "peer" in piece["reason"]
    assert gone() is not None, "the array was freed under the copy of a peer that is stopped"
    process.signal(signal.SIGCONT)
    until("it is let go", lambda: not [h for h in hmc.held() if h["peer"] == 41] and gone() is None)
    process.tell()
    process.end()


def test_a_peer_killed_in_the_middle_raises_soon(victim):
    s, peer, process = victim
    out = np.zeros(64 << 20, np.uint8)
    raised = []

    def get_on():
        try:
            while True:
                peer.get(out)
        except hmc.HMCError as e:
            raised.append((e, time.monotonic()))

    thread = threading.Thread(target=get_on)
    thread.start()
    until("a get", lambda: s.stats()["peers"][1]["gets"] > 0)
    killed = time.monotonic()
    process.signal(signal.SIGKILL)
    thread.join(10)
    error, when = raised[0]
    assert isinstance(error, hmc.PeerDead) and isinstance(error, ConnectionError) and error.peer == 1
    assert when - killed < 3
    with pytest.raises(hmc.PeerDead):
        peer.put(b"x")
    assert not peer.connected
    until("it is counted", lambda: s.stats()["peers_lost"] == 1)


def test_a_stopped_peer_raises_soon(victim):
    s, peer, process = victim
    process.signal(signal.SIGSTOP)
    try:
        begun = time.monotonic()
        with pytest.raises(hmc.PeerDead):
            peer.recv_tag(timeout=20)
        assert time.monotonic() - begun < 5
    finally:
        process.signal(signal.SIGCONT)


def test_whatever_waits_ends_in_time_and_lets_others_run(run, monkeypatch):
    """All that blocks, at once, towards a peer that stands still."""
    monkeypatch.setenv("HMC_NO_CMA", "1")
    process = run(VICTIM)
    with hmc.Session(rank=0, buffer_size=4096) as s:
        tcp, unknown = hmc.ConnType.TCP, 9
        address = process.line()
        s.connect(peer_id=1, self_id=0, peer_ip="127.0.0.1", data_port=2025, conn=tcp,
                  ctrl_tcp_port=int(address.rsplit(":", 1)[1]))
        peer, there = s.peer(1), ("127.0.0.1", 2025)
        batch = peer.prepare_put([(0, 0, 4096)])
        process.stop()
        begun, message = s.put_nb(*there, nbytes=4096, conn=tcp), peer.irecv_data(bytearray(1))
        begun_too, posted = peer.get_nb(), batch.post()
        calls = {
            "put": peer.put, "get": peer.get, "put_notify": lambda timeout: peer.put_notify(None, 1, timeout=timeout),
            "run": batch.run, "wait": begun_too.wait, "wait of a batch": posted.wait, "wait of a message": message.wait,
            "recv": peer.recv, "recv_tag": peer.recv_tag, "recv_notify": peer.recv_notify,
            "window": lambda timeout: peer.window(1, timeout=timeout),
            "recv_data": lambda timeout: peer.recv_data(bytearray(1), timeout=timeout),
            "send_data": lambda timeout: peer.send_data(b"x", timeout=timeout),
            "peer": lambda timeout: s.peer(unknown, timeout=timeout), "explain": lambda timeout: s.explain(unknown, timeout),
            "put_remote": lambda timeout: s.put_remote(*there, nbytes=4096, conn=tcp, timeout=timeout),
            "get_remote": lambda timeout: s.get_remote(*there, nbytes=4096, conn=tcp, timeout=timeout),
            "wait of a number": lambda timeout: s.wait(begun, timeout=timeout),
            "ctrl_recv": lambda timeout: s.ctrl_recv(1, timeout=timeout),
            "isend": lambda timeout: s.isend(b"x", unknown, timeout=timeout),
            "irecv": lambda timeout: s.irecv(bytearray(1), unknown, timeout=timeout),
            "send of a tensor": lambda timeout: s.send(b"x", 1, timeout=timeout),
            "recv of a tensor": lambda timeout: s.recv(src=1, timeout=timeout),
        }
        ended = {}

        def one(name, call):
            begun = time.monotonic()
            try:
                call(timeout=1)
                how = None
            except hmc.HMCError as e:
                how = type(e)
            ended[name] = how, time.monotonic() - begun

        threads = [threading.Thread(target=one, args=call) for call in calls.items()]
        gap, last = 0.0, time.monotonic()
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            time.sleep(0.005)
            gap, last = max(gap, time.monotonic() - last), time.monotonic()
        late = {name: end for name, end in ended.items() if end[0] is not hmc.DeadlineExceeded or not 0.95 < end[1] < 2.5}
        assert not late
        # With the interpreter in one's hand for the whole of a wait it is longer.
        assert gap < 0.9
        process.signal(signal.SIGCONT)


def test_peers_hear_goodbye_when_the_interpreter_ends(run):
    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64) as s:
        process = run("""
        import sys, threading, hmc
        s = hmc.Session(rank=1, buffer_size=64)
        s.connect(0, sys.argv[1])
        threading.Thread(target=s.ctrl_recv, args=(0,), daemon=True).start()  # has it still at the end
        sys.stdin.readline()
        """, s.address)
        peer = s.peer(1)
        process.tell()
        with pytest.raises(hmc.HMCError, match="goodbye"):
            peer.recv_tag()
        process.end()


@pytest.mark.parametrize("redial", [True, False])
def test_a_lost_peer_is_dialed_again_if_it_may(run, redial):
    serve = """
    import sys, hmc
    s = hmc.Session(rank=1, listen="tcp://127.0.0.1:" + sys.argv[1], buffer_size=64)
    print(s.address)
    s.peer(0)
    sys.stdin.readline()
    """
    first = run(serve, port := _port())
    with hmc.Session(rank=0, buffer_size=64, redial=redial) as s:
        peer = s.connect(1, first.line())
        first.kill()
        until("it is lost", lambda: not peer.connected and not s.peers)
        run(serve, port).line()
        if redial:
            until("it is back", lambda: s.peers)
            assert s.peers[0].rank == 1 and not peer.connected
        else:
            with pytest.raises(hmc.DeadlineExceeded):
                s.peer(1, timeout=1)


def test_how_soon_a_silent_peer_is_dead_can_be_set(run):
    process = run(VICTIM)
    with hmc.Session(rank=0, buffer_size=64, heartbeat=0.1) as s:
        peer = s.connect(1, process.line())
        process.stop()
        begun = time.monotonic()
        with pytest.raises(hmc.PeerDead):
            peer.recv_tag()
        assert time.monotonic() - begun < 1.5


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


def test_an_exit_in_the_middle_of_everything(run):
    for how in ("sys.exit(0)", "raise SystemExit(0)", "os._exit(0)"):
        run(f"""
        import hmc, os, sys, threading
        a = hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=1 << 20)
        b = hmc.Session(rank=1, buffer_size=1 << 20)
        peer = b.connect(0, a.address)
        threading.Thread(target=lambda: peer.recv_tag(timeout=30), daemon=True).start()
        threading.Thread(target=lambda: [peer.put(bytes(1 << 20)) for _ in range(10 ** 9)], daemon=True).start()
        {how}
        """).end()


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


def test_what_the_library_says_goes_to_logging(victim, caplog):
    _, peer, process = victim
    with caplog.at_level(logging.INFO, "hmc"):
        process.signal(signal.SIGKILL)
        with pytest.raises(hmc.PeerDead):
            peer.recv_tag()
        until("a message", lambda: any("peer lost" in r.getMessage() for r in caplog.records))
    assert {(r.name, r.levelno) for r in caplog.records} == {("hmc", logging.INFO)}


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


def test_sessions_over_one_buffer_are_one(tmp_path):
    tmp_path.chmod(0o700)
    buf = hmc.IOBuffer.create(buffer_size=4096)
    with hmc.Session(buf) as s:
        s.init_server(bind_ip="127.0.0.1", ctrl_tcp_port=_port(), self_id=0, ctrl_uds_dir=tmp_path)
        other = hmc.Session(buf)
        assert other.rank == 0 and other.addresses == s.addresses
        with pytest.raises(hmc.HMCError):
            hmc.Session(buf, rank=1)


def _port():
    from conftest import free_port

    return free_port()


def test_importing_takes_nothing_along(run):
    out = run("""
    import sys, hmc
    assert not {"numpy", "torch", "asyncio", "ctypes"} & set(sys.modules), sorted(sys.modules)
    print("ok")
    """).end()
    assert out == "ok\n"


def test_a_server_is_closed_and_opened_again(run):
    port = _port()
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
        other.init_server(bind_ip="127.0.0.1", ucx_port=None, rdma_port=None, ctrl_tcp_port=_port(), self_id=1)
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
