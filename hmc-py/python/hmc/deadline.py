"""One time for a call that waits for several things."""

from __future__ import annotations

import os
import time

from .errors import invalid

__all__ = ["DEFAULT", "end_of", "left"]

def _default() -> float:
    """What ``HMC_TIMEOUT`` says, if that is a time."""
    try:
        seconds = float(os.environ.get("HMC_TIMEOUT", ""))
    except ValueError:
        return 30.0
    return seconds if seconds >= 0 else 30.0


#: Seconds that a blocking call takes at most when it is given none, and its session has no deadline of its own.
DEFAULT = _default()


def end_of(timeout: float | None, default: float = DEFAULT) -> float:
    """When ``timeout`` seconds from now are over; ``default`` if None. Raises ``InvalidArgument`` for what is no time."""
    if timeout is None:
        timeout = default
    if not timeout >= 0:
        raise invalid(f"timeout={timeout}: give seconds, 0 or more")
    return time.monotonic() + timeout


def left(end: float) -> float:
    """Seconds until then; 0 when it is over."""
    return max(end - time.monotonic(), 0.0)
