"""Collectives over processes: worlds of 1 to 8, all dtypes, all ways to meet."""

import array
import threading
import time
import types

import numpy as np
import pytest

import hmc
from conftest import LIMIT, free_port, written

ELEMENTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


def members(world, work, rendezvous):
    """Runs ``work(group)`` as each member of a world, in threads; what they gave."""
    results, failures = [None] * world, [None] * world

    def one(rank):
        try:
            with hmc.Session(hmc.IOBuffer.create(buffer_size=4096)) as session:
                group = hmc.init_group(session=session, rank=rank, world_size=world, rendezvous=rendezvous, timeout=30)
                results[rank] = work(group)
                group.barrier()
        except BaseException as e:
            failures[rank] = e

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(world)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    for failure in failures:
        if failure is not None:
            raise failure
    assert not any(t.is_alive() for t in threads), "a member still waits"
    return results


@pytest.fixture
def meet(tmp_path):
    return f"file://{tmp_path}/meet"


@pytest.mark.parametrize("world", range(1, 9))
@pytest.mark.parametrize("algo", ["auto", "direct", "ring"])
def test_alltoall(world, algo, meet):
    def work(group):
        send = np.arange(world * 5, dtype=np.int32) + 1000 * group.rank
        recv = np.full_like(send, -1)
        assert hmc.alltoall(group, send, recv, algo=algo) is recv
        return recv.reshape(world, 5)

    for rank, got in enumerate(members(world, work, meet)):
        want = [[1000 * other + rank * 5 + i for i in range(5)] for other in range(world)]
        assert (got == want).all(), (rank, got)


@pytest.mark.parametrize("world", [1, 2, 3, 5, 8])
def test_all_the_others(world, meet):
    rng = np.random.default_rng(3)
    data = rng.integers(0, 100, (world, world, 7)).astype(np.float64)

    def work(group):
        r = group.rank
        assert group.world_size == world == len(group) and group.peer(r).world == world
        assert (group.left.rank, group.right.rank) == ((r - 1) % world, (r + 1) % world)
        one = data[r, r].copy()
        group.broadcast(one, root=world - 1)
        assert (one == data[world - 1, world - 1]).all()
        every = np.empty((world, 7))
        group.allgather(data[r, 0], every)
        assert (every == data[:, 0]).all()
        part = np.empty(7)
        group.reduce_scatter(data[r], part)
        assert (part == data[:, r].sum(axis=0)).all()
        total = data[r].copy()
        group.allreduce(total)
        assert (total == data.sum(axis=0)).all()
        most = data[r].copy()
        group.allreduce(most, "max")
        assert (most == data.max(axis=0)).all()
        last = world - 1
        gathered = np.empty((world, 7)) if r == last else None
        group.gather(data[r, 1 % world], gathered, root=last)
        assert r != last or (gathered == data[:, 1 % world]).all()
        mine = np.empty(7)
        group.scatter(data[2 % world] if r == last else None, mine, root=last)
        assert (mine == data[2 % world, r]).all()

    members(world, work, meet)


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_dtypes_are_reduced(dtype, meet):
    def work(group):
        mine = (np.arange(100) % 5 + group.rank).astype(dtype)
        return [group.allreduce(mine.copy(), op) for op in ("sum", "prod", "min", "max")]

    inputs = [(np.arange(100) % 5 + rank).astype(dtype) for rank in range(3)]
    for got in members(3, work, meet):
        with np.errstate(over="ignore"):
            want = [sum(inputs[1:], inputs[0]), inputs[0] * inputs[1] * inputs[2], np.minimum.reduce(inputs),
                    np.maximum.reduce(inputs)]
        for g, w in zip(got, want):
            assert g.dtype == w.dtype and (g == w).all()


