"""Collectives: what all members of a group do together.

``init_group`` brings the members together: by ``torch.distributed`` where that is in use, else by an address or a folder that all
of them know. Then each calls the same collective with arrays of the same shapes. A member that dies, or a call that fails on one,
raises on all of them; the group is broken after that.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import time
from dataclasses import asdict, dataclass

from . import listeners
from .args import conn_type, integer
from .args import port as _port
from .deadline import end_of, left
from .enums import ConnType, MemoryType, status_t
from .errors import DeadlineExceeded, Refused, Unavailable
from .errors import invalid as _bad
from .memory import flat
from .tensors import describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType
    from typing import Any, Literal, Self, TypedDict, overload

    from ._hmc import RawGroup
    from .session import Session
    from .typing import A, ArrayLike, Exchange, Reduction, StrPath

    class _Table(TypedDict):
        """What members tell each other: ``session`` is the rank of the member's, ``port`` where it listens."""

        group: str
        session: int
        port: int
        member: dict[str, Any]

__all__ = ["Group", "GroupMember", "alltoall", "init_group"]

#: How often somebody who waits for others' files, or for an address to be there, looks again.
_LOOK_EVERY = 0.02


@dataclass(frozen=True)
class GroupMember:
    """What the others know of a member: numbers, and its address as a text. ``rank`` is its place in the group."""

    rank: int
    world: int
    ip: str
    port_ucx: int
    port_rdma: int
    port_ctrl: int
    mem_type: int
    device_id: int
    buffer_size: int

    @property
    def memory_type(self) -> MemoryType:
        """``mem_type`` by its name."""
        return MemoryType(int(self.mem_type))

    def port_for(self, conn: ConnType) -> int:
        """The data port by which it is addressed over a transport."""
        return int(self.port_ucx if int(conn) == ConnType.UCX else self.port_rdma)

    def to_dict(self) -> dict[str, Any]:
        """Its fields by their names, for messages between members."""
        return {**asdict(self), "mem_type": int(self.mem_type)}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Self:
        """A member of such fields; numbers may be texts."""
        numbers = {name: int(d[name]) for name in cls.__dataclass_fields__ if name != "ip"}
        return cls(ip=str(d["ip"]), **numbers)


