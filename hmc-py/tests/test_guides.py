"""Programs as the C++ HMC's guides have them, both generations, as two processes on loopback addresses.

Calls and arguments are the guides'; what comes before and after says what the guides leave to the reader: that the other end is
there, and what it then has.
"""

import importlib.util

import pytest

from conftest import NO_LIBRARIES, free_port
from hmc import listeners

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

#: The port at which the server of the guides listens for RDMA, which its clients name.
RDMA_PORT = 2026

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


def connected(env):
    """Checks that there is one link, over RDMA where that was named: it is never replaced."""
    return 'assert [peer.explain()["conn"] for peer in sess.peers] == ["rdma"]\n' if env.conn == "RDMA" else ""


def two(run, env, tmp_path, server, client):
    server_port = free_port()
    port, rest = RDMA_PORT if env.conn == "RDMA" else server_port, (free_port(), tmp_path)
    tmp_path.chmod(0o700)
    a = run(SERVER + env.named(server), server_port, *rest, env=env)
    a.expect("UCX server ready")
    b = run(env.named(CLIENT) + connected(env) + env.named(client), port, *rest, env=env)
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


@needs_torch
def test_torch(run, env, tmp_path):
    """README 4.2."""
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
    length = f"LENGTH = {300_000_000 if env.conn == 'UCX' else 30_000_000}\n"  # soft-RoCE is slow
    two(run, env, tmp_path, length + """
import ctypes, time
got = bytearray(LENGTH)
flag = ctypes.c_uint64(0)
while not sess.check_conn("127.0.0.1", ucx_port, hmc.ConnType.UCX):
    time.sleep(0.005)
n = sess.recv_data_from("127.0.0.1", ucx_port, got, len(got), hmc.MemoryType.CPU, ctypes.addressof(flag), hmc.ConnType.UCX)
assert n == len(got) and flag.value == 1
assert got == bytes(range(250)) * (len(got) // 250)
small = bytearray(3)
assert sess.recv_data_from("127.0.0.1", ucx_port, small, 3, hmc.MemoryType.CPU, None, hmc.ConnType.UCX) == 3
assert small == b"end"
""", length + """
data = bytes(range(250)) * (LENGTH // 250)
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
    a = run(env.named(OLD_SERVER + server), port, env=env)
    a.expect("UCX server ready")
    b = run(env.named(OLD_CLIENT) + connected(env) + env.named(client), port, env=env)
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
over = {} if hmc.ConnType.UCX.name == "UCX" else {"conn": hmc.ConnType.UCX}   # UCX is the default here
assert sess.get(size=9, ip=server_ip, bias=8192, **over) == b"elsewhere"
out = bytearray(4)
assert sess.get_into(server_ip, out, bias=8196, **over) == 4 and out == b"wher"
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


@needs_torch
def test_the_older_guide_torch(run, env):
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
    a = run(SERVER + "sys.stdin.read()", free_port(), port := free_port(), tmp_path, env=NO_LIBRARIES)
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
""", env=NO_LIBRARIES).end()


def test_a_server_without_ucx_is_up_and_warns(run, tmp_path):
    a = run("""
import logging, sys
logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(name)s: %(message)s")
""" + SERVER, free_port(), free_port(), tmp_path, env=NO_LIBRARIES)
    out = a.end()
    assert ("hmc: no RDMA plane" in out) != listeners.has_rdma_device()
    assert "hmc: no UCX plane" in out and "UCX server ready" in out