@pytest.mark.parametrize("count", [600, 600_000])
def test_numbers_that_another_thread_writes_meanwhile(count, meet):
    """What comes out is made of what was there at some time: here of ones and twos."""
    world = 2

    def work(group):
        every, parts = np.ones(count, np.uint8), np.ones((world, count), np.uint8)
        total, most = np.ones(count, np.uint8), np.ones(count, np.uint8)
        results = []
        with written(every, parts):
            for root in range(world):
                group.broadcast(every, root)
                got = np.zeros((world, count), np.uint8)
                group.allgather(every, got)
                results += [got, group.alltoall(parts, np.zeros_like(parts)), group.reduce_scatter(parts, most.copy(), "max")]
        with written(total):
            group.allreduce(total, "max")
        return results + [every, total]

    for got in members(world, work, meet):
        assert all(np.isin(array, (1, 2)).all() for array in got)


def test_bools_stay_bools(meet):
    def work(group):
        mine = np.array([True, False, group.rank == 0])
        one = np.empty(1, bool)
        return [group.allreduce(mine.copy(), op) for op in ("sum", "prod", "max", "min")], group.reduce_scatter(mine[:2], one)

    for r, (got, one) in enumerate(members(2, work, meet)):
        assert [list(g.view(np.uint8)) for g in got] == [[1, 0, 1], [1, 0, 0]] * 2
        assert one.view(np.uint8) == [1, 0][r]


def test_numbers_are_reduced_as_what_they_are(meet):
    def work(group):
        with pytest.raises(hmc.InvalidArgument, match=">f4"):
            group.allreduce(np.ones(2, ">f4"))
        return group.allreduce(array.array("b", [-1 - group.rank, 3]), "max"), group.allreduce(array.array("d", [0.5]))

    for b, d in members(2, work, meet):
        assert list(b) == [-1, 3] and list(d) == [1.0]


def test_members_meet_at_an_address():
    got = members(4, lambda g: g.allreduce(np.ones(3, np.float32)), f"tcp://127.0.0.1:{free_port()}")
    assert all((g == 4).all() for g in got)


def test_members_meet_at_a_name():
    got = members(2, lambda g: g.allreduce(np.ones(1)), f"tcp://localhost:{free_port()}")
    assert all(g == 2 for g in got)


@pytest.mark.parametrize("where", ["127.0.0.1", "tcp://127.0.0.1", "tcp://:5", "file:x", "http://127.0.0.1:5"])
@pytest.mark.parametrize("rank", [0, 1])
def test_places_to_meet_that_cannot_be(where, rank):
    with hmc.create_session(buffer_size=64) as session:
        with pytest.raises(hmc.InvalidArgument, match="rendezvous="):
            hmc.init_group(session=session, rank=rank, world_size=2, rendezvous=where, timeout=1)


@pytest.mark.parametrize("timeout", [float("nan"), -1, float("-inf")])
def test_times_that_cannot_be(timeout, meet):
    with hmc.create_session(buffer_size=64) as session:
        with pytest.raises(hmc.InvalidArgument, match="timeout="):
            hmc.init_group(session=session, rank=0, world_size=2, rendezvous=meet, timeout=timeout)


