"""Where sessions listen and dial, in the terms of the C++ HMC: addresses, folders, and what to say when a plane is missing."""

from __future__ import annotations

import atexit
import logging
import os
import stat
import sys
import threading
import warnings
import weakref

from . import _hmc, environment
from .enums import ConnType
from .errors import HMCStatusError, Unavailable, invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .typing import StrPath

log = logging.getLogger("hmc")

_live: weakref.WeakSet[_hmc.Core] = weakref.WeakSet()
_warned = threading.Event()


def closes_at_exit(core: _hmc.Core) -> None:
    """Peers get a BYE when the interpreter ends."""
    _live.add(core)


# The hook that is registered last runs first, so log records of sessions that are closed are still handled.
atexit.register(_hmc.end_log)


@atexit.register
def _close_all() -> None:
    for core in list(_live):
        try:
            core.close(0.2)
        except HMCStatusError as e:
            log.debug("at exit: %s", e)


def tcp(ip: str | None, port: int) -> str:
    """``tcp://IP:PORT``, with brackets where IPv6 needs them."""
    host = ip or "0.0.0.0"
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def resolved(address: str) -> str:
    """``HOST:PORT`` to listen on, with an IP address for the host. Raises ``InvalidArgument`` for a name that nobody knows."""
    host, _, port = address.rpartition(":")
    if not host or host[0] == "[" or host.replace(".", "").isdecimal() or ":" in host:
        return address
    import socket  # most programs listen on addresses

    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as e:
        raise invalid(f"cannot listen on `{host}`: it is no IP address, and no name that can be resolved ({e})") from None
    # Who dials a name of both kinds tries both.
    ips = sorted((family != socket.AF_INET, str(where[0])) for family, *_, where in found)
    return tcp(ips[0][1], int(port)).removeprefix("tcp://") if port.isdecimal() else address


def default_dir() -> str:
    """The folder of local control sockets: ``HMC_UDS_DIR``, ``$XDG_RUNTIME_DIR/hmc``, or ``/tmp/hmc-UID``."""
    return os.fspath(_hmc.default_uds_dir())


def private(path: StrPath) -> str:
    """A folder that belongs to this user alone: ``path`` itself, or one in it named after the user.

    The C++ HMC puts its sockets straight into ``/tmp``, where anybody can take their names.
    """
    path = os.fspath(path)
    try:
        found = os.stat(path)
    except OSError:
        return path
    if found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077:
        return path
    return os.path.join(path, f"hmc-{os.geteuid()}")


def local(folder: str, ip: str, port: int | None) -> str:
    """The control socket in a folder, of the process that listens at ``(ip, port)``: others have the same rank. A name is
    taken for the address that its server would listen on; what cannot be resolved stands for any."""
    if not port:
        return f"uds://{folder}"
    try:
        host = resolved(tcp(ip, port).removeprefix("tcp://")).rpartition(":")[0]
    except HMCStatusError:
        host = "0.0.0.0"
    return f"uds://{folder}#{host}:{port}"


def meant_another(error: HMCStatusError) -> bool:
    """Whether the process at a local socket is another than the one that was asked for, which has the same rank."""
    return "does not listen at the address" in error.msg or "belongs to another job" in error.msg


def warn_once(ips: Iterable[str], insecure: bool) -> bool:
    """Whether connections beyond this host are allowed. The C++ HMC's calls allow them, and warn once in a process."""
    if insecure:
        return True
    beyond = [ip for ip in ips if not _is_loopback(ip)]
    if not beyond:
        return False
    if not _warned.is_set():
        _warned.set()
        warnings.warn(
            f"{beyond[0]} can be reached from other machines, and nothing proves who connects: use a network that you "
            "trust, or loopback addresses. Session(insecure=True) says that this is meant.",
            RuntimeWarning,
            stacklevel=_callers_level(),
        )
    return True


def _callers_level() -> int:
    """The ``stacklevel`` with which a warning of who calls this points at the program: its first frame outside this package."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    return level


def _is_loopback(ip: str) -> bool:
    if ip == "localhost":
        return True
    import ipaddress  # here, and not at the top: importing hmc takes little

    try:
        return ipaddress.ip_address(ip).is_loopback
    except ValueError:
        return False


def lacks_transport(error: Unavailable) -> bool:
    """Whether it is the transport that cannot be had here: not where nobody listens, whatever would move the bytes, nor
    where the peer is connected over another one."""
    return "cannot connect to" not in error.msg and not is_taken(error)


def has_rdma_device() -> bool:
    """Whether the kernel has an RDMA device: sessions take part in RDMA then."""
    try:
        return bool(os.listdir("/sys/class/infiniband"))
    except OSError:
        return False


def is_taken(error: Unavailable) -> bool:
    """Whether the peer is connected over another transport."""
    return "already connected over" in error.msg


def with_remedy(error: Unavailable, conn: ConnType) -> Unavailable:
    """The same error, with how to get the transport."""
    if conn == ConnType.UCX:
        remedy = ("pip install './hmc-py[ucx]' (or libucx-cu12) brings UCX, as does apt install libucx0; HMC_UCX_LIB names a "
                  "library; HMC_CONN_FALLBACK=tcp takes another transport")
    elif conn == ConnType.RDMA:
        remedy = ("both ends need an RDMA device and libibverbs (docs/RDMA.md): else use conn=ConnType.UCX or ConnType.AUTO; "
                  "HMC_CONN_FALLBACK=auto takes another transport without a change to the program")
    else:
        return error
    if remedy in error.msg:
        return error
    return Unavailable(error.status, f"{error.msg}; {remedy}", kind=error.kind, peer=error.peer)


def start(core: _hmc.Core, rank: int, *, tcp: str | None, uds: str | None, insecure: bool, num_chs: int, ucx: bool,
          required: bool, upstream: bool, **who: Any) -> None:
    """Starts a session that listens. A plane that cannot be had is a warning with its reason; UCX is one only where it is not
    all that was asked for."""
    while True:
        try:
            core._start(rank, tcp=tcp, uds=uds, insecure=insecure, ucx=ucx, num_chs=num_chs, namesakes=True, upstream=upstream,
                        **who)
            return
        except Unavailable as e:
            if not ucx:
                raise
            if required and environment.fallback() is None:
                raise with_remedy(e, ConnType.UCX) from None
            log.warning("no UCX plane: %s", e.msg)
            ucx = False
        except HMCStatusError as e:
            if not uds or uds not in e.msg:
                raise
            log.warning("no local control socket, and no shared memory: %s", e.msg)
            uds = None


def try_uds(core: _hmc.Core, uds: str) -> None:
    """Opens the local listener of a running session, or says why not."""
    try:
        core._listen_uds(uds)
    except HMCStatusError as e:
        log.warning("no local control socket, and no shared memory: %s", e.msg)
