"""The whole Python surface of the C++ HMC, compared with a table of it: ``cxx_surface.toml``."""

import ast
import dataclasses
import enum
import inspect
import pathlib
import pickle
import tomllib

import numpy as np
import pytest

import hmc
import hmc.hmc
from conftest import free_port

TABLE = tomllib.loads((pathlib.Path(__file__).parent / "cxx_surface.toml").read_text())
OK, AUTO = hmc.status_t.SUCCESS, hmc.ConnType.AUTO


def test_names():
    assert set(TABLE["module"]["names"]) <= set(hmc.__all__)
    for name in TABLE["module"]["names"] + TABLE["module"]["besides"]:
        assert hasattr(hmc, name), name
    for name in TABLE["module"]["binding"]:
        assert getattr(hmc.hmc, name) is getattr(hmc, name)
    assert hmc._core is hmc.hmc and hmc.HMCError.__mro__[1] is RuntimeError
    for name in TABLE["module"]["collective"]:
        assert hasattr(hmc.collective, name), name
    with pytest.raises(AttributeError):
        hmc.no_such_name


def test_enumerations():
    for name, values in TABLE["enums"].items():
        kind = getattr(hmc, name)
        assert issubclass(kind, enum.IntEnum)
        for key, number in values.items():
            assert kind[key] == number == int(kind[key]) == kind(number).value and str(kind[key]) == str(number)
        assert kind._from_core(1) is kind(1) and hmc.hmc.ConnType is hmc.ConnType
    assert hmc.status_t._from_core(99) is hmc.status_t._from_core("x") is hmc.status_t.ERROR
    with pytest.raises(ValueError):
        hmc.ConnType._from_core(99)


def found(name):
    where = hmc
    for part in name.split("."):
        where = getattr(where, part)
    return where


@pytest.mark.parametrize("name", TABLE["calls"])
def test_parameters(name):
    """Whatever way the C++ HMC takes an argument, ours takes it, and what is not given is the same."""
    call, owner = found(name), found(name.rpartition(".")[0] or "Session")
    signature = inspect.signature(call)
    bound_to = [object()] if inspect.isclass(owner) and inspect.isfunction(call) and "." in name.removeprefix("collective.") else []
    if name in ("Communicator.udsPathFor",):
        bound_to = []
    takes = TABLE["calls"][name]["takes"]
    by_place_only = takes[:takes.index("/")] if "/" in takes else []
    places = [t for t in (takes[:takes.index("*")] if "*" in takes else takes) if t != "/"]
    names = [t.partition("=")[0] for t in takes if t not in "*/"]
    marks = {n: object() for n in names}
    if name in ("collective.Group", "collective.init_group", "Session.connect", "Session.init_server", "create_session"):
        assert not places
    # By place, as far as it can be, the rest by keyword.
    order = [p.partition("=")[0] for p in places]
    rest = {n: m for n, m in marks.items() if n not in order}
    given = signature.bind(*bound_to, *(marks[n] for n in order), **rest).arguments
    got = {**given, **given.get("kwargs", {})}
    for n in names if not by_place_only else []:
        assert got.get(n) is marks[n], n
    # All by keyword.
    if not by_place_only:
        given = signature.bind(*bound_to, **marks).arguments
        assert all(given.get(n) is marks[n] for n in names), given
    for t in takes:
        n, has, text = t.partition("=")
        if has:
            assert signature.parameters[n].default == ast.literal_eval(text), n


def kind_of(value):
    if isinstance(value, tuple):
        return f"({', '.join(kind_of(v) for v in value)})"
    if isinstance(value, hmc.status_t):
        return "status"
    return "None" if value is None else type(value).__name__


class Shapes:
    """What calls gave, by name."""

    def __init__(self):
        self.seen = {}

    def __call__(self, name, *args, of=None, **kwargs):
        target = found(name) if of is None else getattr(of, name.rpartition(".")[2])
        value = target(*args, **kwargs)
        self.seen.setdefault(name, set()).add("recv" if any(value is a for a in args if isinstance(a, np.ndarray)) else kind_of(value))
        return value


