"""Names for annotations: what the calls of this package take and give::

    from hmc.typing import ArrayLike

    def publish(peer: hmc.Peer, data: ArrayLike) -> None: ...

The package itself imports this module for type checkers only: ``import hmc`` does without :mod:`typing`, which takes its time.
"""

from __future__ import annotations

import os
from typing import Any, Literal, ParamSpec, Protocol, TypedDict, TypeVar

__all__ = [
    "ArrayLike", "Choice", "DeviceHint", "Exchange", "Explanation", "PeerStats", "Reduction", "SessionStats", "Settings", "StrPath",
    "SupportsArrayInterface", "SupportsBuffer", "SupportsDLPack",
]


class SupportsBuffer(Protocol):
    """What has the buffer protocol: bytes, bytearray, memoryview, array, NumPy, :class:`hmc.Region`."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


class SupportsDLPack(Protocol):
    """What has DLPack: torch, NumPy, and others."""

    def __dlpack__(self) -> object: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


class SupportsArrayInterface(Protocol):
    """What has NumPy's array interface."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


#: Objects with bytes, as :mod:`hmc` describes them. Whether they are writable and C-contiguous no type says.
ArrayLike = SupportsBuffer | SupportsDLPack | SupportsArrayInterface

#: A path in the file system.
StrPath = str | os.PathLike[str]

#: One array, the same one that was given.
A = TypeVar("A", bound=ArrayLike)

P = ParamSpec("P")

#: How ``alltoall`` goes about it.
Exchange = Literal["auto", "direct", "ring"]

#: Where data is, for calls of the C++ HMC's guide.
DeviceHint = Literal["cpu", "cuda", "ptr"] | None

#: What becomes of several numbers.
Reduction = Literal["sum", "prod", "min", "max"]


class Settings(TypedDict, total=False):
    """Further keywords of :class:`hmc.Session`. Times are in seconds."""

    deadline: float
    heartbeat: float | None
    spin: float
    job: int | str
    secret_file: StrPath
    insecure_loopback: bool
    slots: int
    windows: int
    redial: bool
    accept_upstream: bool
    lazy: bool


class Choice(TypedDict):
    """A transport that was considered."""

    conn: str
    chosen: bool
    why: str


class Explanation(TypedDict):
    """What ``explain`` gives."""

    conn: str | None
    choices: list[Choice]
    trust: str
    target_checks: bool
    slower: list[str]
    text: str


class PeerStats(TypedDict):
    """Counters of a peer."""

    conn: str | None
    connected: bool
    puts: int
    gets: int
    failures: int
    bytes_out: int
    bytes_in: int
    messages_out: int
    messages_in: int
    overslept: int
    in_flight: int
    inbox: int
    exposed_bytes: int


class HeldMemory(TypedDict):
    """A piece of memory that a peer may still use: what ``hmc.held`` gives. ``since`` is a time as ``time.time`` has it."""

    nbytes: int
    peer: int
    reason: str
    since: float


class _Counters(TypedDict):
    """What all sessions count."""

    peers_lost: int
    panics_caught: int
    strangers_refused: int
    quarantined_bytes: int
    quarantined_links: int
    held: list[HeldMemory]
    ucx_registrations: int
    peers: dict[int, PeerStats]


class SessionStats(_Counters, total=False):
    """What ``stats`` gives: counters of the session, and of its peers by rank. ``others``: those of its further ranks, if it has
    such."""

    others: dict[int, SessionStats]
