"""How long calls wait that are given no time."""

from __future__ import annotations

import contextlib
import inspect
import math
import signal
import socket
import threading
import time

import numpy as np
import pytest

import hmc
from conftest import LIMIT, asleep, ran, until


def _late(call):
    """What ``call`` raises, and after how many seconds."""
    start = time.monotonic()
    with pytest.raises(hmc.DeadlineExceeded):
        call()
    return time.monotonic() - start


def test_a_session_honours_its_deadline_everywhere():
    with hmc.Session(rank=0, buffer_size=64, listen="tcp://127.0.0.1:0", deadline=0.2) as a, \
            hmc.Session(rank=1, buffer_size=64, deadline=0.2) as b:
        peer = b.connect(0, a.addresses[0])
        calls = [lambda: peer.recv_tag(), lambda: peer.recv(), lambda: peer.recv_data(bytearray(8)), lambda: peer.recv_notify(),
                 lambda: a.peer(5), lambda: b.ctrl_recv(0), lambda: b.recv(bytearray(1), 0),
                 lambda: b.send(bytearray(1), 5), lambda: a.explain(5)]
        for call in calls:
            assert 0.15 < _late(call) < 5
        # A time that is given comes first, infinity too.
        assert _late(lambda: peer.recv_tag(timeout=0.01)) < 0.15
        got = []
        waiter = threading.Thread(target=lambda: got.append(b.ctrl_recv(0, timeout=math.inf)))
        waiter.start()
        time.sleep(0.5)  # longer than the deadline, which is what is tested
        a.ctrl_send(1, 9)
        waiter.join(10)
        assert got == [9]


def test_no_call_outlasts_the_deadline_of_its_session(run, tmp_path):
    """Of a peer that is stopped, one that never comes, and a listener that says nothing."""
    target = run("""
        import hmc, sys
        with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=4096, heartbeat=None) as s:
            print(s.address)
            window = s.peer(1).expose(s.allocate(4096), 3)
            sys.stdin.readline()
    """)
    address = target.line()
    TCP, there = hmc.ConnType.TCP, ("127.0.0.1", int(address.rsplit(":", 1)[1]))
    with hmc.Session(rank=1, buffer_size=4096, heartbeat=None, redial=False, deadline=0.1, listen="tcp://127.0.0.1:0") as s, \
            socket.create_server(("127.0.0.1", 0)) as silent:
        peer = s.connect(0, address, TCP, timeout=LIMIT)
        window, group, batch, array = peer.window(3, timeout=LIMIT), s._core._group([0, 1]), peer.prepare_put([(0, 0, 8)]), np.zeros(1)
        nobody = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        meet = lambda where: hmc.init_group(session=s, rank=1, world_size=2, rendezvous=where, start_servers=False)

        def flood(send, what):
            while True:
                send(what)

        target.stop()
        for call in (
            lambda: peer.put(nbytes=8), lambda: peer.get(nbytes=8), lambda: peer.put_notify(None, 3, nbytes=8),
            lambda: peer.put(nbytes=8, window=window), lambda: peer.put_nb(nbytes=8).wait(), lambda: peer.get_nb(nbytes=8).wait(),
            lambda: batch.run(), lambda: batch.post().wait(), lambda: peer.window(77),
            lambda: s.put_remote(*there, 0, 0, 8, TCP), lambda: s.get_remote(*there, 0, 0, 8, TCP),
            lambda: s.wait(s.put_nb(*there, 0, 0, 8, TCP)), lambda: s.wait([s.get_nb(*there, 0, 0, 8, TCP)]),
            lambda: peer.recv(), lambda: peer.recv_tag(), lambda: peer.recv_int(), lambda: peer.recv_notify(),
            lambda: peer.send_data(b"x"), lambda: peer.isend_data(b"x").wait(), lambda: peer.recv_data(bytearray(1)),
            lambda: peer.irecv_data(bytearray(1)).wait(), lambda: s.send_data_to(*there, b"x", 1, 1, TCP),
            lambda: s.recv_data_from(*there, bytearray(1), 1, 1, 0, TCP),
            lambda: s.isend(array, 0).wait(), lambda: s.irecv(array, 0).wait(), lambda: s.send(array, 0), lambda: s.recv(src=0),
            lambda: s.recv(), lambda: s.ctrl_recv(0), lambda: s.ctrl_recv_int(0),
            lambda: s.peer(5), lambda: s.ctrl_recv(5), lambda: s.isend(array, 5), lambda: s.irecv(array, 5),
            lambda: s.connect(5, nobody), lambda: meet(nobody), lambda: meet(f"file://{tmp_path}/meet"),
            lambda: group.barrier(None), lambda: flood(peer.send, bytes(1 << 20)), lambda: flood(peer.send_tag, 1),
            lambda: s.disconnect(*there, TCP),
        ):
            assert 0.09 < _late(call) < 5, inspect.getsource(call)