def test_what_calls_give(tmp_path, monkeypatch):
    """Every call whose shape the table has is made, and gives that shape."""
    monkeypatch.setenv("HMC_CONN_FALLBACK", "auto")
    tmp_path.chmod(0o700)
    call = Shapes()
    call("memory_supported")
    memory = hmc.Memory(0, hmc.hmc.MemoryType.CPU)
    for name in ("init", "free", "getMemoryType", "getInitStatus", "getDeviceId"):
        call(f"Memory.{name}", of=memory)
    status, some = call("Memory.allocateBuffer", 64, of=memory)
    other = call("Memory.allocatePeerableBuffer", size=64, of=memory)[1]
    assert status == OK
    for name in ("copyHostToDevice", "copyDeviceToHost", "copyDeviceToDevice"):
        assert call(f"Memory.{name}", some, other, 64, of=memory) == OK
    call("Memory.freeBuffer", other, of=memory)
    call("Memory.setDeviceIdAndMemoryType", 1, 1, of=memory)
    core = hmc.ConnBuffer(0, 4096, hmc.MemoryType.DEFAULT)
    call("ConnBuffer.writeFromCpu", b"abcd", 4, of=core)
    call("ConnBuffer.readToCpu", bytearray(4), 4, of=core)
    for name in ("writeFromGpu", "readToGpu"):
        assert call(f"ConnBuffer.{name}", some.ptr, 4, of=core) == hmc.status_t.ERROR
    call("ConnBuffer.copyWithin", 8, 0, 4, of=core)
    buf = hmc.IOBuffer(core)
    call("IOBuffer.put", b"abcd", of=buf)
    call("IOBuffer.get_into", bytearray(4), nbytes=4, of=buf)
    call("IOBuffer.buffer_put_cpu", b"abcd", of=buf)
    call("IOBuffer.buffer_get_cpu_into", bytearray(4), nbytes=4, of=buf)
    call("IOBuffer.buffer_get_cpu", nbytes=4, of=buf)
    call("IOBuffer.buffer_put_gpu_ptr", some.ptr, nbytes=4, of=buf)
    call("IOBuffer.buffer_get_gpu_ptr", some.ptr, nbytes=4, of=buf)
    call("IOBuffer.buffer_copy_within", dst_offset=8, src_offset=0, nbytes=4, of=buf)

    a, b = (hmc.create_session(buffer_size=4096) for _ in range(2))
    port = free_port()
    call("Session.set_local_ip", "127.0.0.2", of=b)
    call("Session.set_ctrl_uds_dir", tmp_path, of=b)
    call("Session.init_server", bind_ip="127.0.0.1", ucx_port=2025, rdma_port=2026, ctrl_tcp_port=port, self_id=0,
         ctrl_uds_dir=str(tmp_path), of=a)
    there = ("127.0.0.1", 2026)
    assert call("Session.check_conn", *there, of=b) is False
    call("Session.connect", peer_id=0, self_id=1, peer_ip=there[0], data_port=2026, ctrl_tcp_port=port, of=b)
    assert call("Session.check_conn", *there, of=b) is True
    call("Session.put_remote", *there, 0, 0, 8, of=b)
    call("Session.get_remote", *there, 0, 0, 8, of=b)
    for name in ("put_nb", "get_nb"):
        call("Session.wait", call(f"Session.{name}", *there, 0, 0, 8, of=b), of=b)
    call("Session.ctrl_send", peer=0, tag=7, of=b)
    assert call("Session.ctrl_recv", peer=1, of=a) == 7
    call("Session.buffer_put_then_put", *there, b"abcd", of=b)
    call("Session.get_then_buffer_get_into", *there, bytearray(4), of=b)
    back = a.peer(1).isend_data(b"data")
    call("Session.recv_data_from", *there, bytearray(4), 4, hmc.MemoryType.CPU, 0, of=b)
    back.wait()
    back = a.peer(1).irecv_data(bytearray(4))
    call("Session.send_data_to", *there, b"data", 4, hmc.MemoryType.CPU, of=b)
    back.wait()
    comm = b.comm
    for name in ("put", "get"):
        assert call(f"Communicator.{name}", *there, 0, 0, 8, of=comm) == OK
    for name in ("putNB", "getNB"):
        status, number = call(f"Communicator.{name}", *there, 0, 0, 8, of=comm)
        assert status == OK and call("Communicator.wait", number, of=comm) == OK
        number = getattr(comm, name)(*there, 0, 0, 8)[1]
        assert comm.wait(wr_ids=[number, 0]) == OK and comm.wait(wr_ids=[number]) == hmc.status_t.NOT_FOUND
        assert call(f"Communicator.{name}", "127.0.0.9", 1, 0, 0, 8, of=comm) == (hmc.status_t.NOT_FOUND, 0)
    back = a.peer(1).irecv_data(bytearray(4))
    assert call("Communicator.sendDataTo", *there, b"data", 4, hmc.MemoryType.CPU, of=comm) == OK
    back.wait()
    back = a.peer(1).isend_data(b"data")
    assert call("Communicator.recvDataFrom", *there, bytearray(4), 4, hmc.MemoryType.CPU, 0, of=comm) == OK
    back.wait()
    assert call("Communicator.ctrlSend", 0, 8, of=comm) == OK
    a.ctrl_send(1, 9)
    assert call("Communicator.ctrlRecv", 0, of=comm) == (OK, 9)
    assert call("Communicator.ctrlRecv", 77, of=hmc.Communicator(hmc.ConnBuffer(0, 8))) == (hmc.status_t.ERROR, 0)
    assert call("Communicator.checkConn", *there, of=comm) == OK
    assert call("Communicator.disConnect", *there, of=comm) == OK
    call("Session.disconnect", *there, of=b)
    call("Session.close_server", of=a)
    assert call("Communicator.udsPathFor", "/tmp/", 3) == "/tmp/hmc_ctrl_rank_3.sock"
    one = hmc.Communicator(hmc.ConnBuffer(0, 64))
    # 0 is what has ended, also before anything was begun.
    assert (one.wait(0), one.wait(wr_ids=[0, 0]), one.wait(wr_ids=[]), one.wait(7)) == (OK, OK, OK, hmc.status_t.NOT_FOUND)
    port = free_port()
    for kind in (hmc.ConnType.RDMA, hmc.ConnType.UCX):
        assert call("Communicator.initServer", "127.0.0.1", 1, port, "", kind, of=one) == OK
    link = hmc.CtrlLink()
    link.ip, link.port = "127.0.0.1", port
    assert call("Communicator.connectTo", 5, 6, "127.0.0.1", 1, link, AUTO, of=(two := hmc.Communicator(hmc.ConnBuffer(0, 64)))) == OK
    assert call("Communicator.initCtrlServer", "127.0.0.1", 0, of=one) == OK
    three = hmc.Communicator(hmc.ConnBuffer(0, 64))
    assert call("Communicator.connectCtrl", 5, 7, link, of=three) == OK
    assert three.ctrlSend(5, 3) == OK and one.ctrlRecv(7) == (OK, 3)
    assert call("Communicator.closeCtrlPeer", 5, of=three) == OK and three.ctrlSend(5, 3) == hmc.status_t.ERROR
    assert call("Communicator.closeServer", of=one) == OK and call("Communicator.closeCtrl", of=two) == OK
    assert two.ctrlSend(5, 3) == hmc.status_t.ERROR and two.put("127.0.0.1", 1, 0, 0, 8, AUTO) == OK

    a.close()
    group = hmc.init_group(session=(a := hmc.create_session(buffer_size=64)), rank=0, world_size=1)
    call("collective.alltoall", group, np.arange(4), np.empty(4, int))
    member = call("collective.Group.peer", "0", of=group)
    call("collective.GroupMember.port_for", hmc.ConnType.UCX, of=member)
    call("collective.GroupMember.from_dict", call("collective.GroupMember.to_dict", of=member))
    for name, row in TABLE["calls"].items():
        if "gives" in row:
            assert call.seen.get(name) == {row.get("here", row["gives"])}, name
    attributes(hmc.ConnBuffer(0, 64), buf, hmc.create_session(buffer_size=64), hmc.CtrlLink(), group, member, hmc.HMCStatusError(1))
    for s in (a, b, one.session, two.session, three.session):
        s.close()


