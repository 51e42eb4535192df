"""The calls of the C++ HMC's guide: peers are named by ``(ip, port, conn)``, places by offsets of the two buffers, tags by rank.

``port`` is the peer's data port, a name that both sides know; what listens is its control port.
"""

from __future__ import annotations

import logging
import operator
import os
import sys

from . import doors
from .buffer import host_only
from .enums import ConnType, MemoryType, status_t
from .errors import InvalidArgument, NotFound, PeerDead, Refused, Unavailable
from .errors import invalid as _invalid
from .memory import flat, nbytes_of
from .older import OlderGuide

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable
    from typing import Any, Literal, overload

    from ._hmc import Core, Peer
    from .typing import ArrayLike, StrPath

__all__ = ["SeedsGuide"]

log = logging.getLogger("hmc")

#: Ranks are below this number.
MAX_RANKS = 4096

def _drawn_rank() -> int:
    """A rank for a process that was given none."""
    return 1 + int.from_bytes(os.urandom(4), "little") % (MAX_RANKS - 1)


def _port(name: str, port: object) -> int:
    if not isinstance(port, int) or isinstance(port, ConnType) or not 1 <= port <= 65535:
        raise _invalid(f"{name}={port!r}: ports are 1 to 65535")
    return port


def _rank(name: str, rank: object) -> int:
    try:
        return operator.index(rank)  # type: ignore[arg-type]  # whether it is one is asked here
    except TypeError:
        raise _invalid(f"{name}={rank!r}: ranks are numbers") from None