def test_a_dial_of_a_node_of_the_cpp_hmc_honours_its_time():
    """Where the listener's queue is full."""
    with hmc.Session(rank=1, buffer_size=0, deadline=LIMIT) as s, socket.socket() as full, contextlib.ExitStack() as queue:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            one = queue.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        where = f"tcp://127.0.0.1:{full.getsockname()[1]}"
        assert 0.15 < _late(lambda: s.connect(7, where, upstream=True, timeout=0.2)) < LIMIT / 2


def test_the_environment_sets_the_deadline():
    code = ("import hmc, time\ns = hmc.Session(rank=0, buffer_size=8, listen='tcp://127.0.0.1:0')\nt = time.monotonic()\n"
            "try: s.ctrl_recv(3)\nexcept hmc.DeadlineExceeded: print(time.monotonic() - t)")
    done = ran("-c", code, env={"HMC_TIMEOUT": "0.3"})
    assert done.returncode == 0 and 0.2 < float(done.stdout) < 10, done.stderr


def test_calls_of_the_cxx_hmc_have_no_limit_but_the_death_of_the_peer():
    with hmc.Session(rank=0, buffer_size=64, listen="tcp://127.0.0.1:0") as a:
        b = hmc.Session(rank=1, buffer_size=64)
        b.connect(0, a.addresses[0])
        assert a._core._waits == (30.0, math.inf)
        ended = []

        def wait():
            try:
                a.ctrl_recv(1)
            except hmc.HMCStatusError as e:
                ended.append(type(e))

        waiter = threading.Thread(target=wait)
        waiter.start()
        asleep(waiter)
        b.close()
        waiter.join(20)
        assert ended and issubclass(ended[0], (hmc.PeerDead, hmc.Closed))


@pytest.fixture
def unchosen():
    """Two connected sessions for which nobody chose a time, and for which 30 s are 0.2 s."""
    with hmc.Session(rank=0, buffer_size=64, listen="tcp://127.0.0.1:0", _unchosen_deadline=0.2) as a, \
            hmc.Session(rank=1, buffer_size=64, _unchosen_deadline=0.2) as b:
        b.connect(0, a.addresses[0])
        assert a._core._waits == b._core._waits == (0.2, math.inf)
        yield a, b


def _after_six_deadlines(call):
    """Calls it 1.2 s from now, as what the other end has come to waits for."""
    def run():
        time.sleep(1.2)  # six times the deadline, which is what is tested
        call()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_late_member_breaks_no_alltoall(unchosen):
    groups = [s._core._group([0, 1]) for s in unchosen]
    for _ in range(2):
        out = [bytearray(2), bytearray(2)]
        other = _after_six_deadlines(lambda: groups[1].alltoall(b"cd", out[1], "direct", None))
        groups[0].alltoall(b"ab", out[0], "direct", None)
        other.join()
        assert out == [b"ac", b"bd"]
    # What is not of the C++ HMC has the limit, and so has alltoall when it is given one.
    assert 0.15 < _late(lambda: groups[0].barrier(None)) < 1


