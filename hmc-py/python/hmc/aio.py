"""Operations in asyncio: ``await op``.

One descriptor and one reader for each event loop. The thread that ends an operation writes to the descriptor and waits for
nobody; the loop then looks.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref

from . import _hmc

__all__ = ["awaitable"]

_lines = weakref.WeakKeyDictionary()


class _Line:
    """What one event loop waits for."""

    def __init__(self, loop):
        self.bell = _hmc.Bell()
        self.keys = itertools.count(1)
        self.waiting = {}
        loop.add_reader(self.bell.fileno(), self.rung)

    def rung(self):
        for key in self.bell.take():
            op, future = self.waiting.pop(key, (None, None))
            if op is None or future.done():
                continue
            if not op._watch(self.bell, key):
                # Rung for nothing: it waits on.
                self.waiting[key] = (op, future)
                continue
            settle(op, future)

    def add(self, op, loop):
        future = loop.create_future()
        key = next(self.keys)
        self.waiting[key] = (op, future)
        if op._watch(self.bell, key):
            del self.waiting[key]
            settle(op, future)
        else:
            future.add_done_callback(lambda f: self.cancelled(f, key))
        return future

    def cancelled(self, future, key):
        if future.cancelled() and (found := self.waiting.pop(key, None)):
            found[0].cancel()


def settle(op, future):
    """Hands the result of an operation that has ended to its future."""
    try:
        future.set_result(op.wait(0))
    except Exception as e:  # whatever it failed with is the awaiter's
        future.set_exception(e)


def awaitable(op):
    """A future of the running loop that ends with the operation. Cancelling it cancels the operation."""
    loop = asyncio.get_running_loop()
    line = _lines.get(loop)
    if line is None:
        line = _lines[loop] = _Line(loop)
    return line.add(op, loop)
