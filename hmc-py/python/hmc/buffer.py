"""The staged path of the seeds: one buffer of a session, with copies in and out by offset.

:class:`IOBuffer` has the names of the C++ HMC's Python package, :class:`ConnBuffer` those of its binding. Both are the same
memory, that of a session to be: ``Session(buf)`` makes it reachable. Offsets are called ``offset``; ``bias`` means the same.
"""

from __future__ import annotations

import os
import sys

from . import _hmc
from .enums import MemoryType, status_t
from .errors import InvalidArgument, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, Self, overload

    from .typing import ArrayLike

__all__ = ["ConnBuffer", "IOBuffer"]

#: Bytes of a session's buffer when nothing is said: 128 MiB.
DEFAULT_BUFFER_SIZE = 128 * 1024 * 1024


def host_only(mem_type: MemoryType) -> MemoryType:
    """Refuses memory that this version cannot have. ``DEFAULT`` is host memory."""
    kind = MemoryType(mem_type)
    if kind in (MemoryType.DEFAULT, MemoryType.CPU):
        return MemoryType.CPU
    raise Unavailable(
        status_t.UNSUPPORT,
        f"memory of {kind.name} cannot be had: this version reaches host memory only; use MemoryType.CPU",
        kind="unavailable",
    )


def surroundings() -> dict[str, object]:
    """What a session is told of the interpreter and the environment."""
    return {"prefix": sys.prefix, "fallback": bool(os.environ.get("HMC_CONN_FALLBACK"))}


def _offset(offset: int, bias: int | None) -> int:
    return offset if bias is None else bias


class ConnBuffer:
    """One registered buffer, by the names of the C++ HMC's binding. Sizes and ``bias`` are in bytes.

    ``src`` and ``dst`` are objects with bytes (see :mod:`hmc`), or addresses in this process as numbers.
    """

    def __init__(self, device_id: int = 0, buffer_size: int = DEFAULT_BUFFER_SIZE,
                 mem_type: MemoryType = MemoryType.DEFAULT) -> None:
        self.mem_type = host_only(mem_type)
        self.device_id = device_id
        self._core = _hmc.Core(buffer_size=buffer_size, settings=surroundings())
        self._region = self._core.region

    @classmethod
    def _of(cls, core: _hmc.Core) -> Self:
        self = cls.__new__(cls)
        self.mem_type, self.device_id, self._core, self._region = MemoryType.CPU, 0, core, core.region
        return self

    @property
    def ptr(self) -> int:
        """The address of the first byte."""
        return self._region.ptr

    @property
    def buffer_size(self) -> int:
        """Size in bytes."""
        return self._region.nbytes

    def writeFromCpu(self, src: ArrayLike | int, size: int | None = None, bias: int = 0) -> status_t:
        """Copies ``size`` bytes in at ``bias``."""
        if isinstance(src, int):
            self._region.write_from_address(src, _needed(size), bias)
        else:
            self._region.write(src, bias, size)
        return status_t.SUCCESS

    def readToCpu(self, dst: ArrayLike | int, size: int | None = None, bias: int = 0) -> status_t:
        """Copies ``size`` bytes at ``bias`` out."""
        if isinstance(dst, int):
            self._region.read_to_address(dst, _needed(size), bias)
        else:
            self._region.read_into(dst, bias, size)
        return status_t.SUCCESS

    def writeFromGpu(self, src: object, size: int | None = None, bias: int = 0) -> status_t:
        """Device memory: not in this version."""
        raise _no_gpu()

    def readToGpu(self, dst: object, size: int | None = None, bias: int = 0) -> status_t:
        """Device memory: not in this version."""
        raise _no_gpu()

    def copyWithin(self, dst_bias: int, src_bias: int, size: int) -> status_t:
        """Copies within the buffer. The ranges may overlap."""
        self._region.copy_within(dst_bias, src_bias, size)
        return status_t.SUCCESS