@pytest.mark.parametrize("places", [[(0, 3), (1, 3), (1, 3)], [(0, 2), (1, 3), (2, 3)]])
def test_members_that_do_not_fit_together(places):
    """Sessions with ranks of their own, at places that two have or of another size."""
    where, failed = f"tcp://127.0.0.1:{free_port()}", []

    def one(own, place, world):
        with hmc.Session(rank=own, listen="tcp://127.0.0.1:0", buffer_size=64) as session:
            with pytest.raises(hmc.HMCError) as e:
                hmc.init_group(session=session, rank=place, world_size=world, rendezvous=where, start_servers=False, timeout=3)
            failed.append(e.value)

    threads = [threading.Thread(target=one, args=(10 + i, *place)) for i, place in enumerate(places)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(failed) == 3 and any(isinstance(e, hmc.InvalidArgument) for e in failed), failed


def test_what_cannot_be_is_refused_before_anything_moves(meet):
    def work(group):
        for broken, what in (
            (lambda: group.allreduce(np.zeros(2, np.complex64)), "complex64"),
            (lambda: group.allreduce(np.zeros(2), "mean"), "op="),
            (lambda: group.alltoall(np.zeros(4), np.zeros(4), algo="tree"), "algo="),
            (lambda: group.allgather(np.zeros(2), np.zeros(4, np.int64)), "float64"),
            (lambda: group.allgather(np.zeros(2), np.zeros(3)), "bytes"),
            (lambda: group.alltoall(np.zeros(3), np.zeros(3)), "blocks"),
            (lambda: group.broadcast(np.zeros(3), root=2), "root"),
            (lambda: group.allreduce(np.zeros((4, 4)).T), "contiguous"),
            (lambda: group.alltoall(x := np.zeros(4), x[::1]), "share memory"),
            (lambda: group.alltoall((x := np.zeros(8))[:4], x[3:7]), "share memory"),
            (lambda: group.alltoall((x := np.zeros(8))[3:7], x[:4]), "share memory"),
            (lambda: group.allgather((x := np.zeros(4))[2:], x), "share memory"),
        ):
            with pytest.raises(hmc.InvalidArgument, match=what):
                broken()
        return group.allreduce(np.ones(1))

    assert all(g == 2 for g in members(2, work, meet))


def test_adjacent_arrays_are_accepted(meet):
    def work(group):
        both = np.arange(8.0) + 10 * group.rank
        group.alltoall(both[:4], both[4:])
        group.alltoall(both[4:], both[:4])
        return both

    a, b = members(2, work, meet)
    assert list(a) == [0, 1, 2, 3, 0, 1, 10, 11]
    assert list(b) == [10, 11, 12, 13, 2, 3, 12, 13]


def test_the_own_block_can_be_left_alone(meet):
    def work(group):
        recv = np.full(4, -1.0)
        hmc.alltoall(group, np.arange(4.0), recv, do_self_copy=False, send_bias=100)
        return recv

    a, b = members(2, work, meet)
    assert list(a) == [-1, -1, 0, 1] and list(b) == [2, 3, -1, -1]


def test_a_member_that_never_comes(meet):
    with hmc.Session(hmc.IOBuffer.create(buffer_size=0)) as session:
        with pytest.raises(hmc.DeadlineExceeded):
            hmc.init_group(session=session, rank=0, world_size=2, rendezvous=meet, timeout=0.5)


def test_places_that_cannot_be():
    with hmc.Session(hmc.IOBuffer.create(buffer_size=0)) as session:
        for broken in (dict(), dict(rank=2, world_size=2), dict(rank=0, world_size=2)):
            with pytest.raises(hmc.InvalidArgument):
                hmc.init_group(session=session, **broken)


MEMBER = """
import sys, time, hmc
import numpy as np
rank, where = int(sys.argv[1]), sys.argv[2]
session = hmc.create_session(buffer_size=4096)
group = hmc.init_group(session=session, my_ip="127.0.0.1", port_ucx=25000 + rank, port_rdma=26000 + rank, port_ctrl=0,
                       rendezvous=where, rank=rank, world_size=3)
recv = np.empty(3)
group.alltoall(np.arange(3.0) + 10 * rank, recv)
assert list(recv) == [rank, 10 + rank, 20 + rank]
print("met", flush=True)
if sys.argv[3] == "dies" and rank == 1:
    sys.stdin.readline()
begun = time.monotonic()
try:
    while True:
        group.allreduce(np.ones(1000))
except hmc.PeerDead as e:
    print("dead", e.peer, flush=True)
    try:
        group.barrier()
    except hmc.HMCError as e:
        print("broken", flush=True)
"""


def test_a_member_that_is_killed_ends_it_for_all(run, meet):
    processes = [run(MEMBER, rank, meet, "dies") for rank in range(3)]
    for p in processes:
        p.expect("met")
    killed = time.monotonic()
    processes[1].kill()
    for p in (processes[0], processes[2]):
        assert p.line().startswith("dead")
        assert time.monotonic() - killed < 3
        p.expect("broken")
        p.end()


def test_torch_distributed_brings_members_together(run, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    script = """
import sys, torch, hmc
import torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
session = hmc.create_session(buffer_size=4096)
group = hmc.init_group(session=session, my_ip="127.0.0.1", port_ucx=25000, port_rdma=26000, port_ctrl=0)
send, recv = torch.arange(4.0) + 10 * rank, torch.empty(4)
hmc.alltoall(group, send, recv)
assert recv.tolist() == [2 * rank, 2 * rank + 1, 10 + 2 * rank, 11 + 2 * rank]
x = torch.ones(5, dtype=torch.bfloat16)
assert torch.equal(group.allreduce(x), torch.full((5,), 2.0, dtype=torch.bfloat16))
group.barrier()
"""
    for p in [run(script, rank, tmp_path / "store") for rank in range(2)]:
        p.end()


def test_a_member_that_comes_late_to_torch_is_no_obstacle(monkeypatch):
    """As torch waits for it, by a limit of its own. A clock that has gone 36 s ahead when all have come."""
    ahead, told, all_came = [0], [], threading.Barrier(2)

    class Distributed:
        @staticmethod
        def all_gather_object(found, table):
            told.append(table)
            all_came.wait(LIMIT)
            ahead[0] = 36
            found[:] = told

    monkeypatch.setattr("hmc.collective._torch_distributed", lambda: Distributed)
    monkeypatch.setattr("hmc.deadline.time", types.SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0]))
    results = []

    def one(rank):
        try:
            with hmc.create_session(buffer_size=64) as session:
                group = hmc.init_group(session=session, rank=rank, world_size=2)
                results.append(int(group.allreduce(np.ones(1, int))[0]))
                group.barrier()
        except BaseException as e:
            results.append(e)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(LIMIT)
    assert results == [2, 2]


