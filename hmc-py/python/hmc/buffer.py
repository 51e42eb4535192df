"""The staged path of the C++ HMC: one buffer of a session, with copies in and out by offset.

:class:`IOBuffer` has the names of the C++ HMC's Python package, :class:`ConnBuffer` those of its binding. Both are the same
memory, that of a session to be: ``Session(buf)`` makes it reachable. Offsets are called ``offset``; ``bias`` means the same.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

from . import _hmc, environment
from .args import MISSING, address, either, integer, memory_type
from .enums import MemoryType, status_t
from .errors import InvalidArgument, InvalidNumber, Unavailable
from .ranks import Cores

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, Self, overload

    from .typing import ArrayLike

__all__ = ["ConnBuffer", "IOBuffer"]

log = logging.getLogger("hmc")

#: Bytes of a session's buffer when nothing is said: 128 MiB.
DEFAULT_BUFFER_SIZE = 128 * 1024 * 1024


def host_only(mem_type: MemoryType) -> MemoryType:
    """Refuses memory that this version cannot have. ``DEFAULT`` is host memory, and stays what was asked for."""
    kind = memory_type(mem_type)
    if kind in (MemoryType.DEFAULT, MemoryType.CPU):
        return kind
    raise Unavailable(
        status_t.UNSUPPORT,
        f"memory of {kind.name} cannot be had: this version reaches host memory only; use MemoryType.CPU",
        kind="unavailable",
    )


def surroundings() -> dict[str, object]:
    """What a session is told of the interpreter and the environment."""
    return {"prefix": sys.prefix, "fallback": environment.fallback() is not None}


def _offset(offset: int, bias: int | None) -> int:
    return integer("offset", offset if bias is None else bias)


def _count(nbytes: int | None) -> int | None:
    return None if nbytes is None else integer("nbytes", nbytes)


class ConnBuffer:
    """One registered buffer, by the names of the C++ HMC's binding. Sizes and ``bias`` are in bytes.

    ``src`` and ``dest`` are objects with bytes (see :mod:`hmc`), or addresses in this process as numbers or capsules.
    """

    def __init__(self, device_id: int = 0, buffer_size: int = DEFAULT_BUFFER_SIZE,
                 mem_type: MemoryType = MemoryType.DEFAULT, *, lazy: bool = False) -> None:
        self._mem_type = host_only(mem_type)
        self._device_id = integer("device_id", device_id, -(2**31), 2**31 - 1)
        self._size = integer("buffer_size", buffer_size)
        self._core = _hmc.Core(buffer_size=self._size, settings={**surroundings(), "lazy": lazy})
        self._cores = Cores(self._core)

    @classmethod
    def _of(cls, core: _hmc.Core, size: int) -> Self:
        self = cls.__new__(cls)
        self._mem_type, self._device_id, self._core, self._size = MemoryType.CPU, 0, core, size
        self._cores = Cores(core)
        return self

    #: The memory, once somebody asked for it.
    _made: _hmc.Region | None = None

    @property
    def _region(self) -> _hmc.Region:
        made = self._made
        if made is None:
            made = self._made = self._core.region
        return made

    @property
    def ptr(self) -> int:
        """The address of the first byte."""
        return self._region.ptr

    @property
    def buffer_size(self) -> int:
        """Size in bytes."""
        return self._size

    @property
    def mem_type(self) -> MemoryType:
        """The kind of memory that was asked for."""
        return self._mem_type

    @property
    def device_id(self) -> int:
        """The device that was asked for."""
        return self._device_id

    def writeFromCpu(self, src: ArrayLike | int, size: int | None = None, bias: int = 0) -> status_t:
        """Copies ``size`` bytes in at ``bias``."""
        place: Any = address(src)
        if isinstance(place, int):
            self._region.write_from_address(place, _needed(size), _offset(bias, None))
        else:
            self._region.write(place, _offset(bias, None), _count(size))
        return status_t.SUCCESS

    def readToCpu(self, dest: ArrayLike | int = MISSING, size: int | None = None, bias: int = 0, *,
                  dst: ArrayLike | int = MISSING) -> status_t:
        """Copies ``size`` bytes at ``bias`` out."""
        place: Any = address(either("dest", dest, "dst", dst))
        if isinstance(place, int):
            self._region.read_to_address(place, _needed(size), _offset(bias, None))
        else:
            self._region.read_into(place, _offset(bias, None), _count(size))
        return status_t.SUCCESS

    def writeFromGpu(self, src_ptr: object = MISSING, size: int | None = None, bias: int = 0, *,
                     src: object = MISSING) -> status_t:
        """Device memory: not in this version. ERROR, as with a buffer of host memory there; the log says why."""
        either("src_ptr", src_ptr, "src", src)
        return _no_gpu_status()

    def readToGpu(self, dest_ptr: object = MISSING, size: int | None = None, bias: int = 0, *,
                  dst: object = MISSING) -> status_t:
        """Device memory: not in this version. ERROR, as with a buffer of host memory there; the log says why."""
        either("dest_ptr", dest_ptr, "dst", dst)
        return _no_gpu_status()

    def copyWithin(self, dst_bias: int, src_bias: int, size: int) -> status_t:
        """Copies within the buffer. The ranges may overlap."""
        self._region.copy_within(integer("dst_bias", dst_bias), integer("src_bias", src_bias), integer("size", size))
        return status_t.SUCCESS


def _no_gpu() -> Unavailable:
    return Unavailable(
        status_t.UNSUPPORT,
        "device memory (CUDA, ROCm and others) cannot be reached by this version: copy the tensor to the host first",
        kind="unavailable",
    )


def _no_gpu_status() -> status_t:
    log.warning("%s", _no_gpu().msg)
    return status_t.ERROR


def _no_tensor(t: object) -> Exception:
    """What is raised for a tensor that was said to be on a device."""
    device = getattr(t, "device", None)
    kind = getattr(device, "type", None)
    if kind is None:
        return TypeError("Expected a torch.Tensor")
    if kind == "cpu":
        return ValueError("Tensor is not CUDA tensor.")
    return _no_gpu()


@dataclass(init=False)
class IOBuffer:
    """The buffer of a session: ``put`` copies into it, ``get_into`` out of it.

    >>> buf = IOBuffer.create(buffer_size=1024)
    >>> buf.put(b"some bytes", offset=16)
    10
    >>> out = bytearray(4)
    >>> buf.get_into(out, offset=21)
    4
    >>> bytes(out)
    b'byte'

    Attributes:
        core: the same memory by the binding's names. Another one can be assigned; a session keeps what it was made with.
    """

    core: ConnBuffer

    def __init__(self, core: ConnBuffer = MISSING, *, buf: ConnBuffer = MISSING) -> None:
        self.core = either("core", core, "buf", buf)

    @classmethod
    def create(cls, device_id: int = 0, buffer_size: int = DEFAULT_BUFFER_SIZE,
               mem_type: MemoryType = MemoryType.DEFAULT, *, lazy: bool = False) -> Self:
        """A buffer of ``buffer_size`` bytes, which are zero. See :func:`hmc.create_session` for when its pages are taken."""
        return cls(ConnBuffer(device_id, buffer_size, mem_type, lazy=lazy))

    @property
    def conn_buffer(self) -> ConnBuffer:
        """The same memory by the binding's names."""
        return self.core

    @property
    def region(self) -> _hmc.Region:
        """The same memory as a :class:`Region`, the source and target of the newer calls."""
        return self.core._region

    @property
    def ptr(self) -> int:
        """The address of the first byte."""
        return self.core.ptr

    @property
    def mem_type(self) -> MemoryType:
        """The kind of memory that was asked for."""
        return self.core.mem_type

    @property
    def device_id(self) -> int:
        """The device it was asked for on."""
        return self.core.device_id

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.core.buffer_size

    def __len__(self) -> int:
        return self.core.buffer_size

    if TYPE_CHECKING:
        @overload
        def put(self, data: ArrayLike, *, nbytes: int | None = None, offset: int = 0, device: str | None = None,
                bias: int | None = None) -> int: ...
        @overload
        def put(self, data: int, *, nbytes: int, offset: int = 0, device: Literal["ptr"],
                bias: int | None = None) -> int: ...

    def put(self, data: Any, *, nbytes: Any = None, offset: int = 0, device: str | None = None,
            bias: int | None = None) -> int:
        """Copies ``data`` in at ``offset`` and returns how many bytes.

        ``data``: bytes-like, a NumPy array of any shape and dtype without Python objects, a torch CPU tensor, or anything
        with the buffer protocol or DLPack; what has gaps is packed in C order. ``device``: ``"ptr"`` for an address with
        ``nbytes``, ``"cuda"`` for a tensor on a device; anything else means what ``data`` is. Raises ``OutOfRange`` when it does not fit; nothing is written then.
        """
        if device == "ptr":
            return self.buffer_put_gpu_ptr(_address(data), nbytes=_needed(nbytes), offset=offset, bias=bias)
        if device == "cuda":
            return self.buffer_put_cuda(data, nbytes=nbytes, offset=offset, bias=bias)
        return self.region.write(data, _offset(offset, bias), _count(nbytes))

    if TYPE_CHECKING:
        @overload
        def get_into(self, dst: ArrayLike, *, nbytes: int | None = None, offset: int = 0, device: str | None = None,
                     bias: int | None = None) -> int: ...
        @overload
        def get_into(self, dst: int, *, nbytes: int, offset: int = 0, device: Literal["ptr"],
                     bias: int | None = None) -> int: ...

    def get_into(self, dst: Any, *, nbytes: Any = None, offset: int = 0, device: str | None = None,
                 bias: int | None = None) -> int:
        """Fills ``dst``, or its first ``nbytes`` bytes, from ``offset`` and returns how many bytes.

        ``dst`` must be writable and C-contiguous; else ``InvalidArgument``.
        """
        if device == "ptr":
            return self.buffer_get_gpu_ptr(_address(dst), nbytes=_needed(nbytes), offset=offset, bias=bias)
        if device == "cuda":
            return self.buffer_get_cuda(dst, nbytes=nbytes, offset=offset, bias=bias)
        return self.region.read_into(dst, _offset(offset, bias), _count(nbytes))

    def buffer_put_cpu(self, src: ArrayLike, *, nbytes: int | None = None, offset: int = 0, bias: int | None = None) -> int:
        """As :meth:`put`."""
        return self.region.write(src, _offset(offset, bias), _count(nbytes))

    def buffer_get_cpu_into(self, dst: ArrayLike, *, nbytes: int | None = None, offset: int = 0,
                            bias: int | None = None) -> int:
        """As :meth:`get_into`."""
        return self.region.read_into(dst, _offset(offset, bias), _count(nbytes))

    def buffer_get_cpu(self, *, nbytes: int, offset: int = 0, bias: int | None = None) -> bytearray:
        """A copy of ``nbytes`` bytes."""
        return self.region.read(integer("nbytes", nbytes), _offset(offset, bias))

    def buffer_put_gpu_ptr(self, src_ptr: int = MISSING, *, nbytes: int, offset: int = 0, bias: int | None = None,
                           ptr: int = MISSING) -> int:
        """Copies from an address that the host can read; the caller vouches for it. Returns the bytes."""
        place = integer("src_ptr", either("src_ptr", src_ptr, "ptr", ptr))
        return self.region.write_from_address(place, _needed(nbytes), _offset(offset, bias))

    def buffer_get_gpu_ptr(self, dst_ptr: int = MISSING, *, nbytes: int, offset: int = 0, bias: int | None = None,
                           ptr: int = MISSING) -> int:
        """Copies to an address that the host can write; the caller vouches for it. Returns the bytes."""
        place = integer("dst_ptr", either("dst_ptr", dst_ptr, "ptr", ptr))
        return self.region.read_to_address(place, _needed(nbytes), _offset(offset, bias))

    def buffer_put_cuda(self, t: object, *, nbytes: int | None = None, offset: int = 0, bias: int | None = None) -> int:
        """A tensor on a device: not in this version."""
        raise _no_tensor(t)

    def buffer_get_cuda(self, t: object, *, nbytes: int | None = None, offset: int = 0, bias: int | None = None) -> int:
        """A tensor on a device: not in this version."""
        raise _no_tensor(t)

    def buffer_copy_within(self, *, dst_offset: int, src_offset: int, nbytes: int) -> None:
        """Copies within the buffer. The ranges may overlap."""
        self.core.copyWithin(dst_offset, src_offset, nbytes)


def _needed(nbytes: int | None) -> int:
    if nbytes is None:
        raise InvalidArgument(status_t.INVALID_CONFIG, "an address needs nbytes", kind="invalid_config")
    return integer("nbytes", nbytes)


def _address(given: object) -> int:
    if isinstance(given, int):
        return given
    raise InvalidNumber(status_t.INVALID_CONFIG, f"device='ptr' needs an address, got {given!r}", kind="invalid_config")