class Group:
    """Members of a job, in the order of their places (``rank`` of :func:`init_group`).

    Arrays are NumPy, torch (CPU), or anything with the buffer protocol or DLPack. What is sent may have gaps; what is received
    must be writable and C-contiguous. All members give arrays of the same shapes and dtypes. One collective runs at a time:
    another thread's raises ``Busy``. Each takes ``timeout`` in seconds: by default that of the session (30 if it has none), but
    ``alltoall`` waits for members without a limit, as in the C++ HMC, unless the session has a deadline.

    Raises ``PeerDead`` when a member died, ``Closed`` when it left, ``Cancelled`` when it gave up, ``InvalidArgument`` when
    lengths differ, ``DeadlineExceeded`` when this member's time is over or another one's; later calls on the group raise at once.

    >>> import hmc, numpy as np
    >>> with hmc.create_session(buffer_size=64) as session:
    ...     group = hmc.init_group(session=session, rank=0, world_size=1)
    ...     group.allreduce(np.array([1.5, 2.5]), "max"), group.rank, group.world_size
    (array([1.5, 2.5]), 0, 1)
    """

    def __init__(self, *, session: Session, members: Iterable[GroupMember], rank: int, group_id: str = "default") -> None:
        self.session = session
        self.group_id = str(group_id)
        self.members = sorted(members, key=lambda m: int(m.rank))
        self.rank = integer("rank", rank)
        self.world = len(self.members)
        if not self.members:
            raise _bad("empty group: give its members")
        if self.rank >= self.world:
            raise _bad(f"bad rank: {self.rank} (world={self.world})")
        if [int(m.rank) for m in self.members] != list(range(self.world)):
            raise _bad("members must be contiguous ranks 0..world-1")
        if any(int(m.world) != self.world for m in self.members):
            raise _bad("member.world mismatch")
        self.me = self.members[self.rank]
        #: Ranks of the members' sessions.
        self.ranks = list(range(self.world))
        self._made: RawGroup | None = None

    @property
    def _raw(self) -> RawGroup:
        """What moves the bytes. A group that was made by hand connects its members now."""
        if self._made is None:
            end = end_of(None, self.session._core._waits[0])
            self._meet([m.port_ctrl for m in self.members], ConnType.AUTO, end)
        return self._made  # type: ignore[return-value]  # it was made

    def _meet(self, ports: list[int], conn: ConnType, end: float) -> None:
        """Connects to the members before this one, and waits for those behind it."""
        for place, member in enumerate(self.members):
            if place < self.rank:
                _dial(self.session, self.ranks[place], listeners.tcp(member.ip, ports[place]), conn, end)
            elif place > self.rank:
                self.session.peer(self.ranks[place], left(end), alive=True)
        self._made = self.session._core._group(self.ranks)

    @property
    def world_size(self) -> int:
        """How many members; ``world`` is the same."""
        return self.world

    def __len__(self) -> int:
        return self.world

    @property
    def left(self) -> GroupMember:
        """The member before this one, in a ring."""
        return self.members[(self.rank - 1) % self.world]

    @property
    def right(self) -> GroupMember:
        """The member after this one, in a ring."""
        return self.members[(self.rank + 1) % self.world]

    def peer(self, r: int) -> GroupMember:
        """What is known of the member at position ``r``."""
        return self.members[int(r)]

    def port_for(self, conn: ConnType, r: int | None = None) -> int:
        """The data port of a member, this one if none is named."""
        return (self.me if r is None else self.members[r]).port_for(conn)

    def barrier(self, timeout: float | None = None) -> None:
        """Returns when all members have called it."""
        self._raw.barrier(timeout)

    def broadcast(self, array: A, root: int = 0, timeout: float | None = None) -> A:
        """Copies the array of the member at position ``root`` to all others'; returns it."""
        self._raw.broadcast(array, root, timeout)
        return array

    if TYPE_CHECKING:
        @overload
        def gather(self, send: ArrayLike, recv: A, root: int = 0, timeout: float | None = None) -> A: ...
        @overload
        def gather(self, send: ArrayLike, recv: None = None, root: int = 0, timeout: float | None = None) -> None: ...

    def gather(self, send: ArrayLike, recv: ArrayLike | None = None, root: int = 0,
               timeout: float | None = None) -> ArrayLike | None:
        """Copies every member's ``send`` to ``recv`` at ``root``, in order; elsewhere ``recv`` is not used."""
        self._raw.gather(send, bytearray() if recv is None else recv, root, timeout)
        return recv

    def scatter(self, send: ArrayLike | None, recv: A, root: int = 0, timeout: float | None = None) -> A:
        """Gives each member its block of ``send`` at ``root``; elsewhere ``send`` is not used and may be None."""
        self._raw.scatter(b"" if send is None else send, recv, root, timeout)
        return recv

    def allgather(self, send: ArrayLike, recv: A, timeout: float | None = None) -> A:
        """Copies every member's ``send`` to every ``recv``, in order: ``recv`` has ``world_size`` times its bytes."""
        _same_dtype(send, recv)
        self._raw.allgather(send, recv, timeout)
        return recv

    def alltoall(self, send: ArrayLike, recv: A, *, algo: Exchange = "auto", timeout: float | None = None) -> A:
        """Gives each member its block of ``send`` and takes one of each into ``recv``, in order. Both have as many bytes, a
        multiple of ``world_size``. ``algo``: ``"direct"`` (all at once), ``"ring"`` (one partner at a time), ``"auto"``."""
        _same_dtype(send, recv)
        elements = math.prod(describe(send).shape)
        if elements % len(self):
            raise _bad(f"{elements} elements cannot be cut into {len(self)} blocks; nothing was sent")
        way: Any = str(algo).strip().lower()
        self._raw.alltoall(send, recv, way, timeout)
        return recv

    def reduce_scatter(self, send: ArrayLike, recv: A, op: Reduction = "sum", timeout: float | None = None) -> A:
        """Reduces all members' ``send``, number by number, and gives each its block: ``send`` has ``world_size`` times the
        bytes of ``recv``. ``op``: ``"sum"``, ``"prod"``, ``"min"``, ``"max"``. Whole numbers wrap around; float16 and bfloat16 are
        rounded after each step; the sum of bools is their "or", the product their "and"."""
        dtype = _same_dtype(send, recv)
        self._raw.reduce_scatter(send, recv, dtype, _reduction(dtype, op), timeout)
        return recv

    def allreduce(self, array: A, op: Reduction = "sum", timeout: float | None = None) -> A:
        """Reduces all members' arrays, number by number, in place; all get the same bits. Returns the array. ``op`` as in
        :meth:`reduce_scatter`."""
        dtype = describe(array).dtype
        self._raw.allreduce(array, dtype, _reduction(dtype, op), timeout)
        return array


