"""Programs as the C++ HMC's guides have them, both generations, as two processes on loopback addresses.

Calls and arguments are the guides'; what comes before and after says what the guides leave to the reader: that the other end is
there, and what it then has.
"""

import pytest

import hmc
from conftest import free_port, ran

#: Without UCX the programs run as they are: the environment names another transport.
CONNS = ["ucx", "fallback"]


@pytest.fixture(params=CONNS)
def env(request):
    if request.param == "ucx":
        request.getfixturevalue("ucx")
        return {}
    return {"HMC_UCX_LIB": "/nowhere", "HMC_CONN_FALLBACK": "auto"}


SERVER = """
import sys
import hmc

ip, ucx_port, ctrl_port, folder = "127.0.0.1", int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rank = 0

sess = hmc.create_session(
    device_id=0,
    buffer_size=128 * 1024 * 1024,
    mem_type=hmc.MemoryType.CPU,
    num_chs=1,
    local_ip=ip,
)

sess.init_server(
    bind_ip=ip,
    ucx_port=ucx_port,
    rdma_port=2026,
    ctrl_tcp_port=ctrl_port,
    self_id=rank,
    ctrl_uds_dir=folder,
)

print("UCX server ready")
"""

CLIENT = """
import sys
import hmc

server_ip, data_port, ctrl_port, folder = "127.0.0.1", int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
my_ip = "127.0.0.2"

sess = hmc.create_session(mem_type=hmc.MemoryType.CPU, local_ip=my_ip)

sess.connect(
    peer_id=0,
    self_id=1,
    peer_ip=server_ip,
    data_port=data_port,
    ctrl_tcp_port=ctrl_port,
    conn=hmc.ConnType.UCX,
)
"""


def two(run, env, tmp_path, server, client):
    args = (free_port(), free_port(), tmp_path)
    tmp_path.chmod(0o700)
    a = run(SERVER + server, *args, env=env)
    a.expect("UCX server ready")
    b = run(CLIENT + client, *args, env=env)
    return b.end(), a.end()


def test_bytes_and_a_tag(run, env, tmp_path):
    """README 3.1 to 3.3."""
    client, server = two(run, env, tmp_path, """
tag = sess.ctrl_recv(peer=1)
assert tag == 1
out = bytearray(9)
sess.buf.get_into(out, nbytes=9, offset=0)
print(bytes(out))
""", """
payload = b"hello hmc"
n = sess.buf.put(payload, offset=0)
sess.put_remote(server_ip, data_port, local_off=0, remote_off=0, nbytes=n, conn=hmc.ConnType.UCX)
print("sent", n, "bytes")
sess.ctrl_send(peer=0, tag=1)
""")
    assert "sent 9 bytes" in client and "b'hello hmc'" in server


def test_the_tag_never_overtakes_the_bytes(run, env, tmp_path):
    """The C++ HMC read stale bytes in nine of ten rounds."""
    two(run, env, tmp_path, """
for i in range(200):
    assert sess.ctrl_recv(peer=1) == i
    got = sess.buf.buffer_get_cpu(nbytes=4096, offset=0)
    assert got == bytes([i]) * 4096, i
    sess.ctrl_send(peer=1, tag=i)
""", """
for i in range(200):
    sess.buf.put(bytes([i]) * 4096, offset=0)
    sess.put_remote(server_ip, data_port, local_off=0, remote_off=0, nbytes=4096, conn=hmc.ConnType.UCX)
    sess.ctrl_send(peer=0, tag=i)
    assert sess.ctrl_recv(peer=0) == i
""")


def test_numpy(run, env, tmp_path):
    """README 4.1."""
    two(run, env, tmp_path, "assert sess.ctrl_recv(peer=1) == 9", """
import numpy as np

x = np.arange(1024, dtype=np.int32)

n = sess.buf.put(x, offset=0)
sess.put_remote(server_ip, data_port, local_off=0, remote_off=0, nbytes=n, conn=hmc.ConnType.UCX)

y = np.empty_like(x)
sess.buf.put(bytes(n), offset=0)
sess.get_remote(server_ip, data_port, local_off=0, remote_off=0, nbytes=y.nbytes, conn=hmc.ConnType.UCX)
sess.buf.get_into(y, nbytes=y.nbytes, offset=0)
assert (x == y).all()
sess.ctrl_send(peer=0, tag=9)
""")


