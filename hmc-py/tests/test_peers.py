"""The newer surface: peers, regions, windows, operations, batches, tensors by rank."""

import array
import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import threading
import time
import weakref

import numpy as np
import pytest

import hmc
from conftest import free_port, until
from hmc import tensors


def test_regions_move_without_a_staging_copy(pair):
    a, b, peer, back = pair
    src = np.arange(1000, dtype=np.float64)
    region = a.register(src)
    assert region.ptr == src.__array_interface__["data"][0] and region.array is src and len(region) == src.nbytes
    peer.put(region, remote_offset=64)
    assert bytes(b.buffer.read(src.nbytes, 64)) == src.tobytes()
    dst = np.zeros_like(src)
    back.get(b.register(dst), nbytes=0)
    a.buffer.write(src)
    back.get(b.register(dst), remote_offset=0)
    assert (dst == src).all()
    assert a.stats()["peers"][1]["bytes_out"] > 0 or peer.conn == "shm"


def test_arrays_are_used_where_they_lie(pair):
    a, b, peer, _ = pair
    src = np.arange(100, dtype=np.int16)
    peer.put(src, 10)
    out = np.zeros_like(src)
    peer.get(out, 10)
    assert (out == src).all()
    peer.put(b"raw", 0)
    part = np.zeros(100, np.int16)
    peer.get(part, 10, local_offset=20, nbytes=40)
    assert (part[10:30] == src[:20]).all() and not part[:10].any() and not part[30:].any()
    with pytest.raises(hmc.InvalidArgument, match="read-only"):
        peer.get(b"frozen", 0)
    with pytest.raises(hmc.InvalidArgument, match="C-contiguous"):
        peer.get(np.zeros((4, 4)).T, 0)


def test_windows_of_arrays(pair):
    a, b, peer, back = pair
    target = np.zeros(4096, np.uint8)
    region = b.register(target)
    with back.expose(region, 7, access="rw") as window:
        assert window.nbytes == 4096
        remote = peer.window(7)
        assert remote.nbytes == 4096
        peer.put(np.full(100, 9, np.uint8), 50, window=remote)
        assert target[50] == 9 and target[149] == 9 and target[150] == 0 and target[49] == 0
        with pytest.raises(hmc.OutOfRange) as e:
            peer.put(bytes(10), 4090, window=remote)
        assert (e.value.side, e.value.offset, e.value.length, e.value.limit) == ("remote", 4090, 10, 4096)
    with pytest.raises((hmc.Revoked, hmc.NotFound)):
        peer.put(bytes(10), 0, window=remote)


def test_read_only_arrays_are_sources(pair):
    a, b, peer, back = pair
    frozen = np.arange(10)
    frozen.flags.writeable = False
    region = a.register(frozen)
    assert region.readonly
    peer.put(region)
    for broken in (lambda: peer.get(region), lambda: region.write(b"x"), lambda: region.fill(0),
                   lambda: peer.expose(region, 1, access="rw")):
        with pytest.raises(hmc.InvalidArgument, match="read-only"):
            broken()
    window = peer.expose(region, 1, access="r")
    out = np.zeros(10, frozen.dtype)
    back.get(out, window=back.window(1))
    assert (out == frozen).all()
    with pytest.raises(hmc.Revoked):
        back.put(out, window=back.window(1))
    window.revoke()
    assert memoryview(region).readonly
    with pytest.raises(BufferError):
        region.__dlpack__()


def test_allocated_memory_is_an_array(pair):
    a, b, peer, back = pair
    region = b.allocate(1 << 16)
    array = np.frombuffer(region, np.int32)
    window = back.expose(region, 3)
    remote = peer.window(3)
    peer.put(np.arange(100, dtype=np.int32), 400, window=remote)
    assert (array[100:200] == np.arange(100)).all()
    window.revoke()


def test_notifications_follow_their_bytes(pair):
    a, b, peer, back = pair
    for i in range(100):
        peer.put_notify(bytes([i]) * 1000, 1000 + i)
        assert back.recv_notify() == 1000 + i
        assert b.buffer.read(1000) == bytes([i]) * 1000
    op = peer.put_nb(b"x", notify=5)
    op.wait()
    assert back.recv_tag(tag=5) == 5


