"""The C++ HMC's binding: ``Communicator``, ``CtrlLink``, ``Memory``, ``Buffer``, with its names, which answer with ``status_t``.

:class:`hmc.Session` raises exceptions that say more, and does everything that these do.
"""

from __future__ import annotations

import functools
import logging
import os

from .buffer import ConnBuffer, IOBuffer, host_only
from .enums import ConnType, CtrlTransport, MemoryType, status_t
from .errors import Busy, HMCStatusError, invalid
from .memory import flat
from .session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol

    from .typing import ArrayLike, P, StrPath

    class _HasConnBuffer(Protocol):
        @property
        def conn_buffer(self) -> ConnBuffer: ...

__all__ = ["Buffer", "Communicator", "CtrlLink", "Memory", "memory_supported", "memory_type_from_torch_tensor"]

log = logging.getLogger("hmc")


def _status(method: Callable[P, object]) -> Callable[P, status_t]:
    """A method that answers with a status: SUCCESS, or that of the exception, whose words go to the log."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> status_t:
        try:
            method(*args, **kwargs)
        except HMCStatusError as e:
            log.warning("%s: %s", method.__name__, e)
            return e.status
        return status_t.SUCCESS

    return call


class CtrlLink:
    """Where a peer's control listener is: an address, or the full path of its control socket."""

    __slots__ = ("transport", "ip", "port", "uds_path")

    def __init__(self, transport: CtrlTransport = CtrlTransport.TCP, ip: str = "", port: int = 0,
                 uds_path: StrPath = "") -> None:
        self.transport = transport
        self.ip = ip
        self.port = port
        self.uds_path = uds_path

    def __repr__(self) -> str:
        return f"CtrlLink({self.transport.name}, ip={self.ip!r}, port={self.port}, uds_path={self.uds_path!r})"