@pytest.mark.parametrize("name", TABLE["alone"])
def test_what_calls_answer_while_there_is_nobody(name):
    """Before anything was connected, and again; nothing waits."""
    row, session = TABLE["alone"][name], hmc.create_session(buffer_size=64)
    call = getattr(session if name.startswith("Session.") else session.comm, name.partition(".")[2])
    for _ in range(2):
        try:
            answer = call(*row["args"])
        except hmc.HMCStatusError as e:
            answer = f"{type(e).__name__} {e.status}"
        pair = answer if isinstance(answer, tuple) else (answer,)
        shown = ", ".join(one.name if isinstance(one, hmc.status_t) else str(one) for one in pair)
        assert shown == row["answer"]
    session.close()


@pytest.mark.parametrize("name", TABLE["values"])
def test_what_can_be_given(name):
    row, (owner, _, what) = TABLE["values"][name], name.partition(".")
    link = hmc.CtrlLink()
    with hmc.create_session(buffer_size=64) as session:
        group = hmc.init_group(session=session, rank=0, world_size=1)

        def give(value):
            if owner == "CtrlLink":
                setattr(link, what, value)
                hmc.CtrlLink(**{what: value})
                return getattr(link, what)
            hmc.alltoall(group, b"abcd", bytearray(4), **{what: value})
            return value

        for value in row["takes"]:
            assert give(value) == value
        for value in row["refuses"]:
            with pytest.raises(TypeError):
                give(value)