def test_operations(pair):
    a, b, peer, _ = pair
    src = np.arange(1 << 17, dtype=np.uint8)
    ops = [peer.put_nb(src[i << 14:(i + 1) << 14], i << 14) for i in range(8)]
    assert [op.wait() for op in ops] == [1 << 14] * 8
    assert all(op.done() for op in ops) and ops[0].wait() == 1 << 14
    assert b.buffer.read(src.nbytes) == src.tobytes()
    with pytest.raises(hmc.OutOfRange):
        peer.put_nb(src, b.buf.size - 1)


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


def test_tags_and_small_messages(pair):
    a, b, peer, back = pair
    for tag in (0, 1, 2**64 - 1):
        peer.send_tag(tag)
    peer.send(b"bytes")
    peer.send(np.arange(3, dtype=np.uint8))
    assert back.recv_tag(tag=2**64 - 1) == 2**64 - 1
    assert back.recv() == b"bytes" and back.recv() == bytes([0, 1, 2])
    assert [back.recv_tag(), back.recv_tag()] == [0, 1]
    with pytest.raises(hmc.DeadlineExceeded) as e:
        back.recv_tag(timeout=0.05)
    assert isinstance(e.value, TimeoutError) and e.value.peer == 0 and e.value.status == hmc.status_t.TIMEOUT
    with pytest.raises(hmc.OutOfRange):
        peer.send(bytes((1 << 20) + 1))
    for bad in (-1, 2**64):
        with pytest.raises(OverflowError):
            peer.send_tag(bad)


def test_messages_of_any_size(pair):
    a, b, peer, back = pair
    data = np.random.default_rng(1).integers(0, 256, 9_000_001, np.uint8)
    out = np.zeros_like(data)
    thread = threading.Thread(target=lambda: peer.send_data(data))
    thread.start()
    assert back.recv_data(out) == data.nbytes
    thread.join()
    assert (out == data).all()
    op = back.irecv_data(bytearray(4))
    with pytest.raises(hmc.InvalidArgument):
        peer.send_data(b"too long")
    with pytest.raises(hmc.InvalidArgument):
        op.wait()
    op = back.irecv_data(bytearray(4))
    assert not op.done()
    with pytest.raises(hmc.DeadlineExceeded):
        op.wait(timeout=0.05)
    op.cancel()
    with pytest.raises(hmc.Cancelled):
        op.wait()


def test_tensors_by_rank(pair):
    a, b, _, _ = pair
    rng = np.random.default_rng(7)
    tensors = [rng.standard_normal((3, 5)), np.arange(7, dtype=np.int8), np.float32(2.5) * np.ones(()), np.zeros((0, 2))]
    outs = [np.empty_like(t) for t in tensors]
    received = b.batch_isend_irecv([hmc.P2POp("recv", o, 0, i) for i, o in enumerate(outs)])
    for op in a.batch_isend_irecv([hmc.P2POp("send", t, 1, i) for i, t in enumerate(tensors)]):
        op.wait()
    for op, out, t in zip(received, outs, tensors):
        assert op.wait() is out and (out == t).all()
    sent = a.isend(tensors[0], 1)
    fresh = b.recv(src=0)
    sent.wait()
    assert fresh.dtype == tensors[0].dtype and (fresh == tensors[0]).all()


