"""Operations: waited for, awaited, shared, dropped; what they hold; lists of them."""

import asyncio
import gc
import os
import select
import signal
import threading
import time
import weakref

import numpy as np
import pytest

import hmc
from conftest import LIMIT, asleep, until
from hmc import _hmc


def test_operations(pair):
    a, b, peer, _ = pair
    src = np.arange(1 << 17, dtype=np.uint8)
    ops = [peer.put_nb(src[i << 14:(i + 1) << 14], i << 14) for i in range(8)]
    assert [op.wait() for op in ops] == [1 << 14] * 8
    assert all(op.done() for op in ops) and ops[0].wait() == 1 << 14
    assert b.buffer.read(src.nbytes) == src.tobytes()
    with pytest.raises(hmc.OutOfRange):
        peer.put_nb(src, b.buf.size - 1)


def test_an_operation_knows_the_rank_at_the_other_end(pair):
    _, _, peer, back = pair
    for begin in (lambda to: to.put_nb(b"x"), lambda to: to.prepare_put([(0, 0, 1)], b"x").post()):
        assert [begin(to).peer_rank for to in (peer, back)] == [1, 0]


def test_the_time_of_a_put_is_that_of_one(pair):
    """The sum of all of them passes while they are made."""
    _, _, peer, _ = pair
    begun = time.monotonic()
    mean = peer._time_put(8, 100)
    assert 0 < 100 * mean <= time.monotonic() - begun


def test_operations_that_nobody_waits_for_leave_their_slots(pair):
    _, _, peer, _ = pair

    def begun():
        try:
            peer.put_nb(b"bytes")
            return True
        except hmc.Busy:
            # So many are under way indeed.
            return False

    for _ in range(1000):
        until("a slot is free", begun, limit=10)
    peer.put(b"more")


def test_dropped_operations_take_no_place_for_ever():
    """At most 65,536 operations may have ended without a wait, and 128 may run; dropped operations do not count."""
    with hmc.Session(rank=0, buffer_size=64) as s:
        peer = s.loopback()
        for _ in range(66_000):
            peer.put_nb(nbytes=8)
        assert s.stats()["peers"][0]["puts"] == 66_000


def test_batches(pair):
    a, b, peer, _ = pair
    region = a.register(np.arange(256, dtype=np.uint8))
    batch = peer.prepare_put([(i, 1000 - i, 1) for i in range(256)], region)
    assert len(batch) == 256
    batch.run()
    assert b.buffer.read(256, 745) == bytes(range(255, -1, -1))
    assert batch.post().wait() == 256
    out = np.zeros(10, np.uint8)
    peer.prepare_get([(0, 745, 5), (5, 745, 5)], out).run()
    assert list(out) == [255, 254, 253, 252, 251] * 2
    with pytest.raises(hmc.OutOfRange):
        peer.prepare_put([(0, 0, 1), (250, 0, 10)], region)


def test_asyncio(pair):
    a, b, peer, back = pair
    src = np.arange(100_000, dtype=np.uint8)

    async def main():
        moved = await asyncio.gather(*(peer.put_nb(src, 0) for _ in range(20)))
        assert moved == [src.nbytes] * 20
        out = np.zeros(3_000_000, np.uint8)
        received = back.irecv_data(out)
        sent = peer.isend_data(np.full(3_000_000, 5, np.uint8))
        assert await asyncio.gather(received, sent) == [3_000_000] * 2
        assert (out == 5).all()
        t = np.arange(10)
        got, _ = await asyncio.gather(b.irecv(np.zeros_like(t), 0), a.isend(t, 1))
        assert (got == t).all()
        with pytest.raises(hmc.OutOfRange):
            await peer.put_nb(src, b.buf.size)
        # A task that is cancelled withdraws its operation.
        op = back.irecv_data(bytearray(1))
        task = asyncio.ensure_future(asyncio.wait_for(op, 0.05))
        with pytest.raises(asyncio.TimeoutError):
            await task
        with pytest.raises(hmc.Cancelled):
            op.wait()

    for _ in range(2):
        asyncio.run(main())