def attributes(*objects):
    for thing in objects:
        for name, kind in TABLE["attributes"][type(thing).__name__].items():
            value = getattr(thing, name.rstrip("="))
            assert type(value).__name__ == kind, (type(thing), name, value)
            if name.endswith("="):
                setattr(thing, name[:-1], value)
                assert getattr(thing, name[:-1]) == value


def test_errors():
    e = hmc.HMCStatusError("text", "words")
    assert e.status == "text" and str(e) == "words (status=text)" == e.args[0]
    e = hmc.HMCStatusError(st=hmc.status_t.ERROR)
    assert (str(e), e.args, e.status) == (" (status=1)", (" (status=1)",), hmc.status_t.ERROR)
    back = pickle.loads(pickle.dumps(hmc.NotFound(5, "words", peer=3)))
    assert (str(back), back.peer, back.msg) == ("words (status=5)", 3, "words")
    buf = hmc.IOBuffer.create(0, "4096")
    with pytest.raises(RuntimeError, match=r"\(status=\d\)$") as caught:
        buf.put(bytes(5000))
    assert caught.value.status.name and isinstance(caught.value, hmc.HMCError)


def test_numbers_are_what_int_takes(tmp_path, monkeypatch):
    """Texts, floats and NumPy's; ports may be 0 where nobody listens."""
    monkeypatch.setenv("HMC_CONN_FALLBACK", "auto")
    tmp_path.chmod(0o700)
    a = hmc.create_session(device_id="0", buffer_size="4096", num_chs="1000", local_ip=" 127.0.0.1 ")
    b = hmc.create_session(buffer_size=4096.0, num_chs=0, local_ip="127.0.0.1")
    a.init_server(bind_ip=" 127.0.0.1", ucx_port=0, rdma_port="0", ctrl_tcp_port=np.int64(0), self_id="3", ctrl_uds_dir=tmp_path)
    assert (a.id, a.rank, a.local_ip, a.ctrl_uds_dir) == ("3", 3, "127.0.0.1", str(tmp_path)) and a.address.startswith("uds://")
    b.connect(peer_id="3", self_id=np.int64(1), peer_ip=" 127.0.0.1", data_port="2025", ctrl_tcp_port=0, uds_dir=tmp_path)
    b.buf.put(b"abcd", nbytes="4", offset=np.uint8(8))
    b.put_remote("127.0.0.1", 2025.7, "8", np.int64(100), 4.0, "0")
    assert a.buf.buffer_get_cpu(nbytes="4", offset=100.0) == b"abcd"
    b.wait(str(b.put_nb("127.0.0.1", np.int64(2025), 0, 0, 8)))
    b.wait(0), b.wait("0"), b.wait((0, b.get_nb("127.0.0.1", "2025", 0, 0, 8)))
    b.ctrl_send("3", "5")
    assert a.ctrl_recv(np.int64(1)) == 5 and b.comm.checkConn("127.0.0.1", np.int64(2025)) == OK
    for broken, kind in ((lambda: b.put_remote("127.0.0.1", "x", 0, 0, 1), TypeError),
                         (lambda: b.put_remote("127.0.0.1", 70000, 0, 0, 1), ValueError),
                         (lambda: b.put_remote("127.0.0.1", 2025, -1, 0, 1), TypeError),
                         (lambda: b.put_remote("127.0.0.1", 2025, 0, 0, 1, "x"), TypeError),
                         (lambda: b.check_conn("127.0.0.1", 2025, "x"), TypeError),
                         (lambda: b.connect(peer_id=3, self_id=1, peer_ip="127.0.0.1", data_port=0, ctrl_tcp_port=1), ValueError),
                         (lambda: b.connect(peer_id="x", self_id=1, peer_ip="127.0.0.1", data_port=1, ctrl_tcp_port=1), TypeError),
                         (lambda: b.wait(-1), TypeError), (lambda: b.ctrl_send(3, 2**64), TypeError),
                         (lambda: hmc.create_session(mem_type="CPU"), TypeError), (lambda: b.buf.put(b"x", offset=-1), TypeError),
                         (lambda: b.buf.put(3, device="ptr", nbytes=None), ValueError),
                         (lambda: b.buf.put(b"", device="ptr", nbytes=1), TypeError),
                         (lambda: b.buf.put(b"", device="cuda"), TypeError), (lambda: hmc.memory_type_from_torch_tensor(3), TypeError)):
        with pytest.raises(kind) as caught:
            broken()
        assert type(caught.value) in (TypeError, hmc.InvalidNumber, hmc.InvalidArgument), caught.value
    assert not b.check_conn("127.0.0.1", 2025, 7) and b.buf.put(b"as it is", device="somewhere") == 8
    a.close(), b.close()


