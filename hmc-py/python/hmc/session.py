"""Sessions: what a process says and does to its peers.

:class:`Session` has three generations of names over one machine: ranks and addresses (new), ``(ip, port)`` with separate
offsets (the C++ HMC's), and ``(ip, data)`` (its older guide).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading

from . import _hmc, environment, listeners, tensors
from .args import integer, no_more, no_others
from .buffer import DEFAULT_BUFFER_SIZE, ConnBuffer, IOBuffer, surroundings
from .deadline import end_of, left
from .enums import ConnType, MemoryType, status_t
from .errors import DeadlineExceeded, Forked, HMCStatusError, NotFound
from .errors import invalid as _invalid
from .seeds import SeedsGuide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Literal, Self, Unpack, overload

    import numpy
    import torch

    from ._hmc import Core, Generations, Peer, Region
    from .communicator import Communicator
    from .tensors import P2POp, TensorOp
    from .typing import A, ArrayLike, Explanation, SessionStats, Settings, StrPath

__all__ = ["Session", "create_session"]

log = logging.getLogger("hmc")

#: Workers of UCX.
MAX_CHANNELS = 16

_NO_RANK = ("a node of the C++ HMC does not tell its rank: give it, as connect(rank, \"tcp://HOST:PORT\", upstream=True) or "
            "connect(peer_id=, self_id=, peer_ip=, data_port=, ctrl_tcp_port=, upstream=True)")

_HOT = ("put_remote", "get_remote", "put_nb", "get_nb")


class Session(SeedsGuide):
    """A process's part in a job: its rank, its buffer, its peers.

    New programs name a rank and where to listen::

        with hmc.Session(rank=0, listen="tcp://127.0.0.1:0") as s:
            peer = s.connect(1, "tcp://127.0.0.1:5001")
            peer.put(array, remote_offset=0)

    Args:
        buf: a buffer made before (the C++ HMC's way); else one of ``buffer_size`` bytes is made.
        num_chs: workers of UCX, and queue pairs of a link over RDMA verbs, 1 to 16; what is beyond is taken for the nearest.
        local_ip: this process's address as others know it; equal to a peer's, control messages go by a local socket.
        ctrl_uds_dir: folder of the local control sockets.
        rank: 0 to 4095. The session starts at once; else with ``init_server`` or ``connect``.
        listen: ``"tcp://HOST:PORT"`` (port 0: any), ``"uds://FOLDER"``, ``"uds"`` for the default folder, or a list of these.
        insecure: allows connections with other machines although nothing proves who they are.
        ucx: takes part in UCX from the start, with a buffer of its own making.
        accept_upstream: lets nodes of the C++ HMC connect, for tags and small messages. They prove nothing: whoever reaches a
            listener can claim a free rank. ``HMC_ACCEPT_UPSTREAM=1`` does so for programs that do not say.
        lazy: as for :func:`create_session`.
        job: only processes of the same job connect; a number or a text. Default: ``HMC_JOB``, else ``SLURM_JOB_ID``, else
            ``TORCHELASTIC_RUN_ID``, else 0.
        secret_file: proves on loopback connections that both ends belong to the same user. Default: ``HMC_SECRET_FILE``, else a
            file in the folder of local sockets. ``insecure_loopback`` does without, at both ends: any local user can claim a rank.
        deadline, heartbeat, spin: seconds; ``heartbeat=None`` for none. Others: ``slots``, ``windows``, ``redial``.

    Blocking calls take ``timeout`` in seconds (default ``deadline``, else ``HMC_TIMEOUT``, else 30; those that the C++ HMC
    has without a limit have none here by default, but end with the peer), let other threads run, and give way to Ctrl-C on the main thread.
    All methods may be called from any thread.
    """

    def __init__(self, buf: IOBuffer | ConnBuffer | None = None, num_chs: int = 1, *, local_ip: str = "",
                 ctrl_uds_dir: StrPath = "/tmp", rank: int | None = None, listen: StrPath | Iterable[StrPath] | None = None,
                 buffer_size: int = DEFAULT_BUFFER_SIZE, insecure: bool = False, ucx: bool = False,
                 **settings: Unpack[Settings]) -> None:
        upstream = bool(settings.pop("accept_upstream", environment.accepts_upstream()))
        job, secret_file = settings.pop("job", None), settings.pop("secret_file", None)
        self._who = {} if job is None else {"job": _hmc.job_of(job)}
        if secret_file is not None:
            self._who["secret_file"] = os.fspath(secret_file)
        if settings.pop("insecure_loopback", False):
            self._who["insecure_loopback"] = True
        num_chs = integer("num_chs", num_chs)
        if buf is None:
            wanted = {**surroundings(), **settings}
            if ucx:
                wanted["ucx"] = True
            size = integer("buffer_size", buffer_size)
            buf = IOBuffer(ConnBuffer._of(_hmc.Core(buffer_size=size, settings=wanted), size))
        elif settings or ucx:
            raise _invalid("settings belong to a session that makes its own buffer; give rank= and buffer_size= instead")
        elif isinstance(buf, ConnBuffer):
            buf = IOBuffer(buf)
        self._buf = buf
        self._cores = buf.core._cores
        self._more, self._seconds = [], []
        # Several sessions over one buffer are one until they are given different ranks.
        self._core = core = self._cores.first
        self._num_chs = min(max(num_chs, 1), MAX_CHANNELS)
        self._upstream = upstream
        self.set_local_ip(local_ip)
        self.ctrl_uds_dir = os.fspath(ctrl_uds_dir)
        self._held = threading.RLock()
        self._insecure = insecure
        self._known = set()
        self._turns: dict[int, threading.Lock] = {}
        self._bind()
        listeners.closes_at_exit(core)
        if rank is not None:
            self._begin(rank, listen, insecure)
        elif listen is not None:
            raise _invalid("listen= needs rank=")

    # ---- its life ----

    def _bind(self) -> None:
        # No frame of Python between the caller and the transfer, unless a subclass wants one.
        for name in _HOT:
            if getattr(type(self), name) is getattr(Session, name):
                setattr(self, name, getattr(self._core, name))

    def _be(self, core: Core) -> None:
        """From here on this session is that one."""
        self._core, self._has_rank = core, True
        self._bind()

    def _begin(self, rank: int, listen: StrPath | Iterable[StrPath] | None, insecure: bool) -> None:
        tcp = uds = None
        for given in [listen] if isinstance(listen, (str, os.PathLike)) else listen or []:
            text = os.fspath(given)
            if text.startswith("tcp://"):
                if tcp is not None:
                    raise _invalid("listen= names two TCP addresses: give one, \"tcp://0.0.0.0:PORT\" for all of this machine")
                tcp = listeners.resolved(text.removeprefix("tcp://"))
                continue
            if uds is not None:
                raise _invalid("listen= names two folders: give one")
            if text == "uds":
                uds = listeners.default_dir()
            elif text.startswith("uds://") or not isinstance(given, str) or ("/" in text and "://" not in text):
                uds = text.removeprefix("uds://")
            else:
                raise _invalid(f"listen={text!r}: give \"tcp://HOST:PORT\", \"uds://FOLDER\" or \"uds\"")

        def start(core: Core) -> None:
            core._start(rank, tcp=tcp, uds=uds, insecure=insecure, num_chs=self._num_chs, upstream=self._upstream, **self._who)

        if self._core._is_live:
            if self._cores.of(rank) is not None:
                raise _invalid(f"rank {rank} is another session's over this buffer: give another one")
            self._be(self._cores.begun(start))
        else:
            start(self._core)
            self._has_rank = True

    #: What :attr:`comm` gives.
    _comm: Communicator | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except Forked:
            # A forked child leaves the block: the session is its parent's.
            pass
        except HMCStatusError as e:
            if kind is None:
                raise
            # What went wrong before is what matters.
            log.warning("closing: %s", e)

    def close(self, timeout: float | None = None) -> None:
        """Ends the session in order: operations that were begun complete, the peers get a BYE, listeners close. At most ``timeout`` seconds
        (default 1). The buffer stays readable, and sessions over it that have other ranks go on."""
        end = None if timeout is None else end_of(timeout, 0)
        with contextlib.ExitStack() as every:
            for core in reversed([*self._all(), *self._seconds]):
                every.callback(_close, core, end)

    @property
    def rank(self) -> int:
        """This process's rank: the first one, where a program of the C++ HMC gave it several."""
        return self._core.rank

    @property
    def addresses(self) -> list[str]:
        """Where it listens, as :meth:`connect` takes it: TCP first."""
        if not self._more:
            return self._core.addresses
        found = dict.fromkeys(address for core in self._all() if core._is_live for address in core.addresses)
        return sorted(found, key=lambda address: not address.startswith("tcp://"))

    @property
    def address(self) -> str:
        """The first of :attr:`addresses`."""
        found = self.addresses
        if not found:
            raise NotFound(status_t.NOT_FOUND, "this session listens nowhere: give listen=", kind="not_found")
        return found[0]

    @property
    def buf(self) -> IOBuffer:
        """The buffer that offsets of ``put_remote`` and ``get_remote`` address. Another one can be assigned, for calls that copy
        into and out of it; transfers keep the one that the session was made with."""
        return self._buf

    @buf.setter
    def buf(self, buf: IOBuffer) -> None:
        self._buf = buf

    @property
    def comm(self) -> Communicator:
        """The same session by the binding's names."""
        from .communicator import Communicator  # which needs this module

        if self._comm is None:
            self._comm = Communicator._of(self)
        return self._comm

    @property
    def buffer(self) -> Region:
        """The same memory as a :class:`Region`."""
        return self._buf.region

    def stats(self) -> SessionStats:
        """Counters of the session, and by rank under ``"peers"``. Under ``"others"`` those of its further ranks, and of second
        connections to a peer, if it has such."""
        found = self._core.stats()
        others = {core.rank: core.stats() for core in (*self._more, *self._seconds) if core._is_live}
        if others:
            found["others"] = others
        return found

    # ---- event loops ----

    def fileno(self) -> int:
        """A descriptor that is readable once an operation has ended, a message has come, or a peer has come or gone, until
        :meth:`clear_events`: for :mod:`selectors` and ``loop.add_reader``. Of a session with several ranks, that of the first.

        After it was readable, clear it, then look at everything that is waited for: ``op.done()``, ``peer.recv(timeout=0)``,
        ``peer.connected``. It is readable at first. Messages that are left unread do not make it readable again. Do not read
        or close it, and unregister it before :meth:`close`. Raises ``NotFound`` before the session has a rank, ``Closed``,
        ``SystemLimit``, ``Forked``.
        """
        return self._core._fileno()

    def clear_events(self) -> None:
        """Makes :meth:`fileno` unreadable until the next event. Call it before looking at what has happened, never after: then
        no event is missed. Raises as :meth:`fileno` does."""
        self._core._clear_events()

    # ---- peers ----

    def peer(self, rank: int, timeout: float | None = None, *, alive: bool = False) -> Peer:
        """The :class:`Peer` of that rank, waiting until it has connected.

        One that has left already is found, too, as long as messages of it are unread (its ``connected`` is False); with
        ``alive`` it is waited for until it is back. Raises ``DeadlineExceeded``.
        """
        if self._more:
            for peer in self.peers:
                if peer.rank == rank:
                    return peer
        return self._core.peer(rank, timeout, alive)

    def loopback(self) -> Peer:
        """This session as a :class:`Peer` of itself: transfers within its own memory."""
        return self._core._loopback()

    @property
    def peers(self) -> list[Peer]:
        """The peers that are connected now."""
        return [peer for core in self._all() if core is self._core or core._is_live for peer in core.peers]

    def explain(self, peer: Peer | int, timeout: float | None = None) -> Explanation:
        """Which transport moves the bytes to a peer (a :class:`Peer` or a rank), and why; see :meth:`Peer.explain`."""
        return (peer if isinstance(peer, _hmc.Peer) else self.peer(peer, timeout)).explain()

    if TYPE_CHECKING:
        @overload
        def connect(self, rank: int | None, address: str, conn: ConnType = ConnType.AUTO, *,
                    timeout: float | None = None, upstream: bool = False) -> Peer: ...
        @overload
        def connect(self, address: str, conn: ConnType = ConnType.AUTO, *, timeout: float | None = None) -> Peer: ...
        @overload
        def connect(self, *, peer_id: int, self_id: int, peer_ip: str, data_port: int, ctrl_tcp_port: int,
                    uds_dir: StrPath | None = None, conn: ConnType = ConnType.RDMA, timeout: float | None = None,
                    upstream: bool = False, job: int | str | None = None) -> None: ...
        @overload
        def connect(self, ip: str, port: int, conn: ConnType = ConnType.UCX, *, timeout: float | None = None,
                    job: int | str | None = None) -> None: ...

    def connect(self, *args: Any, peer_id: int | None = None, self_id: int | None = None, peer_ip: str | None = None,
                data_port: int | None = None, ctrl_tcp_port: int | None = None, uds_dir: StrPath | None = None,
                conn: ConnType | None = None, ip: str | None = None, port: int | None = None, timeout: float | None = None,
                rank: int | None = None, address: str | None = None, upstream: bool = False,
                job: int | str | None = None) -> Peer | None:
        """Connects to a peer, by one of three signatures.

        ``connect(rank, address, conn=ConnType.AUTO)`` gives a :class:`Peer`; ``address`` as in :attr:`address`; ``rank=None``
        takes whoever listens there, as does ``connect(address)``.

        ``connect(peer_id=, self_id=, peer_ip=, data_port=, ctrl_tcp_port=, uds_dir=None, conn=ConnType.RDMA)``: the C++
        HMC's. Data is then addressed by ``(peer_ip, data_port, conn)``, tags by ``peer_id``, which is only this program's name
        for the peer (and for its local socket): both ends may have the same rank.

        ``connect(ip, port, conn=ConnType.UCX)``: the older guide's; the server's ``port`` is all there is.

        With ``upstream`` the peer is a node of the C++ HMC itself: tags and small messages only. It does not tell its rank, so that
        ``rank`` or ``peer_id`` names it. Its dialect has no answer to a greeting; a refusal shows with the first message. ``job``: as for :func:`create_session`.

        Raises ``Unavailable`` when nobody answers, or the transport that was named cannot be had, with the remedy (or takes the
        one that ``HMC_CONN_FALLBACK`` names); ``Refused``; ``NoCredentials``; ``DeadlineExceeded``.
        """
        with self._lock():
            self._take_job(job)
        if peer_ip is not None:
            no_more("connect(peer_ip=)", iter(args))
            no_others("connect(peer_ip=)", "give peer_id=, data_port= and ctrl_tcp_port=", ip=ip, port=port, rank=rank, address=address)
            self._connect_ranked(peer_id, self_id, peer_ip, data_port, ctrl_tcp_port, uds_dir, conn, timeout, upstream)
            return None
        instead = "give peer_ip= for the form with these, or connect(rank, address)"
        no_others("connect() without peer_ip=", instead, peer_id=peer_id, self_id=self_id, data_port=data_port,
                  ctrl_tcp_port=ctrl_tcp_port, uds_dir=uds_dir)
        values = iter(args)
        first: Any = next(values, address if ip is None else ip)
        by_rank = rank is not None or first is None or hasattr(first, "__index__")
        if first is None or hasattr(first, "__index__"):
            no_others("connect(rank, address)", "its first argument is that", rank=rank if args else None)
            rank, first = first, next(values, address)
        no_others("connect()", f"it connects to {first!r}", ip=None if ip is first else ip, address=None if address is first else address)
        if not isinstance(first, str):
            raise _invalid(f"address={first!r}: give one as a session's `addresses` has them, \"tcp://HOST:PORT\"")
        if by_rank or "://" in first:
            conn = next(values, conn)
            no_more("connect()", values)
            no_others("connect(rank, address)", "the address has the port: \"tcp://HOST:PORT\"", port=port)
            if upstream:
                if rank is None:
                    raise _invalid(_NO_RANK)
                return self._core._connect_named(rank, first, ConnType.AUTO, timeout, upstream=True)
            return self._core._connect(rank, first, ConnType.AUTO if conn is None else conn, timeout)
        port = next(values, port)
        conn = next(values, conn)
        no_more("connect()", values)
        if upstream:
            raise _invalid(_NO_RANK)
        self._connect_old(first, port, ConnType.UCX if conn is None else ConnType(conn), timeout)
        return None

    # ---- tensors, by rank ----

    def isend(self, tensor: A, dst: int, tag: int = 0, *, timeout: float | None = None) -> TensorOp[A]:
        """Begins to send a tensor or array to rank ``dst``, with its shape and dtype, from where it lies; it must not change
        until the :class:`TensorOp` that is returned has ended. ``tag``: 0 to 2**64-1, compared by the receiver.

        Waits for the rank to connect, ``timeout`` seconds at most."""
        peer = self._core.peer(dst, timeout, True)
        with self._lock():  # a header and its bytes are neighbours
            return tensors.isend(peer, tensor, tag)

    def irecv(self, tensor: A, src: int, tag: int | None = None, *, timeout: float | None = None) -> TensorOp[A]:
        """Begins to receive rank ``src``'s next tensor into ``tensor``: same dtype and shape, writable, C-contiguous. Tensors
        of one rank come in the order in which they were sent; with ``tag``, the next one must have it. Waits for the rank
        to connect as :meth:`isend`, and while another thread receives a new tensor of that rank by :meth:`recv`; raises
        ``DeadlineExceeded``, and begins nothing, when that takes longer than ``timeout`` seconds in all."""
        end = end_of(timeout, self._core._waits[0])
        peer = self._core.peer(src, timeout)
        with self._turn(src, end), self._lock():
            return tensors.irecv(peer, tensor, tag)

    @contextlib.contextmanager
    def _turn(self, src: int, end: float) -> Iterator[None]:
        """Excludes other receives of tensors of a rank, until ``end`` at most. A new tensor's second message can only be asked
        for when the first has come: a receive that another thread begins between them would be matched with it."""
        with self._lock():
            turn = self._turns.setdefault(src, threading.Lock())
        if not turn.acquire(timeout=min(left(end), threading.TIMEOUT_MAX)):
            raise DeadlineExceeded(status_t.TIMEOUT, f"another thread still receives of rank {src}", kind="deadline_exceeded",
                                   peer=src)
        try:
            yield
        finally:
            turn.release()

    def send(self, tensor: ArrayLike, dst: int, tag: int = 0, timeout: float | None = None) -> None:
        """Sends a tensor and returns when rank ``dst`` has it. When this raises (``DeadlineExceeded``, Ctrl-C), what was not sent
        is withdrawn: nothing reads the tensor any more. A receive that the peer begins at that moment ends as ``Cancelled``,
        and can leave the pair out of step (:meth:`recv`)."""
        end = end_of(timeout, self._core._waits[0])
        self.isend(tensor, dst, tag, timeout=timeout)._finish(left(end))

    if TYPE_CHECKING:
        @overload
        def recv(self, tensor: A, src: int = 0, tag: int | None = None, *, like: Literal["numpy", "torch"] = "numpy",
                 timeout: float | None = None) -> A: ...
        @overload
        def recv(self, tensor: None = None, src: int = 0, tag: int | None = None, *, like: Literal["numpy"] = "numpy",
                 timeout: float | None = None) -> numpy.ndarray[Any, Any]: ...
        @overload
        def recv(self, tensor: None = None, src: int = 0, tag: int | None = None, *, like: Literal["torch"],
                 timeout: float | None = None) -> torch.Tensor: ...

    def recv(self, tensor: ArrayLike | None = None, src: int = 0, tag: int | None = None, *, like: str = "numpy",
             timeout: float | None = None) -> Any:
        """Receives rank ``src``'s next tensor into ``tensor``, or into a new one (``like="numpy"`` or ``"torch"``); returns it.
        When this raises, the receive is withdrawn: nothing is written into ``tensor`` any more.

        While one thread receives a new one of a rank, others that receive of it wait: how many bytes follow, the first ones tell.
        One that ends between a tensor's two messages (``DeadlineExceeded``, Ctrl-C) leaves the pair out of step: later ones raise
        ``InvalidArgument``; disconnect then."""
        end = end_of(timeout, self._core._waits[0])
        if tensor is not None:
            return self.irecv(tensor, src, tag, timeout=timeout)._finish(left(end))
        peer = self._core.peer(src, timeout)
        with self._turn(src, end):
            return tensors.recv_new(peer, tag, like, end)

    def batch_isend_irecv(self, ops: Iterable[P2POp]) -> list[TensorOp[ArrayLike]]:
        """Begins all of a list of :class:`P2POp`; returns a :class:`TensorOp` for each. If one cannot begin, the others are
        cancelled."""
        ops = list(ops)
        for op in ops:
            if op.op not in ("send", "recv"):
                raise _invalid(f"op={op.op!r}: give \"send\" or \"recv\"; nothing was begun")
        calls: dict[str, Callable[[ArrayLike, int, int], TensorOp[ArrayLike]]] = {"send": self.isend, "recv": self.irecv}
        begun: list[TensorOp[ArrayLike]] = []
        try:
            for op in ops:
                begun.append(calls[op.op](op.tensor, op.rank, op.tag))
        except BaseException:
            for one in begun:
                one.cancel()
            raise
        return begun

    # ---- memory ----

    def register(self, array: ArrayLike) -> Region:
        """Registers an array's memory in place, without a copy, and returns it as a :class:`Region`.

        ``array``: NumPy, torch (CPU), or any object with the buffer protocol or DLPack, C-contiguous; a read-only one can be a
        source only. It is held as long as the region, a window or an operation uses it.
        """
        return self._core.register(array)

    def allocate(self, nbytes: int) -> Region:
        """Zeroed memory that peers of this host can map; ``numpy.frombuffer(region, dtype)`` is an array over it."""
        return self._core.allocate(nbytes)

    def generations(self, nbytes: int, block_size: int) -> Generations:
        """:class:`Generations` for ``Peer.expose`` of ``nbytes`` bytes in whole blocks of ``block_size``, at most 65,536."""
        return self._core.generations(nbytes, block_size)


def _close(core: Core, end: float | None) -> None:
    core.close(None if end is None else left(end))


def create_session(device_id: int = 0, buffer_size: int = DEFAULT_BUFFER_SIZE, mem_type: MemoryType = MemoryType.CPU,
                   num_chs: int = 1, local_ip: str = "", *, lazy: bool = False,
                   accept_upstream: bool | None = None, job: int | str | None = None,
                   secret_file: StrPath | None = None, insecure_loopback: bool = False) -> Session:
    """A session with a buffer of ``buffer_size`` bytes, whose peers come by ``init_server`` and ``connect``.

    Args:
        device_id: the device of device memory; host memory has none.
        buffer_size: bytes. All of their pages are taken, in the background from 64 MiB on; what needs the buffer first (its
            bytes or its address, :meth:`~Session.init_server`, :meth:`~Session.connect`) waits for that. Where the machine has
            too little memory this call raises ``OutOfMemory``, or the first of those if others took it meanwhile; to touch
            the buffer never fails.
        lazy: takes each page when it is touched instead. **A machine that is full then ends the process by SIGBUS**; peers of
            this host do not map the buffer.
        mem_type: ``CPU``, or ``DEFAULT``, which is the same in this version; others raise ``Unavailable``.
        num_chs: workers of UCX, and queue pairs of a link over RDMA verbs.
        local_ip: this process's address as its peers know it. The others: as for :class:`Session`.

    >>> session = create_session(buffer_size=4096)
    >>> session.buf.size
    4096
    """
    said: Settings = {"insecure_loopback": insecure_loopback}
    if accept_upstream is not None:
        said["accept_upstream"] = accept_upstream
    if job is not None:
        said["job"] = job
    if secret_file is not None:
        said["secret_file"] = secret_file
    return Session(IOBuffer.create(device_id, buffer_size, mem_type, lazy=lazy), num_chs, local_ip=local_ip, **said)
