"""Enumerations with the names and numbers of the C++ HMC. Numbers that it does not have come after its own."""

from __future__ import annotations

from enum import IntEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

__all__ = ["status_t", "Status", "MemoryType", "ConnType", "CtrlTransport"]


class status_t(IntEnum):
    """What became of a call."""

    SUCCESS = 0
    ERROR = 1
    UNSUPPORT = 2
    INVALID_CONFIG = 3
    TIMEOUT = 4
    NOT_FOUND = 5

    @classmethod
    def _from_core(cls, st: object) -> Self:
        """Of whatever has that number; ERROR for a number that is none."""
        try:
            return cls(int(st))  # type: ignore[call-overload]  # whether it is one is asked here
        except (TypeError, ValueError):
            return cls(1)


#: The name of the older generation.
Status = status_t


class MemoryType(IntEnum):
    """Where bytes live."""

    DEFAULT = 0
    CPU = 1
    NVIDIA_GPU = 2
    AMD_GPU = 3
    CAMBRICON_MLU = 4
    MOORE_GPU = 5
    HUAWEI_ASCEND_NPU = 6
    HYGON_DCU = 7
    OPENCL = 8

    @classmethod
    def _from_core(cls, x: object) -> Self:
        """Of whatever has that number."""
        return cls(int(x))  # type: ignore[call-overload]  # or TypeError


class ConnType(IntEnum):
    """What moves the bytes. A transport that is named is never replaced by another; ``AUTO`` takes the best one."""

    RDMA = 0
    UCX = 1
    AUTO = 2
    SHM = 3
    TCP = 4
    LOOPBACK = 5

    @classmethod
    def _from_core(cls, x: object) -> Self:
        """Of whatever has that number."""
        return cls(int(x))  # type: ignore[call-overload]  # or TypeError


class CtrlTransport(IntEnum):
    """What carries control messages."""

    TCP = 0
    UDS = 1

    @classmethod
    def _from_core(cls, x: object) -> Self:
        """Of whatever has that number."""
        return cls(int(x))  # type: ignore[call-overload]  # or TypeError
