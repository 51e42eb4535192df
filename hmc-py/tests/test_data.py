"""What can be a source, what a destination, and what is refused."""

import array
import ctypes
import gc
import mmap
import re
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import hmc
from conftest import Tensor, until
from hmc import _hmc

SOURCES = [
    b"some bytes",
    bytearray(b"some bytes"),
    memoryview(b"some bytes")[2:],
    array.array("d", [1.5, -2.5]),
    np.arange(24, dtype=np.int32).reshape(2, 3, 4),
    np.float64(1.5),
    np.array(7, dtype=np.int16),
    np.zeros((0, 3)),
    np.array(["2026-11-22", "1970-01-01"], dtype="M8[ns]"),
    np.array(["ab", "c"], dtype="U3"),
    np.array([b"ab", b"c"], dtype="S3"),
    np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")]),
    np.array([(1, 2)], dtype=[("One", "i4"), ("O", [("OO", "u1")])]),
    np.array([1 + 2j], dtype=np.complex64),
    np.array([True, False]),
    np.array([1.5], dtype=np.float16),
    np.arange(4, dtype=">i4"),
]


@pytest.mark.parametrize("src", SOURCES, ids=lambda s: f"{type(s).__name__}-{getattr(s, 'dtype', '')}")
def test_bytes_go_in_and_come_out(buf, src):
    want = src.tobytes() if hasattr(src, "tobytes") else bytes(src)
    assert buf.put(src, offset=100) == len(want)
    assert bytes(buf.buffer_get_cpu(nbytes=len(want), offset=100)) == want
    out = np.empty(np.shape(src), src.dtype) if isinstance(src, np.ndarray) else bytearray(len(want))
    assert buf.get_into(out, offset=100) == len(want)
    assert (out.tobytes() if isinstance(out, np.ndarray) else bytes(out)) == want


@pytest.mark.parametrize("view", [
    np.arange(100, dtype=np.int16)[::3],
    np.arange(100, dtype=np.int16)[::-1],
    np.arange(24).reshape(4, 6).T,
    np.arange(24).reshape(4, 6)[:, 1:3],
    np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    np.broadcast_to(np.int32(7), (3, 5)),
    np.arange(100, dtype=np.uint8).reshape(4, 25)[::2, ::-5],
    np.array(["2026-11-22", "1970-01-01", "2000-01-01"], dtype="M8[ns]")[::2],
    memoryview(b"abcdefgh")[::2],
], ids=range(9))
def test_sources_with_gaps_are_packed_in_c_order(buf, view):
    want = view.tobytes()
    assert buf.put(view) == len(want)
    assert bytes(buf.buffer_get_cpu(nbytes=len(want))) == want


def test_destinations_with_gaps_are_refused_and_nothing_is_written(buf):
    buf.put(b"\xff" * 64)
    whole = np.zeros((4, 4), np.int32)
    for dst in (whole.T, whole[::2], whole[:, :2]):
        with pytest.raises(hmc.InvalidArgument, match="C-contiguous"):
            buf.get_into(dst)
    assert not whole.any()


def test_read_only_destinations_are_refused(buf):
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    for dst in (b"bytes", memoryview(b"bytes"), frozen):
        with pytest.raises(hmc.InvalidArgument, match="read-only"):
            buf.get_into(dst)
    assert not frozen.any()


def test_what_has_no_bytes_is_a_type_error(buf):
    for obj in ("text", 7, None, [1, 2], object(), np.array([object()]), np.array([[1], None], dtype=object),
                np.zeros(2, [("a", "i4"), ("b", [("c", "O")])]), np.zeros(2, [("t", "M8[s]"), ("o", "O")])):
        with pytest.raises(TypeError):
            buf.put(obj)


class Nothing:
    """An object without bytes."""


@pytest.mark.parametrize("obj, name", [("text", "str"), (None, "NoneType"), (Nothing(), "test_data.Nothing"), ([1], "list")],
                         ids=["str", "None", "class", "list"])
def test_what_cannot_be_used_is_named(buf, obj, name):
    with pytest.raises(TypeError, match=f"^{re.escape(name)} has no bytes that HMC can reach"):
        buf.put(obj)
    with pytest.raises(hmc.InvalidArgument, match="^bytes is read-only and cannot be a destination"):
        buf.get_into(b"bytes")


