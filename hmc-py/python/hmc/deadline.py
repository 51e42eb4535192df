"""One time for a call that waits for several things."""

from __future__ import annotations

import time

__all__ = ["DEFAULT", "end_of", "left"]

#: Seconds that a blocking call takes at most when it is given none.
DEFAULT = 30.0


def end_of(timeout: float | None) -> float:
    """When ``timeout`` seconds from now are over; :data:`DEFAULT` if None."""
    return time.monotonic() + (DEFAULT if timeout is None else timeout)


def left(end: float) -> float:
    """Seconds until then; 0 when it is over."""
    return max(end - time.monotonic(), 0.0)