def test_torch(run, env, tmp_path):
    """README 4.2."""
    pytest.importorskip("torch", reason="torch is not installed")
    two(run, env, tmp_path, "assert sess.ctrl_recv(peer=1) == 9", """
import torch

t = torch.arange(4096, dtype=torch.int32)
n = sess.buf.put(t, offset=0)

sess.put_remote(server_ip, data_port, local_off=0, remote_off=0, nbytes=n, conn=hmc.ConnType.UCX)

out = torch.empty_like(t)
sess.get_remote(server_ip, data_port, local_off=0, remote_off=0, nbytes=out.numel() * out.element_size(), conn=hmc.ConnType.UCX)
sess.buf.get_into(out, nbytes=out.numel() * out.element_size(), offset=0)
assert torch.equal(t, out)
sess.ctrl_send(peer=0, tag=9)
""")


def test_nonblocking_calls(run, env, tmp_path):
    """README's cheat sheet: put_nb, get_nb, wait of one and of many, copies within."""
    two(run, env, tmp_path, """
assert sess.ctrl_recv(peer=1) == 2**64 - 1
assert sess.buf.buffer_get_cpu(nbytes=64, offset=0) == bytes(range(64))
""", """
sess.buf.put(bytes(range(64)), offset=0)
UCX = hmc.ConnType.UCX
ids = [sess.put_nb(server_ip, data_port, 8 * i, 8 * i, 8, UCX) for i in range(8)]
assert len(set(ids)) == 8
sess.wait(ids[3])
sess.wait([i for i in ids if i != ids[3]])
try:
    sess.wait(ids)
except hmc.NotFound as e:
    assert e.status == hmc.status_t.NOT_FOUND
else:
    raise AssertionError("waited twice")
sess.wait(sess.get_nb(server_ip, data_port, 1000, 0, 64, UCX))
sess.buf.buffer_copy_within(dst_offset=2000, src_offset=1000, nbytes=64)
assert sess.buf.buffer_get_cpu(nbytes=64, offset=2000) == bytes(range(64))
n = sess.buffer_put_then_put(server_ip, data_port, b"ab", local_off=4096, remote_off=5000, conn=UCX)
out = bytearray(n)
assert sess.get_then_buffer_get_into(server_ip, data_port, out, local_off=9000, remote_off=5000, conn=UCX) == 2
assert bytes(out) == b"ab"
assert sess.check_conn(server_ip, data_port, UCX) and not sess.check_conn("127.0.0.9", data_port, UCX)
sess.ctrl_send(peer=0, tag=2**64 - 1)
sess.disconnect(server_ip, data_port, UCX)
assert not sess.check_conn(server_ip, data_port, UCX)
""")


def test_messages_of_any_size(run, env, tmp_path):
    """send_data_to and recv_data_from, which raised TypeError and lost bytes."""
    two(run, env, tmp_path, """
import ctypes, time
got = bytearray(300 * 1000 * 1000)
flag = ctypes.c_uint64(0)
while not sess.check_conn("127.0.0.1", ucx_port, hmc.ConnType.UCX):
    time.sleep(0.005)
n = sess.recv_data_from("127.0.0.1", ucx_port, got, len(got), hmc.MemoryType.CPU, ctypes.addressof(flag), hmc.ConnType.UCX)
assert n == len(got) and flag.value == 1
assert got == bytes(range(250)) * (len(got) // 250)
small = bytearray(3)
assert sess.recv_data_from("127.0.0.1", ucx_port, small, 3, hmc.MemoryType.CPU, None, hmc.ConnType.UCX) == 3
assert small == b"end"
""", """
data = bytes(range(250)) * (300 * 1000 * 1000 // 250)
sess.send_data_to(server_ip, data_port, data, len(data), hmc.MemoryType.CPU, hmc.ConnType.UCX)
sess.send_data_to(server_ip, data_port, b"end", 3, hmc.MemoryType.CPU, hmc.ConnType.UCX)
""")


OLD_SERVER = """
import sys
import hmc

ip = "127.0.0.1"
port = int(sys.argv[1])

sess = hmc.create_session(mem_type=hmc.MemoryType.CPU)
sess.init_server(ip, port, conn=hmc.ConnType.UCX)

print("UCX server ready")
"""

