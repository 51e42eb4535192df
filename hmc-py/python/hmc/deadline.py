"""One time for a call that waits for several things."""

from __future__ import annotations

import math
import time

from .errors import invalid

__all__ = ["DEFAULT", "end_of", "left"]

#: Seconds that a blocking call takes at most when it is given none.
DEFAULT = 30.0


def end_of(timeout: float | None) -> float:
    """When ``timeout`` seconds from now are over; :data:`DEFAULT` if None. Raises ``InvalidArgument`` for what is no time."""
    if timeout is None:
        timeout = DEFAULT
    if not 0 <= timeout < math.inf:
        raise invalid(f"timeout={timeout}: give seconds, 0 or more")
    return time.monotonic() + timeout


def left(end: float) -> float:
    """Seconds until then; 0 when it is over."""
    return max(end - time.monotonic(), 0.0)