def test_a_limit_for_alltoall_holds(unchosen):
    group = unchosen[0]._core._group([0, 1])
    assert _late(lambda: group.alltoall(b"ab", bytearray(2), "direct", 0.05)) < 1


def test_calls_of_the_cxx_hmc_wait_for_who_is_late(unchosen):
    a, b = unchosen
    tag = _after_six_deadlines(lambda: b.ctrl_send(0, 7))
    assert a.ctrl_recv(1) == 7
    out, conn = bytearray(4), hmc.ConnType.TCP
    data = _after_six_deadlines(lambda: b.peer(0).send_data(b"late"))
    assert a.recv_data_from("127.0.0.1", 1, out, 4, hmc.MemoryType.CPU, 0, conn) == 4 and out == b"late"
    taken = _after_six_deadlines(lambda: b.peer(0).recv_data(out))
    a.send_data_to("127.0.0.1", 1, b"sent", 4, hmc.MemoryType.CPU, conn)
    for thread in (tag, data, taken):
        thread.join()
    assert out == b"sent"


TARGET = """
    import hmc, sys
    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=4096, heartbeat=None) as s:
        print(s.address)
        sys.stdin.readline()
"""

#: Calls of the C++ HMC that a peer which is stopped keeps.
KEPT = {
    "put_remote": lambda s, *there: s.put_remote(*there),
    "get_remote": lambda s, *there: s.get_remote(*there),
    "wait": lambda s, *there: s.wait(s.put_nb(*there)),
    "wait for a list": lambda s, *there: s.wait([s.put_nb(*there), s.get_nb(*there)]),
}


@pytest.mark.parametrize("call", KEPT)
def test_transfers_of_the_cxx_hmc_wait_for_a_peer_that_is_stopped(run, call):
    target = run(TARGET)
    with hmc.Session(rank=1, buffer_size=4096, heartbeat=None, redial=False, _unchosen_deadline=0.2) as s:
        peer = s.connect(0, target.line(), hmc.ConnType.TCP, timeout=LIMIT)
        target.stop()
        late = _after_six_deadlines(lambda: target.signal(signal.SIGCONT))
        start = time.monotonic()
        KEPT[call](s, "127.0.0.1", 2025, 0, 0, 4096, hmc.ConnType.TCP)
        assert time.monotonic() - start > 1
        late.join()
        # What is not of the C++ HMC has the limit.
        target.stop()
        assert 0.15 < _late(lambda: peer.put(nbytes=4096)) < 5
        target.signal(signal.SIGCONT)
        target.tell()