def test_tensors_that_do_not_match_say_so(pair):
    a, b, _, _ = pair
    op = b.irecv(np.zeros(4, np.int32), 0)
    a.send(np.zeros(4, np.float32), 1)
    with pytest.raises(hmc.InvalidArgument, match="float32"):
        op.wait()
    op = b.irecv(np.zeros(4, np.int32), 0, tag=3)
    a.send(np.zeros(4, np.int32), 1, tag=4)
    with pytest.raises(hmc.InvalidArgument, match="tag 4"):
        op.wait()
    op = b.irecv(np.zeros((2, 6), np.int8), 0)
    a.send(np.zeros((3, 4), np.int8), 1)
    with pytest.raises(hmc.InvalidArgument, match=r"int8\[3, 4\] came into one of int8\[2, 6\]"):
        op.wait()
    # Longer than its place: what came is told, not only that it is too long.
    op = b.irecv(np.zeros(4, np.int32), 0)
    sent = a.isend(np.zeros((5, 7)), 1)
    with pytest.raises(hmc.InvalidArgument, match=r"float64\[5, 7\]"):
        op.wait()
    with pytest.raises(hmc.InvalidArgument):
        sent.wait()
    sent = a.isend(np.arange(3), 1, tag=4)
    with pytest.raises(hmc.InvalidArgument, match="tag 4"):
        b.recv(src=0, tag=3)
    sent.wait()