def _reduction(dtype: str, op: Reduction) -> Reduction:
    """What becomes of the bytes: those of bools are 0 or 1, and stay so."""
    if dtype == "bool":
        return "max" if op == "sum" else "min" if op == "prod" else op
    return op


def _same_dtype(send: ArrayLike, recv: ArrayLike) -> str:
    a, b = describe(send).dtype, describe(recv).dtype
    if a != b:
        raise _bad(f"what is sent is of {a}, what is received of {b}")
    return a


def alltoall(group: Group, send: ArrayLike, recv: A, *, algo: Exchange = "auto",
             conn: ConnType | str = "auto", send_bias: int = 0, recv_bias: int | None = None, chunk_bytes: int = 4 << 20,
             do_self_copy: bool = True, timeout: float | None = None) -> A:
    """The C++ HMC's call; see :meth:`Group.alltoall`. Arrays are used where they lie: ``send_bias``, ``recv_bias`` and
    ``chunk_bytes`` name places of its staging buffer and change nothing; ``conn`` was chosen when the group was made (what is
    none is a ``TypeError``)."""
    if not (isinstance(conn, str) and conn.strip().lower() == "auto"):
        conn_type(conn)
    if do_self_copy:
        return group.alltoall(send, recv, algo=algo, timeout=timeout)
    view = flat(recv, writable=True, what="recv")
    block = view.nbytes // len(group)
    own = slice(group.rank * block, (group.rank + 1) * block)
    kept = bytes(view[own])
    group.alltoall(send, recv, algo=algo, timeout=timeout)
    view[own] = kept
    return recv


