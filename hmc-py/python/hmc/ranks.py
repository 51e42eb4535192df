"""The ranks of a session: one, unless a program of the C++ HMC gives several, to its sessions over one buffer or to one of them.

Each rank is a native session with peers and listeners of its own, over the same memory. What one does not know by its place, name or
number the others are asked for.
"""

from __future__ import annotations

import contextlib
import logging
import os

from . import _hmc, environment, listeners
from .args import integer
from .enums import ConnType, status_t
from .errors import Closed, HMCStatusError, Refused, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator
    from typing import Any

    from ._hmc import Core, Peer
    from .typing import StrPath

__all__ = ["Cores", "Ranks"]

log = logging.getLogger("hmc")

#: Ranks of programs are below this number: from it on they are those of connections beside others.
FIRST_SECOND, AFTER_SECOND = _hmc.SECOND_RANKS

#: So often another rank is tried where somebody has the one that was drawn.
TRIES = 16


def _drawn(low: int, high: int) -> int:
    return low + int.from_bytes(os.urandom(4), "little") % (high - low)


@contextlib.contextmanager
def _tells_of(number: int) -> Iterator[None]:
    """Has a refusal of a rank that stands for ``number`` say so."""
    try:
        yield
    except HMCStatusError as e:
        rank = _hmc.rank_of(number)
        if rank == number or e.kind != "duplicate_rank":
            raise
        why = f"self_id={number} is rank {rank} between processes, as are other numbers beyond 4095: give another one"
        raise type(e)(e.status, f"{e.msg}; {why}", kind=e.kind, peer=e.peer) from None


class Cores:
    """The native sessions over one buffer that have ranks of the program's."""

    def __init__(self, first: Core) -> None:
        self.first = first
        self._others: list[Core] = []

    def __iter__(self) -> Iterator[Core]:
        return iter((self.first, *self._others))

    @property
    def is_live(self) -> bool:
        """Whether one runs."""
        return any(core._is_live for core in self)

    def of(self, rank: int) -> Core | None:
        """The one of that rank, if it runs."""
        return next((core for core in self if core._is_live and core.rank == rank), None)

    def begun(self, start: Callable[[Core], None]) -> Core:
        """Another one, started by ``start``."""
        core = self.beside(start)
        self._others = [other for other in self._others if other._is_live]
        self._others.append(core)
        return core

    def beside(self, start: Callable[[Core], None]) -> Core:
        """Another one over the same buffer, which has no rank of the program's."""
        source = next((core for core in self if core._is_live), self.first)
        core = source._beside()
        try:
            start(core)
        except BaseException:
            core.close(0)
            raise
        listeners.closes_at_exit(core)
        return core

    def listens(self, addr: str) -> bool:
        """Whether one of them listens at ``HOST:PORT``, or everywhere at that port."""
        host, _, port = addr.rpartition(":")
        for core in self:
            for there in core.addresses if core._is_live else ():
                own, _, at = there.removeprefix("tcp://").rpartition(":")
                if at == port and there.startswith("tcp://") and (own == host or {own, host} & {"0.0.0.0", "[::]"}):
                    return True
        return False


