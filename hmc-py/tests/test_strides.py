"""Strides: arrays without gaps are used in place, whatever their strides are; arrays with gaps are packed or refused."""

import math

import numpy as np
import pytest

import hmc
from conftest import Tensor
from hmc import _hmc

#: The offset of the first element, of 2 bytes, in a block of 64 bytes.
FIRST = 30

#: Shapes and strides in bytes of arrays without gaps. A dimension of length 1 may have any stride: no element follows by it.
GAPLESS = [((1, 6), (-998, 2)), ((1, 6), (0, 2)), ((1, 6), (2, 2)), ((6, 1), (2, -40)), ((6, 1), (2, 0)), ((2, 1, 3), (6, -4, 2)),
           ((1, 2, 3), (2, 6, 2)), ((1,), (40,)), ((1, 1), (6, -10)), ((), ()), ((6,), (2,))]

#: The same of arrays with gaps, or in another order.
GAPPED = [((6, 1), (4, 2)), ((1, 6), (12, 4)), ((6,), (-2,)), ((6, 1), (-4, 2)), ((1, 6), (2, -2)), ((1, 6), (2, 0)),
          ((2, 1, 3), (-6, 8, 2)), ((2, 3), (0, 2)), ((3, 2), (2, 6)), ((2, 1, 3), (8, 6, 2))]


class Interface:
    """An array that has NumPy's array interface alone."""

    def __init__(self, block, shape, strides):
        self.block = block
        self.__array_interface__ = {"version": 3, "typestr": "<i2", "shape": shape, "strides": strides,
                                    "data": (block.ctypes.data + FIRST, False)}


