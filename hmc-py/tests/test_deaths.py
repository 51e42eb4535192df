"""Peers that die, fall silent or leave: what ends, how soon, and what is kept until they are gone."""

import gc
import logging
import signal
import threading
import time
import weakref

import numpy as np
import pytest

import hmc
from conftest import LIMIT, RDMA, until
from conftest import free_port as _port

VICTIM = """
import sys, hmc
s = hmc.Session(rank=1, listen=["tcp://127.0.0.1:0", "uds"], buffer_size=64 << 20)
print(s.address)
sys.stdin.readline()
"""


@pytest.fixture(params=["shm", "tcp", RDMA])
def victim(request, run):
    """A peer that is another process."""
    if request.param == "rdma":
        request.getfixturevalue("rdma")
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
        assert set(ended) == set(calls)
        late = {name: end for name, end in ended.items() if end[0] is not hmc.DeadlineExceeded or not 0.95 < end[1] < 2.5}
        assert not late
        # With the interpreter in one's hand for the whole of a wait it is longer.
        assert gap < 0.9
        process.signal(signal.SIGCONT)


def test_closing_has_a_second_unless_it_is_given_more_or_less(run):
    """A peer that is stopped and whose socket is full takes no goodbye."""
    for given, least, most in ((None, 0.9, 5), (0.2, 0.15, 0.9)):
        process = run(VICTIM)
        s = hmc.Session(rank=0, buffer_size=64, heartbeat=None, redial=False)
        peer = s.connect(1, process.line(), hmc.ConnType.TCP)
        process.stop()
        with pytest.raises(hmc.DeadlineExceeded):
            while True:
                peer.send(bytes(1 << 20), timeout=0.05)
        begun = time.monotonic()
        with pytest.raises(hmc.DeadlineExceeded, match="goodbye"):
            s.close(timeout=given)
        assert least < time.monotonic() - begun < most
        process.kill()


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


def test_what_the_library_says_goes_to_logging(victim, caplog):
    _, peer, process = victim
    with caplog.at_level(logging.INFO, "hmc"):
        process.signal(signal.SIGKILL)
        with pytest.raises(hmc.PeerDead):
            peer.recv_tag()
        until("a message", lambda: any("peer lost" in r.getMessage() for r in caplog.records))
    assert {(r.name, r.levelno) for r in caplog.records} == {("hmc", logging.INFO)}
