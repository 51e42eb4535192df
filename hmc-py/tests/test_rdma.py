"""Programs over RDMA verbs that name no transport, as the C++ HMC's do: its default is RDMA."""

import pytest

from conftest import free_port, ran

pytestmark = pytest.mark.rdma

#: What follows is up to the test: who it is, and the calls.
SIDE = """
import sys
import hmc

IP, ctrl_port, folder = "127.0.0.1", int(sys.argv[1]), sys.argv[2]
RDMA_PORT = 2026
sess = hmc.create_session(buffer_size=8 << 20, local_ip=IP)


def over_rdma():
    (peer,) = sess.peers
    return peer.explain()["conn"] == sess.stats()["peers"][peer.rank]["conn"] == "rdma"
"""

SERVER = SIDE + """
sess.init_server(bind_ip=IP, ucx_port=2025, rdma_port=RDMA_PORT, ctrl_tcp_port=ctrl_port, self_id=0, ctrl_uds_dir=folder)
print("up")
"""

CLIENT = SIDE + """
sess.connect(peer_id=0, self_id=1, peer_ip=IP, data_port=RDMA_PORT, ctrl_tcp_port=ctrl_port, uds_dir=folder)
assert over_rdma()
"""


def two(run, tmp_path, server, client):
    tmp_path.chmod(0o700)
    where = (free_port(), tmp_path)
    a = run(SERVER + server, *where)
    a.expect("up")
    b = run(CLIENT + client, *where)
    return b.end(), a.end()


def test_every_call_of_a_session_takes_rdma_by_default(over_rdma, run, tmp_path):
    two(run, tmp_path, """
assert sess.ctrl_recv(1) == 1 and over_rdma()
assert sess.buf.buffer_get_cpu(nbytes=8, offset=0) == b"01234567"
assert sess.buf.buffer_get_cpu(nbytes=8, offset=100) == b"in order"
sess.ctrl_send(1, 2)
got = bytearray(5 << 20)
assert sess.recv_data_from(IP, RDMA_PORT, got, len(got)) == len(got) and got == b"abcde" * (1 << 20)
assert sess.ctrl_recv(1) == 3
""", """
assert sess.check_conn(IP, RDMA_PORT)
sess.buf.put(b"01234567", offset=0)
sess.put_remote(IP, RDMA_PORT, local_off=0, remote_off=0, nbytes=4)
sess.wait(sess.put_nb(IP, RDMA_PORT, 4, 4, 4))
assert sess.buffer_put_then_put(IP, RDMA_PORT, b"in order", local_off=64, remote_off=100) == 8
sess.ctrl_send(0, 1)
assert sess.ctrl_recv(0) == 2
sess.get_remote(IP, RDMA_PORT, local_off=200, remote_off=0, nbytes=8)
sess.wait([sess.get_nb(IP, RDMA_PORT, 208, 100, 8)])
assert sess.buf.buffer_get_cpu(nbytes=16, offset=200) == b"01234567in order"
out = bytearray(8)
assert sess.get_then_buffer_get_into(IP, RDMA_PORT, out, local_off=300, remote_off=100) == 8 and out == b"in order"
told = sess.stats()["peers"][0]
# This end's NIC moves the bytes of both.
assert (told["puts"], told["gets"], told["bytes_out"], told["bytes_in"]) == (3, 3, 40, 0), told
sess.send_data_to(IP, RDMA_PORT, b"abcde" * (1 << 20), 5 << 20)
assert over_rdma()
sess.ctrl_send(0, 3)
sess.disconnect(IP, RDMA_PORT)
assert not sess.check_conn(IP, RDMA_PORT)
""")


def test_a_window_that_was_taken_back_refuses_its_peer(over_rdma, run, tmp_path):
    """By an operation of the peer that comes later; the link, and what else is exposed, go on."""
    two(run, tmp_path, """
peer = sess.peer(1)
memory = sess.allocate(4096)
window = peer.expose(memory, 3)
assert sess.ctrl_recv(1) == 1 and memory.read(5) == b"there"
window.revoke()
memory.write(b"ours!")
sess.ctrl_send(1, 2)
assert sess.ctrl_recv(1) == 3 and memory.read(5) == b"ours!"
assert sess.buf.buffer_get_cpu(nbytes=5, offset=0) == b"still"
""", """
peer = sess.peer(0)
window = peer.window(3)
peer.put(b"there", window=window)
sess.ctrl_send(0, 1)
assert sess.ctrl_recv(0) == 2
try:
    peer.put(b"never", window=window)
except (hmc.Revoked, hmc.NotFound):
    pass
else:
    raise AssertionError("it was done")
sess.buffer_put_then_put(IP, RDMA_PORT, b"still")
sess.ctrl_send(0, 3)
""")