class Communicator:
    """Transfers and tags over one :class:`ConnBuffer`. Calls answer with a ``status_t`` unless they say otherwise."""

    CtrlTransport = CtrlTransport

    def __init__(self, buffer: ConnBuffer | _HasConnBuffer, num_chs: int = 1) -> None:
        buf = buffer if isinstance(buffer, (IOBuffer, ConnBuffer)) else buffer.conn_buffer
        self.session = Session(buf, num_chs)

    @_status
    def initServer(self, bind_ip: str, data_port: int, ctrl_tcp_port: int, ctrl_uds_path: StrPath = "",
                   connType: ConnType = ConnType.RDMA, self_id: int = 0) -> None:
        """Listens for peers. ``ctrl_uds_path`` names the socket of ``udsPathFor``, which also tells the rank."""
        ports = {"ucx_port": data_port} if connType == ConnType.UCX else {"rdma_port": data_port}
        folder, rank = _split(ctrl_uds_path)
        self.session.init_server(bind_ip=bind_ip, ctrl_tcp_port=ctrl_tcp_port, ctrl_uds_dir=folder,
                                 self_id=self_id if rank is None else rank, **ports)

    @_status
    def closeServer(self) -> None:
        """Stops listening. Connections live on."""
        self.session.close_server()

    @_status
    def connectTo(self, peer_id: int, self_id: int, peer_ip: str, data_port: int, link: CtrlLink,
                  connType: ConnType = ConnType.RDMA) -> None:
        """Connects to a peer whose control listener is at ``link``."""
        session = self.session
        with session._lock:
            session._start_as(self_id, [peer_ip])
        if link.transport == CtrlTransport.UDS:
            address = "uds://" + _private(_split(link.uds_path)[0])
        else:
            address = _tcp(link.ip or peer_ip, link.port)
        conn = ConnType(connType)
        session._learn(peer_ip, data_port, conn, session._reach(peer_id, address, conn, None))

    @_status
    def disConnect(self, ip: str, port: int, connType: ConnType = ConnType.RDMA) -> None:
        """Ends the link to a peer."""
        self.session.disconnect(ip, port, connType)

    def checkConn(self, ip: str, port: int, connType: ConnType = ConnType.RDMA) -> status_t:
        """SUCCESS when the peer is connected now, else NOT_FOUND."""
        return status_t.SUCCESS if self.session.check_conn(ip, port, connType) else status_t.NOT_FOUND

    @_status
    def put(self, ip: str, port: int, local_off: int, remote_off: int, size: int, connType: ConnType = ConnType.RDMA) -> None:
        """Copies from our buffer to the peer's; the peer can read it when this returns."""
        self.session.put_remote(ip, port, local_off, remote_off, size, connType)

    @_status
    def get(self, ip: str, port: int, local_off: int, remote_off: int, size: int, connType: ConnType = ConnType.RDMA) -> None:
        """Copies from the peer's buffer to ours."""
        self.session.get_remote(ip, port, local_off, remote_off, size, connType)

    def putNB(self, ip: str, port: int, local_off: int, remote_off: int, size: int, connType: ConnType = ConnType.RDMA) -> int:
        """Begins a put; gives its number for ``wait``, or raises."""
        return self.session.put_nb(ip, port, local_off, remote_off, size, connType)

    def getNB(self, ip: str, port: int, local_off: int, remote_off: int, size: int, connType: ConnType = ConnType.RDMA) -> int:
        """Begins a get; gives its number for ``wait``, or raises."""
        return self.session.get_nb(ip, port, local_off, remote_off, size, connType)

    @_status
    def wait(self, wr_id: int | Iterable[int]) -> None:
        """Waits for a number, or for all of a list."""
        self.session.wait(wr_id)

    @_status
    def sendDataTo(self, ip: str, port: int, buf: ArrayLike | int, size: int, buf_type: MemoryType = MemoryType.CPU,
                   connType: ConnType = ConnType.RDMA) -> None:
        """Sends ``size`` bytes of an object or at an address to the peer's next ``recvDataFrom``."""
        self.session.send_data_to(ip, port, buf, size, buf_type, connType)

    @_status
    def recvDataFrom(self, ip: str, port: int, buf: ArrayLike | int, size: int, buf_type: MemoryType = MemoryType.CPU,
                     flag: ArrayLike | int | None = None, connType: ConnType = ConnType.RDMA) -> None:
        """Receives the peer's next message."""
        self.session.recv_data_from(ip, port, buf, size, buf_type, flag, connType)

    @_status
    def ctrlSend(self, peer_id: int, tag: int) -> None:
        """Sends a tag to a rank."""
        self.session.ctrl_send(peer_id, tag)

    def ctrlRecv(self, peer_id: int) -> int:
        """Receives the oldest tag of a rank, or raises."""
        return self.session.ctrl_recv(peer_id)

    @_status
    def closeCtrl(self) -> None:
        """Ends the session: this version has one plane for control and data."""
        self.session.close()

    @staticmethod
    def udsPathFor(dir: StrPath, peer_id: int) -> str:
        """The path of a rank's control socket."""
        return os.path.join(dir, f"hmc_ctrl_rank_{peer_id}.sock")


def _split(path: StrPath) -> tuple[str | None, int | None]:
    """The folder of a control socket, and the rank in its name."""
    if not path:
        return None, None
    folder, name = os.path.split(path)
    number = name.removeprefix("hmc_ctrl_rank_").removesuffix(".sock")
    return folder, int(number) if number.isdecimal() else None


def _private(folder: str | None) -> str:
    from .doors import private

    return private(folder or "/tmp")


def _tcp(ip: str, port: int) -> str:
    from .doors import tcp

    return tcp(ip, port)