OLD_CLIENT = """
import sys
import hmc

server_ip = "127.0.0.1"
port = int(sys.argv[1])

sess = hmc.create_session(mem_type=hmc.MemoryType.CPU)
sess.connect(server_ip, port, conn=hmc.ConnType.UCX)
"""


def two_old(run, env, server, client):
    port = free_port()
    a = run(OLD_SERVER + server, port, env=env)
    a.expect("UCX server ready")
    b = run(OLD_CLIENT + client, port, env=env)
    b.expect("done")
    a.tell()
    out = a.end()
    b.tell()
    b.end()
    return out


def test_the_older_guide_client_to_server(run, env):
    out = two_old(run, env, """
input()
print(sess.buf.buffer_get_cpu(nbytes=9, offset=0), sess.buf.buffer_get_cpu(nbytes=9, offset=4096))
""", """
payload = b"hello hmc"
sess.put(server_ip, payload, conn=hmc.ConnType.UCX)
sess.put(server_ip, payload, bias=4096, conn=hmc.ConnType.UCX)
sess.put(server_ip, b"elsewhere", 8192, hmc.ConnType.UCX)
assert sess.get(server_ip, 9, conn=hmc.ConnType.UCX) == payload
assert sess.get(9, server_ip, bias=4096, conn=hmc.ConnType.UCX) == payload
assert sess.get(size=9, ip=server_ip, bias=8192) == b"elsewhere"
out = bytearray(4)
assert sess.get_into(server_ip, out, bias=8196) == 4 and out == b"wher"
print("done"); input()
""")
    assert out.count("bytearray(b'hello hmc')") == 2


def test_the_older_guide_server_reads_its_client(run, env):
    out = two_old(run, env, """
input()
client_ip = "127.0.0.1"
dst = bytearray(1024 * 1024)
sess.get_into(client_ip, dst, conn=hmc.ConnType.UCX)
print(dst[:16])
""", """
sess.buf.put(b"of the client ..")
print("done"); input()
""")
    assert "bytearray(b'of the client ..')" in out


def test_the_older_guide_numpy_and_enums(run, env):
    two_old(run, env, "input()", """
import numpy as np

x = np.arange(1024, dtype=np.int32)
sess.put(server_ip, x, conn=hmc.ConnType.UCX)
y = np.empty((1024,), dtype=np.int32)
sess.get_into(server_ip, y, conn=hmc.ConnType.UCX)   # size inferred from y.nbytes
assert (x == y).all()
assert hmc.Status.SUCCESS == 0
try:
    sess.put(server_ip, b"x", bias=128 * 1024 * 1024, conn=hmc.ConnType.UCX)
except hmc.HMCStatusError as e:
    assert e.status == hmc.Status.INVALID_CONFIG
sess.disconnect(server_ip, hmc.ConnType.UCX)
print("done"); input()
""")


def test_the_older_guide_torch(run, env):
    pytest.importorskip("torch", reason="torch is not installed")
    two_old(run, env, "input()", """
import torch

t = torch.arange(4096, dtype=torch.int32)  # CPU
sess.put(server_ip, t, conn=hmc.ConnType.UCX)
out = torch.empty_like(t)
sess.get_into(server_ip, out, conn=hmc.ConnType.UCX)
assert torch.equal(t, out)
print("done"); input()
""")


@pytest.mark.skip(reason="README 5 and the older guide's GPU examples: no CUDA in this version")
def test_cuda():
    """put(device="cuda"), put_torch_cuda, get_torch_cuda."""


def test_rdma_says_what_to_do(run, tmp_path):
    a = run(SERVER + "sys.stdin.read()", free_port(), port := free_port(), tmp_path, env={"HMC_UCX_LIB": "/nowhere"})
    a.expect("UCX server ready")
    run(f"""
import hmc
sess = hmc.create_session(buffer_size=4096, local_ip="127.0.0.2")
try:
    sess.connect(peer_id=0, self_id=1, peer_ip="127.0.0.1", data_port=2026, ctrl_tcp_port={port})
except hmc.Unavailable as e:
    assert e.status == hmc.status_t.UNSUPPORT and "no RDMA verbs" in str(e), e
else:
    raise AssertionError("connected")
try:
    sess.connect(peer_id=0, self_id=1, peer_ip="127.0.0.1", data_port=2025, ctrl_tcp_port={port}, conn=hmc.ConnType.UCX)
except hmc.Unavailable as e:
    assert "pip install" in str(e), e
else:
    raise AssertionError("connected")
""", env={"HMC_UCX_LIB": "/nowhere"}).end()


