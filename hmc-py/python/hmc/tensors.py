"""Arrays and tensors by rank, with their shapes and dtypes: ``isend``, ``irecv``, and batches of them.

A tensor travels as two messages: a header of fixed size, and its bytes, which are read and written where they lie. Messages of
a pair of ranks are matched in order, and share that order with ``send_data`` and ``recv_data``.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from collections import namedtuple
from types import GenericAlias

from . import _hmc
from .deadline import end_of, left
from .errors import DeadlineExceeded, HMCStatusError, InvalidArgument
from .errors import invalid as _bad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, Generic, Literal, NamedTuple, Self

    import numpy
    import torch

    from ._hmc import Op, Peer
    from .typing import A, ArrayLike

    class _Meta(NamedTuple):
        dtype: str
        shape: tuple[int, ...]
        nbytes: int
        tag: int

    class _P2POp(NamedTuple):
        op: Literal["send", "recv"]
        tensor: ArrayLike
        rank: int
        tag: int = 0
else:
    # TensorOp has no other base at run time: typing would have to be imported for one.
    A, Generic = None, {None: object}
    _Meta = namedtuple("Meta", "dtype shape nbytes tag")
    _P2POp = namedtuple("P2POp", "op tensor rank tag", defaults=(0,))

__all__ = ["Meta", "P2POp", "TensorOp", "describe"]

#: Magic, version, dimensions, dtype, tag, bytes, extents.
_HEADER = struct.Struct("<4sBB2x32sQQ16q")
_MAGIC, _VERSION, MAX_DIMS = b"HMCT", 1, 16

_OUT_OF_STEP = "the peer's calls and ours are out of step"

#: Seconds that operations which were withdrawn may take to end.
_WITHDRAWN = 1.0

#: What `struct` calls numbers, by NumPy's kinds.
_KINDS = {**dict.fromkeys("bhilqn", "int"), **dict.fromkeys("BHILQN", "uint"), **dict.fromkeys("efd", "float")}
_NATIVE = "@=<" if sys.byteorder == "little" else "@=>!"


class Meta(_Meta):
    """What a tensor is: dtype (NumPy's or torch's name for it), shape, bytes, and the sender's tag."""

    __slots__ = ()

    def pack(self) -> bytes:
        """The header."""
        if len(self.shape) > MAX_DIMS:
            raise _bad(f"{len(self.shape)} dimensions: at most {MAX_DIMS} can be sent")
        name = self.dtype.encode()
        if len(name) > 32:
            raise _bad(f"dtype {self.dtype} has a name of more than 32 bytes; send a view of bytes")
        if not 0 <= self.tag < 1 << 64:
            raise _bad(f"tag={self.tag}: tags are 0 to 2**64-1")
        extents = tuple(self.shape) + (0,) * (MAX_DIMS - len(self.shape))
        return _HEADER.pack(_MAGIC, _VERSION, len(self.shape), name, self.tag, self.nbytes, *extents)

    @classmethod
    def unpack(cls, header: bytes | bytearray) -> Self:
        """Reads a header."""
        if len(header) != _HEADER.size:
            raise _bad(f"a message of {len(header)} bytes came where a tensor's header was expected: {_OUT_OF_STEP}")
        magic, version, ndim, name, tag, nbytes, *extents = _HEADER.unpack(header)
        if magic != _MAGIC or version != _VERSION or ndim > MAX_DIMS or min(extents) < 0:
            raise _bad(f"a message came that is no tensor: {_OUT_OF_STEP}")
        return cls(name.rstrip(b"\0").decode(), tuple(extents[:ndim]), nbytes, tag)


def describe(obj: ArrayLike, tag: int = 0) -> Meta:
    """What an array, tensor or bytes-like object is. What has DLPack and no dtype of its own are bytes.

    >>> describe(bytearray(3))
    Meta(dtype='uint8', shape=(3,), nbytes=3, tag=0)
    """
    dtype = getattr(obj, "dtype", None)
    if dtype is None:
        try:
            view = memoryview(obj)  # type: ignore[arg-type]  # what has DLPack alone is below
        except TypeError:
            view = memoryview(_hmc.View(obj))
        return Meta(_named(view.format, view.itemsize), tuple(view.shape or ()), view.nbytes, tag)
    array: Any = obj
    shape = tuple(int(n) for n in array.shape)
    if hasattr(array, "element_size"):
        return Meta(str(dtype).removeprefix("torch."), shape, array.numel() * array.element_size(), tag)
    # Names leave out lengths, fields, and the order of bytes.
    plain = dtype.isnative and (dtype.kind not in "SUV" or dtype.type.__name__ not in ("bytes_", "str_", "void"))
    name = dtype.str + _fields_mark(dtype) if dtype.fields else dtype.name if plain else dtype.str
    return Meta(name, shape, int(array.nbytes), tag)