class Buffer(bytearray):
    """Host memory that :class:`Memory` allocated: zeroed bytes, for all calls that take objects with bytes.

    Attributes:
        ptr: the address of the first byte.
        size: how many bytes.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size
        self.ptr = self._pinned()

    def _pinned(self) -> int:
        """From here on the bytes stay where they are; their address."""
        import ctypes  # most programs need none

        self._pin: Any = (ctypes.c_char * self.size).from_buffer(self)
        return ctypes.addressof(self._pin)

    def _free(self) -> None:
        if self._pin is None:
            raise invalid("this buffer was freed before")
        self._pin = None
        try:
            self.clear()
        except BufferError:
            self._pinned()
            raise Busy(status_t.ERROR, "the buffer is in use: a view or an operation still has it", kind="busy") from None

    def __repr__(self) -> str:
        return f"<hmc.Buffer: {self.size} bytes{'' if self._pin is not None else ', freed'}>"


class Memory:
    """Memory of a device, and copies between it and the host. This version has host memory only."""

    def __init__(self, device_id: int = 0, mem_type: MemoryType = MemoryType.DEFAULT) -> None:
        self.setDeviceIdAndMemoryType(device_id, mem_type)

    def setDeviceIdAndMemoryType(self, device_id: int, mem_type: MemoryType = MemoryType.DEFAULT) -> status_t:
        """Another device, another kind of memory. Raises ``Unavailable`` for what cannot be had."""
        self._type = host_only(mem_type)
        self._device_id = device_id
        return status_t.SUCCESS

    def createMemoryClass(self, mem_type: MemoryType) -> Memory:
        """A :class:`Memory` of that kind on the same device."""
        return Memory(self._device_id, mem_type)

    def init(self) -> status_t:
        """Host memory needs none."""
        return status_t.SUCCESS

    def free(self) -> status_t:
        """Host memory needs none."""
        return status_t.SUCCESS

    def getMemoryType(self) -> MemoryType:
        """The kind of memory."""
        return self._type

    def getInitStatus(self) -> status_t:
        """Whether it can be used."""
        return status_t.SUCCESS

    def getDeviceId(self) -> int:
        """The device that was asked for."""
        return self._device_id

    def allocateBuffer(self, size: int) -> Buffer:
        """``size`` zeroed bytes."""
        return Buffer(size)

    def allocatePeerableBuffer(self, size: int) -> Buffer:
        """As :meth:`allocateBuffer`: all host memory can be registered."""
        return Buffer(size)

    def freeBuffer(self, buf: Buffer) -> status_t:
        """Frees a buffer: it has no bytes any more. One that something still uses raises ``Busy`` and stays."""
        buf._free()
        return status_t.SUCCESS

    def copyHostToDevice(self, dst: ArrayLike | int, src: ArrayLike | int, size: int) -> status_t:
        """Copies ``size`` bytes. Both are objects with bytes, or addresses that the caller vouches for."""
        return _copy(dst, src, size)

    def copyDeviceToHost(self, dst: ArrayLike | int, src: ArrayLike | int, size: int) -> status_t:
        """As :meth:`copyHostToDevice`."""
        return _copy(dst, src, size)

    def copyDeviceToDevice(self, dst: ArrayLike | int, src: ArrayLike | int, size: int) -> status_t:
        """As :meth:`copyHostToDevice`."""
        return _copy(dst, src, size)


def _copy(dst: ArrayLike | int, src: ArrayLike | int, size: int) -> status_t:
    import ctypes

    if size < 0:
        raise invalid(f"a copy of {size} bytes: give 0 or more")
    if isinstance(dst, int) and isinstance(src, int):
        ctypes.memmove(dst, src, size)
        return status_t.SUCCESS
    to, come_from = flat(dst, size, writable=True, what="dst"), flat(src, size, what="src")
    to[:] = come_from
    return status_t.SUCCESS


def memory_supported() -> MemoryType:
    """The kind of memory that this build has."""
    return MemoryType.CPU


def memory_type_from_torch_tensor(t: object, *, default: MemoryType = MemoryType.DEFAULT) -> MemoryType:
    """Where a torch tensor lives."""
    kind = getattr(getattr(t, "device", None), "type", None)
    if kind == "cpu":
        return MemoryType.CPU
    if kind == "cuda":
        import torch

        return MemoryType.AMD_GPU if getattr(torch.version, "hip", None) else MemoryType.NVIDIA_GPU
    named: dict[str | None, MemoryType] = {
        "mlu": MemoryType.CAMBRICON_MLU, "musa": MemoryType.MOORE_GPU, "npu": MemoryType.HUAWEI_ASCEND_NPU,
    }
    return named.get(kind, default)