def init_group(*, session: Session, my_ip: str = "127.0.0.1", port_ucx: int = 0, port_rdma: int = 0, port_ctrl: int = 0,
               group_id: str = "default", ctrl_tcp_port: int | None = None, ctrl_uds_dir: StrPath | None = None,
               start_servers: bool = True, server_barrier: bool = True, rendezvous: str | None = None, rank: int | None = None,
               world_size: int | None = None, conn: ConnType | Literal["auto"] = "auto", timeout: float | None = None) -> Group:
    """Brings a group together and connects its members with each other.

    Args:
        session: this process's, started or not.
        my_ip: the address by which the others reach this process.
        port_ucx, port_rdma: names by which members address each other's data planes; nobody listens there.
        port_ctrl, ctrl_tcp_port: where this process listens; 0: any free port.
        group_id: names the group where several meet in one folder.
        ctrl_uds_dir: folder of the local control socket.
        start_servers: whether this call opens the listeners; else the session listens already.
        server_barrier: ignored: members connect when all are there.
        rendezvous: where members meet: ``"tcp://HOST:PORT"``, on which rank 0 listens; ``"file:///FOLDER"``, shared by all, with no
            files of a run that failed; None: ``torch.distributed`` if it is initialised, else ``MASTER_ADDR`` and ``MASTER_PORT``.
        rank, world_size: this process's place, 0 to ``world_size`` - 1; by default those of ``torch.distributed``, else of the
            environment (``RANK``, ``WORLD_SIZE``).
        conn: what moves the bytes: ``"auto"`` or a :class:`ConnType`.
        timeout: seconds for all of it (default: the session's deadline, else 30). Where members meet by ``torch.distributed``
            and no time is given, torch's own limit holds until all have come.

    Raises ``DeadlineExceeded`` when a member does not come, ``InvalidArgument`` for a place that cannot be.
    """
    end = end_of(timeout, session._core._waits[0])
    dist = _torch_distributed() if rendezvous is None else None
    folder = None
    rank, world = _place(rank, world_size, dist)
    conn = ConnType.AUTO if conn == "auto" else ConnType(conn)
    if start_servers:
        folder_of_sockets = listeners.private(ctrl_uds_dir) if ctrl_uds_dir else listeners.default_dir()
        wanted = _port("ctrl_tcp_port", ctrl_tcp_port or 0) or _port("port_ctrl", port_ctrl)
        session._serve(rank, my_ip, wanted, folder_of_sockets, ucx=conn == ConnType.UCX, required=True)
    listens = [a for a in session.addresses if a.startswith("tcp://")]
    if not listens:
        raise _bad("the session listens on no TCP address: give start_servers=True, or listen=")
    port = int(listens[0].rsplit(":", 1)[1])
    me = GroupMember(rank, world, str(my_ip), _port("port_ucx", port_ucx), _port("port_rdma", port_rdma),
                     _port("port_ctrl", port_ctrl) or port, int(session.buf.mem_type), session.buf.device_id, session.buf.size)
    table: _Table = {"group": group_id, "session": session.rank, "port": port, "member": me.to_dict()}
    if dist is not None:
        found: list[Any] = [None] * world
        dist.all_gather_object(found, table)
        if timeout is None:
            # However late the last of them was: torch has waited, by its own limit.
            end = end_of(None, session._core._waits[0])
    elif world == 1:
        found = [table]
    else:
        where = rendezvous or _from_environment()
        if where.startswith("file://"):
            folder = where.removeprefix("file://")
            found = _meet_in(folder, table, world, end)
        else:
            found = _meet_at(session, where, table, rank, world, end)
    found.sort(key=lambda t: t["member"]["rank"])
    members = [GroupMember.from_dict(t["member"]) for t in found]
    places = [m.rank for m in members]
    if places != list(range(world)) or any(m.world != world for m in members):
        raise _bad(f"members came with the places {places} and the sizes {sorted({m.world for m in members})}: "
                   f"each needs one of 0 to {world - 1}, and the same world_size")
    ranks = [t["session"] for t in found]
    if len(set(ranks)) != world:
        raise _bad(f"members have the ranks {ranks}: each needs one of its own")
    group = Group(session=session, members=members, rank=rank, group_id=group_id)
    group.ranks = ranks
    group._meet([t["port"] for t in found], conn, end)
    if folder is not None and world > 1:
        # All have read all files, and nobody goes before all are gone: the folder can serve again.
        group.barrier(left(end))
        os.remove(_file(folder, group_id, rank))
        group.barrier(left(end))
    return group


def _dial(session: Session, rank: int, address: str, conn: ConnType, end: float) -> None:
    """Connects, unless the other end did."""
    try:
        if any(p.rank == rank for p in session.peers):
            return
        session._core._connect(rank, address, conn, left(end))
    except Refused as e:
        if e.kind != "duplicate_rank":
            raise
        session.peer(rank, left(end), alive=True)