def test_a_server_without_ucx_is_up_and_warns(run, tmp_path):
    a = run("""
import logging, sys
logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(name)s: %(message)s")
""" + SERVER, free_port(), free_port(), tmp_path, env={"HMC_UCX_LIB": "/nowhere"})
    out = a.end()
    assert "hmc: no RDMA plane" in out and "hmc: no UCX plane" in out and "UCX server ready" in out


def test_beyond_loopback_works_and_warns_once(run):
    out = run("""
import hmc, warnings
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as caught:
    for rank in (1, 2):
        s = hmc.create_session(buffer_size=4096)
        s.init_server(bind_ip="0.0.0.0", ucx_port=2025, rdma_port=2026, ctrl_tcp_port=%d, self_id=rank)
        s.close_server()
print([str(w.message)[:40] for w in caught if w.category is RuntimeWarning])
try:
    hmc.Session(rank=0, listen="tcp://0.0.0.0:0", buffer_size=0)
except hmc.NoCredentials as e:
    print("refused", e.kind)
hmc.Session(rank=0, listen="tcp://0.0.0.0:0", buffer_size=0, insecure=True).close()
""" % free_port(), env={"HMC_UCX_LIB": "/nowhere"}).end()
    assert out.count("0.0.0.0 can be reached") == 1 and "refused no_credentials" in out


@pytest.mark.parametrize("call", [
    "s.init_server(bind_ip='0.0.0.0', ctrl_tcp_port=port, self_id=1)",
    "s.init_server('0.0.0.0', port, hmc.ConnType.TCP)",
    "s.connect('192.0.2.1', port, hmc.ConnType.TCP, timeout=0.01)",
    "s.connect(peer_id=0, self_id=1, peer_ip='192.0.2.1', data_port=1, ctrl_tcp_port=port, timeout=0.01)",
    "hmc.Communicator(hmc.ConnBuffer(0, 64), 1).initServer('0.0.0.0', port, port, '', hmc.ConnType.TCP)",
    "hmc.init_group(session=s, my_ip='0.0.0.0', rank=0, world_size=1, rendezvous='tcp://127.0.0.1:1')",
], ids=["init_server", "init_server-older", "connect-older", "connect", "Communicator", "init_group"])
def test_the_warning_points_at_the_program(run, tmp_path, call):
    """At the line that calls, however deep in the package it is raised."""
    program = tmp_path / "program.py"
    program.write_text(f"""import hmc
port = {free_port()}
s = hmc.create_session(buffer_size=64)
def begin():
    {call}
try:
    begin()
except hmc.HMCError:
    pass
""")
    done = ran("-W", "always::RuntimeWarning", program, env={"HMC_UCX_LIB": "/nowhere"})
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "can be reached" in line]
    assert len(lines) == 1 and lines[0].startswith(f"{program}:5: RuntimeWarning"), done.stderr


@pytest.mark.parametrize("forced, my_ip, way", [("tcp", "127.0.0.1", "tcp"), ("uds", "127.0.0.2", "uds"), ("", "127.0.0.1", "uds"),
                                                ("", "127.0.0.2", "tcp")])
def test_what_carries_control_messages(monkeypatch, tmp_path_factory, forced, my_ip, way):
    """In a folder that others may enter the socket has one of its own."""
    monkeypatch.setenv("CTRL_TRANSPORT", forced)
    shared, empty = tmp_path_factory.mktemp("s"), tmp_path_factory.mktemp("e")  # paths of sockets are short
    shared.chmod(0o755)
    server, client = (hmc.create_session(buffer_size=64, local_ip=ip) for ip in ("127.0.0.1", my_ip))
    with server, client:
        server.init_server(bind_ip="127.0.0.1", ctrl_tcp_port=(port := free_port()), self_id=0, ctrl_uds_dir=shared)
        client.connect(peer_id=0, self_id=1, peer_ip="127.0.0.1", data_port=2025, conn=hmc.ConnType.AUTO,
                       ctrl_tcp_port=port, uds_dir=shared if way == "uds" else empty)
        with open("/proc/net/tcp") as f:
            connected = [line.split()[1] for line in f if line.split()[3] == "01"]
        assert any(local.endswith(f":{port:04X}") for local in connected) == (way == "tcp")
        client.ctrl_send(0, 3)
        assert server.ctrl_recv(1) == 3
    (own,) = shared.iterdir()
    assert own.is_dir() and own.stat().st_mode & 0o777 == 0o700


