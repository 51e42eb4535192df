"""The calls of the C++ HMC's older guide, which name a peer by its address alone."""

from __future__ import annotations

from .enums import ConnType
from .errors import invalid
from .memory import nbytes_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, overload

    from .buffer import IOBuffer
    from .typing import ArrayLike

__all__ = ["OlderGuide"]


def _old_order(conn: ConnType | int, bias: int | ConnType) -> tuple[ConnType, int]:
    """The older guide has ``conn`` before ``bias`` in one place and after it in another."""
    if isinstance(conn, ConnType):
        return conn, bias
    return (bias if isinstance(bias, ConnType) else ConnType.UCX), conn


class OlderGuide:
    """``put(ip, data)`` and its like. Data goes through the session's buffer, to the same place of the peer's."""

    _buf: IOBuffer
    #: The places that were connected to.
    _known: set[tuple[str, int, int]]

    if TYPE_CHECKING:
        def put_remote(self, ip: str, port: int, local_off: int = 0, remote_off: int = 0, nbytes: int = 0,
                       conn: ConnType = ConnType.RDMA, timeout: float | None = None) -> None: ...
        def get_remote(self, ip: str, port: int, local_off: int = 0, remote_off: int = 0, nbytes: int = 0,
                       conn: ConnType = ConnType.RDMA, timeout: float | None = None) -> None: ...

    def put(self, ip: str, data: ArrayLike, conn: ConnType | int = ConnType.UCX, bias: int | ConnType = 0,
            size: int | None = None, *, timeout: float | None = None) -> int:
        """Copies ``data`` into our buffer at ``bias`` and from there to the same place of the peer's; returns the bytes."""
        conn, bias = _old_order(conn, bias)
        n = self._buf.put(data, nbytes=size, offset=bias)
        self.put_remote(ip, self._old_port(ip, conn), bias, bias, n, conn, timeout)
        return n

    if TYPE_CHECKING:
        @overload
        def get(self, ip: str, size: int, conn: ConnType | int = ConnType.UCX, bias: int | ConnType = 0, *,
                timeout: float | None = None) -> bytes: ...
        @overload
        def get(self, size: int, ip: str, /, conn: ConnType | int = ConnType.UCX, bias: int | ConnType = 0, *,
                timeout: float | None = None) -> bytes: ...

    def get(self, ip: Any, size: Any = None, conn: ConnType | int = ConnType.UCX, bias: int | ConnType = 0, *,
            timeout: float | None = None) -> bytes:
        """Gets ``size`` bytes at ``bias`` of the peer's buffer. The guide has both orders: ``get(ip, size)``, ``get(size, ip)``."""
        if not isinstance(ip, str):
            ip, size = size, ip
        if not isinstance(size, int):
            raise invalid(f"size={size!r}: how many bytes?")
        conn, bias = _old_order(conn, bias)
        self.get_remote(ip, self._old_port(ip, conn), bias, bias, size, conn, timeout)
        return bytes(self._buf.buffer_get_cpu(nbytes=size, offset=bias))

    def get_into(self, ip: str, dest: ArrayLike, conn: ConnType | int = ConnType.UCX, bias: int | ConnType = 0,
                 size: int | None = None, *, timeout: float | None = None) -> int:
        """Gets the peer's bytes at ``bias`` into ``dest``; returns how many."""
        conn, bias = _old_order(conn, bias)
        n = nbytes_of(dest) if size is None else size
        self.get_remote(ip, self._old_port(ip, conn), bias, bias, n, conn, timeout)
        return self._buf.get_into(dest, nbytes=n, offset=bias)

    def put_torch_cuda(self, ip: str, tensor: object, conn: ConnType = ConnType.RDMA, bias: int = 0,
                       size: int | None = None) -> None:
        """Device memory: not in this version."""
        self._buf.buffer_put_cuda(tensor)

    def get_torch_cuda(self, ip: str, tensor: object, conn: ConnType = ConnType.RDMA, bias: int = 0,
                       size: int | None = None) -> None:
        """Device memory: not in this version."""
        self._buf.buffer_get_cuda(tensor)

    def _old_port(self, ip: str, conn: ConnType) -> int:
        """The port that was dialed at that address; 1, which names nobody, for one that came to us."""
        ports = [port for (other, port, c) in self._known if other == ip and c == int(conn)]
        if len(ports) > 1:
            raise invalid(f"several peers at {ip} were connected to; use put_remote and get_remote, which take a port")
        return ports[0] if ports else 1
