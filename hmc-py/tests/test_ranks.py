"""Several ranks of one process, numbers beyond all ranks, and several connections to one peer, as programs of the C++ HMC have them."""

import glob
import os
import threading

import pytest

import conftest
import hmc
from conftest import LIMIT, free_port, until

TCP, SHM, UCX, AUTO = hmc.ConnType.TCP, hmc.ConnType.SHM, hmc.ConnType.UCX, hmc.ConnType.AUTO
IP = "127.0.0.1"
SIZE = 4096


@pytest.fixture
def sessions():
    """Makes sessions, each over a buffer of its own unless it is given one."""
    made = []

    def make(buf=None, **kwargs):
        made.append(hmc.Session(buf or hmc.IOBuffer.create(0, SIZE), **kwargs))
        return made[-1]

    yield make
    for s in made:
        s.close()


@pytest.fixture
def has_ucx():
    """What can be had beside shared memory and TCP."""
    return conftest.has_ucx()[0]


@pytest.fixture(params=[SHM, TCP, UCX], ids=["shm", "tcp", "ucx"])
def conn(request):
    if request.param == UCX:
        request.getfixturevalue("ucx")
    return request.param


@pytest.fixture
def folder(tmp_path):
    tmp_path.chmod(0o700)
    return tmp_path


def serve(session, folder, self_id=0, port=None):
    port = port or free_port()
    session.init_server(bind_ip=IP, ucx_port=2025, rdma_port=2026, ctrl_tcp_port=port, self_id=self_id, ctrl_uds_dir=folder)
    return port


def dial(session, port, peer_id=0, self_id=1, data_port=2025, conn=TCP, **kwargs):
    session.connect(peer_id=peer_id, self_id=self_id, peer_ip=IP, data_port=data_port, ctrl_tcp_port=port, conn=conn, **kwargs)


@pytest.mark.parametrize("over", ["tcp", "uds"])
@pytest.mark.parametrize("ours, theirs", [(4096, 0), (0, 100_000), (2**32 - 1, 65_536), ("70000", 70_001)])
def test_any_number_is_a_rank(ours, theirs, over, sessions, folder, monkeypatch):
    monkeypatch.setenv("CTRL_TRANSPORT", over)
    server, client = sessions(local_ip=IP), sessions(local_ip=IP)
    port = serve(server, folder, self_id=theirs)
    dial(client, port if over == "tcp" else 0, peer_id=theirs, self_id=ours, conn=SHM if over == "uds" else TCP, uds_dir=folder)
    assert server.id == theirs and client.rank < 4096
    client.ctrl_send(theirs, 7)
    assert server.ctrl_recv(int(ours)) == 7
    server.ctrl_send(int(ours), 8)
    assert client.ctrl_recv(theirs) == 8


def test_any_number_is_a_rank_of_the_binding(folder):
    a, b = (hmc.Communicator(hmc.ConnBuffer(0, SIZE)) for _ in range(2))
    path = hmc.Communicator.udsPathFor(folder, 100_000)
    assert path.endswith("/hmc_ctrl_rank_100000.sock")
    assert a.initServer(IP, 2025, 0, path, TCP) == 0
    link = hmc.CtrlLink(hmc.CtrlTransport.UDS, uds_path=path)
    assert b.connectTo(100_000, 200_000, IP, 2025, link, SHM) == 0
    assert b.ctrlSend(100_000, 7) == 0 and a.ctrlRecv(200_000) == (0, 7)
    assert b.put(IP, 2025, 0, 0, 64, SHM) == 0
    for comm in (a, b):
        comm.session.close()