def test_a_buffer_that_is_refused_says_why_itself(buf):
    gone = memoryview(b"bytes")
    gone.release()
    with pytest.raises(ValueError, match="released memoryview"):
        buf.put(gone)


@pytest.mark.parametrize("bits, lanes, item", [(4, 1, None), (0, 1, None), (16, 0, None), (12, 1, None), (4, 2, 1), (8, 3, 3), (16, 1, 2)])
def test_elements_of_tensors_are_whole_bytes(buf, bits, lanes, item):
    made = Tensor(np.arange(8, dtype=np.int16), (4,))
    made.tensor.bits, made.tensor.lanes = bits, lanes
    if item is None:
        with pytest.raises(hmc.InvalidArgument, match="no whole bytes"):
            buf.put(made)
    else:
        assert buf.put(made) == 4 * item
        assert buf.buffer_get_cpu(nbytes=4 * item) == made.array.tobytes()[:4 * item]


def test_dlpack_is_honest(buf):
    with pytest.raises(BufferError):
        buf.region.__dlpack__(stream=1)
    with pytest.raises(BufferError):
        buf.region.__dlpack__(copy=True)
    assert buf.region.__dlpack_device__() == (1, 0)


class Capsule:
    """An object that hands out one capsule."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        return self.capsule


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("version", [None, (1, 0)])
def test_exported_memory_lives_as_long_as_its_tensor(version, taken):
    """Or as long as the capsule, if no consumer takes it."""
    with hmc.Session(rank=0, buffer_size=0) as s:
        array = np.full(1000, 7, np.uint8)
        gone, region = weakref.ref(array), s.register(array)
        out = region.__dlpack__(max_version=version)
        if taken:
            out = np.from_dlpack(Capsule(out))
        del array, region
        gc.collect()
        s.stats()  # lets go of what was put aside
        assert gone() is not None and (not taken or (out == 7).all())
        del out
        gc.collect()
        s.stats()
        assert gone() is None


def test_a_view_of_bytes_is_writable_only_if_that_was_asked_for():
    memory = bytearray(b"bytes")
    plain, writable = memoryview(_hmc.View(memory)), memoryview(_hmc.View(memory, True))
    assert (plain.readonly, writable.readonly) == (True, False) and bytes(plain) == b"bytes"
    writable[0] = 66
    assert memory == b"Bytes" == bytes(plain)


class Exporter:
    """An object with DLPack only."""

    def __init__(self, array, versioned=True):
        self.array, self.versioned = array, versioned

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **kwargs):
        if not self.versioned:
            if kwargs:
                raise TypeError("unexpected keyword")
            return self.array.__dlpack__()
        return self.array.__dlpack__(**kwargs)


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (), (0, 4)])
def test_tensors_come_in_by_dlpack(buf, versioned, shape):
    a = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    assert buf.put(Exporter(a, versioned)) == a.nbytes
    out = np.full_like(a, -1)
    assert buf.get_into(Exporter(out, versioned)) == a.nbytes
    assert (out == a).all()
    assert buf.put(Exporter(a.T, versioned)) == a.nbytes
    assert bytes(buf.buffer_get_cpu(nbytes=a.nbytes)) == a.T.tobytes()


class Gradient:
    """As a tensor of torch that requires a gradient: only what ``detach`` gives is handed out."""

    def __init__(self, array, requires_grad=True):
        self.array, self.requires_grad = array, requires_grad

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        raise BufferError("of no use to others")

    def detach(self):
        return Exporter(self.array)


def test_tensors_with_gradients_come_in_detached(buf):
    a = np.arange(5, dtype=np.int16)
    assert buf.put(Gradient(a)) == 10 and bytes(buf.buffer_get_cpu(nbytes=10)) == a.tobytes()
    buf.put(bytes(10))
    assert buf.get_into(Gradient(a)) == 10 and not a.any()
    # Whatever else is wrong is not hidden by that.
    with pytest.raises(BufferError, match="of no use"):
        buf.put(Gradient(a, requires_grad=False))


class Point(ctypes.Structure):
    _fields_ = [("x", ctypes.c_int32), ("y", ctypes.c_double)]


class Holder(ctypes.Structure):
    _fields_ = [("held", ctypes.py_object)]


def test_buffers_that_leave_out_shape_or_strides(buf):
    for src in ((ctypes.c_int * 3)(1, 2, 3), ((ctypes.c_uint8 * 2) * 3)(), ctypes.c_double(1.5), Point(1, 2.5), (Point * 2)(),
                (ctypes.c_int * 0)(), memoryview(bytes(range(8))).cast("q", ()), mmap.mmap(-1, 100)):
        n = memoryview(src).nbytes
        assert buf.put(src) == n and buf.buffer_get_cpu(nbytes=n) == bytes(memoryview(src))
    out = (ctypes.c_int * 2)()
    buf.put(np.array([7, -8], np.int32))
    assert buf.get_into(out) == 8 and list(out) == [7, -8]
    for objects in (Holder(5), (ctypes.py_object * 2)(1, 2)):
        with pytest.raises(TypeError, match="Python objects"):
            buf.put(objects)


class Described:
    """What has the array interface alone."""

    def __init__(self, **fields):
        self.__array_interface__ = {"version": 3, "typestr": "|u1", **fields}


def test_array_interfaces_are_checked(buf):
    a = np.arange(100, dtype=np.uint8)
    at = (a.ctypes.data, False)
    assert buf.put(Described(shape=(2, 3), data=at, strides=(10, 2))) == 6
    assert list(buf.buffer_get_cpu(nbytes=6)) == [0, 2, 4, 10, 12, 14]
    for broken, what in (
        (dict(shape=(4, 5), data=at, strides=(7,)), "stride"),
        (dict(shape=(4, 5), data=at, strides=()), "stride"),
        (dict(shape=(4,), data=at, strides=(1, 1)), "stride"),
        (dict(shape=(4,), data=(0, False)), "address 0"),
        (dict(shape=(4,), data=at, typestr="u"), "typestr"),
        (dict(shape=(1 << 63,), data=at), "addresses"),
        (dict(shape=(4,), data=b"abc"), "other bytes"),
        (dict(shape=(2,), data=b"abc", offset=2), "other bytes"),
        (dict(shape=(2,), data=b"abc", strides=(-1,)), "other bytes"),
    ):
        with pytest.raises(hmc.InvalidArgument, match=what):
            buf.put(Described(**broken))
    assert buf.put(Described(shape=(0,), data=(0, False))) == 0
    # Texts count characters, of 4 bytes each.
    assert buf.put(Described(shape=(2,), typestr="<U3", data=at)) == 24 and list(buf.buffer_get_cpu(nbytes=24)) == list(range(24))
    with pytest.raises(TypeError, match="Python objects"):
        buf.put(Described(shape=(2,), typestr="|O", data=at))
    dates = np.zeros(2, "M8[s]")
    assert buf.get_into(dates) == 16
    dates.flags.writeable = False
    with pytest.raises(hmc.InvalidArgument, match="read-only"):
        buf.get_into(dates)


def test_array_interfaces_may_give_their_data_as_bytes(buf):
    """As pictures of PIL do."""
    assert buf.put(Described(shape=(2, 1), data=b"abc", offset=1)) == 2
    assert buf.buffer_get_cpu(nbytes=2) == b"bc"
    with pytest.raises(hmc.InvalidArgument, match="read-only"):
        buf.get_into(Described(shape=(3,), data=b"abc"))
    out = bytearray(3)
    assert buf.get_into(Described(shape=(3,), data=out)) == 3 and out == b"bc\0"


def test_read_only_tensors_are_no_destination(buf):
    a = np.zeros(4)
    a.flags.writeable = False
    assert buf.put(Exporter(a)) == 32
    with pytest.raises(hmc.InvalidArgument, match="read-only"):
        buf.get_into(Exporter(a))


@pytest.mark.parametrize("versioned", [True, False])
def test_a_tensor_is_given_back(buf, versioned):
    a = np.zeros(1000)
    gone = weakref.ref(a)
    buf.put(Exporter(a, versioned))
    del a
    gc.collect()
    assert gone() is None


class OnDevice:
    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **_):
        raise AssertionError("device memory must not be asked for")


def test_device_memory_is_unavailable(buf):
    class Cuda:
        __cuda_array_interface__ = {"shape": (1,)}

    for obj in (OnDevice(), Cuda()):
        with pytest.raises(hmc.Unavailable, match="host"):
            buf.put(obj)
    for kind in (hmc.MemoryType.NVIDIA_GPU, hmc.MemoryType.AMD_GPU, hmc.MemoryType.MOORE_GPU):
        with pytest.raises(hmc.Unavailable, match="host memory only"):
            hmc.create_session(mem_type=kind)
    with pytest.raises(hmc.Unavailable):
        buf.put(SimpleNamespace(device=SimpleNamespace(type="cuda")), device="cuda")
    with pytest.raises(TypeError, match="torch.Tensor"):
        buf.put(np.zeros(1), device="cuda")
    assert hmc.memory_supported() == hmc.MemoryType.CPU


def test_masked_arrays_are_refused(buf):
    """Their bytes do not hold the mask."""
    dates = np.array(["2026-11-22", "1970-01-01"], "M8[s]")
    for masked in (np.ma.array([1, 2, 3], mask=[0, 1, 0]), np.ma.array([1, 2, 3]), np.ma.masked, np.ma.array(dates, mask=True),
                   np.ma.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])[0]):
        for call in (buf.put, buf.get_into, buf.region.write):
            with pytest.raises(hmc.InvalidArgument, match="mask"):
                call(masked)
    masked = np.ma.array([1, 2, 3], mask=[0, 1, 0], dtype=np.int16)
    with hmc.Session(rank=0, buffer_size=0) as s:
        peer = s.loopback()
        for call in (s.register, peer.put, peer.get, peer.send_data, peer.isend_data, peer.irecv_data, peer.send):
            with pytest.raises(hmc.InvalidArgument, match="mask"):
                call(masked)
    assert buf.put(masked.filled(9)) == 6 and buf.put(masked.data) == 6 and buf.put(masked.mask) == 3


def test_tensors_that_begin_behind_their_address(buf):
    made = Capsule(Tensor(np.arange(8, dtype=np.int16), (5,), first=6).__dlpack__())
    assert buf.put(made) == 10
    assert np.frombuffer(buf.region, np.int16, 5).tolist() == [3, 4, 5, 6, 7]
    with pytest.raises(hmc.InvalidArgument, match="used before"):
        buf.put(made)
    with pytest.raises(hmc.Unavailable, match="DLPack 2.0"):
        buf.put(Tensor(np.arange(8, dtype=np.int16), (8,), major=2))


class Region:
    """A region that has DLPack only."""

    def __init__(self, region):
        self.__dlpack__, self.__dlpack_device__ = region.__dlpack__, region.__dlpack_device__


def test_read_only_memory_goes_out_as_such(buf):
    with hmc.Session(rank=0, buffer_size=0) as s:
        region = s.register(b"read-only")
        with pytest.raises(hmc.InvalidArgument, match="read-only"):
            buf.get_into(Exporter(Region(region)))
        assert buf.put(Region(region)) == 9
    with pytest.raises(BufferError):
        buf.region.__dlpack__(dl_device=(2, 0))


@pytest.mark.parametrize("use", [
    lambda s, array: s.loopback().prepare_put([(0, 0, 8)], array),
    lambda s, array: np.from_dlpack(s.register(array)),
], ids=["batch", "dlpack"])
def test_an_array_is_let_go_of_with_the_last_that_used_it(use):
    with hmc.Session(rank=0, buffer_size=64) as s:
        array = bytearray(8)
        used = use(s, array)
        del used
        array.append(1)


def test_an_array_is_let_go_of_when_windows_are_taken_back():
    """The link holds it until it looks after its windows, a quarter of a second later. The next window that is taken back lets go
    of it."""
    with hmc.Session(rank=0, buffer_size=64) as s:
        array, peer, other = bytearray(8), s.loopback(), s.allocate(8)
        region = s.register(array)
        window = peer.expose(region, label=1)
        del region
        window.revoke()

        def grows():
            peer.expose(other, label=2).revoke()
            try:
                array.append(1)
            except BufferError:
                return False
            return True

        until("it is let go of", grows, 10)