class SeedsGuide(OlderGuide):
    """``init_server``, ``put_remote`` and their like."""

    _core: Core
    _num_chs: int
    _local_ip: str
    _uds_dir: StrPath
    _lock: threading.RLock
    _insecure: bool

    def _connect_ranked(self, peer_id: int | None, self_id: int | None, peer_ip: str, data_port: int | None,
                        ctrl_tcp_port: int | None, uds_dir: StrPath | None, conn: ConnType | None,
                        timeout: float | None) -> None:
        conn = ConnType.RDMA if conn is None else ConnType(conn)
        peer_id, self_id = _rank("peer_id", peer_id), _rank("self_id", self_id)
        data_port, ctrl_tcp_port = _port("data_port", data_port), _port("ctrl_tcp_port", ctrl_tcp_port)
        with self._lock:
            self._start_as(self_id, [peer_ip])
        address = self._control_address(peer_ip, ctrl_tcp_port, uds_dir)
        self._learn(peer_ip, data_port, conn, self._reach(peer_id, address, conn, timeout))

    def _learn(self, ip: str, port: int, conn: ConnType, peer: Peer) -> None:
        self._core._know(ip, port, conn, peer)
        self._known[ip, port, int(conn)] = peer.rank

    def _control_address(self, peer_ip: str, port: int, uds_dir: StrPath | None) -> str:
        forced = os.environ.get("CTRL_TRANSPORT", "").lower()
        same = peer_ip == self._local_ip and peer_ip not in ("", "0.0.0.0")
        if forced == "uds" or (not forced and same):
            return "uds://" + doors.private(uds_dir or self._uds_dir)
        return doors.tcp(peer_ip, port)

    def _reach(self, rank: int | None, address: str, conn: ConnType, timeout: float | None) -> Peer:
        """Connects over ``conn``, or what the environment names instead where it cannot be had."""
        try:
            return self._core._connect(rank, address, conn, timeout)
        except Unavailable as e:
            if doors.nobody_there(e):
                raise
            other = os.environ.get("HMC_CONN_FALLBACK")
            if not other or conn not in (ConnType.RDMA, ConnType.UCX):
                raise doors.with_remedy(e, conn) from None
            try:
                instead = ConnType[other.upper()]
            except KeyError:
                raise _invalid(f"HMC_CONN_FALLBACK={other!r}: name a ConnType: tcp, shm, ucx, auto") from None
            log.warning("%s cannot be had (%s); HMC_CONN_FALLBACK takes %s", conn.name, e.msg, instead.name)
            return self._core._connect(rank, address, instead, timeout)

    def _connect_old(self, ip: str, port: int | None, conn: ConnType, timeout: float | None) -> None:
        port = _port("port", port)
        with self._lock:
            if not self._core._is_live:
                self._start_anyhow([ip])
        for _ in range(16):
            try:
                peer = self._reach(None, doors.tcp(ip, port), conn, timeout)
                break
            except Refused as e:
                if e.kind != "duplicate_rank" or self._core.peers or self._core.addresses:
                    raise
                # A rank was drawn that somebody has.
                self._core._unstart()
                self._start_anyhow([ip])
        else:
            raise Refused(status_t.ERROR, f"{ip}:{port} knows every rank that was tried", kind="duplicate_rank")
        self._learn(ip, port, conn, peer)

    def _start_anyhow(self, ips: list[str]) -> None:
        """Starts under a rank that nobody chose."""
        self._core._start(_drawn_rank(), insecure=doors.warn_once(ips, self._insecure), num_chs=self._num_chs)

    def _start_as(self, rank: int, ips: list[str]) -> None:
        insecure = doors.warn_once(ips, self._insecure)
        if not self._core._is_live:
            self._core._start(rank, insecure=insecure, num_chs=self._num_chs)
        elif self._core.rank != rank:
            raise _invalid(f"self_id={rank}, but this session is rank {self._core.rank}")
        elif insecure:
            self._core._allow_insecure()

    def disconnect(self, ip: str, port: int | ConnType | None = None, conn: ConnType = ConnType.RDMA, *,
                   timeout: float | None = None) -> None:
        """Ends the link to a peer in order. ``disconnect(ip, conn)`` is the older guide's."""
        if port is None or isinstance(port, ConnType):
            conn = ConnType.UCX if port is None else port
            port = self._old_port(ip, conn)
        try:
            self._core._at(ip, port or 1, conn).disconnect(timeout)
        finally:
            # Also one that is gone.
            self._core._forget(ip, port or 1, conn)
            self._known.pop((ip, port, int(conn)), None)

    def check_conn(self, ip: str, port: int, conn: ConnType = ConnType.RDMA) -> bool:
        """Whether the peer at ``(ip, port, conn)`` is connected now."""
        try:
            return self._core._at(ip, port, conn).connected
        except (NotFound, InvalidArgument, PeerDead):
            return False

    # ---- serving ----

    if TYPE_CHECKING:
        @overload
        def init_server(self, *, bind_ip: str, ucx_port: int | None = None, rdma_port: int | None = None, ctrl_tcp_port: int,
                        self_id: int, ctrl_uds_dir: StrPath | None = None) -> None: ...
        @overload
        def init_server(self, ip: str, port: int, conn: ConnType = ConnType.UCX) -> None: ...

    def init_server(self, *args: Any, bind_ip: str | None = None, ucx_port: int | None = None, rdma_port: int | None = None,
                    ctrl_tcp_port: int | None = None, self_id: int | None = None, ctrl_uds_dir: StrPath | None = None,
                    ip: Any = None, port: int | None = None, conn: ConnType | None = None) -> None:
        """Listens for peers.

        ``init_server(bind_ip=, ucx_port=, rdma_port=, ctrl_tcp_port=, self_id=, ctrl_uds_dir=None)``: the C++ HMC's. Peers
        come by ``ctrl_tcp_port`` and the local socket in ``ctrl_uds_dir``; the other ports are names by which they address
        this process. A plane that cannot be had (UCX is not installed, say) is a warning in the log of ``hmc``, with its reason.

        ``init_server(ip, port, conn=ConnType.UCX)``: the older guide's.
        """
        if args:
            values = iter(args)
            ip = next(values)
            port = next(values, port)
            conn = next(values, conn)
        if bind_ip is None:
            port = _port("port", port)
            conn = ConnType.UCX if conn is None else ConnType(conn)
            self._serve(None, ip, port, None, ucx=conn == ConnType.UCX, required=True)
            return
        for name, value in (("ucx_port", ucx_port), ("rdma_port", rdma_port)):
            if value is not None:
                _port(name, value)
        ctrl_tcp_port = _port("ctrl_tcp_port", ctrl_tcp_port)
        self_id = _rank("self_id", self_id)
        if rdma_port is not None:
            log.warning("no RDMA plane: this version has no RDMA verbs; peers can come over UCX, TCP and shared memory")
        self._serve(self_id, bind_ip, ctrl_tcp_port, ctrl_uds_dir or self._uds_dir, ucx=ucx_port is not None, required=False)

    def _serve(self, rank: int | None, ip: str, port: int, uds_dir: StrPath | None, *, ucx: bool, required: bool) -> None:
        ip = ip or "0.0.0.0"
        if not self._local_ip:
            self.set_local_ip(ip)
        addr = doors.resolved(doors.tcp(ip, port).removeprefix("tcp://"))
        uds = doors.private(uds_dir) if uds_dir else doors.default_dir()
        with self._lock:
            insecure = doors.warn_once([ip], self._insecure)
            if not self._core._is_live:
                rank = _drawn_rank() if rank is None else rank
                doors.start(self._core, rank, tcp=addr, uds=uds, insecure=insecure, num_chs=self._num_chs, ucx=ucx,
                            required=required)
                return
            if rank is not None and rank != self._core.rank:
                raise _invalid(f"self_id={rank}, but this session is rank {self._core.rank}")
            self._core._listen_tcp(addr, insecure=insecure)
            doors.try_uds(self._core, uds)

    def close_server(self) -> None:
        """Stops listening, at once. Connections live on."""
        if self._core._is_live:
            self._core._close_doors()

    def set_local_ip(self, ip: str) -> None:
        """This process's address as its peers know it."""
        self._local_ip = ip
        if ip:
            self._core._own_ip(ip)

    def set_ctrl_uds_dir(self, path: StrPath) -> None:
        """The folder of the local control sockets."""
        self._uds_dir = path

    # ---- transfers, as the C++ HMC names them ----

    def put_remote(self, ip: str, port: int, local_off: int = 0, remote_off: int = 0, nbytes: int = 0,
                   conn: ConnType = ConnType.RDMA, timeout: float | None = None) -> None:
        """Copies ``nbytes`` bytes from ``local_off`` of our buffer to ``remote_off`` of the peer's, and returns when the peer
        can read them. Raises ``OutOfRange`` (nothing is written), ``NotFound``, ``PeerDead``, ``DeadlineExceeded``."""
        self._core.put_remote(ip, port, local_off, remote_off, nbytes, conn, timeout)

    def get_remote(self, ip: str, port: int, local_off: int = 0, remote_off: int = 0, nbytes: int = 0,
                   conn: ConnType = ConnType.RDMA, timeout: float | None = None) -> None:
        """Copies ``nbytes`` bytes from ``remote_off`` of the peer's buffer to ``local_off`` of ours."""
        self._core.get_remote(ip, port, local_off, remote_off, nbytes, conn, timeout)

    def put_nb(self, ip: str, port: int, local_off: int = 0, remote_off: int = 0, nbytes: int = 0,
               conn: ConnType = ConnType.RDMA) -> int:
        """Begins a put and returns its number for :meth:`wait`. The bytes must not change until it has ended."""
        return self._core.put_nb(ip, port, local_off, remote_off, nbytes, conn)

    def get_nb(self, ip: str, port: int, local_off: int = 0, remote_off: int = 0, nbytes: int = 0,
               conn: ConnType = ConnType.RDMA) -> int:
        """Begins a get and returns its number for :meth:`wait`."""
        return self._core.get_nb(ip, port, local_off, remote_off, nbytes, conn)

    def wait(self, wr_id: int | Iterable[int], timeout: float | None = None) -> None:
        """Waits for one number or a list of them, all of them to their ends, then raises the first failure. One that has not
        ended in time can be waited for again."""
        numbers = [wr_id] if hasattr(wr_id, "__index__") else list(wr_id)
        self._core._wait(numbers, timeout)  # type: ignore[arg-type]  # what has __index__ is one number

    def buffer_put_then_put(self, ip: str, port: int, data: ArrayLike | int, *, local_off: int = 0, remote_off: int = 0,
                            conn: ConnType = ConnType.RDMA, nbytes: int | None = None,
                            device: Literal["cpu", "ptr"] | None = None, timeout: float | None = None) -> int:
        """``buf.put`` and ``put_remote`` in one call; returns the bytes."""
        n = self._buf.put(data, nbytes=nbytes, offset=local_off, device=device)  # type: ignore[arg-type]  # device says which
        self.put_remote(ip, port, local_off, remote_off, n, conn, timeout)
        return n

    def get_then_buffer_get_into(self, ip: str, port: int, dst: ArrayLike | int, *, local_off: int = 0, remote_off: int = 0,
                                 conn: ConnType = ConnType.RDMA, nbytes: int | None = None,
                                 device: Literal["cpu", "ptr"] | None = None, timeout: float | None = None) -> int:
        """``get_remote`` and ``buf.get_into`` in one call; returns the bytes."""
        n = nbytes_of(dst) if nbytes is None else nbytes
        self.get_remote(ip, port, local_off, remote_off, n, conn, timeout)
        return self._buf.get_into(dst, nbytes=n, offset=local_off, device=device)  # type: ignore[arg-type]  # device says which

    def send_data_to(self, ip: str, port: int, ptr: ArrayLike | int, size: int | None = None,
                     buf_type: MemoryType = MemoryType.CPU, conn: ConnType = ConnType.RDMA, *,
                     timeout: float | None = None) -> None:
        """Sends ``size`` bytes to the peer's next ``recv_data_from`` and returns when it has them. ``ptr``: an object with
        bytes, or an address with ``size``."""
        host_only(buf_type)
        self._core._at(ip, port, conn).send_data(flat(ptr, size, what="ptr"), timeout)

    def recv_data_from(self, ip: str, port: int, ptr: ArrayLike | int, size: int | None = None,
                       buf_type: MemoryType = MemoryType.CPU, flag_ptr: ArrayLike | int | None = None,
                       conn: ConnType = ConnType.RDMA, *, timeout: float | None = None) -> int:
        """Receives the peer's next message into ``ptr`` and returns its length. The 8 bytes of ``flag_ptr`` (an address other
        than 0, or a writable object) are set to the number 1 then."""
        host_only(buf_type)
        flag = None
        if flag_ptr is not None and not (isinstance(flag_ptr, int) and flag_ptr == 0):
            flag = flat(flag_ptr, 8, writable=True, what="flag_ptr")
        n = self._core._at(ip, port, conn).recv_data(flat(ptr, size, writable=True, what="ptr"), timeout)
        if flag is not None:
            flag[:] = (1).to_bytes(8, sys.byteorder)
        return n

    # ---- tags ----

    def ctrl_send(self, peer: int, tag: int, timeout: float | None = None) -> None:
        """Sends a tag, 0 to 2**64-1, to a rank. Whoever receives it can read what was put (and waited for) before. Waits
        while the peer does not receive what was sent before."""
        self._core._ctrl_send(peer, tag, timeout)

    def ctrl_recv(self, peer: int, timeout: float | None = None) -> int:
        """Receives the oldest tag of a rank, waiting for the rank to connect if need be."""
        return self._core._ctrl_recv(peer, timeout)