def _fields_mark(dtype: Any) -> str:
    """What tells the fields of a structured dtype from others': ``#`` and a digest of their names, places and types. The
    header has no space for the fields themselves."""
    from hashlib import blake2b  # most programs send numbers

    return "#" + blake2b(repr(_layout(dtype)).encode(), digest_size=8).hexdigest()


def _layout(dtype: Any) -> object:
    """A dtype as plain tuples, the same for every version of NumPy."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return _layout(base), tuple(int(n) for n in shape)
    if not dtype.fields:
        return str(dtype.str)
    places = ((str(name), int(dtype.fields[name][1]), _layout(dtype.fields[name][0])) for name in dtype.names)
    return tuple(places), int(dtype.itemsize)


def _named(form: str, itemsize: int) -> str:
    """NumPy's name for a format of `struct`; the format itself where it has none: records, numbers of another byte order."""
    code = form[1:] if form[0] in _NATIVE or (itemsize == 1 and form[0] in "<>!") else form
    if code == "c":
        return "uint8"
    if code == "?":
        return "bool"
    kind = _KINDS.get(code)
    return form if kind is None else f"{kind}{8 * itemsize}"


class P2POp(_P2POp):
    """One of a batch: ``P2POp("send" or "recv", tensor, rank, tag=0)``; the next tensor of a rank must have the tag."""

    __slots__ = ()


class TensorOp(Generic[A]):
    """A tensor under way. ``wait()`` returns the tensor; it can be awaited."""

    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(GenericAlias)

    def __init__(self, tensor: A, header_op: Op, body_op: Op, check: Callable[[list[int]], None] | None = None,
                 hold: object = None) -> None:
        self.tensor = tensor
        self._ops = (header_op, body_op)
        self._check = check
        self._hold = hold

    def wait(self, timeout: float | None = None) -> A:
        """Waits for the end and returns the tensor. Raises ``DeadlineExceeded`` when it has not ended within ``timeout``
        seconds (default: the session's deadline; it can be waited for again), ``InvalidArgument`` when what came is of another dtype, shape or
        tag than the tensor, else why it failed."""
        # Each operation has its session's own.
        end = None if timeout is None else end_of(timeout, timeout)
        moved: list[int] = []
        for op in self._ops:
            try:
                moved.append(op.wait(None if end is None else left(end)))
            except InvalidArgument:
                self._explain(moved)
                raise
        return self._ended(moved)

    def _finish(self, timeout: float) -> A:
        """As :meth:`wait`, for a call that began it itself: what has not ended when this raises is withdrawn. Else it would be
        matched with the peer's next messages, and touch the tensor when the call is over."""
        try:
            return self.wait(timeout)
        except BaseException as e:
            self.cancel()
            moved = self._withdrawn()
            if len(moved) < len(self._ops) or not isinstance(e, DeadlineExceeded):
                raise
        # It came to its end before it was withdrawn.
        return self._ended(moved)

    def _withdrawn(self) -> list[int]:
        """Waits for the ends of both operations; how many bytes those moved that succeeded."""
        end = end_of(_WITHDRAWN, _WITHDRAWN)
        moved: list[int] = []
        for op in self._ops:
            with contextlib.suppress(HMCStatusError):
                moved.append(op.wait(left(end)))
        return moved

    def _ended(self, moved: list[int]) -> A:
        self._explain(moved)
        return self.tensor

    def _explain(self, moved: list[int]) -> None:
        """Raises when what came is not what was expected: it says more than a length that does not fit. ``moved``: the bytes of
        the header, and of the tensor, as far as they came."""
        if self._check is not None:
            self._check(moved)

    def done(self) -> bool:
        """Whether it has ended. Waits for nothing."""
        return all(op.done() for op in self._ops)

    def cancel(self) -> None:
        """Asks it to end; it still has to be waited for."""
        # The bytes first: alone they would be matched with the next tensor's header.
        for op in reversed(self._ops):
            op.cancel()

    def __await__(self) -> Generator[Any, None, A]:
        from asyncio import CancelledError  # whoever awaits has it

        moved: list[int] = []
        for op in self._ops:
            try:
                moved.append((yield from op.__await__()))
            except InvalidArgument:
                self._explain(moved)
                raise
            except CancelledError:
                # The other message, too: it would be matched with the next tensor's header.
                self.cancel()
                raise
        return self._ended(moved)