@pytest.mark.parametrize("way", ["tcp", "file"])
def test_members_meet_again(way, tmp_path):
    """A second group over the same sessions, beside a peer that is no member; a folder that served before."""
    where = f"tcp://127.0.0.1:{free_port()}" if way == "tcp" else f"file://{tmp_path}"
    got, failed = [], []
    with hmc.Session(rank=9, buffer_size=64) as other:
        def one(rank):
            try:
                with hmc.Session(rank=rank, listen="tcp://127.0.0.1:0", buffer_size=64) as session:
                    if rank == 0:
                        other.connect(0, session.address)
                        session.peer(9)
                    for i in range(3):
                        group = hmc.init_group(session=session, rank=rank, world_size=3, rendezvous=where, start_servers=False,
                                               timeout=20)
                        one = np.full(1, rank + i)
                        got.append(int(group.allreduce(one)[0]))
                        group.barrier()
            except BaseException as e:
                failed.append(e)

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
    assert not failed, failed
    assert sorted(got) == [3] * 3 + [6] * 3 + [9] * 3
    assert not list(tmp_path.iterdir())


def test_members_of_another_group_are_told_apart():
    where, failed = f"tcp://127.0.0.1:{free_port()}", []

    def one(rank, group_id):
        with hmc.Session(hmc.IOBuffer.create(buffer_size=64)) as session:
            with pytest.raises((hmc.InvalidArgument, hmc.DeadlineExceeded, hmc.PeerDead, hmc.Closed)) as e:
                hmc.init_group(session=session, rank=rank, world_size=2, rendezvous=where, group_id=group_id, timeout=5)
            failed.append((rank, str(e.value)))

    threads = [threading.Thread(target=one, args=(rank, f"group{rank}")) for rank in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert "'group1'" in dict(failed)[0], failed


def test_members_are_in_the_order_of_their_places(tmp_path):
    """Also where their sessions' ranks are in another one."""
    got, failed = {}, []

    def one(place, rank):
        try:
            with hmc.Session(rank=rank, listen="tcp://127.0.0.1:0", buffer_size=64) as session:
                group = hmc.init_group(session=session, rank=place, world_size=2, rendezvous=f"file://{tmp_path}",
                                       start_servers=False, port_ucx=100 + place, port_rdma=200 + place)
                got[place] = (group.rank, group.ranks, [m.rank for m in group.members], group.peer(place).rank,
                              group.port_for(hmc.ConnType.UCX), group.port_for(hmc.ConnType.RDMA, 1 - place))
                group.barrier()
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=one, args=args) for args in ((0, 7), (1, 3))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not failed, failed
    assert got == {0: (0, [7, 3], [0, 1], 0, 100, 201), 1: (1, [7, 3], [0, 1], 1, 101, 200)}