def test_the_binding_s_names(run, env, tmp_path):
    port, ctrl = free_port(), free_port()
    a = run("""
import sys, hmc
buf = hmc.ConnBuffer(0, 1 << 20, hmc.MemoryType.CPU)
comm = hmc.Communicator(buf, 1)
assert comm.initServer("127.0.0.1", %d, %d, hmc.Communicator.udsPathFor(sys.argv[1], 0), hmc.ConnType.UCX) == 0
print("up")
assert comm.ctrlRecv(1) == (0, 5)
out = bytearray(4)
buf.readToCpu(out, 4, 100)
assert out == b"data"
assert comm.closeServer() == 0
comm.ctrlSend(1, 6)
assert comm.ctrlRecv(1) == (0, 7)
""" % (port, ctrl), tmp_path, env=env)
    a.expect("up")
    run("""
import hmc
comm = hmc.Communicator(buf := hmc.ConnBuffer(0, 1 << 20), 1)
link = hmc.CtrlLink(hmc.CtrlTransport.TCP, "127.0.0.1", %d)
assert comm.connectTo(0, 1, "127.0.0.1", %d, link, hmc.ConnType.UCX) == 0
buf.writeFromCpu(b"data", 4, 0)
assert comm.put("127.0.0.1", %d, 0, 100, 4, hmc.ConnType.UCX) == hmc.status_t.SUCCESS
assert comm.put("127.0.0.1", %d, 0, 1 << 20, 4, hmc.ConnType.UCX) == hmc.status_t.ERROR
assert comm.checkConn("127.0.0.1", %d, hmc.ConnType.UCX) == 0
assert comm.checkConn("127.0.0.9", 1, hmc.ConnType.RDMA) == hmc.status_t.NOT_FOUND
comm.ctrlSend(0, 5)
assert comm.ctrlRecv(0) == (0, 6)
comm.ctrlSend(0, 7)
""" % (ctrl, port, port, port, port), env=env).end()
    a.end()


def test_all_of_the_binding(tmp_path_factory, caplog):
    """Over a local socket, whose name tells the rank; why a call failed is in the log."""
    SHM, OK = hmc.ConnType.SHM, hmc.status_t.SUCCESS
    there, back = ("127.0.0.1", 2025), ("127.0.0.1", 1)
    path = hmc.Communicator.udsPathFor(tmp_path_factory.mktemp("s"), 3)
    a, b = (hmc.Communicator(hmc.ConnBuffer(0, 4096)) for _ in range(2))
    assert a.initServer("127.0.0.1", 2025, free_port(), path, SHM) == OK and a.session.rank == 3
    assert b.connectTo(3, 1, "127.0.0.1", 2025, hmc.CtrlLink(hmc.CtrlTransport.UDS, uds_path=path), SHM) == OK
    b.session.buf.put(b"some bytes", offset=8)
    numbers = [b.putNB(*there, 8, 100, 4, SHM), b.putNB(*there, 12, 104, 6, SHM)]
    assert b.wait(numbers[0]) == OK and b.wait(numbers[1:]) == OK
    assert a.session.buffer.read(10, 100) == b"some bytes"
    assert b.wait(numbers) == hmc.status_t.NOT_FOUND and "wait: " in caplog.text
    assert b.wait(b.getNB(*there, 0, 105, 5, SHM)) == OK and b.get(*there, 5, 100, 5, SHM) == OK
    assert b.session.buffer.read(10) == b"bytessome "
    out, flag = bytearray(4), bytearray(8)
    op = b.session.peer(3).isend_data(b"data")
    assert a.recvDataFrom(*back, out, 4, hmc.MemoryType.CPU, flag, SHM) == OK
    op.wait()
    assert out == b"data" and int.from_bytes(flag, "little") == 1
    op = a.session.peer(1).irecv_data(out)
    assert b.sendDataTo(*there, b"more", 4, hmc.MemoryType.CPU, SHM) == OK
    op.wait()
    assert out == b"more"
    assert b.ctrlSend(3, 5) == OK and a.ctrlRecv(1) == (OK, 5)
    assert b.disConnect(*there, SHM) == OK and b.checkConn(*there, SHM) == hmc.status_t.NOT_FOUND
    assert a.closeCtrl() == OK and b.closeCtrl() == OK
    assert b.ctrlSend(3, 5) != OK