class Ranks:
    """What a session does under which rank."""

    _core: Core
    _cores: Cores
    #: Whether ``_core`` has the rank that this session was given; else it is another's, over the same buffer.
    _has_rank = False
    #: Further ranks that it was given, and connections beside others to the same peer.
    _more: list[Core]
    _seconds: list[Core]
    _num_chs: int
    _held: threading.RLock
    _insecure: bool
    _upstream: bool
    #: ``job``, ``secret_file`` and ``insecure_loopback``, as far as they were given.
    _who: dict[str, Any]
    _local_ip: str
    #: Where it listens under a rank that nobody chose, while it does.
    _unnamed: list[tuple[str, int | None, StrPath | None]] | None = None

    if TYPE_CHECKING:
        def set_local_ip(self, ip: str) -> None: ...
        def _be(self, core: Core) -> None: ...

    def _lock(self) -> threading.RLock:
        """What keeps a session's beginning and its pairs of messages together. Not in a forked child, where a thread that is not
        there may hold it."""
        self._core._check_process()
        return self._held

    def _all(self) -> list[Core]:
        """Of all of its ranks, the first one first."""
        return [self._core, *self._more]

    def _take(self, rank: int, start: Callable[[Core], None]) -> Core:
        """The session of a rank which ``_core`` does not have, started by ``start`` if there is none."""
        known = self._cores.of(rank)
        core = self._cores.begun(start) if known is None else known
        if not self._has_rank:
            self._be(core)
        elif known is None:
            self._more.append(core)
        return core

    def _start_now(self, core: Core, rank: int, insecure: bool) -> None:
        core._start(rank, insecure=insecure, num_chs=self._num_chs, namesakes=True, upstream=self._upstream, **self._who)

    def _start_as(self, number: int, ips: list[str]) -> Core:
        """The session that dials under that number."""
        rank, insecure = _hmc.rank_of(integer("self_id", number, high=2**32 - 1)), listeners.warn_once(ips, self._insecure)
        core = self._core
        if not core._is_live:
            self._start_now(core, rank, insecure)
        elif core.rank != rank and (self._unnamed is None or core.peers):
            return self._take(rank, lambda other: self._start_now(other, rank, insecure))
        elif core.rank != rank:
            # Nobody has met it yet, and nobody gave it the rank that it has.
            listening, self._unnamed = self._unnamed, None
            core._unstart()
            for ip, port, uds in listening or ():
                self._serve(number, ip, port, uds, ucx=True, required=False)
        elif insecure:
            core._allow_insecure()
        self._has_rank = True
        return core

    def _serve(self, number: int | None, ip: str, port: int | None, uds: StrPath | None, *, ucx: bool, required: bool) -> None:
        """Listens at a port (None: at none, 0: any) and in a folder (None: none). What listens already stays."""
        ip = ip or "0.0.0.0"
        if not self._local_ip:
            self.set_local_ip(ip)
        where = listeners.resolved(listeners.tcp(ip, port or 0).removeprefix("tcp://"))
        addr = None if port is None else where
        folder = None if uds is None else os.fspath(uds)
        places = set() if folder is None else {f"uds://{folder}", f"uds://{os.path.abspath(folder)}"}
        with self._lock():
            insecure = listeners.warn_once([ip], self._insecure)

            def start(core: Core, rank: int, addr: str | None) -> None:
                listeners.start(core, rank, tcp=addr, uds=folder, insecure=insecure, num_chs=self._num_chs, ucx=ucx,
                            required=required, upstream=self._upstream, **self._who)

            core = self._core
            if not core._is_live:
                self._unnamed = [(ip, port, uds)] if number is None else None
                start(core, _drawn(1, FIRST_SECOND) if number is None else _hmc.rank_of(number), addr)
                self._has_rank = True
                return
            rank = core.rank if number is None else _hmc.rank_of(number)
            is_there = addr is None or port != 0 and self._cores.listens(addr)
            if rank != core.rank and self._cores.of(rank) is None:
                # Who dials the port that is there already reaches the same memory.
                self._take(rank, lambda other: start(other, rank, None if is_there else addr))
                return
            if rank != core.rank:
                core = self._take(rank, lambda _: None)
            self._has_rank = True
            if addr is not None and not is_there:
                core._listen_tcp(addr, insecure=insecure)
            if folder is not None and places.isdisjoint(core.addresses):
                listeners.try_uds(core, folder)

    def _reach(self, core: Core, name: int | None, address: str, conn: ConnType, timeout: float | None,
               insecure: bool) -> tuple[Peer, Peer | None]:
        """Connects over ``conn``, or what the environment names instead where it cannot be had. Where the peer is connected over
        another transport, by a second connection: the peer of that, and the one that its tags take."""
        try:
            return self._dial(core, name, address, conn, timeout), None
        except Unavailable as e:
            failed = e
        if listeners.is_taken(failed):
            tags = self._dial(core, name, address, ConnType.AUTO, timeout)
            try:
                return self._second(name, address, conn, timeout, insecure), tags
            except Unavailable as e:
                failed = e
        instead = environment.fallback() if conn in (ConnType.RDMA, ConnType.UCX) else None
        if not listeners.lacks_transport(failed):
            raise failed
        if instead is None:
            raise listeners.with_remedy(failed, conn) from None
        log.warning("%s cannot be had (%s); HMC_CONN_FALLBACK takes %s", conn.name, failed.msg, instead.name)
        return self._reach(core, name, address, instead, timeout, insecure)

    def _dial(self, core: Core, name: int | None, address: str, conn: ConnType, timeout: float | None) -> Peer:
        if name is None:
            return core._connect(None, address, conn, timeout)
        peer = core._connect_named(name, address, conn, timeout)
        if core is not self._core:
            # The newest link of that name has its tags.
            self._core._call(name, peer)
        return peer

    def _second(self, name: int | None, address: str, conn: ConnType, timeout: float | None, insecure: bool) -> Peer:
        """A peer that is connected over another transport, by a session that is there for such connections: under a rank that
        was drawn, by which the peer tells the two apart."""
        def dial(core: Core) -> Peer:
            if name is None:
                return core._connect(None, address, conn, timeout)
            return core._connect_named(name, address, conn, timeout)

        for core in self._seconds:
            try:
                return dial(core)
            except (Refused, Unavailable, Closed) as e:
                taken = isinstance(e, Unavailable) and listeners.is_taken(e)
                if not taken and e.kind not in ("duplicate_rank", "closed"):
                    raise
        met: list[Peer] = []

        def start(core: Core) -> None:
            self._start_now(core, _drawn(FIRST_SECOND, AFTER_SECOND), insecure)
            met.append(dial(core))

        for _ in range(TRIES):
            try:
                self._seconds.append(self._cores.beside(start))
                return met[0]
            except Refused as e:
                if e.kind != "duplicate_rank":
                    raise
        raise Refused(status_t.ERROR, f"{address} knows every rank that was tried", kind="duplicate_rank")

    def _retire(self) -> None:
        """Ends the sessions of second connections that are over."""
        for core in [core for core in self._seconds if not core._is_live or not core.peers]:
            self._seconds.remove(core)
            core.close(0)