CALLS = {
    "barrier": lambda g, t: g.barrier(t), "broadcast": lambda g, t: g.broadcast(np.zeros(2), 1, t),
    "gather": lambda g, t: g.gather(np.zeros(2), np.zeros(4), 0, t), "scatter": lambda g, t: g.scatter(None, np.zeros(2), 1, t),
    "allgather": lambda g, t: g.allgather(np.zeros(2), np.zeros(4), t),
    "alltoall": lambda g, t: g.alltoall(np.zeros(2), np.zeros(2), timeout=t),
    "hmc.alltoall": lambda g, t: hmc.alltoall(g, np.zeros(2), np.zeros(2), timeout=t),
    "reduce_scatter": lambda g, t: g.reduce_scatter(np.zeros(4), np.zeros(2), timeout=t),
    "allreduce": lambda g, t: g.allreduce(np.zeros(2), timeout=t),
}


@pytest.mark.parametrize("call", CALLS)
def test_collectives_end_in_time(call, meet):
    """Member 0 is alone in it: the other one comes when it has given up, and what failed on one is over for all."""
    given_up, took = threading.Event(), []

    def work(group):
        if group.rank == 0:
            begun = time.monotonic()
            try:
                CALLS[call](group, 0.1)
            except hmc.DeadlineExceeded:
                took.append(time.monotonic() - begun)
            finally:
                given_up.set()
        given_up.wait(10)

    with pytest.raises(hmc.HMCError):
        members(2, work, meet)
    assert len(took) == 1 and took[0] < 2, took


def test_a_group_takes_the_transport_that_is_named(meet):
    def one(rank, conns):
        with hmc.Session(hmc.IOBuffer.create(buffer_size=64)) as session:
            group = hmc.init_group(session=session, rank=rank, world_size=3, rendezvous=meet, conn=hmc.ConnType.TCP)
            conns += [p.conn for p in session.peers]
            group.barrier()

    conns = []
    threads = [threading.Thread(target=one, args=(rank, conns)) for rank in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert conns == ["tcp"] * 6


def test_the_environment_says_where_members_meet(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    assert members(2, lambda group: group.allreduce(np.ones(1))[0], None) == [2, 2]
    monkeypatch.delenv("MASTER_PORT")
    with pytest.raises(hmc.InvalidArgument, match="MASTER_PORT"):
        members(2, lambda group: None, None)


@pytest.mark.parametrize("sent, received, shared", [
    ((0, 4), (4, 8), False), ((4, 8), (0, 4), False), ((0, 4), (3, 7), True), ((3, 7), (0, 4), True), ((0, 2), (1, 8), True),
    ((1, 8), (0, 2), True), ((0, 8), (7, 8), True), ((7, 8), (0, 8), True), ((0, 7), (7, 8), False), ((7, 8), (0, 7), False),
    ((2, 4), (2, 4), True), ((0, 8), (4, 4), False), ((4, 4), (0, 8), False), ((0, 0), (0, 0), False),
])
def test_what_is_sent_may_lie_beside_what_is_received(sent, received, shared):
    """Lengths that do not match are another mistake."""
    whole = np.zeros(8, np.uint8)
    with hmc.Session(rank=0, buffer_size=0) as s:
        group, told = s._core._group([0]), ""
        try:
            group.allgather(whole[slice(*sent)], whole[slice(*received)], None)
        except hmc.InvalidArgument as e:
            told = e.msg
        assert ("share memory" in told) == shared, told
        assert (told == "") == (not shared and sent[1] - sent[0] == received[1] - received[0]), told
