"""What programs of the C++ HMC rely on: names of peers that are no ranks, several names of a peer, servers that start twice."""

import struct
import socket
import threading

import pytest

import hmc
from conftest import LIMIT, NO_LIBRARIES, free_port, until

TCP, SHM = hmc.ConnType.TCP, hmc.ConnType.SHM
IP = "127.0.0.1"


@pytest.fixture
def sessions():
    made = []

    def make(**kwargs):
        made.append(hmc.create_session(buffer_size=4096, **kwargs))
        return made[-1]

    yield make
    for s in made:
        s.close()


def serve(session, tmp_path, self_id=0, port=None):
    tmp_path.chmod(0o700)
    port = port or free_port()
    session.init_server(bind_ip=IP, ucx_port=2025, rdma_port=2026, ctrl_tcp_port=port, self_id=self_id, ctrl_uds_dir=tmp_path)
    return port


def dial(session, port, peer_id=0, self_id=1, data_port=2025, conn=TCP, **kwargs):
    session.connect(peer_id=peer_id, self_id=self_id, peer_ip=IP, data_port=data_port, ctrl_tcp_port=port, conn=conn, **kwargs)


@pytest.mark.parametrize("conn", [TCP, SHM], ids=["tcp", "shm"])
def test_rank_0_at_both_ends(conn, sessions, tmp_path):
    """The default ranks of the C++ HMC's own benchmark, whose client calls its server 1."""
    server, client = sessions(), sessions()
    port = serve(server, tmp_path)
    for _ in range(3):
        dial(client, port, peer_id=1, self_id=0, conn=conn)
        assert client.buffer_put_then_put(IP, 2025, b"there", remote_off=8, conn=conn) == 5
        client.ctrl_send(1, 7)
        assert server.ctrl_recv(0) == 7 and server.buf.buffer_get_cpu(nbytes=5, offset=8) == b"there"
        server.ctrl_send(0, 8)
        assert client.ctrl_recv(1) == 8
        client.disconnect(IP, 2025, conn)
        assert not client.check_conn(IP, 2025, conn)


def test_who_has_left_is_not_waited_for(sessions, tmp_path):
    """The next one that is called so is."""
    server, client = sessions(), sessions()
    port = serve(server, tmp_path)
    dial(client, port, peer_id=0, self_id=0)
    client.ctrl_send(0, 1)
    assert server.ctrl_recv(0) == 1
    client.disconnect(IP, 2025, TCP)
    until("it has left", lambda: not server.peers)
    got = []
    thread = threading.Thread(target=lambda: got.append(server.ctrl_recv(0, timeout=LIMIT)))
    thread.start()
    dial(client, port, peer_id=0, self_id=0)
    client.ctrl_send(0, 2)
    thread.join(LIMIT)
    assert got == [2]


def test_two_servers_of_one_rank(sessions, tmp_path):
    """Bytes go to the process that listens at the address, not to the first one of that rank."""
    servers, client = [sessions(), sessions()], sessions()
    for i, server in enumerate(servers):
        (folder := tmp_path / str(i)).mkdir()
        dial(client, serve(server, folder), data_port=2025 + i)
    for i, server in enumerate(servers):
        client.buffer_put_then_put(IP, 2025 + i, bytes([i + 1] * 4), conn=TCP)
        assert server.buf.buffer_get_cpu(nbytes=4) == bytes([i + 1] * 4)
        server.ctrl_send(1, 5 + i)
    assert client.ctrl_recv(0) == 6  # the last one that was called 0


@pytest.mark.parametrize("name", [3, 9, 100_000])
def test_peers_are_called_as_the_program_likes(name, sessions, tmp_path):
    server, client = sessions(), sessions()
    dial(client, serve(server, tmp_path, self_id=3), peer_id=name)
    client.ctrl_send(name, 4)
    assert server.ctrl_recv(1) == 4 and client.peers[0].rank == 3
    server.ctrl_send(1, 5)
    assert client.ctrl_recv(name) == 5


def test_a_name_refers_to_the_last_peer_connected_by_it(sessions, tmp_path):
    """Also if it is the rank of that peer."""
    servers, client = [sessions(), sessions()], sessions()
    for rank, server in zip((3, 5), servers):
        (folder := tmp_path / str(rank)).mkdir()
        dial(client, serve(server, folder, self_id=rank), peer_id=5, data_port=2020 + rank)
        client.ctrl_send(5, rank)
        assert server.ctrl_recv(1, timeout=10) == rank


def test_a_name_refers_to_its_peer_after_a_restart():
    """If the peer has the same rank again."""
    port = free_port()
    begin = lambda: hmc.Session(rank=0, listen=f"tcp://{IP}:{port}", buffer_size=64)
    with hmc.Session(rank=1, listen=f"tcp://{IP}:0", buffer_size=64) as client:
        with begin() as server:
            dial(client, port, peer_id=9)
            client.ctrl_send(9, 1)
            assert server.ctrl_recv(1, timeout=10) == 1
        until("it has left", lambda: not client.peers)
        with begin() as server:
            server.connect(1, client.address, TCP).send_tag(2)
            until("it is back", lambda: client.peers)
            assert client.ctrl_recv(9, timeout=10) == 2
            client.ctrl_send(9, 3)
            assert server.ctrl_recv(1, timeout=10) == 3


