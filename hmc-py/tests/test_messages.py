"""Messages: tags, small ones, those of any size, tensors by rank."""

import array
import asyncio
import contextlib
import ctypes
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hmc
from conftest import LIMIT, asleep, written
from hmc import tensors


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


def test_bytes_that_another_thread_writes_meanwhile(pair):
    _, _, peer, back = pair
    src, dst = np.ones(4_000_001, np.uint8), np.zeros(4_000_001, np.uint8)
    with written(src, dst), ThreadPoolExecutor(1) as pool:
        for _ in range(5):
            sent = pool.submit(peer.send_data, src)
            assert back.recv_data(dst) == src.nbytes
            assert sent.result() == src.nbytes
        for _ in range(5):
            # A copy without gaps.
            sent = pool.submit(peer.send_data, src[::2])
            assert back.recv_data(dst) == src[::2].nbytes == sent.result()
            # Small enough not to wait for the receiver.
            peer.send(src[: 1 << 16])
            assert set(back.recv()) <= {1, 2}
    assert set(np.unique(dst)) <= {1, 2}


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


@pytest.mark.parametrize("way", ["irecv", "recv"])
def test_a_receive_that_begins_behind_one_into_a_new_array_takes_none_of_its_bytes(pair, way):
    """The first receive knows how much it wants only when its header is there: until then the second must not be posted."""
    a, b, _, _ = pair
    first, out = [], np.zeros(3)
    thread = threading.Thread(target=lambda: first.append(b.recv(src=0, tag=1, timeout=LIMIT)))
    thread.start()
    asleep(thread)
    if way == "irecv":
        try:
            begun = b.irecv(out, 0, tag=2, timeout=0.05)
        except hmc.DeadlineExceeded as e:
            assert e.peer == 0
            begun = None
        sent = [a.isend(np.full(3, float(tag)), 1, tag) for tag in (1, 2)]
        thread.join(LIMIT)
        (begun or b.irecv(out, 0, tag=2)).wait(LIMIT)
        assert begun is None
    else:
        second = threading.Thread(target=lambda: b.recv(out, 0, tag=2, timeout=LIMIT))
        second.start()
        asleep(second)
        sent = [a.isend(np.full(3, float(tag)), 1, tag) for tag in (1, 2)]
        for one in (thread, second):
            one.join(LIMIT)
    assert [list(array) for array in (*first, out)] == [[1, 1, 1], [2, 2, 2]]
    for op in sent:
        op.wait(LIMIT)


class Alarm(Exception):
    """What the handler of a signal raises."""


@pytest.fixture(params=["deadline", "signal"])
def ended_early(request):
    """Ends a call that nobody answers: by its time, or by the handler of a signal."""
    def early(call):
        if request.param == "deadline":
            with pytest.raises(hmc.DeadlineExceeded):
                call(0.05)
            return
        with pytest.raises(Alarm):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            call(LIMIT)

    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield early
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_receive_that_ends_early_is_withdrawn(pair, ended_early):
    a, b, _, _ = pair
    out = np.zeros(3)
    ended_early(lambda timeout: b.recv(out, 0, timeout=timeout))
    sent = a.isend(np.arange(1.0, 4.0), 1)
    assert list(b.recv(np.empty(3), 0, timeout=5)) == [1, 2, 3]
    sent.wait()
    assert not out.any()
    _in_step(a, b)


def test_a_send_that_ends_early_is_withdrawn(pair, ended_early):
    a, b, peer, back = pair
    first = np.ones(3)
    ended_early(lambda timeout: a.send(first, 1, timeout=timeout))
    first[:] = 7
    # It comes behind what the receiver is told of the withdrawal.
    peer.send_tag(5)
    assert back.recv_tag() == 5
    sent = a.isend(np.full(3, 2.0), 1)
    assert list(b.recv(np.empty(3), 0, timeout=5)) == [2, 2, 2]
    sent.wait()
    _in_step(a, b)


@pytest.mark.parametrize("src", [
    np.arange(3, dtype=">f4"), np.array([1, 500], ">u2"), array.array("b", [-1, 5]), array.array("d", [1.5]),
    array.array("L", [1 << 40]), memoryview(b"ab"), (ctypes.c_int16 * 2)(-3, 4), ctypes.c_double(2.5), np.array([True, False]),
    memoryview(np.array([True])),
], ids=lambda src: f"{type(src).__name__}-{memoryview(src).format}")
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


FIELDS = [("count", "i4"), ("at", "f8", (2,)), ("inner", [("x", "u1"), ("y", ">u2")])]