KINDS = {
    "interface": Interface,
    "dlpack": lambda block, shape, strides: Tensor(block, shape, [stride // 2 for stride in strides], FIRST),
    "numpy": lambda block, shape, strides: np.lib.stride_tricks.as_strided(block[FIRST:FIRST + 2].view("<i2"), shape, strides),
}


@pytest.fixture(params=KINDS)
def made(request):
    """Makes an array over a block, by its shape and strides."""
    return KINDS[request.param]


def shown(block, shape, strides):
    """The bytes of an array in C order, element by element."""
    places = (FIRST + sum(i * stride for i, stride in zip(index, strides)) for index in np.ndindex(*shape))
    return b"".join(block[at:at + 2].tobytes() for at in places)


@pytest.mark.parametrize("shape, strides", GAPLESS + GAPPED)
def test_sources_are_read_in_c_order(pair, made, shape, strides):
    a, b, peer, back = pair
    block = np.arange(64, dtype=np.uint8)
    want = shown(block, shape, strides)
    source, n, out = lambda: made(block, shape, strides), len(want), bytearray(len(want))
    assert a.buf.put(source(), offset=8) == n and a.buffer.read(n, 8) == want
    peer.put(source(), 16)
    peer.put_nb(source(), 64).wait()
    peer.prepare_put([(0, 128, n)], source()).run()
    for at in (16, 64, 128):
        assert b.buffer.read(n, at) == want, at
    peer.send(source())
    assert back.recv() == want
    sent = peer.isend_data(source())
    assert back.recv_data(out) == sent.wait() == n and out == want
    out[:] = bytes(n)
    received = back.irecv_data(out)
    assert peer.send_data(source()) == received.wait() == n and out == want
    sent = a.isend(source(), 1)
    assert b.recv(src=0).tobytes() == want
    sent.wait()


@pytest.mark.parametrize("shape, strides", GAPLESS)
def test_arrays_without_gaps_are_used_in_place(pair, made, shape, strides):
    a, b, peer, back = pair
    block, n = np.zeros(64, np.uint8), 2 * math.prod(shape)
    array = lambda: made(block, shape, strides)
    there = block.ctypes.data + FIRST
    for writable in (False, True):
        assert np.frombuffer(_hmc.View(array(), writable), np.uint8).ctypes.data == there
    region = a.register(array())
    assert (region.ptr, len(region)) == (there, n)
    data = bytes(range(1, n + 1))
    a.buffer.write(data)
    b.buffer.write(data)

    def received(begin):
        """Runs a receive beside a send of the other end."""
        sent = back.isend_data(data)
        begin()
        sent.wait()

    for number, fill in enumerate((
        lambda: a.buf.get_into(array()), lambda: peer.get(array()), lambda: peer.get(region), lambda: peer.get_nb(array()).wait(),
        lambda: peer.prepare_get([(0, 0, n)], array()).run(), lambda: received(lambda: peer.recv_data(array())),
        lambda: received(lambda: peer.irecv_data(array()).wait()),
    )):
        block[:] = 0
        fill()
        assert block[FIRST:FIRST + n].tobytes() == data, number
        assert not block[:FIRST].any() and not block[FIRST + n:].any(), number


@pytest.mark.parametrize("shape, strides", GAPPED)
def test_arrays_with_gaps_are_refused_as_destinations(pair, made, shape, strides):
    a, _, peer, _ = pair
    block = np.zeros(64, np.uint8)
    a.buffer.write(bytes(range(1, 65)))
    for call in (a.buf.get_into, a.register, peer.get, peer.get_nb, lambda dst: peer.prepare_get([(0, 0, 2)], dst), peer.recv_data,
                 peer.irecv_data, lambda dst: _hmc.View(dst, True)):
        with pytest.raises(hmc.InvalidArgument, match="C-contiguous"):
            call(made(block, shape, strides))
    assert not block.any()


@pytest.mark.parametrize("shape, strides", [((0,), (6,)), ((0, 6), (-8, 4)), ((6, 0), (4, 2)), ((2, 0, 3), (0, 2, 8))])
def test_empty_arrays_are_contiguous(buf, made, shape, strides):
    block = np.zeros(64, np.uint8)
    assert buf.put(made(block, shape, strides)) == buf.get_into(made(block, shape, strides)) == 0


def test_slices_of_one_element_are_used_in_place(buf):
    """Such a slice keeps the stride by which it was made."""
    block = bytearray(range(64))
    one = memoryview(block).cast("h")[15::20]
    assert (one.shape, one.strides) == ((1,), (40,))
    assert buf.put(one) == 2 and buf.buffer_get_cpu(nbytes=2) == bytes((30, 31))
    buf.put(b"\xfe\xff")
    assert buf.get_into(one) == 2
    assert block == bytes((*range(30), 0xFE, 0xFF, *range(32, 64)))
    backwards = memoryview(block)[40:36:-1]
    assert buf.put(backwards) == 4 and buf.buffer_get_cpu(nbytes=4) == bytes((40, 39, 38, 37))
    with pytest.raises(hmc.InvalidArgument, match="C-contiguous"):
        buf.get_into(backwards)


def test_buffers_are_taken_by_their_own_strides(buf):
    """NumPy normalises the strides of contiguous arrays; other exporters do not."""
    exporter = pytest.importorskip("_testbuffer", reason="this Python has no exporter of odd buffers: python3-test")
    numbers = list(range(12))
    for shape, strides, want in (((1, 6), (12, 1), range(6)), ((6, 1), (1, 9), range(6)), ((1, 4), (9, 3), (0, 3, 6, 9)),
                                 ((2, 1, 3), (6, 11, 2), (0, 2, 4, 6, 8, 10))):
        src = exporter.ndarray(numbers, shape=list(shape), strides=list(strides), format="B", flags=exporter.ND_WRITABLE)
        assert memoryview(src).strides == strides
        assert buf.put(src) == len(want) and buf.buffer_get_cpu(nbytes=len(want)) == bytes(want)
        buf.put(bytes(range(100, 100 + len(want))))
        if want == range(6):
            assert buf.get_into(src) == 6 and src.tobytes() == bytes(range(100, 106))
        else:
            with pytest.raises(hmc.InvalidArgument, match="C-contiguous"):
                buf.get_into(src)
    for shape, suboffsets in (([3, 4], (0, -1)), ([12], (0,))):
        behind = exporter.ndarray(numbers, shape=shape, format="B", flags=exporter.ND_PIL)
        assert memoryview(behind).suboffsets == suboffsets
        with pytest.raises(hmc.InvalidArgument, match="suboffsets"):
            buf.put(behind)