def test_loops_that_end_before_their_operations_are_let_go(pair):
    _, _, _, back = pair
    loops, ops = [], []

    async def one(op, begun):
        begun.set_result(None)
        await op

    def wakers():
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return sum(os.readlink(link) == "anon_inode:[eventfd]" for link in links if os.path.lexists(link))

    gc.collect()
    before = wakers()
    for _ in range(5):
        loop = asyncio.new_event_loop()
        ops.append(back.irecv_data(bytearray(1)))
        begun = loop.create_future()
        task = loop.create_task(one(ops[-1], begun))
        task._log_destroy_pending = False
        # The loop is notified after the task's step, which ends where it awaits the operation.
        loop.run_until_complete(begun)
        assert task.get_stack()[-1].f_code is one.__code__ and wakers() > before
        loop.close()
        loops.append(weakref.ref(loop))
        del loop, task, begun
    for op in ops:
        op.cancel()
    del op, ops
    gc.collect()
    assert not any(loop() for loop in loops)
    until("descriptors are closed", lambda: wakers() <= before)


def test_threads_share_an_operation(pair):
    """Its result is one; whoever asks for it gets it."""
    _, _, peer, back = pair
    src = np.zeros(8192, np.uint8)

    def shared(op):
        got = []

        def wait():
            try:
                got.append(op.wait())
            except BaseException as e:
                got.append(e)

        threads = [threading.Thread(target=wait) for _ in range(4)]
        for t in threads:
            t.start()
        while not op.done():
            pass
        op.cancel()
        for t in threads:
            t.join()
        return got

    for _ in range(200):
        assert shared(peer.put_nb(src)) == [src.nbytes] * 4
    for _ in range(50):
        out = bytearray(9)
        op = back.irecv_data(out)
        peer.isend_data(b"a message").wait()
        assert shared(op) == [9] * 4 and out == b"a message"


def test_a_second_waiter_has_a_time_of_its_own(pair):
    """The first thread waits for the same operation with a longer timeout."""
    _, _, peer, back = pair
    op, got = back.irecv_data(bytearray(5)), []
    first = threading.Thread(target=lambda: got.append(op.wait(timeout=LIMIT)))
    first.start()
    asleep(first)
    for timeout in (0, 0.2):
        begun = time.monotonic()
        with pytest.raises(hmc.DeadlineExceeded):
            op.wait(timeout=timeout)
        assert timeout <= time.monotonic() - begun < timeout + 5
    assert first.is_alive() and not op.done()
    peer.send_data(b"12345")
    assert op.wait(timeout=LIMIT) == 5
    first.join(LIMIT)
    assert got == [5]


def test_what_is_done_is_found_by_a_wait_of_no_time(run):
    """Although another thread, which waits for it, has not said yet how it ended."""
    def wait(op):
        # Runs only while no other thread of its processor wants to.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        with pytest.raises(hmc.Cancelled):
            op.wait()

    target = run("""
        import hmc, sys
        with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64, heartbeat=None) as s:
            print(s.address)
            sys.stdin.readline()
    """)
    cpus = os.sched_getaffinity(0)
    with hmc.Session(rank=1, buffer_size=64, heartbeat=None) as s:
        peer = s.connect(0, target.line(), hmc.ConnType.TCP)
        target.stop()
        os.sched_setaffinity(0, {min(cpus)})
        try:
            for _ in range(5):
                op = peer.get_nb(nbytes=64)
                first = threading.Thread(target=wait, args=(op,))
                first.start()
                asleep(first)
                op.cancel()
                with pytest.raises(hmc.Cancelled):
                    op.wait(timeout=0)
                first.join()
        finally:
            os.sched_setaffinity(0, cpus)
        target.signal(signal.SIGCONT)
    target.tell()
    target.end()


@pytest.mark.parametrize("how", ["cancel", "task"])
@pytest.mark.parametrize("way", ["get_nb", "batch", "irecv_data"])
def test_running_operations_can_be_cancelled(run, how, way):
    """By ``cancel`` or with the task that awaits it. The peer is stopped: nothing ends by itself."""
    target = run("""
        import hmc, sys
        with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64, heartbeat=None) as s:
            print(s.address)
            sys.stdin.readline()
    """)
    with hmc.Session(rank=1, buffer_size=64, heartbeat=None, redial=False) as s:
        peer = s.connect(0, target.line(), hmc.ConnType.TCP)
        batch = peer.prepare_get([(0, 0, 8), (8, 8, 8)])
        target.stop()
        op = {"get_nb": lambda: peer.get_nb(nbytes=8), "batch": batch.post, "irecv_data": lambda: peer.irecv_data(bytearray(8))}[way]()

        async def withdraw():
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(op, 0.05)

        assert not op.done()
        if how == "cancel":
            op.cancel()
        else:
            asyncio.run(withdraw())
        for _ in range(2):
            with pytest.raises(hmc.Cancelled):
                op.wait(timeout=5)
        assert op.done()
        op.cancel()
        target.signal(signal.SIGCONT)
        target.tell()


