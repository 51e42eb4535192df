"""Arguments as programs of the C++ HMC give them: numbers are whatever ``int()`` takes, and some have an older name here."""

from __future__ import annotations

from .enums import ConnType, CtrlTransport, MemoryType, status_t
from .errors import InvalidNumber, invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["MISSING", "address", "conn_type", "control_transport", "either", "integer", "memory_type", "no_more", "no_others",
           "port", "text"]


class _Missing:
    """What stands for an argument that was not given, where None can be given."""

    def __repr__(self) -> str:
        return "..."


MISSING: Any = _Missing()


def no_others(call: str, instead: str, **given: object) -> None:
    """Refuses arguments that a form of a call does not have: nothing that is given is passed over."""
    for name, value in given.items():
        if value is not None:
            raise TypeError(f"{call} has no {name}=: {instead}")


def no_more(call: str, values: Iterator[object]) -> None:
    """Refuses positional arguments that are left."""
    for value in values:
        raise TypeError(f"{call} takes no more positional arguments: {value!r}")


def either(name: str, value: object, older: str, other: object) -> Any:
    """The argument, by its name or by the one that it had here before. Raises ``TypeError`` unless one was given."""
    if value is MISSING:
        if other is MISSING:
            raise TypeError(f"missing a required argument: '{name}'")
        return other
    if other is not MISSING:
        raise TypeError(f"'{name}' and '{older}' are the same argument: give one")
    return value


def integer(name: str, value: object, low: int = 0, high: int = 2**64 - 1) -> int:
    """What ``int()`` makes of it. Raises ``InvalidNumber`` for what is none, or beyond ``low`` to ``high``."""
    if type(value) is int and low <= value <= high:
        return value
    try:
        n = int(value)  # type: ignore[call-overload]  # whether it can be one is asked here
    except (TypeError, ValueError, OverflowError):
        raise InvalidNumber(status_t.INVALID_CONFIG, f"{name} must be int-like, got {value!r}", kind="invalid_config") from None
    if not low <= n <= high:
        raise InvalidNumber(status_t.INVALID_CONFIG, f"{name}={n}: {low} to {high}", kind="invalid_config")
    return int(n)


def port(name: str, value: object, low: int = 0) -> int:
    """A port. Raises ``InvalidNumber``, and ``InvalidArgument`` for a number that is none."""
    if isinstance(value, ConnType):
        raise invalid(f"{name}={value!r}: ports are numbers, {low} to 65535")
    n = integer(name, value, -(2**63), 2**63)
    if not low <= n <= 65535:
        raise invalid(f"port out of range: {n} ({name} is {low} to 65535)")
    return n


def _enum(kind: Any, value: object) -> Any:
    try:
        return kind(int(getattr(value, "value", value)))  # type: ignore[call-overload]
    except (TypeError, ValueError):
        text = f"Invalid {kind.__name__}: {value!r}"
        raise InvalidNumber(status_t.INVALID_CONFIG, text, kind="invalid_config") from None


def memory_type(value: object) -> MemoryType:
    """A kind of memory, of an enumeration or a number."""
    return value if type(value) is MemoryType else _enum(MemoryType, value)


def conn_type(value: object) -> ConnType:
    """A transport, of an enumeration or a number."""
    return value if type(value) is ConnType else _enum(ConnType, value)


def control_transport(value: object) -> CtrlTransport:
    """What carries control messages, of an enumeration or a number."""
    return value if type(value) is CtrlTransport else _enum(CtrlTransport, value)


def text(name: str, value: object) -> str:
    """A text, also that of a path. Raises ``TypeError``."""
    given = value.__fspath__() if hasattr(value, "__fspath__") else value
    if not isinstance(given, str):
        raise TypeError(f"{name} must be a text, got {value!r}")
    return given


def address(value: object) -> object:
    """The number that a capsule holds an address as; anything else is itself."""
    if type(value).__name__ != "PyCapsule":
        return value
    import ctypes  # most programs have no capsules

    api = ctypes.pythonapi
    name_of, pointer_of = api.PyCapsule_GetName, api.PyCapsule_GetPointer
    name_of.argtypes, name_of.restype = [ctypes.py_object], ctypes.c_void_p
    pointer_of.argtypes, pointer_of.restype = [ctypes.py_object, ctypes.c_void_p], ctypes.c_void_p
    return pointer_of(value, name_of(value)) or 0
