"""HMC: one-sided transfers between registered memory of processes, with a control plane of ranks, tags and small messages.

Two sessions, here of one process::

    >>> import hmc, numpy as np
    >>> a = hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=4096)
    >>> b = hmc.Session(rank=1, buffer_size=4096)
    >>> peer = b.connect(a.address)                      # or s.peer(1): waits until rank 1 has connected
    >>> region = b.register(np.arange(4, dtype="i4"))    # in place: no staging copy
    >>> peer.put(region, remote_offset=8)                # on return rank 0 can read it
    >>> np.frombuffer(a.buffer, "i4", count=4, offset=8)
    array([0, 1, 2, 3], dtype=int32)
    >>> op = peer.get_nb(region, remote_offset=12)       # await op, or:
    >>> op.wait(timeout=1.5), region.array
    (16, array([1, 2, 3, 0], dtype=int32))
    >>> b.close(), a.close()
    (None, None)

Programs of the C++ HMC run unchanged: ``create_session``, ``init_server``, ``connect``, ``buf.put``, ``put_remote``; see
docs/python.md.

Objects with bytes, wherever one is asked for: bytes, bytearray, memoryview, NumPy arrays of any dtype without Python objects,
torch CPU tensors, and whatever has the buffer protocol or DLPack (host memory). A source with gaps is packed in C order;
destinations and registered memory must be C-contiguous; a read-only destination is refused. Tensors that are negated or
conjugated when they are read are resolved as sources; sparse, quantized, nested and wrapping ones are refused, as are masked
arrays. Device memory raises :class:`Unavailable` in this version. Arguments of a call must be left alone until it returns, those of an operation until it
has ended.

All sizes and offsets are in bytes, all times in seconds. Everything may be called from any thread.
"""

from __future__ import annotations

from ._hmc import Batch, Generations, Op, Peer, Piece, Region
from ._hmc import Remote as RemoteWindow
from ._hmc import Window, held
from .buffer import ConnBuffer, IOBuffer
from .collective import Group, GroupMember, alltoall, init_group
from .communicator import Communicator, CtrlLink
from .enums import ConnType, CtrlTransport, MemoryType, Status, status_t
from .errors import (
    Busy, Cancelled, Closed, DeadlineExceeded, Forked, HMCError, HMCStatusError, InvalidArgument, InvalidNumber, IoError, NoCredentials,
    NotFound, OutOfMemory, OutOfRange, PeerDead, Refused, Revoked, SystemLimit, Unavailable,
)
from . import hmc as hmc
from . import hmc as _core  # its name there
from .hostmemory import Buffer, Memory, memory_supported, memory_type_from_torch_tensor
from .session import Session, create_session
from .tensors import P2POp, TensorOp

__all__ = [
    "Batch", "Buffer", "Busy", "Cancelled", "Closed", "Communicator", "ConnBuffer", "ConnType", "CtrlLink", "CtrlTransport",
    "DeadlineExceeded", "Forked", "Generations", "Group", "GroupMember", "HMCError", "HMCStatusError", "IOBuffer", "InvalidArgument", "InvalidNumber",
    "IoError", "Memory",
    "MemoryType", "NoCredentials", "NotFound", "Op", "OutOfMemory", "OutOfRange", "P2POp", "Peer", "PeerDead", "Piece", "Refused",
    "Region", "RemoteWindow", "Revoked", "Session", "Status", "SystemLimit", "TensorOp", "Unavailable", "Window",
    "alltoall", "create_session", "held", "init_group", "memory_supported", "memory_type_from_torch_tensor", "status_t",
]

__version__ = "0.2.0"

#: What the C++ HMC's package has by its imports, and names of types: found when they are asked for.
_ELSEWHERE = {"Any": "typing", "IntEnum": "enum", "Literal": "typing", "Optional": "typing", "dataclass": "dataclasses",
              "DeviceHint": "hmc.typing"}


def __getattr__(name: str) -> object:
    module = _ELSEWHERE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(module), name)