#: The C++ HMC's benchmark as its guide calls it: the same options, ranks and calls, which leave 0 to both ends as their rank.
PERF = """
import argparse, socket
import hmc

parser = argparse.ArgumentParser()
for name in ("role", "bind-ip", "server-ip", "ctrl-bind-ip", "ctrl-ip", "ctrl-uds-dir", "sizes"):
    parser.add_argument(f"--{name}")
for name in ("ucx-port", "rdma-port", "ctrl-port"):
    parser.add_argument(f"--{name}", type=int)
parser.add_argument("--verify", action="store_true")
args = parser.parse_args()
sess = hmc.create_session(device_id=0, buffer_size=128 << 20, mem_type=hmc.MemoryType.CPU, num_chs=1,
                          local_ip=args.bind_ip or "127.0.0.1")
sess.set_ctrl_uds_dir(args.ctrl_uds_dir)

if args.role == "server":
    sess.init_server(bind_ip=args.bind_ip, ucx_port=args.ucx_port, rdma_port=args.rdma_port, ctrl_tcp_port=args.ctrl_port + 1,
                     self_id=0, ctrl_uds_dir=args.ctrl_uds_dir)
    listener = socket.create_server((args.ctrl_bind_ip, args.ctrl_port))
    print("up")
    with listener.accept()[0].makefile("rw") as lines:
        for line in lines:
            n, head = int(line), bytearray(64)
            sess.buf.buffer_get_cpu_into(head, nbytes=min(n, 64), offset=0)
            print("verify", n, "PASS" if not args.verify or head[:n] == bytes([n % 251]) * min(n, 64) else "FAIL")
            print("ACK", file=lines, flush=True)
    sess.close_server()
else:
    with socket.create_connection((args.ctrl_ip, args.ctrl_port)).makefile("rw") as lines:
        for conn, port in ((hmc.ConnType.RDMA, args.rdma_port), (hmc.ConnType.UCX, args.ucx_port)):
            sess.connect(peer_id=1, self_id=0, peer_ip=args.server_ip, data_port=port, ctrl_tcp_port=args.ctrl_port + 1,
                         uds_dir=args.ctrl_uds_dir, conn=conn)
            print(conn.name, "over", sess.peers[0].explain()["conn"])
            for n in map(int, args.sizes.split(",")):
                sess.buf.put(bytes([n % 251]) * n, nbytes=n, offset=0, device=None)
                for _ in range(5):
                    sess.put_remote(args.server_ip, port, local_off=0, remote_off=0, nbytes=n, conn=conn)
                    print(n, file=lines, flush=True)
                    assert lines.readline() == "ACK\\n"
            sess.disconnect(args.server_ip, port, conn=conn)
"""


def test_the_benchmark_of_the_cxx_hmc(over_rdma, run, tmp_path):
    """Its first transport is RDMA. Its second one, UCX, does without the devices here, and may be missing."""
    program = tmp_path / "perf.py"
    program.write_text(PERF)
    tmp_path.chmod(0o700)
    ip, port = "127.0.0.2", free_port()  # of another address than the client, which finds it over TCP
    both = ["--ucx-port", 2025, "--rdma-port", 2026, "--ctrl-port", port, "--ctrl-uds-dir", tmp_path]
    env = {"UCX_TLS": "tcp", "HMC_CONN_FALLBACK": "auto"}
    sizes = [64, 4096, 1 << 20]
    server = run("import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')", program, "--role", "server",
                 "--bind-ip", ip, "--ctrl-bind-ip", ip, *both, "--verify", env=env)
    server.expect("up")
    client = ran(program, "--role", "client", "--server-ip", ip, "--ctrl-ip", ip, *both, "--sizes", ",".join(map(str, sizes)),
                 env=env)
    assert client.returncode == 0, client.stderr
    first, second = client.stdout.splitlines()
    assert first == "RDMA over rdma" and second.startswith("UCX over ")
    assert server.end().splitlines() == [f"verify {n} PASS" for n in sizes for _ in range(5)] * 2