class OnlyDlpack:
    """An array that has DLPack, and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_what_has_dlpack_alone_travels_as_bytes(pair):
    a, b, _, _ = pair
    out = np.zeros(3, np.int16)
    op = b.irecv(OnlyDlpack(out), 0)
    a.send(OnlyDlpack(np.array([1, 2, 3], np.int16)), 1)
    op.wait()
    assert list(out) == [1, 2, 3]
    op = b.irecv(out, 0)
    a.send(OnlyDlpack(np.array([4, 5, 6], np.int16)), 1)
    with pytest.raises(hmc.InvalidArgument, match="uint8"):
        op.wait()


def test_a_batch_that_makes_no_sense_begins_nothing(pair):
    a, b, _, back = pair
    with pytest.raises(hmc.InvalidArgument, match="'push'"):
        a.batch_isend_irecv([hmc.P2POp("send", np.zeros(1), 1), hmc.P2POp("push", np.zeros(1), 1)])
    with pytest.raises(hmc.DeadlineExceeded):
        back.recv_data(bytearray(1000), timeout=0.05)


def test_messages_of_the_seeds_take_what_has_bytes(pair):
    a, b, peer, _ = pair
    conn = hmc.ConnType[peer.conn.upper()]
    src = np.arange(12, dtype=np.int16).reshape(3, 4).T
    for flag, out in ((np.zeros(1, np.int64), np.zeros(12, np.int16)), (np.zeros(8, np.uint8), np.zeros((2, 6), np.int16))):
        thread = threading.Thread(target=lambda: a.send_data_to("127.0.0.1", 1, src, 24, conn=conn))
        thread.start()
        assert b.recv_data_from("127.0.0.1", 1, out, 24, flag_ptr=flag, conn=conn) == 24
        thread.join()
        assert out.tobytes() == src.tobytes() and flag.tobytes() == (1).to_bytes(8, "little")
    thread = threading.Thread(target=lambda: a.send_data_to("127.0.0.1", 1, np.array(["2026-11-23"], "M8[s]"), 8, conn=conn))
    thread.start()
    assert b.recv_data_from("127.0.0.1", 1, out.ctypes.data, 24, flag_ptr=0, conn=conn) == 8
    thread.join()
    # Refused before anything is received.
    for dst, flag in ((np.zeros(3, np.uint8), None), (b"frozen bytes", None), (bytearray(9), bytearray(7)), (bytearray(9), b"12345678")):
        with pytest.raises(hmc.InvalidArgument):
            b.recv_data_from("127.0.0.1", 1, dst, 9, flag_ptr=flag, conn=conn, timeout=0.05)


def test_threads_send_and_receive_whole_tensors(pair):
    a, b, _, _ = pair
    got = []
    threads = [threading.Thread(target=lambda: got.extend(b.recv(src=0) for _ in range(20))) for _ in range(4)]
    threads += [threading.Thread(target=lambda k=k: [a.send(np.full(i, i, np.int16), 1) for i in range(k, 80, 4)]) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(len(t) for t in got) == list(range(80)) and all((t == len(t)).all() for t in got)


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


@pytest.mark.parametrize("src", [
    np.arange(3, dtype=">f4"), np.array([1, 500], ">u2"), array.array("b", [-1, 5]), array.array("d", [1.5]),
    array.array("L", [1 << 40]), memoryview(b"ab"), (ctypes.c_int16 * 2)(-3, 4), ctypes.c_double(2.5), np.array([True, False]),
    memoryview(np.array([True])),
], ids=repr)
def test_numbers_arrive_as_what_they_are(pair, src):
    a, b, _, _ = pair
    op = a.isend(src, 1)
    got, want = b.recv(src=0), np.asarray(src)
    op.wait()
    assert got.dtype == want.dtype and got.shape == want.shape and (got == want).all()
    op = a.isend(want, 1)
    same = np.empty_like(want)
    b.recv(same, 0)
    op.wait()
    assert (same == want).all()


def test_arrays_and_ctypes_of_the_same_numbers_match(pair):
    a, b, _, _ = pair
    out = (ctypes.c_ubyte * 3)()
    a.batch_isend_irecv([hmc.P2POp("send", b"abc", 1)])
    b.recv(out, 0)
    assert bytes(out) == b"abc"


def _in_step(a, b):
    """The next tensor arrives whole."""
    op = a.isend(np.arange(3.0), 1)
    assert list(b.recv(src=0, timeout=5)) == [0, 1, 2]
    op.wait()


def test_a_tensor_that_is_refused_leaves_the_others_in_step(pair):
    a, b, peer, _ = pair
    constant = np.zeros(3)
    constant.flags.writeable = False
    for begin, what in (
        (lambda: a.isend(np.array([None]), 1), TypeError),
        (lambda: a.isend(np.zeros(2), 1, -1), hmc.InvalidArgument),
        (lambda: a.isend(np.zeros(2), 1, 1 << 64), hmc.InvalidArgument),
        (lambda: b.irecv(constant, 0), hmc.InvalidArgument),
        (lambda: b.irecv(np.zeros((3, 3)).T, 0), hmc.InvalidArgument),
        (lambda: b.irecv(np.array([None]), 0), TypeError),
    ):
        with pytest.raises(what):
            begin()
        _in_step(a, b)


def test_a_tensor_of_an_unknown_dtype_leaves_the_others_in_step(pair):
    a, b, peer, _ = pair
    header, body = peer.isend_data(tensors.Meta("float3", (2,), 4, 0).pack()), peer.isend_data(bytes(4))
    with pytest.raises(hmc.InvalidArgument, match="float3"):
        b.recv(src=0, timeout=5)
    header.wait()
    with pytest.raises(hmc.InvalidArgument, match="room for 0"):
        body.wait()
    _in_step(a, b)


def test_a_task_that_is_cancelled_leaves_the_others_in_step(pair):
    a, b, _, _ = pair

    async def late():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(b.irecv(np.zeros(3), 0), 0.05)

    asyncio.run(late())
    _in_step(a, b)


def test_loops_that_end_before_their_operations_are_let_go(pair):
    _, _, _, back = pair
    loops, ops = [], []

    async def one(op):
        await op

    def bells():
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return sum(os.readlink(link) == "anon_inode:[eventfd]" for link in links if os.path.lexists(link))

    gc.collect()
    before = bells()
    for _ in range(5):
        loop = asyncio.new_event_loop()
        ops.append(back.irecv_data(bytearray(1)))
        task = loop.create_task(one(ops[-1]))
        task._log_destroy_pending = False
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
        loops.append(weakref.ref(loop))
        del loop, task
    for op in ops:
        op.cancel()
    del op, ops
    gc.collect()
    assert not any(loop() for loop in loops)
    until("descriptors are closed", lambda: bells() <= before)


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
    for _ in range(200):
        if gone() is None:
            break
        a.stats()
        gc.collect()
        time.sleep(0.01)
    assert gone() is None


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
        back.recv_tag(timeout=0.5)
    thread.join()
    assert max(b - a for a, b in zip(ticks, ticks[1:])) < 0.25


def test_what_is_told_of_a_peer(pair):
    a, _, peer, _ = pair
    told = a.explain(1)
    assert told["conn"] == peer.conn and told["text"].startswith(peer.conn)
    assert any(c["chosen"] and c["conn"] == peer.conn for c in told["choices"])
    assert peer.rank == 1 and peer.connected and peer.remote_nbytes == 1 << 20
    assert repr(peer).startswith("<hmc.Peer 1: ")
    assert a.peers[0].rank == 1 and a.peer(1).rank == 1
    with pytest.raises(hmc.DeadlineExceeded):
        a.peer(5, timeout=0.05)


def test_a_session_is_a_peer_of_itself():
    with hmc.Session(rank=3, buffer_size=4096) as s:
        me = s.loopback()
        me.put(b"to myself", 100)
        assert s.buffer.read(9, 100) == b"to myself" and me.conn == "loopback"


def test_errors_can_be_pickled():
    import pickle

    with pytest.raises(hmc.OutOfRange) as e:
        hmc.IOBuffer.create(buffer_size=8).put(bytes(9))
    copy = pickle.loads(pickle.dumps(e.value))
    assert type(copy) is hmc.OutOfRange and str(copy) == str(e.value) and copy.limit == 8


def test_who_left_is_found_as_long_as_its_messages_are_unread(run):
    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=4096) as s:
        process = run("""
            import sys, hmc
            with hmc.Session(rank=1, buffer_size=64) as s:
                peer = s.connect(0, sys.argv[1])
                peer.put(b"gone but here")
                peer.send_tag(7)
                peer.send(b"bye")
        """, s.address)
        process.end()
        until("it has left", lambda: not s.peers)
        peer = s.peer(1, timeout=5)
        with pytest.raises(hmc.DeadlineExceeded):
            s.peer(1, timeout=0.05, alive=True)
        assert not peer.connected and peer.recv_tag() == 7 and peer.recv() == b"bye"
        assert s.buffer.read(13) == b"gone but here"
        with pytest.raises(hmc.DeadlineExceeded):
            s.peer(1, timeout=0.05)


def test_ways_to_name_who_is_connected_to():
    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64) as s:
        ways = [lambda c: c.connect(0, s.address), lambda c: c.connect(0, address=s.address),
                lambda c: c.connect(rank=0, address=s.address), lambda c: c.connect(None, s.address),
                lambda c: c.connect(s.address), lambda c: c.connect(address=s.address),
                lambda c: c.connect(s.address, hmc.ConnType.TCP), lambda c: c.connect(0, s.address, conn=hmc.ConnType.TCP)]
        for rank, way in enumerate(ways, 1):
            with hmc.Session(rank=rank, buffer_size=64) as c:
                assert way(c).rank == 0
        with hmc.Session(rank=9, buffer_size=64) as c:
            for broken in (lambda: c.connect(0), lambda: c.connect(), lambda: c.connect(rank=0), lambda: c.connect("127.0.0.1"),
                           lambda: c.connect("127.0.0.1", hmc.ConnType.TCP), lambda: c.get("127.0.0.1")):
                with pytest.raises(hmc.InvalidArgument):
                    broken()


def test_senders_wait_for_a_peer_that_does_not_receive(pair):
    _, _, peer, back = pair
    sent = 0
    with pytest.raises(hmc.DeadlineExceeded, match="does not receive"):
        while True:
            peer.send(bytes(1 << 20), timeout=0.05)
            sent += 1
    tags = 0
    with pytest.raises(hmc.DeadlineExceeded):
        while True:
            peer.send_tag(tags, timeout=0)
            tags += 1
    assert sent > 0
    # Nothing of it is lost.
    for _ in range(sent):
        assert len(back.recv()) == 1 << 20
    assert [back.recv_tag() for _ in range(tags)] == list(range(tags))


def test_a_failure_is_not_hidden_by_the_goodbye(caplog):
    """A peer that receives nothing hears no goodbye in time: said, but not instead of what went wrong before."""
    def leave(fail):
        with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64, redial=False) as b:
            with hmc.Session(rank=1, buffer_size=64) as a:
                peer = a.connect(b.address)
                with pytest.raises(hmc.DeadlineExceeded):
                    while True:
                        peer.send(bytes(1 << 20), timeout=0.05)
                if fail:
                    raise KeyError("of the program")

    with pytest.raises(hmc.DeadlineExceeded, match="goodbye"):
        leave(False)
    with pytest.raises(KeyError):
        leave(True)
    assert "goodbye" in caplog.text


def test_settings_that_make_no_sense():
    for broken in (dict(rank=4096), dict(rank=0, slots=0), dict(rank=0, listen="tcp://nowhere"), dict(rank=0, timeout=1),
                   dict(rank=0, deadline=-1.0), dict(listen="uds")):
        with pytest.raises(hmc.InvalidArgument):
            hmc.Session(buffer_size=0, **broken)
    with hmc.Session(rank=0, buffer_size=0) as s:
        for broken in ("nonsense", "tcp://127.0.0.1", "127.0.0.1:99999"):
            with pytest.raises(hmc.InvalidArgument):
                s.connect(1, broken)
        with pytest.raises(hmc.Unavailable):
            s.connect(1, "tcp://127.0.0.1:1")
        with pytest.raises(hmc.NotFound):
            s.put_remote("127.0.0.1", 2025, 0, 0, 0, hmc.ConnType.UCX)
    with pytest.raises(hmc.Closed):
        s.stats()
    s.close()


def test_where_a_session_listens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for broken in ("127.0.0.1:0", "5001", "TCP://127.0.0.1:0", "http://127.0.0.1:0", "", "tcp://nobody.invalid:0",
                   ["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"], ["uds", f"uds://{tmp_path}"]):
        with pytest.raises(hmc.InvalidArgument):
            hmc.Session(rank=0, buffer_size=0, listen=broken)
    assert not list(tmp_path.iterdir())
    folder = tmp_path / "s"
    for good in (f"uds://{folder}", str(folder), folder):
        with hmc.Session(rank=0, buffer_size=0, listen=good) as s:
            assert s.address == f"uds://{folder}"
    with hmc.Session(rank=0, buffer_size=0, listen="tcp://localhost:0") as s, hmc.Session(rank=1, buffer_size=0) as t:
        assert t.connect(np.int64(0), s.address).rank == 0


def test_sizes_that_make_no_sense(pair):
    a, _, peer, _ = pair
    conn = hmc.ConnType[peer.conn.upper()]
    with pytest.raises(hmc.InvalidArgument, match="-1"):
        a.send_data_to("127.0.0.1", 1, b"abc", -1, conn=conn)
    out = hmc.Memory().allocateBuffer(4)
    for dst, src in ((out, b"abc"), (out.ptr, out.ptr), (out.ptr, b"abc")):
        with pytest.raises(hmc.InvalidArgument, match="-1"):
            hmc.Memory().copyHostToDevice(dst, src, -1)


def test_each_call_goes_where_it_is_told(pair):
    """Offsets, lengths and windows, in each of the calls that have them."""
    a, b, peer, back = pair
    src, memory, want = np.arange(100, dtype=np.uint8), np.zeros(4096, np.uint8), np.zeros(4096, np.uint8)
    with back.expose(b.register(memory), 5, offset=1024, nbytes=512) as window:
        there = peer.window(5)
        assert window.nbytes == there.nbytes == 512
        where = dict(local_offset=10, nbytes=20, window=there)
        peer.put(src, 100, **where)
        peer.put_nb(src, 200, **where).wait()
        peer.put_notify(src, 7, 300, **where)
        assert back.recv_notify() == 7
        peer.prepare_put([(10, 400, 20)], src, window=there).run()
        for at in (100, 200, 300, 400):
            want[1024 + at:][:20] = src[10:30]
        assert (memory == want).all()
        want[:] = 0
        want[30:50] = src[10:30]
        for get in (lambda out: peer.get(out, 100, local_offset=30, nbytes=20, window=there),
                    lambda out: peer.get_nb(out, 100, local_offset=30, nbytes=20, window=there).wait(),
                    lambda out: peer.prepare_get([(30, 100, 20)], out, window=there).run()):
            out = np.zeros(4096, np.uint8)
            get(out)
            assert (out == want).all()
    assert not any(b.buffer.read(4096)) and not any(a.buffer.read(4096))


def test_no_call_writes_what_is_read_only(pair):
    a, b, peer, back = pair
    frozen = np.zeros(64, np.uint8)
    frozen.flags.writeable = False
    region = a.register(frozen)
    b.buffer.fill(1)
    for broken in (peer.get, peer.get_nb, lambda dst: peer.prepare_get([(0, 0, 1)], dst)):
        for dst in (frozen, region):
            with pytest.raises(hmc.InvalidArgument, match="read-only"):
                broken(dst)
    for broken in (peer.recv_data, peer.irecv_data, lambda dst: a.irecv(dst, 1), lambda dst: a.recv(dst, 1)):
        with pytest.raises(hmc.InvalidArgument, match="read-only"):
            broken(frozen)
    for broken in (lambda: region.copy_within(0, 32, 8), lambda: region.store_flag(0, 1)):
        with pytest.raises(hmc.InvalidArgument, match="read-only"):
            broken()
    assert not frozen.any()


def test_rights_of_windows(pair):
    _, b, peer, back = pair
    region = b.register(bytearray(64))
    for label, (access, reads, writes) in enumerate((("r", True, False), ("w", False, True), ("rw", True, True))):
        with back.expose(region, label, access=access):
            window = peer.window(label)
            for allowed, call in ((reads, lambda: peer.get(bytearray(64), window=window)),
                                  (writes, lambda: peer.put(bytes(64), window=window))):
                if allowed:
                    call()
                else:
                    with pytest.raises(hmc.Revoked):
                        call()
    with pytest.raises(hmc.InvalidArgument, match='access="x"'):
        back.expose(region, 9, access="x")


def test_messages_that_are_no_tensors(pair):
    a, b, peer, back = pair
    peer.isend_data(bytes(184))
    with pytest.raises(hmc.InvalidArgument, match="out of step"):
        b.recv(src=0)
    for broken, what in ((np.zeros((1,) * 17), "17 dimensions"), (memoryview(np.zeros(1, [("x" * 40, "i4")])), "32 bytes")):
        with pytest.raises(hmc.InvalidArgument, match=what):
            a.send(broken, 1)


def test_tags_of_a_batch_are_compared(pair):
    a, b, _, _ = pair
    (received,) = b.batch_isend_irecv([hmc.P2POp("recv", np.zeros(2), 0, 3)])
    assert not received.done()
    for op in a.batch_isend_irecv([hmc.P2POp("send", np.zeros(2), 1, 4)]):
        op.wait()
    with pytest.raises(hmc.InvalidArgument, match="tag 4 came where tag 3"):
        received.wait()


def test_a_tensor_can_be_withdrawn(pair):
    _, b, _, _ = pair
    op = b.irecv(np.zeros(2), 0)
    with pytest.raises(hmc.DeadlineExceeded):
        op.wait(timeout=0.01)
    op.cancel()
    with pytest.raises(hmc.Cancelled):
        op.wait()
    assert op.done()


def test_several_peers_at_one_address_are_not_mixed_up():
    """An address that does not say which one is refused."""
    TCP = hmc.ConnType.TCP
    ports = [free_port(), free_port()]
    with hmc.create_session(buffer_size=64) as a, hmc.create_session(buffer_size=64) as b, hmc.create_session(buffer_size=64) as c:
        for s, port in ((a, ports[0]), (b, ports[1])):
            s.init_server("127.0.0.1", port, TCP)
            c.connect("127.0.0.1", port, TCP)
        for s, port in ((a, ports[0]), (b, ports[1])):
            c.buffer_put_then_put("127.0.0.1", port, port.to_bytes(2), conn=TCP)
            assert s.buf.buffer_get_cpu(nbytes=2) == port.to_bytes(2)
        with pytest.raises(hmc.InvalidArgument, match="several peers"):
            c.put("127.0.0.1", b"x", TCP)
        with pytest.raises(hmc.InvalidArgument, match="several peers .* name one by its rank"):
            c.put_remote("127.0.0.1", 1, 0, 0, 1, TCP)


def test_a_peer_that_came_back_is_at_its_place():
    TCP, port = hmc.ConnType.TCP, free_port()
    place = ("127.0.0.1", 2025, TCP)
    serve = lambda: hmc.Session(rank=0, listen=f"tcp://127.0.0.1:{port}", buffer_size=64)
    with hmc.Session(rank=1, listen="tcp://127.0.0.1:0", buffer_size=64) as c:
        with serve():
            c.connect(peer_id=0, self_id=1, peer_ip="127.0.0.1", data_port=2025, ctrl_tcp_port=port, conn=TCP)
            assert c.check_conn(*place)
        until("it has left", lambda: not c.check_conn(*place) and not c.peers)
        with serve() as back:
            back.connect(1, c.address, TCP).send_tag(1)
            assert c.ctrl_recv(0) == 1
            c.buffer_put_then_put("127.0.0.1", 2025, b"again", conn=TCP)
            assert back.buffer.read(5) == b"again"
        until("it has left", lambda: not c.check_conn(*place) and not c.peers)
        # Who is gone can be forgotten, too.
        with contextlib.suppress(hmc.PeerDead):
            c.disconnect(*place)
        with pytest.raises(hmc.NotFound):
            c.disconnect(*place)


@pytest.mark.parametrize("conn", [hmc.ConnType.SHM, hmc.ConnType.TCP], ids=["shm", "tcp"])
def test_who_sent_a_tag_can_be_addressed(conn):
    """Also where the tag is faster than the rest of the connection."""
    with hmc.Session(rank=0, listen=["tcp://127.0.0.1:0", "uds"], buffer_size=64) as s:
        for rank in range(1, 101):
            with hmc.Session(rank=rank, buffer_size=64) as c:
                c.connect(0, s.address, conn).send_tag(rank)
                assert s.ctrl_recv(rank) == rank
                s.get_remote("127.0.0.1", 1, 0, 0, 8, conn)
            until("it has left", lambda: not s.peers)


def test_a_subclass_hears_of_transfers():
    class Counting(hmc.Session):
        puts = 0

        def put_remote(self, *args, **kwargs):
            self.puts += 1
            super().put_remote(*args, **kwargs)

    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64) as s, Counting(rank=1, buffer_size=64) as c:
        c.connect(0, s.address)
        c.put_remote("127.0.0.1", 1, nbytes=4, conn=hmc.ConnType.AUTO)
        c.buffer_put_then_put("127.0.0.1", 1, b"four", conn=hmc.ConnType.AUTO)
        assert c.puts == 2 and s.buffer.read(4) == b"four"


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
        with pytest.raises(hmc.NotFound, match="999"):
            a.wait([second, 999])
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


FAMILIES = {"OutOfRange": IndexError, "InvalidArgument": ValueError, "NotFound": LookupError, "DeadlineExceeded": TimeoutError,
            "PeerDead": ConnectionError, "Closed": ConnectionError, "Refused": ConnectionError, "NoCredentials": PermissionError,
            "Revoked": PermissionError, "OutOfMemory": MemoryError, "SystemLimit": OSError, "IoError": OSError}


@pytest.mark.parametrize("name", FAMILIES)
def test_families_are_python_s_own(name):
    family = getattr(hmc, name)
    assert issubclass(family, FAMILIES[name]) and issubclass(family, hmc.HMCStatusError) and issubclass(family, hmc.HMCError)


def test_numbers_are_the_seeds_ones():
    names = {enum: [m.name for m in sorted(enum)] for enum in (hmc.status_t, hmc.MemoryType, hmc.ConnType, hmc.CtrlTransport)}
    assert names[hmc.status_t] == ["SUCCESS", "ERROR", "UNSUPPORT", "INVALID_CONFIG", "TIMEOUT", "NOT_FOUND"]
    assert names[hmc.MemoryType][:7] == ["DEFAULT", "CPU", "NVIDIA_GPU", "AMD_GPU", "CAMBRICON_MLU", "MOORE_GPU", "HUAWEI_ASCEND_NPU"]
    assert names[hmc.ConnType][:2] == ["RDMA", "UCX"] and names[hmc.CtrlTransport] == ["TCP", "UDS"]
    assert all([m.value for m in sorted(enum)] == list(range(len(enum))) for enum in names)