def _no_gpu() -> Unavailable:
    return Unavailable(
        status_t.UNSUPPORT,
        "device memory (CUDA, ROCm and others) cannot be reached by this version: copy the tensor to the host first",
        kind="unavailable",
    )


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
    """

    def __init__(self, buf: ConnBuffer) -> None:
        self._buf = buf
        self._region = buf._region

    @classmethod
    def create(cls, device_id: int = 0, buffer_size: int = DEFAULT_BUFFER_SIZE, mem_type: MemoryType = MemoryType.CPU) -> Self:
        """A buffer of ``buffer_size`` bytes. Its bytes are zero; pages are taken as they are touched."""
        return cls(ConnBuffer(device_id, buffer_size, mem_type))

    @property
    def conn_buffer(self) -> ConnBuffer:
        """The same memory by the binding's names."""
        return self._buf

    @property
    def region(self) -> _hmc.Region:
        """The same memory as a :class:`Region`, the source and target of the newer calls."""
        return self._region

    @property
    def ptr(self) -> int:
        """The address of the first byte."""
        return self._region.ptr

    @property
    def mem_type(self) -> MemoryType:
        """Where it lives."""
        return self._buf.mem_type

    @property
    def device_id(self) -> int:
        """The device it was asked for on."""
        return self._buf.device_id

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self._region.nbytes

    def __len__(self) -> int:
        return self._region.nbytes

    if TYPE_CHECKING:
        @overload
        def put(self, data: ArrayLike, *, nbytes: int | None = None, offset: int = 0, device: Literal["cpu"] | None = None,
                bias: int | None = None) -> int: ...
        @overload
        def put(self, data: int, *, nbytes: int, offset: int = 0, device: Literal["ptr"],
                bias: int | None = None) -> int: ...

    def put(self, data: Any, *, nbytes: Any = None, offset: int = 0, device: str | None = None,
            bias: int | None = None) -> int:
        """Copies ``data`` in at ``offset`` and returns how many bytes.

        ``data``: bytes-like, a NumPy array of any shape and dtype without Python objects, a torch CPU tensor, or anything
        with the buffer protocol or DLPack; what has gaps is packed in C order. ``device``: None, ``"cpu"``, or ``"ptr"`` for an
        address with ``nbytes``. Raises ``OutOfRange`` when it does not fit; nothing is written then.
        """
        at = _offset(offset, bias)
        if device is None or device == "cpu":
            return self._region.write(data, at, nbytes)
        if device == "ptr":
            return self.buffer_put_gpu_ptr(data, nbytes=nbytes, offset=at)
        raise _device(device)

    if TYPE_CHECKING:
        @overload
        def get_into(self, dst: ArrayLike, *, nbytes: int | None = None, offset: int = 0, device: Literal["cpu"] | None = None,
                     bias: int | None = None) -> int: ...
        @overload
        def get_into(self, dst: int, *, nbytes: int, offset: int = 0, device: Literal["ptr"],
                     bias: int | None = None) -> int: ...

    def get_into(self, dst: Any, *, nbytes: Any = None, offset: int = 0, device: str | None = None,
                 bias: int | None = None) -> int:
        """Fills ``dst``, or its first ``nbytes`` bytes, from ``offset`` and returns how many bytes.

        ``dst`` must be writable and C-contiguous; else ``InvalidArgument``.
        """
        at = _offset(offset, bias)
        if device is None or device == "cpu":
            return self._region.read_into(dst, at, nbytes)
        if device == "ptr":
            return self.buffer_get_gpu_ptr(dst, nbytes=nbytes, offset=at)
        raise _device(device)

    def buffer_put_cpu(self, src: ArrayLike, *, nbytes: int | None = None, offset: int = 0, bias: int | None = None) -> int:
        """As :meth:`put`."""
        return self._region.write(src, _offset(offset, bias), nbytes)

    def buffer_get_cpu_into(self, dst: ArrayLike, *, nbytes: int | None = None, offset: int = 0,
                            bias: int | None = None) -> int:
        """As :meth:`get_into`."""
        return self._region.read_into(dst, _offset(offset, bias), nbytes)

    def buffer_get_cpu(self, *, nbytes: int, offset: int = 0, bias: int | None = None) -> bytearray:
        """A copy of ``nbytes`` bytes."""
        return self._region.read(nbytes, _offset(offset, bias))

    def buffer_put_gpu_ptr(self, ptr: int, *, nbytes: int, offset: int = 0, bias: int | None = None) -> int:
        """Copies from an address that the host can read; the caller vouches for it."""
        return self._region.write_from_address(int(ptr), _needed(nbytes), _offset(offset, bias))

    def buffer_get_gpu_ptr(self, ptr: int, *, nbytes: int, offset: int = 0, bias: int | None = None) -> int:
        """Copies to an address that the host can write; the caller vouches for it."""
        return self._region.read_to_address(int(ptr), _needed(nbytes), _offset(offset, bias))

    def buffer_put_cuda(self, t: object, *, nbytes: int | None = None, offset: int = 0, bias: int | None = None) -> int:
        """Device memory: not in this version."""
        raise _no_gpu()

    def buffer_get_cuda(self, t: object, *, nbytes: int | None = None, offset: int = 0, bias: int | None = None) -> int:
        """Device memory: not in this version."""
        raise _no_gpu()

    def buffer_copy_within(self, *, dst_offset: int, src_offset: int, nbytes: int) -> None:
        """Copies within the buffer. The ranges may overlap."""
        self._region.copy_within(dst_offset, src_offset, nbytes)


def _needed(nbytes: int | None) -> int:
    if nbytes is None:
        raise InvalidArgument(status_t.INVALID_CONFIG, "an address needs nbytes", kind="invalid_config")
    return nbytes


def _device(device: str) -> Unavailable | InvalidArgument:
    if device == "cuda":
        return _no_gpu()
    return InvalidArgument(
        status_t.INVALID_CONFIG, f"device={device!r}: give None, 'cpu' or 'ptr'", kind="invalid_config"
    )