def test_buffers_and_members_are_dataclasses():
    core = hmc.ConnBuffer(0, 64, hmc.MemoryType.DEFAULT)
    a, b = hmc.IOBuffer(core), hmc.IOBuffer(core=core)
    assert a == b and a != hmc.IOBuffer(hmc.ConnBuffer(0, 64)) and repr(a).startswith("IOBuffer(core=")
    assert [f.name for f in dataclasses.fields(a)] == ["core"] and a.mem_type is hmc.MemoryType.DEFAULT
    with pytest.raises(TypeError):
        hash(a)
    a.core = hmc.ConnBuffer(0, 128)
    assert a.size == 128 and a.ptr == a.core.ptr and a.put(b"x", offset=127) == 1
    with pytest.raises(AttributeError):
        core.mem_type = hmc.MemoryType.CPU
    make = hmc.collective.GroupMember
    m, n = make(0, 2, "127.0.0.1", 1, 2, 3, 1, 0, 64), make(1, 2, "127.0.0.1", 4, 5, 6, 0, 0, 64)
    assert {m, make(**dataclasses.asdict(m))} == {m} and dataclasses.replace(m, rank=1).rank == 1
    assert m.memory_type is hmc.MemoryType.CPU and (m.port_for(1), m.port_for(hmc.ConnType.RDMA)) == (1, 2)
    assert make.from_dict({**m.to_dict(), "port_ucx": "1"}) == m and not isinstance(m, tuple)
    with pytest.raises(dataclasses.FrozenInstanceError):
        m.rank = 5
    group = hmc.Group(session=None, members=[n, m], rank="1")
    assert (group.world, group.me, group.group_id, group.left, group.right, group.peer("0")) == (2, n, "default", m, m, m)
    for wrong in (dict(members=[]), dict(rank=2), dict(members=[m]), dict(members=[n, n]), dict(members=[m, dataclasses.replace(n, rank=2)])):
        with pytest.raises(ValueError):
            hmc.Group(**{"session": None, "members": [m, n], "rank": 0, **wrong})


def test_capsules_are_addresses():
    """What a program got from another library as a ``void *``."""
    import ctypes

    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    there = (ctypes.c_char * 8)(*b"12345678")
    capsule, memory, out = new(ctypes.addressof(there), b"a name", None), hmc.Memory(0), bytearray(4)
    assert memory.copyDeviceToHost(out, capsule, 4) == OK and out == b"1234"
    assert memory.copyHostToDevice(capsule, b"abcd", 4) == OK and there.raw == b"abcd5678"
    assert memory.copyHostToDevice(None, b"abcd", 4) == memory.freeBuffer(None) == hmc.status_t.ERROR
    for wrong in (3, b""):
        with pytest.raises(TypeError):
            memory.freeBuffer(wrong)
    core = hmc.ConnBuffer(0, 64)
    assert core.writeFromCpu(capsule, 8) == OK and core.readToCpu(dest=out, size=4) == core.readToCpu(dst=out, size=4) == OK
    assert out == b"abcd"
    status, none = memory.allocateBuffer(2**62)
    assert (status, none) == (hmc.status_t.ERROR, None)
    with pytest.raises(TypeError):
        memory.allocateBuffer(-1)