def test_fields_of_structured_arrays_must_match(pair):
    """Names, places and types of fields are compared; they do not travel."""
    a, b, _, _ = pair
    src = np.zeros(3, FIELDS)
    src["count"], src["inner"]["y"] = (1, 2, 3), 500
    out = np.zeros_like(src)
    received = b.irecv(out, 0)
    a.isend(src, 1).wait()
    assert received.wait() is out and (out == src).all()
    renamed = [("number", "i4"), *FIELDS[1:]]
    moved = {"names": ["count", "at", "inner"], "formats": [f[1] if len(f) < 3 else f[1:] for f in FIELDS],
             "offsets": [20, 4, 0], "itemsize": np.dtype(FIELDS).itemsize + 1}
    for other in (renamed, [("count", "u4"), *FIELDS[1:]], [*FIELDS[:2], ("inner", [("x", "u1"), ("z", ">u2")])],
                  f"V{src.itemsize}", np.dtype(moved)):
        received = b.irecv(np.zeros(3, other), 0)
        sent = a.isend(src, 1)
        with pytest.raises(hmc.InvalidArgument, match="came into one of"):
            received.wait()
        with contextlib.suppress(hmc.HMCError):
            sent.wait()
        _in_step(a, b)
    sent = a.isend(src, 1)
    with pytest.raises(hmc.InvalidArgument, match="irecv into an array of its dtype"):
        b.recv(src=0)
    with contextlib.suppress(hmc.HMCError):
        sent.wait()
    _in_step(a, b)


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
    with pytest.raises(hmc.InvalidArgument, match="space for 0"):
        body.wait()
    _in_step(a, b)


def _ways(b, out):
    """Ways to receive into ``out``, and into a new array."""
    async def awaits():
        await b.irecv(out, 0)

    return [lambda: b.recv(src=0, timeout=5), lambda: b.irecv(out, 0).wait(5), lambda: b.recv(out, 0, timeout=5),
            lambda: asyncio.run(awaits())]


def test_a_tensor_with_fewer_bytes_than_it_has_is_refused(pair):
    a, b, peer, _ = pair
    for receive in _ways(b, np.zeros(100)):
        sent = [peer.isend_data(tensors.Meta("float64", (100,), 800, 0).pack()), peer.isend_data(bytes(8))]
        with pytest.raises(hmc.InvalidArgument, match="8 bytes came of a tensor of 800"):
            receive()
        for op in sent:
            op.wait()
        _in_step(a, b)


def test_a_header_that_contradicts_itself_is_refused(pair):
    a, b, peer, _ = pair
    for receive in _ways(b, np.zeros(100)):
        sent = [peer.isend_data(tensors.Meta("float64", (100,), 8, 0).pack()), peer.isend_data(bytes(8))]
        with pytest.raises(hmc.InvalidArgument, match="says 8 bytes"):
            receive()
        for op in sent:
            with contextlib.suppress(hmc.InvalidArgument):  # where there is no place for its bytes
                op.wait()
        _in_step(a, b)


def test_a_message_that_is_shorter_than_a_header_is_refused(pair):
    a, b, peer, _ = pair
    for n, receive in enumerate(_ways(b, np.zeros(1))):
        sent = [peer.isend_data(tensors.Meta("float64", (1,), 8, 0).pack()[:48]), peer.isend_data(bytes(8))]
        with pytest.raises(hmc.InvalidArgument, match="a message of 48 bytes came where a tensor's header"):
            receive()
        if n == 0:  # it had not asked for the bytes yet
            assert b.peer(0).recv_data(bytearray(8), 5) == 8
        for op in sent:
            op.wait()
        _in_step(a, b)


def test_a_task_that_is_cancelled_leaves_the_others_in_step(pair):
    a, b, _, _ = pair

    async def late():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(b.irecv(np.zeros(3), 0), 0.05)

    asyncio.run(late())
    _in_step(a, b)


def test_senders_wait_for_a_peer_that_does_not_receive(pair):
    """And nothing of it is lost. Where a message finds no space, a tag finds none either."""
    _, _, peer, back = pair
    sent = 0
    with pytest.raises(hmc.DeadlineExceeded, match="does not receive"):
        while True:
            peer.send(bytes([sent % 256]) * (1 << 20), timeout=0.05)
            sent += 1
    with pytest.raises(hmc.DeadlineExceeded, match="does not receive"):
        peer.send_tag(7, timeout=0.05)
    assert sent > 0
    for n in range(sent):
        assert back.recv() == bytes([n % 256]) * (1 << 20)
    peer.send_tag(8)
    assert back.recv_tag() == 8


def test_sizes_that_make_no_sense(pair):
    a, _, peer, _ = pair
    conn = hmc.ConnType[peer.conn.upper()]
    with pytest.raises(hmc.InvalidArgument, match="-1"):
        a.send_data_to("127.0.0.1", 1, b"abc", -1, conn=conn)
    _, out = hmc.Memory().allocateBuffer(4)
    for dst, src in ((out, b"abc"), (out.ptr, out.ptr), (out.ptr, b"abc")):
        with pytest.raises(hmc.InvalidArgument, match="-1"):
            hmc.Memory().copyHostToDevice(dst, src, -1)


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