def test_a_descriptor_is_readable_until_its_keys_are_taken(pair):
    """Otherwise an event loop would never sleep again."""
    _, _, peer, back = pair
    waker = _hmc.Waker()
    readable = lambda timeout=0: select.select([waker.fileno()], [], [], timeout)[0] != []
    ops = [back.irecv_data(bytearray(2)) for _ in range(2)]
    assert not any(op._watch(waker, key) for key, op in enumerate(ops, 7))
    assert not readable() and waker.take() == []
    for key in (7, 8):
        peer.send_data(b"ab")
        assert readable(LIMIT)
        until("the key is there", lambda: (taken := waker.take()) and taken == [key])
        assert not readable() and waker.take() == []
    assert all(op._watch(waker, 9) for op in ops)


def test_an_operation_is_awaited_and_waited_for(pair):
    _, _, peer, back = pair

    async def main():
        loop = asyncio.get_running_loop()
        for i in range(100):
            op = back.irecv_data(bytearray(5)) if i % 2 else peer.put_nb(bytes(4096))
            first = asyncio.ensure_future(asyncio.wait_for(op, 20))
            await asyncio.sleep(0)
            other = loop.run_in_executor(None, op.wait, 20)
            second = asyncio.ensure_future(asyncio.wait_for(op, 20))
            await asyncio.sleep(0)
            op.done()
            if i % 2:
                await peer.isend_data(b"12345")
            assert await asyncio.gather(first, other, second) == [5 if i % 2 else 4096] * 3

    asyncio.run(main())


def test_an_operation_is_awaited_on_after_another_s_wait(pair):
    """A thread that gives up its wait makes the loop look, for nothing."""
    _, _, peer, back = pair

    async def main():
        op = back.irecv_data(bytearray(5))
        awaited = asyncio.ensure_future(asyncio.wait_for(op, 20))
        await asyncio.sleep(0)
        with pytest.raises(hmc.DeadlineExceeded):
            await asyncio.get_running_loop().run_in_executor(None, op.wait, 0.05)
        await peer.isend_data(b"12345")
        assert await awaited == 5

    asyncio.run(main())


def test_importing_leaves_the_lock_off():
    """A free-threaded interpreter stays one."""
    import sys

    enabled = getattr(sys, "_is_gil_enabled", None)
    if enabled is None or __import__("sysconfig").get_config_var("Py_GIL_DISABLED") != 1:
        pytest.skip("this interpreter has a global lock; python3.14t has none")
    assert not enabled()


def test_an_array_is_held_while_it_is_used(pair):
    a, b, peer, back = pair
    src = np.zeros(1 << 20, np.uint8)
    gone = weakref.ref(src)
    op = back.irecv_data(src)
    del src
    gc.collect()
    kept = gone()
    assert kept is not None
    peer.send_data(np.ones(1 << 20, np.uint8))
    op.wait()
    assert kept.all()
    del op, kept
    gc.collect()
    # What another thread let go of goes with the next call.
    until("it is let go", lambda: (a.stats(), gc.collect(), gone())[2] is None)


def test_a_bytearray_in_use_cannot_be_resized(pair):
    _, _, peer, back = pair
    out = bytearray(8)
    op = back.irecv_data(out)
    with pytest.raises(BufferError):
        out.extend(b"more")
    peer.send_data(b"12345678")
    op.wait()
    assert out == b"12345678"


def test_many_threads(pair):
    a, b, peer, back = pair
    failed = []

    def work(i):
        try:
            src = np.full(4096, i, np.uint8)
            out = np.empty_like(src)
            for _ in range(200):
                peer.put(src, i * 4096)
                peer.get(out, i * 4096)
                assert (out == i).all()
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed


def test_waits_let_other_threads_run(pair):
    _, _, _, back = pair
    ticks = []
    thread = threading.Thread(target=lambda: [ticks.append(time.monotonic()) or time.sleep(0.001) for _ in range(100)])
    thread.start()
    with pytest.raises(hmc.DeadlineExceeded):
        back.recv_tag(timeout=1.5)
    thread.join()
    # With the interpreter in the hand of the wait there would be one gap of 1.5 s.
    assert len(ticks) == 100 and max(b - a for a, b in zip(ticks, ticks[1:])) < 0.75