def isend(peer: Peer, tensor: A, tag: int = 0) -> TensorOp[A]:
    """Begins to send a tensor to a peer."""
    # First of all: what has no bytes may have no shape either.
    body = _hmc.View(tensor, lasts=True)
    header = describe(tensor, tag).pack()
    return TensorOp(tensor, *_begin(peer.isend_data, header, body), hold=header)


def irecv(peer: Peer, tensor: A, tag: int | None = None) -> TensorOp[A]:
    """Begins to receive a peer's next tensor into ``tensor``, which must be writable and C-contiguous."""
    body = _hmc.View(tensor, True, lasts=True)
    want = describe(tensor)
    header = bytearray(_HEADER.size)

    def check(moved: list[int]) -> None:
        came = Meta.unpack(header[:moved[0]] if moved else b"")
        _expect(tag, came)
        if (came.dtype, came.shape) != (want.dtype, want.shape):
            raise _bad(f"a tensor of {came.dtype}{list(came.shape)} came into one of {want.dtype}{list(want.shape)}")
        _whole(came, want.nbytes, moved[-1] if len(moved) > 1 else came.nbytes)

    return TensorOp(tensor, *_begin(peer.irecv_data, header, body), check, header)


def _begin(message: Callable[[ArrayLike], Op], header: ArrayLike, body: _hmc.View) -> tuple[Op, Op]:
    """Begins both messages of a tensor, or none. What cannot be moved was refused by :class:`View` before."""
    first = message(header)
    try:
        return first, message(body)
    except BaseException:
        first.cancel()
        raise


def recv_new(peer: Peer, tag: int | None, like: str, end: float) -> numpy.ndarray[Any, Any] | torch.Tensor:
    """Receives a peer's next tensor into a new one until ``end``. ``like``: ``"numpy"`` or ``"torch"``."""
    header = bytearray(_HEADER.size)
    meta = Meta.unpack(header[:peer.recv_data(header, left(end))])
    try:
        tensor = _empty(meta, like)
        nbytes = describe(tensor).nbytes
        _whole(meta, nbytes, nbytes)
    except BaseException:
        # Its bytes come next, and have no place: their sender is told.
        with contextlib.suppress(HMCStatusError):
            peer.recv_data(bytearray(), left(end))
        raise
    came = peer.recv_data(tensor, left(end))
    _expect(tag, meta)
    _whole(meta, nbytes, came)
    return tensor


def _expect(tag: int | None, meta: Meta) -> None:
    if tag is not None and meta.tag != tag:
        raise _bad(f"a tensor with tag {meta.tag} came where tag {tag} was expected")


def _whole(meta: Meta, nbytes: int, came: int) -> None:
    """Refuses a tensor whose bytes are not as many as its dtype and shape have: a part of what it is received into would keep
    what was there before."""
    if meta.nbytes != nbytes:
        raise _bad(f"a header came that says {meta.nbytes} bytes of a tensor of {meta.dtype}{list(meta.shape)}, which has {nbytes}")
    if came != nbytes:
        raise _bad(f"{came} bytes came of a tensor of {nbytes}: {_OUT_OF_STEP}")


def _empty(meta: Meta, like: str) -> numpy.ndarray[Any, Any] | torch.Tensor:
    if "#" in meta.dtype:
        raise _bad(f"a structured array came ({meta.dtype}), and its fields do not travel: receive it with irecv into an array of "
                   "its dtype")
    if like == "torch":
        import torch

        dtype = getattr(torch, meta.dtype, None)
        if dtype is None:
            raise _bad(f"torch has no dtype {meta.dtype}")
        return torch.empty(meta.shape, dtype=dtype)
    import numpy

    try:
        dtype = numpy.dtype(meta.dtype)
    except TypeError:
        # bfloat16 and its like come with a package of their own.
        try:
            import ml_dtypes

            dtype = numpy.dtype(getattr(ml_dtypes, meta.dtype))
        except (ImportError, AttributeError, TypeError):
            raise _bad(f"NumPy has no dtype {meta.dtype}: ask for like='torch', or install ml_dtypes") from None
    return numpy.empty(meta.shape, dtype)
