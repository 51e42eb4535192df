"""Operations in asyncio: ``await op``.

One descriptor and one reader for each event loop. The thread that ends an operation writes to the descriptor and waits for
nobody; the loop then looks.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref

from . import _hmc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._hmc import Op

__all__ = ["awaitable"]

#: What each loop waits for. Only the loop holds it, by its reader: it names the loop itself.
_lines: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Line]] = weakref.WeakKeyDictionary()


class _Line:
    """What one event loop waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waker = _hmc.Waker()
        self.keys = itertools.count(1)
        self.waiting: dict[int, tuple[Op, asyncio.Future[int]]] = {}
        loop.add_reader(self.waker.fileno(), self.on_wake)

    def on_wake(self) -> None:
        for key in self.waker.take():
            found = self.waiting.pop(key, None)
            if found is None or found[1].done():
                continue
            op, future = found
            if not op._watch(self.waker, key):
                # Rung for nothing: it waits on.
                self.waiting[key] = (op, future)
                continue
            settle(op, future)

    def add(self, op: Op, loop: asyncio.AbstractEventLoop) -> asyncio.Future[int]:
        future: asyncio.Future[int] = loop.create_future()
        key = next(self.keys)
        self.waiting[key] = (op, future)
        if op._watch(self.waker, key):
            del self.waiting[key]
            settle(op, future)
        else:
            future.add_done_callback(lambda f: self.cancelled(f, key))
        return future

    def cancelled(self, future: asyncio.Future[int], key: int) -> None:
        if future.cancelled() and (found := self.waiting.pop(key, None)):
            found[0].cancel()


def settle(op: Op, future: asyncio.Future[int]) -> None:
    """Hands the result of an operation that has ended to its future."""
    try:
        future.set_result(op.wait(0))
    except Exception as e:  # whatever it failed with is the awaiter's
        future.set_exception(e)


def awaitable(op: Op) -> asyncio.Future[int]:
    """A future of the running loop that ends with the operation. Cancelling it cancels the operation."""
    loop = asyncio.get_running_loop()
    known = _lines.get(loop)
    line = None if known is None else known()
    if line is None:
        line = _Line(loop)
        _lines[loop] = weakref.ref(line)
    return line.add(op, loop)
