"""The names of the C++ HMC's binding, which is a module ``hmc.hmc`` there: the same objects as in :mod:`hmc`."""

from __future__ import annotations

from .buffer import ConnBuffer
from .communicator import Communicator, CtrlLink
from .enums import ConnType, CtrlTransport, MemoryType, status_t
from .hostmemory import Buffer, Memory, memory_supported

__all__ = [
    "Buffer", "Communicator", "ConnBuffer", "ConnType", "CtrlLink", "CtrlTransport", "Memory", "MemoryType", "memory_supported",
    "status_t",
]
