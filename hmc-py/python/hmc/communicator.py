"""The C++ HMC's binding: ``Communicator`` and ``CtrlLink`` with its names, which answer with ``status_t``.

:class:`hmc.Session` raises exceptions that say more, and does everything that these do.
"""

from __future__ import annotations

import functools
import logging
import os

from . import listeners
from .args import MISSING, conn_type, control_transport, either, integer, port, text
from .buffer import ConnBuffer, IOBuffer
from .enums import ConnType, CtrlTransport, MemoryType, status_t
from .errors import Closed, Forked, HMCStatusError, NotFound, OutOfRange, PeerDead
from .ranks import _tells_of
from .session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol, Self

    from ._hmc import Peer
    from .typing import ArrayLike, P, StrPath

    class _HasConnBuffer(Protocol):
        @property
        def conn_buffer(self) -> ConnBuffer: ...

__all__ = ["Communicator", "CtrlLink"]

log = logging.getLogger("hmc")


def _failed(call: str, e: HMCStatusError) -> status_t:
    log.warning("%s: %s", call, e)
    # The C++ HMC has one status for all of these.
    return status_t.ERROR if isinstance(e, OutOfRange) else status_t._from_core(e.status)


def _status(method: Callable[P, object]) -> Callable[P, status_t]:
    """A method that answers with a status: SUCCESS, or that of the exception, whose words go to the log."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> status_t:
        try:
            method(*args, **kwargs)
        except HMCStatusError as e:
            if isinstance(e, TypeError):
                raise
            return _failed(method.__name__, e)
        return status_t.SUCCESS

    return call


def _error(method: Callable[P, object]) -> Callable[P, status_t]:
    """As :func:`_status`, for calls whose failures are all ERROR."""
    answer = _status(method)

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> status_t:
        return status_t.SUCCESS if answer(*args, **kwargs) == status_t.SUCCESS else status_t.ERROR

    return call


class CtrlLink:
    """Where a peer's control listener is: an address, or the full path of its control socket. With ``upstream`` it is a node of
    the C++ HMC itself. What a field cannot be is a ``TypeError`` where it is assigned."""

    __slots__ = ("_transport", "_ip", "_port", "_uds_path", "upstream")

    def __init__(self, transport: CtrlTransport = CtrlTransport.TCP, ip: str = "", port: int = 0,
                 uds_path: StrPath = "", upstream: bool = False) -> None:
        self.transport = transport
        self.ip = ip
        self.port = port
        self.uds_path = uds_path
        self.upstream = upstream

    @property
    def transport(self) -> CtrlTransport:
        """TCP, or a local socket."""
        return self._transport

    @transport.setter
    def transport(self, value: CtrlTransport) -> None:
        self._transport = control_transport(value)

    @property
    def ip(self) -> str:
        """Where a listener on TCP is; empty: where the data goes."""
        return self._ip

    @ip.setter
    def ip(self, value: str) -> None:
        self._ip = text("ip", value)

    @property
    def port(self) -> int:
        """Its port, 0 to 65535."""
        return self._port

    @port.setter
    def port(self, value: int) -> None:
        self._port = integer("port", value, high=65535)

    @property
    def uds_path(self) -> str:
        """The full path of a control socket."""
        return self._uds_path

    @uds_path.setter
    def uds_path(self, value: StrPath) -> None:
        self._uds_path = text("uds_path", value)

    def __repr__(self) -> str:
        return f"CtrlLink({self.transport.name}, ip={self.ip!r}, port={self.port}, uds_path={self.uds_path!r})"

    def _address(self, peer_ip: str) -> str:
        if self.transport == CtrlTransport.UDS:
            # Its IP address is of no use there, and may be any.
            return listeners.local(listeners.private(_split(self.uds_path)[0] or "/tmp"), "0.0.0.0", self.port or None)
        return listeners.tcp(self.ip.strip() or peer_ip, port("port", self.port, low=1))


class Communicator:
    """Transfers and tags over one :class:`ConnBuffer`. Calls answer with a ``status_t`` unless they say otherwise.

    Attributes:
        session: the :class:`hmc.Session` that does it.
    """

    CtrlTransport = CtrlTransport
    session: Session
    #: Peers whose tags are over although data goes on; all of them with ``None`` in it.
    _silent: set[int | None]

    def __init__(self, buffer: ConnBuffer | _HasConnBuffer, num_chs: int = 1) -> None:
        buf = buffer if isinstance(buffer, (IOBuffer, ConnBuffer)) else buffer.conn_buffer
        self.session = Session(buf, num_chs)
        self._silent = set()

    @classmethod
    def _of(cls, session: Session) -> Self:
        self = cls.__new__(cls)
        self.session, self._silent = session, set()
        return self

    # ---- control plane ----

    @_error
    def initCtrlServer(self, bind_ip: str, tcp_port: int, uds_path: StrPath = "", *, self_id: int | None = None) -> None:
        """Listens for peers: on ``tcp_port`` unless it is 0, and on the socket that ``uds_path`` names unless it is empty."""
        self._serve(bind_ip, port("tcp_port", tcp_port), uds_path, self_id, ucx=False)

    def _serve(self, bind_ip: str, tcp_port: int, uds_path: StrPath, self_id: int | None, *, ucx: bool) -> None:
        self.session._core._check_process()
        folder, rank = _split(uds_path)
        if folder is None and not tcp_port:
            return
        self._silent.discard(None)
        wanted = self_id if self_id is not None else rank
        uds = None if folder is None else listeners.private(folder or "/")
        self.session._serve(wanted, str(bind_ip).strip(), tcp_port or None, uds, ucx=ucx, required=False)

    @_error
    def connectCtrl(self, peer_id: int, self_id: int, link: CtrlLink) -> None:
        """Connects to the peer whose control listener is at ``link``, for tags."""
        self._connect(integer("peer_id", peer_id, high=2**32 - 1), self_id, "", link, ConnType.AUTO)

    def _connect(self, peer_id: int, self_id: int, peer_ip: str, link: CtrlLink, conn: ConnType) -> tuple[Peer, Peer | None]:
        session = self.session
        address = link._address(peer_ip)
        number, ips = integer("self_id", self_id, high=2**32 - 1), [ip for ip in [peer_ip or str(link.ip)] if ip]
        with session._lock():
            core = session._start_as(number, ips)
        self._silent -= {peer_id, None}
        with _tells_of(number):
            if not link.upstream:
                return session._reach(core, peer_id, address, conn, None, listeners.warn_once(ips, session._insecure))
            peer = core._connect_named(peer_id, address, conn, upstream=True)
            if core is not session._core:
                session._core._call(peer_id, peer)
            return peer, None

    @_error
    def closeCtrlPeer(self, peer_id: int) -> None:
        """Ends the tags of a peer; data goes on. A peer that no data connection names is disconnected. SUCCESS also when there
        is none."""
        name = integer("peer_id", peer_id, high=2**32 - 1)
        self.session._core._check_process()
        if None not in self._silent and name not in self._silent:
            self._silent.add(name)
            try:
                self.session._core._let_go(name)
            except (NotFound, Closed):
                pass  # a session without peers

    @_error
    def closeCtrl(self) -> None:
        """Stops listening, and ends the tags of all peers; data goes on."""
        self.session.close_server()
        self._silent.add(None)

    def _heard(self, peer: int) -> int:
        name = integer("peer", peer, high=2**32 - 1)
        if None in self._silent or name in self._silent:
            raise NotFound(status_t.NOT_FOUND, f"the control connection to {name} was closed", kind="not_found")
        return name

    @_error
    def ctrlSend(self, peer: int = MISSING, tag: int = MISSING, *, peer_id: int = MISSING) -> None:
        """Sends a tag to a peer."""
        name = self._heard(either("peer", peer, "peer_id", peer_id))
        self.session.ctrl_send(name, either("tag", tag, "tag", MISSING))

    def ctrlRecv(self, peer: int = MISSING, *, peer_id: int = MISSING) -> tuple[status_t, int]:
        """Receives the oldest tag of a peer: the status, and the tag (0 when there is none)."""
        try:
            return status_t.SUCCESS, self.session.ctrl_recv(self._heard(either("peer", peer, "peer_id", peer_id)))
        except HMCStatusError as e:
            if isinstance(e, TypeError):
                raise
            _failed("ctrlRecv", e)
            return status_t.ERROR, 0

    @staticmethod
    def udsPathFor(dir: StrPath, peer_id: int) -> str:
        """The path of a rank's control socket."""
        rank = integer("peer_id", peer_id, high=2**32 - 1)
        return f"{os.fspath(dir).removesuffix('/')}/hmc_ctrl_rank_{rank}.sock"

    # ---- connections ----

    @_error
    def initServer(self, bind_ip: str, data_port: int, ctrl_tcp_port: int, ctrl_uds_path: StrPath = "",
                   serverType: ConnType = ConnType.RDMA, self_id: int | None = None, *, connType: ConnType = MISSING) -> None:
        """Listens for peers. ``ctrl_uds_path`` names the socket of ``udsPathFor``, which also tells the rank. A second call for
        another kind of server, on the same control port, finds everything there."""
        conn_type(serverType if connType is MISSING else connType)
        port("data_port", data_port)
        self._serve(bind_ip, port("ctrl_tcp_port", ctrl_tcp_port), ctrl_uds_path, self_id, ucx=True)

    @_error
    def closeServer(self) -> None:
        """Stops listening. Connections live on."""
        self.session.close_server()

    @_error
    def connectTo(self, peer_id: int, self_id: int, peer_ip: str, data_port: int, ctrl_link: CtrlLink = MISSING,
                  connType: ConnType = ConnType.RDMA, *, link: CtrlLink = MISSING) -> None:
        """Connects to a peer whose control listener is at ``ctrl_link``."""
        there: CtrlLink = either("ctrl_link", ctrl_link, "link", link)
        ip, conn, at = str(peer_ip).strip(), conn_type(connType), port("data_port", data_port)
        met = self._connect(integer("peer_id", peer_id, high=2**32 - 1), self_id, ip, there, conn)
        self.session._learn(ip, at, conn, *met)

    def disConnect(self, ip: str, port: int, connType: ConnType = ConnType.RDMA) -> status_t:
        """Ends one name of a peer and its transfers; with the last name, the link. SUCCESS also when there is none."""
        try:
            self.session.disconnect(ip, port, connType)
        except HMCStatusError as e:
            if isinstance(e, TypeError):
                raise
            _failed("disConnect", e)
            if isinstance(e, Forked):
                return status_t.ERROR
        return status_t.SUCCESS

    def checkConn(self, ip: str, port: int, connType: ConnType = ConnType.RDMA) -> status_t:
        """SUCCESS when the peer is connected now, else NOT_FOUND."""
        return status_t.SUCCESS if self.session.check_conn(ip, port, connType) else status_t.NOT_FOUND

    # ---- transfers ----

    @_status
    def put(self, ip: str, port: int, local_off: int, remote_off: int, size: int, connType: ConnType = ConnType.RDMA) -> None:
        """Copies from our buffer to the peer's; the peer can read it when this returns."""
        self.session.put_remote(ip, port, local_off, remote_off, size, connType)

    @_status
    def get(self, ip: str, port: int, local_off: int, remote_off: int, size: int, connType: ConnType = ConnType.RDMA) -> None:
        """Copies from the peer's buffer to ours."""
        self.session.get_remote(ip, port, local_off, remote_off, size, connType)

    def putNB(self, ip: str, port: int, local_off: int, remote_off: int, size: int,
              connType: ConnType = ConnType.RDMA) -> tuple[status_t, int]:
        """Begins a put: the status, and the number for ``wait`` (0 when it failed)."""
        return _begun("putNB", self.session.put_nb, ip, port, local_off, remote_off, size, connType)

    def getNB(self, ip: str, port: int, local_off: int, remote_off: int, size: int,
              connType: ConnType = ConnType.RDMA) -> tuple[status_t, int]:
        """Begins a get: the status, and the number for ``wait`` (0 when it failed)."""
        return _begun("getNB", self.session.get_nb, ip, port, local_off, remote_off, size, connType)

    @_status
    def wait(self, wr_id: int | Iterable[int] = MISSING, *, wr_ids: Iterable[int] = MISSING) -> None:
        """Waits for a number, or for all of a list."""
        given: Any = either("wr_id", wr_id, "wr_ids", wr_ids)
        given = _number(given)
        self.session.wait([_number(one) for one in given] if isinstance(given, (list, tuple)) else given)

    @_status
    def sendDataTo(self, ip: str, port: int, send_buf: ArrayLike | int = MISSING, buf_size: int = MISSING,
                   buf_type: MemoryType = MemoryType.CPU, connType: ConnType = ConnType.RDMA, *,
                   buf: ArrayLike | int = MISSING, size: int = MISSING) -> None:
        """Sends ``buf_size`` bytes of an object or at an address to the peer's next ``recvDataFrom``."""
        self.session.send_data_to(ip, port, either("send_buf", send_buf, "buf", buf),
                                  either("buf_size", buf_size, "size", size), buf_type, connType)

    @_status
    def recvDataFrom(self, ip: str, port: int, recv_buf: ArrayLike | int = MISSING, buf_size: int = MISSING,
                     buf_type: MemoryType = MemoryType.CPU, flag: ArrayLike | int | None = None,
                     connType: ConnType = ConnType.RDMA, *, buf: ArrayLike | int = MISSING, size: int = MISSING) -> None:
        """Receives the peer's next message. ``flag``: see :meth:`hmc.Session.recv_data_from`; a number below the first page
        (the C++ HMC's is a value that nobody sees) is none."""
        place = None if isinstance(flag, int) and flag < 4096 else flag
        self.session.recv_data_from(ip, port, either("recv_buf", recv_buf, "buf", buf),
                                    either("buf_size", buf_size, "size", size), buf_type, place, connType)


def _number(given: Any) -> Any:
    """A number, also of what ``putNB`` gave."""
    of_call = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], status_t)
    return given[1] if of_call else given


def _begun(call: str, begin: Callable[..., int], *args: Any) -> tuple[status_t, int]:
    try:
        return status_t.SUCCESS, begin(*args)
    except HMCStatusError as e:
        if isinstance(e, TypeError):
            raise
        return _failed(call, e), 0


def _split(path: StrPath) -> tuple[str | None, int | None]:
    """The folder of a control socket, and the rank in its name."""
    if not path:
        return None, None
    folder, name = os.path.split(path)
    number = name.removeprefix("hmc_ctrl_rank_").removesuffix(".sock")
    return folder, int(number) if number.isdecimal() else None
