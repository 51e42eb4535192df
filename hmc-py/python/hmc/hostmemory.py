"""Host memory by the names of the C++ HMC's binding: ``Memory``, ``Buffer``, and which kinds there are."""

from __future__ import annotations

from .args import address, integer
from .buffer import host_only
from .enums import MemoryType, status_t
from .errors import Busy, InvalidNumber, invalid
from .memory import flat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .typing import ArrayLike

__all__ = ["Buffer", "Memory", "memory_supported", "memory_type_from_torch_tensor"]


class Buffer(bytearray):
    """Host memory that :class:`Memory` allocated: zeroed bytes, for all calls that take objects with bytes.

    Attributes:
        ptr: the address of the first byte.
        size: how many bytes.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size
        self.ptr = self._pinned()

    def _pinned(self) -> int:
        """From here on the bytes stay where they are; their address."""
        import ctypes  # most programs need none

        self._pin: Any = (ctypes.c_char * self.size).from_buffer(self)
        return ctypes.addressof(self._pin)

    def _free(self) -> None:
        if self._pin is None:
            raise invalid("this buffer was freed before")
        self._pin = None
        try:
            self.clear()
        except BufferError:
            self._pinned()
            raise Busy(status_t.ERROR, "the buffer is in use: a view or an operation still has it", kind="busy") from None

    def __repr__(self) -> str:
        return f"<hmc.Buffer: {self.size} bytes{'' if self._pin is not None else ', freed'}>"


class Memory:
    """Memory of a device, and copies between it and the host. This version has host memory only."""

    def __init__(self, device_id: int = 0, mem_type: MemoryType = MemoryType.DEFAULT) -> None:
        self.setDeviceIdAndMemoryType(device_id, mem_type)

    def setDeviceIdAndMemoryType(self, device_id: int, mem_type: MemoryType = MemoryType.DEFAULT) -> status_t:
        """Another device, another kind of memory. Raises ``Unavailable`` for what cannot be had."""
        self._type = _host(mem_type)
        self._device_id = integer("device_id", device_id, -(2**31), 2**31 - 1)
        return status_t.SUCCESS

    def createMemoryClass(self, mem_type: MemoryType) -> Memory:
        """A :class:`Memory` of that kind on the same device."""
        return Memory(self._device_id, mem_type)

    def init(self) -> status_t:
        """Host memory needs none."""
        return status_t.SUCCESS

    def free(self) -> status_t:
        """Host memory needs none."""
        return status_t.SUCCESS

    def getMemoryType(self) -> MemoryType:
        """The kind of memory."""
        return self._type

    def getInitStatus(self) -> status_t:
        """Whether it can be used."""
        return status_t.SUCCESS

    def getDeviceId(self) -> int:
        """The device that was asked for."""
        return self._device_id

    def allocateBuffer(self, size: int) -> tuple[status_t, Buffer | None]:
        """``size`` zeroed bytes; ERROR and None where there is no memory for them."""
        try:
            return status_t.SUCCESS, Buffer(integer("size", size))
        except (MemoryError, OverflowError) as e:
            if isinstance(e, InvalidNumber):
                raise
            return status_t.ERROR, None

    def allocatePeerableBuffer(self, size: int) -> tuple[status_t, Buffer | None]:
        """As :meth:`allocateBuffer`: all host memory can be registered."""
        return self.allocateBuffer(size)

    def freeBuffer(self, buf: Buffer | None, /) -> status_t:
        """Frees a buffer: it has no bytes any more. One that something still uses raises ``Busy`` and stays; ERROR for None,
        and for a capsule, whose memory is not of this class."""
        if buf is None or type(buf).__name__ == "PyCapsule":
            return status_t.ERROR
        if not isinstance(buf, Buffer):
            raise TypeError(f"freeBuffer() takes a Buffer, not {type(buf).__name__}")
        buf._free()
        return status_t.SUCCESS

    def copyHostToDevice(self, dst: ArrayLike | int, src: ArrayLike | int, size: int) -> status_t:
        """Copies ``size`` bytes. Both are objects with bytes, or addresses (numbers or capsules) that the caller vouches for;
        ERROR for None."""
        return _copy(dst, src, size)

    def copyDeviceToHost(self, dst: ArrayLike | int, src: ArrayLike | int, size: int) -> status_t:
        """As :meth:`copyHostToDevice`."""
        return _copy(dst, src, size)

    def copyDeviceToDevice(self, dst: ArrayLike | int, src: ArrayLike | int, size: int) -> status_t:
        """As :meth:`copyHostToDevice`."""
        return _copy(dst, src, size)


def _host(mem_type: MemoryType) -> MemoryType:
    host_only(mem_type)
    return MemoryType.CPU


def _copy(dst: Any, src: Any, size: int) -> status_t:
    import ctypes

    size = integer("size", size)
    if dst is None or src is None:
        return status_t.ERROR
    dst, src = address(dst), address(src)
    if isinstance(dst, int) and isinstance(src, int):
        ctypes.memmove(dst, src, size)
        return status_t.SUCCESS
    to, come_from = flat(dst, size, writable=True, what="dst"), flat(src, size, what="src")
    to[:] = come_from
    return status_t.SUCCESS


def memory_supported() -> MemoryType:
    """The kind of memory that this build has."""
    return MemoryType.CPU


def memory_type_from_torch_tensor(t: object, *, default: MemoryType | None = None) -> MemoryType:
    """Where a torch tensor lives; ``default``, or DEFAULT, for a device that has no name here. Raises ``TypeError`` for what is
    no tensor."""
    kind = getattr(getattr(t, "device", None), "type", None)
    if kind is None:
        raise TypeError("Expected a torch.Tensor")
    if kind == "cpu":
        return MemoryType.CPU
    if kind == "cuda":
        import torch

        return MemoryType.AMD_GPU if getattr(torch.version, "hip", None) else MemoryType.NVIDIA_GPU
    named: dict[str | None, MemoryType] = {
        "mlu": MemoryType.CAMBRICON_MLU, "musa": MemoryType.MOORE_GPU, "npu": MemoryType.HUAWEI_ASCEND_NPU,
    }
    return named.get(kind, MemoryType.DEFAULT if default is None else default)
