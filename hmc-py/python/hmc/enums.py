"""Enumerations with the names and numbers of the C++ HMC. Numbers that it does not have come after its own."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["status_t", "Status", "MemoryType", "ConnType", "CtrlTransport"]


class status_t(IntEnum):
    """What became of a call."""

    SUCCESS = 0
    ERROR = 1
    UNSUPPORT = 2
    INVALID_CONFIG = 3
    TIMEOUT = 4
    NOT_FOUND = 5


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


class ConnType(IntEnum):
    """What moves the bytes. A transport that is named is never replaced by another; ``AUTO`` takes the best one."""

    RDMA = 0
    UCX = 1
    AUTO = 2
    SHM = 3
    TCP = 4
    LOOPBACK = 5


class CtrlTransport(IntEnum):
    """What carries control messages."""

    TCP = 0
    UDS = 1