#: Ways to begin a put of 8 bytes, each with what waits for all of them.
WAYS = {
    "peer": (lambda s, peer: peer.put_nb(nbytes=8), lambda s, ops: [op.wait() for op in ops]),
    "session": (lambda s, peer: s.put_nb("127.0.0.1", 2025, 0, 0, 8, hmc.ConnType.TCP), lambda s, ops: s.wait(ops)),
    "binding": (lambda s, peer: s.comm.putNB("127.0.0.1", 2025, 0, 0, 8, hmc.ConnType.TCP),
                lambda s, ops: [s.comm.wait(op[1]) for op in ops]),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_put_for_which_there_is_no_space_waits(run, way):
    """The 129th, while none of the others can end: the peer is stopped."""
    begin, wait = WAYS[way]
    target = run(TARGET)
    with hmc.Session(rank=1, buffer_size=4096, heartbeat=None) as s:
        peer = s.connect(0, target.line(), hmc.ConnType.TCP)
        target.stop()
        ops, last = [begin(s, peer) for _ in range(128)], []
        thread = threading.Thread(target=lambda: last.append(begin(s, peer)))
        thread.start()
        asleep(thread)
        assert thread.is_alive() and not last
        target.signal(signal.SIGCONT)
        thread.join(LIMIT)
        assert len(last) == 1
        wait(s, ops + last)
        assert s.stats()["peers"][0]["puts"] == 129
        target.tell()


def test_a_put_for_which_there_is_no_space_waits_no_longer_than_it_may(run):
    target = run(TARGET)
    with hmc.Session(rank=1, buffer_size=4096, heartbeat=None, redial=False, deadline=0.3) as s:
        peer = s.connect(0, target.line(), hmc.ConnType.TCP, timeout=LIMIT)
        target.stop()
        ops = [peer.put_nb(nbytes=8) for _ in range(128)]
        assert 0.25 < _late(lambda: peer.put_nb(nbytes=8)) < 5
        target.signal(signal.SIGCONT)
        for op in ops:
            try:
                op.wait(timeout=LIMIT)
            except hmc.DeadlineExceeded:
                pass  # its own deadline
        target.tell()


@pytest.fixture
def begun(run):
    """A session, the process of a peer that is stopped, and the numbers of 40 puts to it, of which none can end."""
    target = run(TARGET)
    with hmc.Session(rank=1, buffer_size=4096, heartbeat=None, redial=False) as s:
        s.connect(0, target.line(), hmc.ConnType.TCP, timeout=LIMIT)
        target.stop()
        yield s, target, [s.put_nb("127.0.0.1", 2025, 0, 0, 8, hmc.ConnType.TCP) for _ in range(40)]
        target.signal(signal.SIGCONT)


def test_a_list_of_transfers_has_one_time(begun):
    """The timeout is that of the call. With one for each number the call would take 20 s."""
    s, target, numbers = begun
    for given in (numbers, iter(numbers), numbers[::-1]):
        assert 0.45 < _late(lambda: s.wait(given, timeout=0.5)) < 5
    # None of them was taken: all can be waited for again.
    target.signal(signal.SIGCONT)
    s.wait(numbers, timeout=LIMIT)
    for number in numbers:
        with pytest.raises(hmc.NotFound):
            s.wait(number)


def test_ended_transfers_are_taken_with_a_timeout_of_zero(begun):
    s, target, numbers = begun
    target.signal(signal.SIGCONT)
    s.wait(numbers[:20], timeout=LIMIT)
    until("all have ended", lambda: not s.stats()["peers"][0]["in_flight"])
    s.wait(numbers[20:], timeout=0)


def test_the_transfers_of_another_name_go_on(run):
    """Those that were begun by the name that is ended are cancelled, and no others."""
    target, TCP = run(TARGET), hmc.ConnType.TCP
    with hmc.Session(rank=1, buffer_size=4096, heartbeat=None, redial=False) as s:
        port = int(target.line().rsplit(":", 1)[1])
        for name in (1, 2):
            s.connect(peer_id=0, self_id=1, peer_ip="127.0.0.1", data_port=name, ctrl_tcp_port=port, conn=TCP, timeout=LIMIT)
        target.stop()
        ended, others = ([s.put_nb("127.0.0.1", name, 0, 0, 8, TCP) for _ in range(3)] for name in (1, 2))
        s.disconnect("127.0.0.1", 1, TCP, timeout=0)
        for number in ended:
            with pytest.raises(hmc.Cancelled):
                s.wait(number)
        for number in others:
            with pytest.raises(hmc.DeadlineExceeded):
                s.wait(number, timeout=0)
        target.signal(signal.SIGCONT)
        s.wait(others, timeout=LIMIT)
        target.tell()


def test_the_transfers_of_a_name_end_within_one_time(begun):
    """Transfers that have not ended are cancelled, and a later wait for them raises that."""
    s, _, numbers = begun
    assert 0.45 < _late(lambda: s.disconnect("127.0.0.1", 2025, hmc.ConnType.TCP, timeout=0.5)) < 5
    for number in numbers:
        with pytest.raises(hmc.Cancelled):
            s.wait(number)
        with pytest.raises(hmc.NotFound):
            s.wait(number)
