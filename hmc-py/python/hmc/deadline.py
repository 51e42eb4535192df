"""One time for a call that waits for several things."""

from __future__ import annotations

import time

from .errors import invalid

__all__ = ["end_of", "left"]


def end_of(timeout: float | None, default: float) -> float:
    """When ``timeout`` seconds from now are over; ``default`` if None. Raises ``InvalidArgument`` for what is no time."""
    if timeout is None:
        timeout = default
    if not timeout >= 0:
        raise invalid(f"timeout={timeout}: give seconds, 0 or more")
    return time.monotonic() + timeout


def left(end: float) -> float:
    """Seconds until then; 0 when it is over."""
    return max(end - time.monotonic(), 0.0)