def test_peers_over_a_local_socket_are_at_this_process_s_addresses(sessions, tmp_path):
    server = sessions()
    serve(server, tmp_path)
    at = lambda ip, conn=SHM: server.check_conn(ip, 1, conn)
    with hmc.Session(rank=1, buffer_size=64) as client:
        client.connect(0, f"uds://{tmp_path}", SHM)
        until("it is here", lambda: server.peers)
        assert at("127.0.0.5") and not at("10.1.2.3")
        server.set_local_ip("10.1.2.3")
        assert at("127.0.0.5") and at("10.1.2.3") and not at("10.1.2.4")
        # Over what moves its bytes, and no other.
        assert not at("10.1.2.3", TCP)


def test_a_name_ends_alone(sessions, tmp_path):
    """The other names and the tags go on; the link goes with the last name. What was begun by a name ends with it."""
    server, client = sessions(), sessions()
    port = serve(server, tmp_path)
    for data_port in (2025, 2026):
        dial(client, port, data_port=data_port)
    begun = client.put_nb(IP, 2025, 0, 8, 8, TCP)
    client.disconnect(IP, 2025, TCP), client.disconnect(IP, 2025, TCP)
    client.wait(begun)
    assert not client.check_conn(IP, 2025, TCP) and client.check_conn(IP, 2026, TCP)
    with pytest.raises(hmc.NotFound):
        client.put_remote(IP, 2025, 0, 0, 8, TCP)
    client.ctrl_send(0, 3)
    assert server.ctrl_recv(1) == 3
    server.ctrl_send(1, 4)
    assert client.ctrl_recv(0) == 4
    client.put_remote(IP, 2026, 0, 0, 8, TCP)
    # A name can come back.
    dial(client, port)
    client.put_remote(IP, 2025, 0, 0, 8, TCP)
    client.disconnect(IP, 2025, TCP), client.disconnect(IP, 2026, TCP)
    until("the link is over", lambda: not client.peers and not server.peers)
    with pytest.raises(hmc.HMCError):
        client.ctrl_send(0, 5)
    client.disconnect("127.0.0.9", 1)


@pytest.mark.parametrize("older", [False, True], ids=["ranked", "older"])
def test_two_transports_that_are_one(older, sessions, tmp_path, monkeypatch):
    """A program that connects over RDMA and over UCX, and disconnects neither: the fallback takes one link for both."""
    monkeypatch.setenv("HMC_CONN_FALLBACK", "auto")
    monkeypatch.setenv("HMC_VERBS_LIB", NO_LIBRARIES["HMC_VERBS_LIB"])
    server, client = sessions(), sessions()
    port, both = serve(server, tmp_path), ((hmc.ConnType.RDMA, 2026), (hmc.ConnType.UCX, 2025))
    if older:
        both = tuple((conn, port) for conn, _ in both)
    for conn, data_port in both:
        if older:
            client.connect(IP, port, conn=conn)
        else:
            dial(client, port, data_port=data_port, conn=conn)
        client.buffer_put_then_put(IP, data_port, conn.name.encode(), conn=conn)
        assert server.buf.buffer_get_cpu(nbytes=len(conn.name)) == conn.name.encode()
    assert len(client.peers) == 1
    client.disconnect(IP, both[0][1], hmc.ConnType.RDMA)
    assert client.check_conn(IP, both[1][1], hmc.ConnType.UCX)


def test_connecting_again_is_nothing_new(sessions, tmp_path):
    server, client = sessions(), sessions()
    port = serve(server, tmp_path)
    for _ in range(3):
        dial(client, port)
    assert len(client.peers) == 1
    until("there is one link", lambda: len(server.peers) == 1)
    server.close_server()
    dial(client, port)


def test_a_server_may_start_again(sessions, tmp_path, caplog):
    server, client = sessions(), sessions()
    port = serve(server, tmp_path)
    addresses = server.addresses
    for rank in (0, 0, "5"):
        serve(server, tmp_path, self_id=rank, port=port)
        assert server.addresses == addresses and server.rank == 0
    assert server.id == "5" and len(list(tmp_path.glob("hmc_ctrl_rank_[05].sock"))) == 2
    other = free_port()
    serve(server, tmp_path, port=other)
    assert len(server.addresses) == len(addresses) + 1
    dial(client, other)


@pytest.mark.parametrize("named", ["tcp", " UDS ", "Uds", ""])
def test_the_environment_chooses_the_control_plane(named, sessions, tmp_path, monkeypatch):
    """As there: stripped, in any case; any other text is TCP; without it the two addresses decide."""
    monkeypatch.setenv("CTRL_TRANSPORT", named)
    server, client = sessions(local_ip=IP), sessions(local_ip=IP)
    port = serve(server, tmp_path)
    over_uds = named.strip().lower() in ("uds", "")
    dial(client, 0 if over_uds else port, conn=SHM, uds_dir=tmp_path)
    dial(client, port, data_port=9, conn=SHM, uds_dir=tmp_path)
    if not over_uds:
        with pytest.raises(ValueError):
            dial(client, 0, data_port=10, conn=SHM, uds_dir=tmp_path)


