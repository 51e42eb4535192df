"""Exceptions of HMC: one class for each family of errors.

All of them are :class:`HMCStatusError`, which is what the C++ HMC's package raises, and :class:`HMCError`. Families that
Python has a class for are that, too: a deadline is a ``TimeoutError``, a range that does not fit an ``IndexError``.

>>> issubclass(DeadlineExceeded, TimeoutError) and issubclass(DeadlineExceeded, HMCStatusError)
True
"""

from __future__ import annotations

from functools import cache

from . import _hmc
from .enums import status_t

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    E = TypeVar("E", bound="HMCStatusError")

__all__ = [
    "HMCError", "HMCStatusError", "OutOfRange", "InvalidArgument", "InvalidNumber", "NotFound", "DeadlineExceeded", "Cancelled",
    "PeerDead", "Closed", "Refused", "NoCredentials", "Revoked", "Busy", "OutOfMemory", "SystemLimit", "Unavailable",
    "IoError", "Forked",
]


class HMCError(RuntimeError):
    """Everything that HMC raises about itself."""


class HMCStatusError(HMCError):
    """A call failed.

    Attributes:
        status: the C++ HMC's :class:`status_t` for it; its text ends with the number. ``st`` is the argument's name there.
        msg: the text without the status.
        kind: the error's kind in words, finer than its class: ``"stale"``, ``"duplicate_rank"``.
        blame: whose fault it is: ``"caller"`` (the call makes no sense, or comes at the wrong time), ``"peer"``, ``"system"`` or
            ``"nobody"`` (a deadline, a cancellation, an interrupt).
        remedy: what to do about it: a clause without a full stop.
        peer: the rank it is about, or None.
        op: the name of the operation it is about, or None.
        side, offset, length, limit: for a range that does not fit: ``"local"`` or ``"remote"``, and bytes.
        limit_name, need, have: for a limit that was met: what is counted, what was needed, and what there is; else None.
    """

    def __init__(self, st: Any = status_t.ERROR, msg: str = "", *, status: Any = None, kind: str = "other",
                 blame: str | None = None, remedy: str | None = None, peer: int | None = None, op: str | None = None,
                 side: str | None = None, offset: int | None = None, length: int | None = None, limit: int | None = None,
                 limit_name: str | None = None, need: int | None = None, have: int | None = None) -> None:
        given = st if status is None else status
        try:
            given = status_t(given)
        except ValueError:
            pass  # the C++ HMC's takes anything
        super().__init__(f"{msg} (status={given})")
        self.status = given
        self.msg = msg
        self.kind = kind
        _, usual_blame, usual_remedy = _kinds().get(kind, ("", "nobody", ""))
        self.blame = usual_blame if blame is None else blame
        self.remedy = usual_remedy if remedy is None else remedy
        self.peer = peer
        self.op = op
        self.side = side
        self.offset = offset
        self.length = length
        self.limit = limit
        self.limit_name = limit_name
        self.need = need
        self.have = have

    def __reduce__(self) -> tuple[Callable[..., HMCStatusError], tuple[type[HMCStatusError], dict[str, Any]]]:
        # So that a worker process can hand it to its parent.
        return _rebuild, (type(self), dict(self.__dict__))


@cache
def _kinds() -> dict[str, tuple[str, str, str]]:
    return _hmc.error_kinds()


def _rebuild(cls: type[E], fields: dict[str, Any]) -> E:
    error = cls(fields["status"], fields["msg"])
    error.__dict__.update(fields)
    return error


class OutOfRange(HMCStatusError, IndexError):
    """A range exceeds its buffer or window. Nothing was written."""


class InvalidArgument(HMCStatusError, ValueError):
    """What was asked for makes no sense: a setting, a length, a shape."""


class InvalidNumber(InvalidArgument, TypeError, OverflowError):
    """An argument is no number, or one that it cannot be. A ``TypeError`` as in the C++ HMC's package."""


def invalid(what: str) -> InvalidArgument:
    """What is raised for an argument that makes no sense."""
    return InvalidArgument(status_t.INVALID_CONFIG, what, kind="invalid_config")


class NotFound(HMCStatusError, LookupError):
    """No peer, operation or window of that name; or it was waited for before."""


class DeadlineExceeded(HMCStatusError, TimeoutError):
    """A deadline passed. Whether the operation still runs, its documentation says."""


class Cancelled(HMCStatusError):
    """The operation was withdrawn."""


class PeerDead(HMCStatusError, ConnectionError):
    """The peer died, hung up or fell silent, or it has left in order (the message says which)."""


class Closed(HMCStatusError, ConnectionError):
    """The link is being ended in order, or this session is over."""


class Refused(HMCStatusError, ConnectionError):
    """The peer refused the connection, or does not speak this protocol."""


class NoCredentials(HMCStatusError, PermissionError):
    """Nothing proves who the peer is, and ``insecure`` was not asked for."""


class Revoked(HMCStatusError, PermissionError):
    """The window was taken back, or does not allow this access."""


class Busy(HMCStatusError):
    """The memory is in use, a table is full, or the memory is in quarantine."""


class OutOfMemory(HMCStatusError, MemoryError):
    """Not enough memory."""


class SystemLimit(HMCStatusError, OSError):
    """A limit of the system was reached: descriptors, locked memory."""


class Unavailable(HMCStatusError):
    """This machine, build or peer does not have it; the message says how to get it."""


class IoError(HMCStatusError, OSError):
    """The operating system failed."""


class Forked(HMCStatusError):
    """The process forked: the child may not use the parent's session."""