def test_all_transfers_of_a_list_are_waited_for(run, monkeypatch):
    """Whatever becomes of each, and none if one of them is unknown."""
    TCP = hmc.ConnType.TCP
    dies = run("""
    import sys, hmc
    s = hmc.Session(rank=1, listen="tcp://127.0.0.1:0", buffer_size=4096)
    print(s.address)
    sys.stdin.readline()
    """)
    monkeypatch.setenv("HMC_NO_CMA", "1")
    with hmc.Session(rank=2, listen="tcp://127.0.0.1:0", buffer_size=4096) as b, hmc.Session(rank=0, buffer_size=4096) as a:
        for rank, address in ((1, dies.line()), (2, b.address)):
            a.connect(peer_id=rank, self_id=0, peer_ip="127.0.0.1", data_port=rank, conn=TCP,
                      ctrl_tcp_port=int(address.rsplit(":", 1)[1]))
        dies.stop()
        first, second = a.put_nb("127.0.0.1", 1, nbytes=4096, conn=TCP), a.get_nb("127.0.0.1", 2, nbytes=4096, conn=TCP)
        none = 1 << 62
        with pytest.raises(hmc.NotFound, match=str(none)):
            a.wait([second, none])
        with pytest.raises(hmc.DeadlineExceeded) as e:
            a.wait(first, timeout=0)
        assert e.value.peer == 1 and e.value.op
        dies.signal(signal.SIGKILL)
        with pytest.raises(hmc.PeerDead) as e:
            a.wait([first, second])
        assert (e.value.kind, e.value.peer) == ("peer_dead", 1)
        for number in (first, second):
            with pytest.raises(hmc.NotFound):
                a.wait(number)


def test_a_number_of_one_session_is_none_of_another():
    """Whoever hands a number to the wrong session is told, and takes nobody's result."""
    def pair(rank):
        target = hmc.Session(rank=rank, listen="tcp://127.0.0.1:0", buffer_size=64)
        source = hmc.Session(rank=0, buffer_size=64)
        source.connect(peer_id=rank, self_id=0, peer_ip="127.0.0.1", data_port=rank, conn=hmc.ConnType.TCP,
                       ctrl_tcp_port=int(target.address.rsplit(":", 1)[1]))
        return target, source

    (t1, one), (t2, other) = pair(1), pair(1)
    with t1, one, t2, other:
        tcp = hmc.ConnType.TCP
        first = one.put_nb("127.0.0.1", 1, nbytes=8, conn=tcp)
        second = other.put_nb("127.0.0.1", 1, nbytes=8, conn=tcp)
        with pytest.raises(hmc.NotFound, match=str(first)):
            other.wait(first)
        other.wait(second)
        one.wait(first)


def test_a_number_that_is_waited_for_while_its_name_is_ended(run, monkeypatch):
    """The outcome goes to the thread that waits, although the one that ends the name learns of it first."""
    tcp, told = hmc.ConnType.TCP, []
    stopped = run("""
    import sys, hmc
    s = hmc.Session(rank=1, listen="tcp://127.0.0.1:0", buffer_size=4096)
    print(s.address)
    sys.stdin.readline()
    """)
    monkeypatch.setenv("HMC_NO_CMA", "1")
    with hmc.Session(rank=0, buffer_size=4096) as a:
        port = int(stopped.line().rsplit(":", 1)[1])
        for data_port in (1, 2):
            a.connect(peer_id=1, self_id=0, peer_ip="127.0.0.1", data_port=data_port, conn=tcp, ctrl_tcp_port=port)
        stopped.stop()

        def wait(number):
            try:
                told.append(a.wait(number))
            except hmc.HMCError as e:
                told.append(type(e))

        numbers = [a.put_nb("127.0.0.1", 1, nbytes=64, conn=tcp) for _ in range(8)]
        threads = [threading.Thread(target=wait, args=(number,)) for number in numbers]
        for t in threads:
            t.start()
            asleep(t)
        a.disconnect("127.0.0.1", 1, tcp, timeout=0)
        for t in threads:
            t.join(LIMIT)
        assert told == [hmc.Cancelled] * 8
        stopped.signal(signal.SIGCONT)