def test_what_instead_of_rdma(monkeypatch):
    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64) as s:
        there = dict(peer_id=0, peer_ip="127.0.0.1", data_port=2026, ctrl_tcp_port=int(s.address.rsplit(":", 1)[1]))
        monkeypatch.delenv("HMC_CONN_FALLBACK", raising=False)
        with hmc.create_session(buffer_size=64) as c:
            with pytest.raises(hmc.Unavailable, match="use conn=ConnType.UCX.*HMC_CONN_FALLBACK=auto"):
                c.connect(self_id=1, **there)
            monkeypatch.setenv("HMC_CONN_FALLBACK", "pigeons")
            with pytest.raises(hmc.InvalidArgument, match="'pigeons'"):
                c.connect(self_id=1, **there)
            with pytest.raises(hmc.InvalidArgument, match="this session is rank 1"):
                c.connect(self_id=2, **there)
            monkeypatch.setenv("HMC_CONN_FALLBACK", "tcp")
            c.connect(self_id=1, **there)
            assert c.peers[0].conn == "tcp"


def test_a_rank_that_somebody_has_is_drawn_anew(monkeypatch):
    """Programs of the older guide have none of their own."""
    import hmc.seeds

    drawn = iter((5, 6, 6, 6, 7))
    monkeypatch.setattr(hmc.seeds, "_drawn_rank", lambda: next(drawn))
    TCP, port = hmc.ConnType.TCP, free_port()
    sessions = [hmc.create_session(buffer_size=64) for _ in range(3)]
    sessions[0].init_server("127.0.0.1", port, TCP)
    for s in sessions[1:]:
        s.connect("127.0.0.1", port, TCP)
    assert [s.rank for s in sessions] == [5, 6, 7]
    for s in reversed(sessions):
        s.close()


@pytest.mark.parametrize("fallback", ["", "shm"])
@pytest.mark.parametrize("conn", ["ucx", "rdma"])
def test_another_transport_in_use_is_no_matter_of_packages(request, monkeypatch, fallback, conn):
    """Where the transport can be had; without UCX that is what is missing."""
    if conn == "ucx":
        request.getfixturevalue("ucx")
    monkeypatch.setenv("HMC_CONN_FALLBACK", fallback)
    conn = hmc.ConnType[conn.upper()]
    port = free_port()
    with hmc.Session(rank=0, listen=f"tcp://127.0.0.1:{port}"), hmc.create_session(buffer_size=64) as s:
        where = dict(peer_id=0, self_id=1, peer_ip="127.0.0.1", ctrl_tcp_port=port)
        s.connect(data_port=1, conn=hmc.ConnType.TCP, **where)
        with pytest.raises(hmc.Unavailable, match="already connected over tcp") as e:
            s.connect(data_port=2, conn=conn, **where)
        assert "pip install" not in e.value.msg and "FALLBACK" not in e.value.msg
        assert "::" not in e.value.msg  # a name of Rust is none here


@pytest.mark.parametrize("fallback", ["", "tcp"])
@pytest.mark.parametrize("conn", ["ucx", "rdma", "tcp"])
def test_nobody_listens_is_no_matter_of_transports(request, monkeypatch, caplog, fallback, conn):
    """Where the transport can be had; without UCX that is what is missing, whoever listens."""
    if conn == "ucx":
        request.getfixturevalue("ucx")
    monkeypatch.setenv("HMC_CONN_FALLBACK", fallback)
    conn = hmc.ConnType[conn.upper()]
    with hmc.create_session(buffer_size=64) as old, hmc.create_session(buffer_size=64) as new:
        ranked = dict(peer_id=0, self_id=1, peer_ip="127.0.0.1", data_port=2025, ctrl_tcp_port=free_port(), conn=conn)
        for call in (lambda: old.connect("127.0.0.1", free_port(), conn), lambda: new.connect(**ranked)):
            with pytest.raises(hmc.Unavailable, match="is the peer listening there") as e:
                call()
            assert "pip install" not in e.value.msg and "FALLBACK" not in e.value.msg
    assert "cannot be had" not in caplog.text
