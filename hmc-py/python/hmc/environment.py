"""What the environment says in place of a program that does not. hmc-std reads the other variables; docs/ENVIRONMENT.md has all."""

from __future__ import annotations

import os

from .enums import ConnType
from .errors import invalid

__all__ = ["accepts_upstream", "control_transport", "fallback"]

_INSTEAD = {"auto": ConnType.AUTO, "shm": ConnType.SHM, "tcp": ConnType.TCP, "ucx": ConnType.UCX}


def fallback() -> ConnType | None:
    """What ``HMC_CONN_FALLBACK`` names, to be taken where RDMA or UCX cannot be had. Raises ``InvalidArgument``."""
    name = os.environ.get("HMC_CONN_FALLBACK", "")
    if not name:
        return None
    try:
        return _INSTEAD[name.lower()]
    except KeyError:
        raise invalid(f"HMC_CONN_FALLBACK={name!r}: give {', '.join(_INSTEAD)}, or unset it") from None


def accepts_upstream() -> bool:
    """Whether ``HMC_ACCEPT_UPSTREAM`` lets nodes of the C++ HMC connect. Raises ``InvalidArgument``."""
    given = os.environ.get("HMC_ACCEPT_UPSTREAM", "")
    if given not in ("", "0", "1"):
        raise invalid(f"HMC_ACCEPT_UPSTREAM={given!r}: give 1 (yes) or 0 (no), or unset it")
    return given == "1"


def control_transport() -> str:
    """``CTRL_TRANSPORT`` as the C++ HMC reads it: ``"uds"``, any other text for TCP, ``""`` where the addresses decide."""
    return os.environ.get("CTRL_TRANSPORT", "").strip().lower()
