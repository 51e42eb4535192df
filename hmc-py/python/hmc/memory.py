"""Memory in the terms of the C++ HMC: an object with bytes, or an address with a size."""

from __future__ import annotations

from . import _hmc
from .errors import invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .typing import ArrayLike

__all__ = ["flat", "nbytes_of"]


def flat(obj: ArrayLike | int, size: int | None = None, *, writable: bool = False, what: str = "the object") -> memoryview:
    """The first ``size`` bytes of an object, or of the memory at an address, in C order.

    They are the object's own, but for those of a source with gaps, which are a copy. Raises ``InvalidArgument`` for an address
    without a size, for an object that has fewer bytes, and with ``writable`` for one that is read-only or has gaps.
    """
    if size is not None and size < 0:
        raise invalid(f"{size} bytes of {what}: give 0 or more")
    if isinstance(obj, int):
        if size is None:
            raise invalid(f"{what} is an address and needs a size")
        import ctypes  # most programs need none

        return memoryview((ctypes.c_char * size).from_address(obj)).cast("B")
    view = memoryview(_hmc.View(obj, writable))
    if size is not None and view.nbytes < size:
        raise invalid(f"{what} has {view.nbytes} bytes, and {size} are asked for")
    return view[:size]


def nbytes_of(obj: ArrayLike | int) -> int:
    """Bytes of an array, tensor, or bytes-like object. Raises ``InvalidArgument`` for an address."""
    if isinstance(obj, int):
        raise invalid("an address needs a size")
    n = getattr(obj, "nbytes", None)
    return n if isinstance(n, int) else memoryview(_hmc.View(obj)).nbytes
