"""The calls of the C++ HMC's guide: peers are named by ``(ip, port, conn)``, places by offsets of the two buffers, tags by rank.

``port`` is the peer's data port, a name that both sides know; what listens is its control port.
"""

from __future__ import annotations

import logging
import os
import sys

from . import _hmc, environment, listeners, ranks
from .args import MISSING, address, conn_type, either, integer, no_more, no_others
from .args import port as _port
from .buffer import host_only
from .enums import ConnType, MemoryType, status_t
from .errors import HMCStatusError, InvalidArgument, InvalidNumber, NotFound, PeerDead, Refused
from .errors import invalid as _invalid
from .memory import flat, nbytes_of
from .older import OlderGuide
from .ranks import FIRST_SECOND, TRIES, Ranks, _tells_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Literal, overload

    from ._hmc import Peer
    from .typing import ArrayLike, StrPath

__all__ = ["SeedsGuide"]

log = logging.getLogger("hmc")

def _name(name: str, value: object) -> int:
    """What a program calls a link, or itself."""
    return integer(name, value, high=2**32 - 1)


class SeedsGuide(Ranks, OlderGuide):
    """``init_server``, ``put_remote`` and their like."""

    #: ``self_id`` of the last :meth:`init_server`, as it was given.
    id: Any = None
    #: The folder of the local control sockets.
    ctrl_uds_dir: str

    def _connect_ranked(self, peer_id: Any, self_id: Any, peer_ip: Any, data_port: Any, ctrl_tcp_port: Any,
                        uds_dir: StrPath | None, conn: Any, timeout: float | None, upstream: bool) -> None:
        conn = ConnType.RDMA if conn is None else conn_type(conn)
        peer_id, self_id, ip = _name("peer_id", peer_id), _name("self_id", self_id), str(peer_ip).strip()
        data_port = _port("data_port", data_port, low=0 if upstream else 1)
        if (ip, data_port, int(conn)) in self._known and self.check_conn(ip, data_port, conn):
            return
        address = self._control_address(ip, ctrl_tcp_port, uds_dir)
        with self._lock():
            core = self._start_as(self_id, [ip])
        if upstream:
            known = core._connect_named(peer_id, address, conn, timeout, upstream=True)
            if core is not self._core:
                self._core._call(peer_id, known)
            return
        insecure = listeners.warn_once([ip], self._insecure)
        with _tells_of(self_id):
            try:
                met = self._reach(core, peer_id, address, conn, timeout, insecure)
            except HMCStatusError as e:
                # Another program's socket in the folder of all: the address that was given is the one that counts.
                if not self._may_fall_back(address) or not listeners.meant_another(e):
                    raise
                log.warning("the local socket is another process's (%s); connecting to %s:%s", e.msg, ip, ctrl_tcp_port)
                address = listeners.tcp(ip, _port("ctrl_tcp_port", ctrl_tcp_port, low=1))
                met = self._reach(core, peer_id, address, conn, timeout, insecure)
        self._learn(ip, data_port, conn, *met)

    @staticmethod
    def _may_fall_back(address: str) -> bool:
        return "#" in address and environment.control_transport() != "uds"

    def _take_job(self, job: int | str | None) -> None:
        """The job of this session, before it starts."""
        if job is None:
            return
        number = _hmc.job_of(job)
        if self._core._is_live and self._core._job != number:
            raise _invalid(f"job={job!r}, but this session belongs to job {self._core._job}")
        self._who["job"] = number

    def _learn(self, ip: str, port: int, conn: ConnType, peer: Peer, tags: Peer | None = None) -> None:
        self._core._know(ip, port, conn, peer, tags)
        self._known.add((ip, port, int(conn)))

    def _control_address(self, peer_ip: str, port: Any, uds_dir: StrPath | None) -> str:
        forced = environment.control_transport()
        same = peer_ip == self._local_ip and peer_ip not in ("", "0.0.0.0")
        if forced == "uds" or (not forced and same):
            folder = listeners.private(self.ctrl_uds_dir if uds_dir is None else uds_dir)
            # Who forces local sockets names peers by addresses that need not be theirs; ports are.
            return listeners.local(folder, peer_ip if same else "0.0.0.0", None if port is None else _port("ctrl_tcp_port", port))
        return listeners.tcp(peer_ip, _port("ctrl_tcp_port", port, low=1))

    def _connect_old(self, ip: str, port: int | None, conn: ConnType, timeout: float | None) -> None:
        port = _port("port", port, low=1)
        with self._lock():
            if not self._core._is_live:
                self._start_anyhow([ip])
        insecure = listeners.warn_once([ip], self._insecure)
        for _ in range(TRIES):
            try:
                met = self._reach(self._core, None, listeners.tcp(ip, port), conn, timeout, insecure)
                break
            except Refused as e:
                if e.kind != "duplicate_rank" or self._core.peers or self._core.addresses:
                    raise
                # A rank was drawn that somebody has.
                self._core._unstart()
                self._start_anyhow([ip])
        else:
            raise Refused(status_t.ERROR, f"{ip}:{port} knows every rank that was tried", kind="duplicate_rank")
        self._learn(ip, port, conn, *met)

    def _start_anyhow(self, ips: list[str]) -> None:
        """Starts under a rank that nobody chose."""
        self._start_now(self._core, ranks._drawn(1, FIRST_SECOND), listeners.warn_once(ips, self._insecure))
        self._has_rank = True

    def disconnect(self, ip: str, port: int | ConnType | None = None, conn: ConnType = ConnType.RDMA, *,
                   timeout: float | None = None) -> None:
        """Ends one name of a peer: transfers that were begun by it end (after ``timeout`` seconds as cancelled), and it names
        nobody any more. The link goes on, with its tags and the peer's other names, and ends in order with the last name.
        A name that nobody has is no mistake. ``disconnect(ip, conn)`` is the older guide's."""
        self._core._check_process()
        if port is None or isinstance(port, ConnType):
            conn = ConnType.UCX if port is None else port
            port = self._old_port(ip, conn)
        port, conn = _port("port", port), conn_type(conn)
        try:
            if self._cores.is_live:
                self._core._end_place(ip, port, conn, timeout)
        except PeerDead:
            pass
        finally:
            self._known.discard((ip, port, int(conn)))
            self._retire()

    def check_conn(self, ip: str, port: int, conn: ConnType = ConnType.RDMA) -> bool:
        """Whether the peer at ``(ip, port, conn)`` is connected now."""
        try:
            return self._core._at(ip, port, conn).connected
        except InvalidNumber:
            raise
        except (NotFound, InvalidArgument, PeerDead):
            return False

    # ---- serving ----

    if TYPE_CHECKING:
        @overload
        def init_server(self, *, bind_ip: str, ucx_port: int | None = None, rdma_port: int | None = None, ctrl_tcp_port: int,
                        self_id: int, ctrl_uds_dir: StrPath | None = None, job: int | str | None = None) -> None: ...
        @overload
        def init_server(self, ip: str, port: int, conn: ConnType = ConnType.UCX, *,
                        job: int | str | None = None) -> None: ...

    def init_server(self, *args: Any, bind_ip: str | None = None, ucx_port: int | None = None, rdma_port: int | None = None,
                    ctrl_tcp_port: int | None = None, self_id: int | None = None, ctrl_uds_dir: StrPath | None = None,
                    ip: Any = None, port: int | None = None, conn: ConnType | None = None,
                    job: int | str | None = None) -> None:
        """Listens for peers.

        ``init_server(bind_ip=, ucx_port=, rdma_port=, ctrl_tcp_port=, self_id=, ctrl_uds_dir=None)``: the C++ HMC's. Peers
        come by ``ctrl_tcp_port`` and the local socket in ``ctrl_uds_dir``; the other ports are names by which they address
        this process. A plane that cannot be had (UCX is not installed, say) is a warning in the log of ``hmc``, with its reason.

        ``init_server(ip, port, conn=ConnType.UCX)``: the older guide's.

        ``job``: as for :func:`create_session`.
        """
        with self._lock():
            self._take_job(job)
        values = iter(args)
        if args:
            no_others("init_server(ip, port)", "its first argument is that", ip=ip)
            ip, port, conn = next(values), next(values, port), next(values, conn)
        no_more("init_server()", values)
        if bind_ip is None:
            no_others("init_server(ip, port)", "give bind_ip= for the form with it, whose ctrl_tcp_port= peers connect to",
                      ucx_port=ucx_port, rdma_port=rdma_port, ctrl_tcp_port=ctrl_tcp_port, self_id=self_id, ctrl_uds_dir=ctrl_uds_dir)
            port = _port("port", port)
            conn = ConnType.UCX if conn is None else ConnType(conn)
            self._serve(None, ip, port, listeners.default_dir(), ucx=conn == ConnType.UCX, required=True)
            return
        no_others("init_server(bind_ip=)", "give ucx_port=, rdma_port= and ctrl_tcp_port=", ip=ip, port=port, conn=conn)
        for name, value in (("ucx_port", ucx_port), ("rdma_port", rdma_port)):
            if value is not None:
                _port(name, value)
        control = _port("ctrl_tcp_port", ctrl_tcp_port)
        number, bind_ip = _name("self_id", self_id), str(bind_ip).strip()
        if rdma_port is not None and not listeners.has_rdma_device():
            log.warning("no RDMA plane: this machine has no RDMA device; peers can come over UCX, TCP and shared memory")
        if ctrl_uds_dir is not None:
            self.ctrl_uds_dir = os.fspath(ctrl_uds_dir)
        self.id = self_id
        uds = listeners.private(self.ctrl_uds_dir or "/tmp")
        self._serve(number, bind_ip, control or None, uds, ucx=ucx_port is not None, required=False)
        self.set_local_ip(bind_ip)

    def close_server(self) -> None:
        """Stops listening, at once. Connections live on."""
        self._core._check_process()
        for core in self._all():
            if core._is_live:
                core._close_listeners()

    @property
    def local_ip(self) -> str:
        """This process's address as its peers know it."""
        return self._local_ip

    @local_ip.setter
    def local_ip(self, ip: str) -> None:
        self.set_local_ip(ip)

    def set_local_ip(self, ip: str) -> None:
        """This process's address as its peers know it."""
        self._local_ip = ip = str(ip).strip()
        if ip:
            try:
                self._core._own_ip(ip)
            except InvalidArgument as e:
                log.warning("no peer is at it: %s", e.msg)

    def set_ctrl_uds_dir(self, d: StrPath = MISSING, *, path: StrPath = MISSING) -> None:
        """The folder of the local control sockets."""
        self.ctrl_uds_dir = os.fspath(either("d", d, "path", path))

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
        ended in time can be waited for again. 0 is one that has ended."""
        one = isinstance(wr_id, (str, bytes, float)) or not hasattr(wr_id, "__iter__")
        given: Any = [wr_id] if one else wr_id
        self._core._wait([integer("wr_id", n) for n in given], timeout)

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
        n = nbytes_of(dst) if nbytes is None else integer("nbytes", nbytes)
        self.get_remote(ip, port, local_off, remote_off, n, conn, timeout)
        return self._buf.get_into(dst, nbytes=n, offset=local_off, device=device)  # type: ignore[arg-type]  # device says which

    def send_data_to(self, ip: str, port: int, send_buf_ptr: ArrayLike | int = MISSING, buf_size: int | None = None,
                     buf_type: MemoryType = MemoryType.CPU, conn: ConnType = ConnType.RDMA, *,
                     ptr: ArrayLike | int = MISSING, size: int | None = None, timeout: float | None = None) -> None:
        """Sends ``buf_size`` bytes to the peer's next ``recv_data_from`` and returns when it has them. ``send_buf_ptr``: an
        object with bytes, or an address with ``buf_size``."""
        host_only(buf_type)
        given = address(either("send_buf_ptr", send_buf_ptr, "ptr", ptr))
        data = flat(given, _size(buf_size, size), what="send_buf_ptr")  # type: ignore[arg-type]  # flat says what it cannot be
        self._core._at(ip, port, conn).send_data(data, self._core._waits[1] if timeout is None else timeout)

    def recv_data_from(self, ip: str, port: int, recv_buf_ptr: ArrayLike | int = MISSING, buf_size: int | None = None,
                       buf_type: MemoryType = MemoryType.CPU, flag_ptr: ArrayLike | int | None = None,
                       conn: ConnType = ConnType.RDMA, *, ptr: ArrayLike | int = MISSING, size: int | None = None,
                       timeout: float | None = None) -> int:
        """Receives the peer's next message into ``recv_buf_ptr`` and returns its length. The 8 bytes of ``flag_ptr`` (an address
        other than 0, or a writable object) are set to the number 1 then."""
        host_only(buf_type)
        flag = None
        if flag_ptr is not None and not (isinstance(flag_ptr, int) and flag_ptr == 0):
            flag = flat(flag_ptr, 8, writable=True, what="flag_ptr")
        given: Any = address(either("recv_buf_ptr", recv_buf_ptr, "ptr", ptr))
        into = flat(given, _size(buf_size, size), writable=True, what="recv_buf_ptr")
        n = self._core._at(ip, port, conn).recv_data(into, self._core._waits[1] if timeout is None else timeout)
        if flag is not None:
            flag[:] = (1).to_bytes(8, sys.byteorder)
        return n

    # ---- tags ----

    def ctrl_send(self, peer: int, tag: int, timeout: float | None = None) -> None:
        """Sends a tag, 0 to 2**64-1, to a peer: its rank, or what :meth:`connect` called it. Whoever receives it can read what
        was put (and waited for) before. Waits while the peer does not receive what was sent before."""
        self._core._ctrl_send(peer, tag, timeout)

    def ctrl_recv(self, peer: int, timeout: float | None = None) -> int:
        """Receives the oldest tag of a peer, waiting for it to connect if need be."""
        return self._core._ctrl_recv(peer, timeout)

    def ctrl_send_int(self, peer: int, n: int) -> None:
        """Sends a 32-bit number, as ``sendInt`` of the C++ HMC."""
        self._core._ctrl_send(peer, n, int=True)

    def ctrl_recv_int(self, peer: int, timeout: float | None = None) -> int:
        """Receives the oldest 32-bit number of a peer: what the C++ HMC sends with ``sendInt``."""
        return self._core._ctrl_recv(peer, timeout, int=True)


def _size(size: int | None, other: int | None) -> int | None:
    given = other if size is None else size
    return None if given is None else integer("buf_size", given)
