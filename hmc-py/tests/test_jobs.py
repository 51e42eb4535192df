"""Jobs of one user on one host: same ranks, same folders, and data that goes to the one that was asked for."""

import os
import stat

import numpy as np
import pytest

import hmc

IP = "127.0.0.1"

SERVER = """
    import sys, hmc
    port, folder = int(sys.argv[1]), sys.argv[2]
    s = hmc.create_session(buffer_size=4096, local_ip="127.0.0.1", job=sys.argv[3] if len(sys.argv) > 3 else None)
    s.init_server(bind_ip="127.0.0.1", ucx_port=None, rdma_port=None, ctrl_tcp_port=port, self_id=0, ctrl_uds_dir=folder)
    print("up", flush=True)
    sys.stdin.readline()
    print(bytes(s.buf.buffer_get_cpu(nbytes=4)).hex())
    s.close()
"""


def client(port, folder, **job):
    s = hmc.create_session(buffer_size=4096, local_ip=IP, **job)
    s.connect(peer_id=0, self_id=1, peer_ip=IP, data_port=port, ctrl_tcp_port=port, uds_dir=folder, conn=hmc.ConnType.AUTO)
    return s


@pytest.fixture
def folder(tmp_path):
    tmp_path.chmod(0o700)
    return str(tmp_path)


def written(server):
    server.tell()
    return server.end().split()[-1]


@pytest.mark.parametrize("jobs", [(), ("a", "b")])
def test_a_put_goes_to_the_server_that_was_asked_for(run, ports, folder, jobs):
    """Both servers have rank 0; the first one has the local socket of that rank."""
    first = run(SERVER, ports[0], folder, *jobs[:1])
    first.expect("up")
    second = run(SERVER, ports[1], folder, *jobs[1:])
    second.expect("up")
    with client(ports[1], folder, **({"job": jobs[1]} if jobs else {})) as s:
        s.buf.put(np.frombuffer(b"\x2a" * 4, np.uint8))
        s.put_remote(IP, ports[1], 0, 0, 4, conn=hmc.ConnType.AUTO)
    assert (written(first), written(second)) == ("00000000", "2a2a2a2a")


def test_the_local_socket_of_the_server_that_is_meant_is_used(run, ports, folder):
    server = run(SERVER, ports[0], folder)
    server.expect("up")
    with client(ports[0], folder) as s:
        assert s.explain(s.peers[0])["conn"] == "shm"


def test_jobs_do_not_meet(run, ports, folder, monkeypatch):
    with hmc.Session(rank=0, listen=f"tcp://{IP}:0", buffer_size=64, job=7) as server:
        with hmc.Session(rank=1, buffer_size=64, job=8) as other, pytest.raises(hmc.InvalidArgument, match="job 8"):
            other.connect(0, server.address)
        monkeypatch.setenv("SLURM_JOB_ID", "7")
        with hmc.Session(rank=2, buffer_size=64) as same:
            same.connect(0, server.address)
        monkeypatch.setenv("HMC_JOB", "9")
        with hmc.Session(rank=3, buffer_size=64) as other, pytest.raises(hmc.InvalidArgument, match="HMC_JOB"):
            other.connect(0, server.address)
    s = hmc.create_session(buffer_size=64)
    s.init_server(IP, ports[0], hmc.ConnType.TCP, job="train")
    with pytest.raises(hmc.InvalidArgument, match="belongs to job"):
        s.connect(0, f"tcp://{IP}:{ports[1]}", job="other")
    s.close()


def test_the_secret(folder, monkeypatch):
    """Who cannot read the same file is refused, and told which file it read."""
    one, two = os.path.join(folder, "one"), os.path.join(folder, "two")
    with hmc.Session(rank=0, listen=f"tcp://{IP}:0", buffer_size=64, secret_file=one) as server:
        assert stat.S_IMODE(os.stat(one).st_mode) == 0o600
        with hmc.Session(rank=1, buffer_size=64, secret_file=two) as other:
            with pytest.raises(hmc.NoCredentials, match="two.*HMC_SECRET_FILE"):
                other.connect(0, server.address)
        with hmc.Session(rank=1, buffer_size=64, insecure_loopback=True) as other, pytest.raises(hmc.NoCredentials):
            other.connect(0, server.address)
        monkeypatch.setenv("HMC_SECRET_FILE", one)
        with hmc.Session(rank=1, buffer_size=64) as same:
            same.connect(0, server.address)
    with hmc.create_session(buffer_size=64, insecure_loopback=True) as a, \
            hmc.Session(rank=1, buffer_size=64, insecure_loopback=True) as b:
        a.init_server(IP, 0, hmc.ConnType.TCP)
        b.connect(a.addresses[0])