def test_a_rank_that_nobody_gave_is_no_obstacle(sessions):
    """The binding's control server is told no rank; what the process calls itself it says when it dials."""
    a, b = (hmc.Communicator(hmc.ConnBuffer(0, 64)) for _ in range(2))
    ports = [free_port() for _ in range(2)]
    for comm, port in zip((a, b), ports):
        assert comm.initCtrlServer(IP, port) == comm.initCtrlServer(IP, port) == 0
    link = hmc.CtrlLink(ip=IP, port=ports[1])
    assert a.connectCtrl(11, 10, link) == 0 and a.session.rank == 10
    assert a.ctrlSend(11, 1) == 0 and b.ctrlRecv(10) == (0, 1)
    assert b.ctrlSend(10, 2) == 0 and a.ctrlRecv(11) == (0, 2)
    assert a.connectCtrl(1, 10, hmc.CtrlLink()) == hmc.status_t.ERROR
    assert b.closeCtrlPeer(10) == b.closeCtrlPeer(10) == 0
    for comm in (a, b):
        comm.session.close()


class Node:
    """A node of the C++ HMC on the control plane, byte for byte."""

    def __init__(self, sock):
        sock.settimeout(LIMIT)
        self.sock = sock

    def says(self, kind, payload):
        self.sock.sendall(struct.pack("<HHI", kind, 0, len(payload)) + payload)

    def hello(self, rank):
        self.sock.sendall(struct.pack("<HHII", 2, 0x8000, 4, rank))

    def hears(self):
        head = self.sock.recv(8, socket.MSG_WAITALL)
        kind, _, n = struct.unpack("<HHI", head)
        return kind, self.sock.recv(n, socket.MSG_WAITALL)


@pytest.mark.parametrize("allowed", ["keyword", "environment"])
def test_a_node_of_the_cpp_hmc_dials(allowed, sessions, tmp_path, monkeypatch):
    if allowed == "environment":
        monkeypatch.setenv("HMC_ACCEPT_UPSTREAM", "1")
    server = sessions(**({"accept_upstream": True} if allowed == "keyword" else {}))
    port = serve(server, tmp_path, self_id=2)
    # Its rank may be our own.
    for rank in (7, 2):
        node = Node(socket.create_connection((IP, port)))
        node.hello(rank)
        node.says(1, struct.pack("<Q", 99))
        node.says(1, struct.pack("<i", -5))
        node.says(2, b"struct")
        assert server.ctrl_recv(rank) == 99 and server.ctrl_recv_int(rank) == -5
        server.ctrl_send(rank, 2**64 - 1)
        assert node.hears() == (1, b"\xff" * 8)
        server.ctrl_send_int(rank, -2)
        assert node.hears() == (1, b"\xfe\xff\xff\xff")
        peer = next(p for p in server.peers if p.rank == 7 or p.rank > 4095)
        assert peer.recv() == b"struct" and peer.conn is None
        node.sock.close()
        until("its end is known", lambda: not server.peers)


def test_nobody_dials_as_one_unasked(sessions, tmp_path):
    server = sessions()
    port = serve(server, tmp_path)
    node = Node(socket.create_connection((IP, port)))
    node.hello(7)
    assert node.sock.recv(1) == b"" and not server.peers


@pytest.mark.parametrize("way", ["connect", "seeds", "binding"])
def test_a_node_of_the_cpp_hmc_is_dialed(way):
    with socket.create_server((IP, 0)) as listener, hmc.create_session(buffer_size=64) as session:
        port, got = listener.getsockname()[1], []
        thread = threading.Thread(target=lambda: got.append(listener.accept()[0]))
        thread.start()
        if way == "connect":
            session = hmc.Session(rank=3, buffer_size=64)
            peer = session.connect(7, f"tcp://{IP}:{port}", upstream=True)
            assert peer.rank == 7 and peer.conn is None
        elif way == "seeds":
            dial(session, port, peer_id=7, self_id=3, upstream=True)
        else:
            assert session.comm.connectCtrl(7, 3, hmc.CtrlLink(ip=IP, port=port, upstream=True)) == 0
        thread.join(LIMIT)
        node = Node(got[0])
        assert node.hears() == (2, b"\x03\0\0\0")
        session.ctrl_send(7, 5)
        assert node.hears() == (1, b"\x05" + bytes(7))
        node.says(1, struct.pack("<Q", 6))
        node.says(1, struct.pack("<i", -7))
        assert session.ctrl_recv(7) == 6 and session.peer(7).recv_int() == -7
        session.peer(7).send_int(8)
        assert node.hears() == (1, b"\x08\0\0\0")
        session.close()
        node.sock.close()