def _torch_distributed() -> ModuleType | None:
    torch = sys.modules.get("torch")
    dist: ModuleType | None = getattr(torch, "distributed", None)
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def _place(rank: int | str | None, world: int | str | None, dist: ModuleType | None) -> tuple[int, int]:
    if dist is not None:
        rank = dist.get_rank() if rank is None else rank
        world = dist.get_world_size() if world is None else world
    rank = os.environ.get("RANK") if rank is None else rank
    world = os.environ.get("WORLD_SIZE") if world is None else world
    if rank is None or world is None:
        raise _bad("give rank= and world_size=, set RANK and WORLD_SIZE, or initialise torch.distributed")
    rank, world = int(rank), int(world)
    if not 0 <= rank < world:
        raise _bad(f"rank {rank} of {world}: ranks are 0 to world_size - 1")
    return rank, world


def _from_environment() -> str:
    addr, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not addr or not port:
        raise _bad("give rendezvous=\"tcp://HOST:PORT\" or \"file:///FOLDER\", or set MASTER_ADDR and MASTER_PORT")
    return f"tcp://{addr}:{port}"


def _late(what: str) -> DeadlineExceeded:
    return DeadlineExceeded(status_t.TIMEOUT, f"{what} in time: the others did not come", kind="deadline_exceeded")


def _file(folder: str, group_id: str, place: int) -> str:
    return os.path.join(folder, f"{group_id}.{place}.json")


def _meet_in(folder: str, table: _Table, world: int, end: float) -> list[_Table]:
    """Each leaves a file, and reads the others'."""
    import json

    os.makedirs(folder, exist_ok=True)
    name = functools.partial(_file, folder, table["group"])
    own = name(table["member"]["rank"])
    with open(own + ".new", "w") as f:
        json.dump(table, f)
    os.replace(own + ".new", own)
    found: dict[int, _Table] = {}
    while True:
        for place in range(world):
            if place not in found and os.path.exists(name(place)):
                with open(name(place)) as f:
                    found[place] = json.load(f)
        if len(found) == world:
            return list(found.values())
        if time.monotonic() > end:
            raise _late(f"{len(found)} of {world} members met in {folder}")
        time.sleep(_LOOK_EVERY)


def _meet_at(session: Session, address: str, table: _Table, rank: int, world: int, end: float) -> list[_Table]:
    """Rank 0 listens there, receives from all members and sends to all."""
    import json

    host, _, port = address.removeprefix("tcp://").rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise _bad(f"rendezvous={address!r}: give \"tcp://HOST:PORT\" or \"file:///FOLDER\"")
    if rank == 0:
        if not any(a.rsplit(":", 1)[1] == port for a in session.addresses):
            session._core._listen_tcp(listeners.resolved(f"{host}:{port}"), insecure=listeners.warn_once([host.strip("[]")], False))
        found = [table]
        ranks: list[int] = []
        while len(found) < world:
            other, text = session._core._recv_any(left(end))
            found.append(_table(text, table))
            ranks.append(other)
        told = json.dumps(found).encode()
        for other in ranks:
            session.peer(other, left(end), alive=True).send(told, left(end))
        return found
    while True:
        try:
            peer = session._core._connect(None, address, ConnType.AUTO, left(end))
            break
        except (Unavailable, Refused) as e:
            # Nobody listens there yet.
            if isinstance(e, Refused) or time.monotonic() > end:
                raise
            time.sleep(_LOOK_EVERY)
    peer.send(json.dumps(table).encode(), left(end))
    members: list[_Table] = json.loads(peer.recv(left(end)))
    return members


def _table(text: bytes, own: _Table) -> _Table:
    """What another member says of itself."""
    import json

    try:
        table: _Table = json.loads(text)
        group, world = table["group"], GroupMember.from_dict(table["member"]).world
        table["session"], table["port"]
    except (ValueError, TypeError, KeyError):
        raise _bad("a message came that is no member's: nothing else may be sent to rank 0 while a group meets there") from None
    if group != own["group"] or world != own["member"]["world"]:
        raise _bad(f"a member of group {group!r} of {world} came to group {own['group']!r} of {own['member']['world']}")
    return table
