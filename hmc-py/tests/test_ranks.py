"""Several ranks of one process, numbers beyond all ranks, and several connections to one peer, as programs of the C++ HMC have them."""

import contextlib
import glob
import os
import socket
import threading
import time

import pytest

import conftest
import hmc
from conftest import LIMIT, NO_LIBRARIES, free_port, until

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


def moves(session, port, conn, other):
    """Whether a put by that name of the peer arrives, and by that transport."""
    offset = int.from_bytes(os.urandom(2), "little") % (SIZE - 8)
    data = os.urandom(8)
    session.buffer_put_then_put(IP, port, data, local_off=offset, remote_off=offset, conn=conn)
    return other.buf.buffer_get_cpu(nbytes=8, offset=offset) == data and session._core._at(IP, port, conn).conn == conn.name.lower()


def has_tag(session, name, tag):
    """Whether that is the oldest message of the name; takes it."""
    try:
        return session.ctrl_recv(name, timeout=0) == tag
    except hmc.DeadlineExceeded:
        return False


def test_two_sessions_on_one_buffer_serve_with_ranks_of_their_own(conn, sessions, folder):
    buf = hmc.IOBuffer.create(0, SIZE)
    servers, clients, ports = [sessions(buf), sessions(buf)], [sessions(), sessions()], []
    for rank, (server, client) in enumerate(zip(servers, clients)):
        ports.append(port := serve(server, folder, self_id=rank))
        dial(client, port, peer_id=rank, self_id=10 + rank, data_port=port, conn=conn)
        client.ctrl_send(rank, 7)
        assert server.ctrl_recv(10 + rank) == 7 and server.rank == server.id == rank
        assert moves(client, port, conn, server)
    for server, client in zip(servers, clients):
        # Any port that names nobody else is the peer of this session.
        assert moves(server, 9, conn, client)
        assert server.check_conn(IP, 9, conn)
    a, b = servers
    # What one does not know the other does: a name, a number of a transfer.
    a.ctrl_send(11, 8)
    assert clients[1].ctrl_recv(1) == 8
    clients[0].ctrl_send(0, 9)
    assert b.ctrl_recv(10) == 9
    b.wait([a.put_nb(IP, 9, 0, 0, 64, conn), b.put_nb(IP, 9, 0, 0, 64, conn)])
    # Each ends without the other.
    a.close()
    until("the peer knows", lambda: not clients[0].check_conn(IP, ports[0], conn))
    assert moves(clients[1], ports[1], conn, b) and moves(b, 9, conn, clients[1])


def test_two_sessions_on_one_buffer_dial_with_ranks_of_their_own(conn, sessions, folder):
    buf = hmc.IOBuffer.create(0, SIZE)
    server, a, b = sessions(), sessions(buf), sessions(buf)
    port = serve(server, folder)
    for session, rank in ((a, 1), (b, 2)):
        dial(session, port, self_id=rank, conn=conn)
        assert session.rank == rank and moves(session, 2025, conn, server)
        session.ctrl_send(0, 20 + rank)
        assert server.ctrl_recv(rank) == 20 + rank
    until("the server knows", lambda: sorted(p.rank for p in server.peers) == [1, 2])
    a.disconnect(IP, 2025, conn)
    assert not a._core.peers and moves(b, 2025, conn, server)
    # Under the other's rank it takes the other's connection, and leaves it when it ends.
    dial(a, port, self_id=2, data_port=7, conn=conn)
    until("the server knows", lambda: [p.rank for p in server.peers] == [2])
    assert moves(a, 7, conn, server)
    a.close()
    assert moves(b, 2025, conn, server)


def test_hot_calls_are_native_whichever_rank_a_session_took(sessions, folder):
    buf = hmc.IOBuffer.create(0, SIZE)
    a, b = sessions(buf), sessions(buf)
    serve(a, folder)
    serve(b, folder, self_id=1)
    for session in (a, b):
        assert session.put_remote.__self__ is session._core and session._core.rank == session.id
    assert a._core is not b._core


def test_one_session_dials_under_several_ranks(conn, sessions, folder):
    """The newest link of a name has its tags."""
    first, second, client = sessions(), sessions(), sessions()
    ports = [serve(first, folder), serve(second, folder, self_id=5)]
    dial(client, ports[0], self_id=1, conn=conn)
    dial(client, ports[0], self_id=3, data_port=2030, conn=conn)
    dial(client, ports[1], peer_id=5, self_id=4, data_port=2040, conn=conn)
    assert client.rank == 1 and client.id is None
    for port, server in ((2025, first), (2030, first), (2040, second)):
        assert moves(client, port, conn, server)
        client.wait(client.put_nb(IP, port, 0, 0, 64, conn))
    until("the servers know", lambda: sorted(p.rank for p in first.peers) == [1, 3] and [p.rank for p in second.peers] == [4])
    client.ctrl_send(0, 7)
    client.ctrl_send(5, 8)
    assert first.ctrl_recv(3) == 7 and second.ctrl_recv(4) == 8
    first.ctrl_send(3, 9)
    second.ctrl_send(4, 10)
    assert client.ctrl_recv(0) == 9 and client.ctrl_recv(5) == 10
    assert sorted(p.rank for p in client.peers) == [0, 0, 5] and client.peer(5).connected
    assert set(client.stats()["others"]) == {3, 4} and client.stats()["others"][4]["peers"][5]["puts"] == 2
    client.disconnect(IP, 2030, conn)
    assert not client.check_conn(IP, 2030, conn) and client.check_conn(IP, 2025, conn)
    client.close()
    until("the peers know", lambda: not first.peers and not second.peers)


def test_a_server_takes_a_second_rank(sessions, folder):
    """On the same port and another one; the first rank's socket stays."""
    server, clients = sessions(), [sessions() for _ in range(3)]
    port = serve(server, folder)
    serve(server, folder, self_id=1, port=port)
    other = serve(server, folder, self_id=2)
    assert server.id == 2 and server.rank == 0
    assert {os.path.basename(p) for p in glob.glob(f"{folder}/*.sock")} == {f"hmc_ctrl_rank_{n}.sock" for n in (0, 1, 2)}
    assert server.addresses == [f"tcp://{IP}:{port}", f"tcp://{IP}:{other}", f"uds://{folder}"]
    # A tag is waited for at all of the ranks, before the peer is there.
    got = []
    waits = threading.Thread(target=lambda: got.append(server.ctrl_recv(12, timeout=LIMIT)))
    waits.start()
    for n, (client, at) in enumerate(zip(clients, (port, port, other))):
        dial(client, at, peer_id=n, self_id=10 + n, conn=SHM, uds_dir=folder)
        client.ctrl_send(n, 7)
        assert moves(client, 2025, SHM, server)
    waits.join(LIMIT)
    assert got == [7] and [server.ctrl_recv(n) for n in (10, 11)] == [7, 7]
    server.close_server()
    assert not glob.glob(f"{folder}/*.sock") and moves(clients[1], 2025, SHM, server)


def test_a_rank_that_cannot_start_leaves_the_session_as_it_was(sessions, folder):
    server, other = sessions(), sessions()
    port, taken = serve(server, folder), serve(other, folder, self_id=9)
    for _ in range(2):
        with pytest.raises(hmc.InvalidArgument, match="another process listens"):
            serve(server, folder, self_id=1, port=taken)
    assert server.rank == 0 and server.addresses == [f"tcp://{IP}:{port}", f"uds://{folder}"]
    serve(server, folder, self_id=1)
    assert len(server.addresses) == 3


def test_a_session_of_the_new_form_takes_a_rank_of_its_own(sessions):
    buf = hmc.IOBuffer.create(0, SIZE)
    a, b = sessions(buf, rank=0, listen="tcp://127.0.0.1:0"), sessions(buf, rank=1)
    assert (a.rank, b.rank) == (0, 1)
    b.connect(0, a.address)
    until("it knows", lambda: [p.rank for p in a.peers] == [1])


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


def test_any_number_is_a_rank_of_the_binding(folder, recwarn):
    a, b = (hmc.Communicator(hmc.ConnBuffer(0, SIZE)) for _ in range(2))
    path = hmc.Communicator.udsPathFor(folder, 100_000)
    assert path.endswith("/hmc_ctrl_rank_100000.sock")
    assert a.initServer(IP, 2025, 0, path, TCP) == 0
    link = hmc.CtrlLink(hmc.CtrlTransport.UDS, uds_path=path)
    assert b.connectTo(100_000, 200_000, IP, 2025, link, SHM) == 0
    assert b.ctrlSend(100_000, 7) == 0 and a.ctrlRecv(200_000) == (0, 7)
    assert b.connectCtrl(100_000, 300_000, link) == 0 and b.ctrlSend(100_000, 8) == 0 and a.ctrlRecv(300_000) == (0, 8)
    assert b.put(IP, 2025, 0, 0, 64, SHM) == 0 and not recwarn.list
    for comm in (a, b):
        comm.session.close()


def test_numbers_that_share_a_rank_say_so(sessions, folder):
    server, a, b = sessions(), sessions(), sessions()
    port = serve(server, folder)
    dial(a, port, self_id=100_000)
    with pytest.raises(hmc.Refused, match="self_id=101021 is rank 3011 between processes, as are other numbers beyond 4095") as e:
        dial(b, port, self_id=101_021)
    assert e.value.kind == "duplicate_rank"
    dial(b, port, self_id=101_022)
    # The new form takes ranks only.
    with pytest.raises(hmc.InvalidArgument, match="4096"):
        hmc.Session(rank=4096, buffer_size=0)


@pytest.mark.parametrize("self_id", [1, 0], ids=["rank", "namesake"])
def test_a_peer_is_connected_over_several_transports(self_id, sessions, folder, has_ucx):
    """Each name moves its bytes by the transport that it names, at both ends; tags go on by the first connection."""
    server, client = sessions(), sessions(local_ip=IP)
    port = serve(server, folder)
    conns = [SHM, TCP, UCX] if has_ucx else [SHM, TCP]
    for n, conn in enumerate(conns):
        dial(client, port, self_id=self_id, data_port=2030 + n, conn=conn, uds_dir=folder)
        dial(client, port, self_id=self_id, data_port=2040 + n, conn=conn, uds_dir=folder)  # one more name
        # Who has the server's own rank is told apart by its connections: each dial makes one.
        until("the server knows", lambda: len(server.peers) == (n + 1) * (2 if self_id == 0 else 1))
        assert len(client._seconds) == (0 if self_id == 0 else n)
    if self_id:
        # A name of any transport is the process by the rank that it has.
        assert server._core._at(IP, 9, AUTO).rank == self_id
    for n, conn in enumerate(conns):
        for at in (2030 + n, 2040 + n):
            assert moves(client, at, conn, server)
            client.wait([client.put_nb(IP, at, 0, 0, 64, conn), client.get_nb(IP, at, 0, 0, 64, conn)])
        if self_id:
            assert moves(server, 9, conn, client)
            server.wait(server.put_nb(IP, 9, 0, 0, 64, conn))
    client.ctrl_send(0, 7)
    assert server.ctrl_recv(self_id) == 7
    server.ctrl_send(self_id, 8)
    assert client.ctrl_recv(0) == 8
    # A number by which this session knows it is a name, too: a private one for who has the server's own rank.
    client.ctrl_send(0, 10)
    known = [peer.rank for peer in server.peers]
    assert self_id in known or min(known) >= 4096
    until("one of them has it", lambda: any(has_tag(server, rank, 10) for rank in known))
    # The first connection has the tags, and ends with the last name of all.
    for at in (2030, 2040):
        client.disconnect(IP, at, SHM)
    assert not client.check_conn(IP, 2030, SHM) and moves(client, 2031, TCP, server)
    client.ctrl_send(0, 9)
    assert server.ctrl_recv(self_id) == 9
    for n, conn in list(enumerate(conns))[1:]:
        for at in (2030 + n, 2040 + n):
            assert moves(client, at, conn, server)
            client.disconnect(IP, at, conn)
    assert not client._seconds and not client.peers
    until("the peer knows", lambda: not server.peers)
    dial(client, port, self_id=self_id, data_port=2031, conn=TCP, uds_dir=folder)
    assert moves(client, 2031, TCP, server)


def test_a_fallback_is_taken_where_there_is_nothing_better(sessions, folder, monkeypatch):
    """A name of a transport that the peer is connected over is that connection, be others allowed or not."""
    monkeypatch.setenv("HMC_CONN_FALLBACK", "auto")
    server, client = sessions(), sessions(local_ip=IP)
    port = serve(server, folder)
    for n, conn in enumerate((SHM, TCP)):
        dial(client, port, data_port=2030 + n, conn=conn, uds_dir=folder)
    until("the server knows", lambda: len(server.peers) == 2)
    for conn in (SHM, TCP):
        assert server._core._at(IP, 9, conn).conn == conn.name.lower()
    assert server._core._at(IP, 9, hmc.ConnType.LOOPBACK).rank == 1


def test_a_name_goes_back_to_a_link_that_bore_it_before(sessions, folder):
    """The newest that is connected counts."""
    servers, client = [sessions(), sessions()], sessions()
    for n, server in enumerate(servers, 1):
        dial(client, serve(server, folder, self_id=n), peer_id=50, self_id=9, data_port=2030 + n)
    client.ctrl_send(50, 7)
    assert servers[1].ctrl_recv(9) == 7
    client.disconnect(IP, 2032, TCP)
    client.ctrl_send(50, 8)
    assert servers[0].ctrl_recv(9) == 8


def test_a_name_that_is_gone_here_is_that_of_a_session_beside(sessions, folder):
    """A peer that is connected comes before one of the session's own that has left."""
    buf = hmc.IOBuffer.create(0, SIZE)
    a, b, gone, here = sessions(buf), sessions(buf), sessions(), sessions()
    for n, (session, server) in enumerate(((a, gone), (b, here)), 1):
        dial(session, serve(server, folder, self_id=n), peer_id=50, self_id=10 + n, data_port=2030 + n)
    a.ctrl_send(50, 7)
    assert gone.ctrl_recv(11) == 7
    gone.close()
    until("it has left", lambda: not a.check_conn(IP, 2031, TCP))
    a.ctrl_send(50, 8)
    assert here.ctrl_recv(12) == 8


def test_a_session_beside_knows_where_it_is(folder):
    """A peer over a local socket is at the addresses of this process."""
    with hmc.Session(rank=0, buffer_size=64) as s, hmc.Session(rank=2, buffer_size=64) as peer:
        s._core._own_ip("192.0.2.7")
        beside = s._core._beside()
        beside._start(1, uds=str(folder))
        peer.connect(1, f"uds://{folder}", SHM)
        until("it knows", lambda: [p.rank for p in beside.peers] == [2])
        assert beside._at("192.0.2.7", 9, SHM).rank == 2
        with pytest.raises(hmc.NotFound):
            beside._at("192.0.2.8", 9, SHM)
        beside.close()


@contextlib.contextmanager
def arriving(port, rank):
    """A peer that has said who it is (docs/WIRE.md, 3.1), and has no connection for its bytes yet."""
    def connect():
        with contextlib.suppress(hmc.HMCError):
            client.connect(0, f"tcp://{IP}:{ear.getsockname()[1]}", TCP, timeout=0.5)

    with socket.create_server((IP, 0)) as ear, hmc.Session(rank=rank, buffer_size=64, insecure_loopback=True) as client:
        thread = threading.Thread(target=connect)
        thread.start()
        with ear.accept()[0] as heard, heard.makefile("rb") as said:
            hello = said.read(8)
            hello += said.read(int.from_bytes(hello[4:], "little"))
        thread.join(LIMIT)
    with socket.create_connection((IP, port), LIMIT) as peer:
        peer.sendall(hello)
        assert peer.recv(8)[:2] == hello[:2]
        yield


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_tag_for_a_peer_that_is_arriving(sessions, ranks):
    """One session sends at once. Several wait up to 2 s until it is here: the peer could be another one's."""
    buf, port = hmc.IOBuffer.create(0, SIZE), free_port()
    served = [sessions(buf, rank=n, listen=f"tcp://{IP}:{port if n == 0 else 0}", insecure_loopback=True) for n in range(ranks)]
    with arriving(port, 5):
        begun = time.monotonic()
        served[0].ctrl_send(5, 7)
        assert not served[0].peers and (time.monotonic() - begun < 1.9) == (ranks == 1)


def test_who_is_unknown_is_not_waited_for(sessions):
    buf = hmc.IOBuffer.create(0, SIZE)
    all_of_them = [sessions(buf, rank=n) for n in range(4)]
    begun = time.monotonic()
    with pytest.raises(hmc.DeadlineExceeded):
        all_of_them[0].ctrl_recv(77, timeout=0.1)
    with pytest.raises(hmc.NotFound):
        all_of_them[0].ctrl_send(77, 1)
    # For each of the four it would take 2 s.
    assert time.monotonic() - begun < 5


def test_several_clients_have_several_transports(sessions, folder):
    """One session for second connections serves those to several peers, and a rank that was drawn twice is drawn anew."""
    servers, clients = [sessions(), sessions()], [sessions(local_ip=IP) for _ in range(2)]
    ports = [serve(server, folder, self_id=n) for n, server in enumerate(servers)]
    for c, client in enumerate(clients):
        for n, port in enumerate(ports):
            dial(client, port, peer_id=n, self_id=10 + c, data_port=2030 + n, conn=SHM, uds_dir=folder)
            dial(client, port, peer_id=n, self_id=10 + c, data_port=2040 + n, conn=TCP, uds_dir=folder)
            assert moves(client, 2030 + n, SHM, servers[n]) and moves(client, 2040 + n, TCP, servers[n])
        assert len(client._seconds) == 1
    until("the server knows", lambda: sorted(p.rank < 3072 for p in servers[0].peers) == [False, False, True, True])
    # Both second connections are over TCP: that names neither of them.
    with pytest.raises(hmc.InvalidArgument, match="several peers"):
        servers[0]._core._at(IP, 9, TCP)
    assert len(clients[0].stats()["others"]) == 1


def test_a_rank_for_a_second_connection_that_somebody_has_is_drawn_anew(sessions, folder, monkeypatch):
    import hmc.ranks

    drawn = iter((3500, 3500, 3500, 3501))
    monkeypatch.setattr(hmc.ranks, "_drawn", lambda low, high: next(drawn))
    server, clients = sessions(), [sessions(local_ip=IP) for _ in range(2)]
    port = serve(server, folder)
    for n, client in enumerate(clients):
        dial(client, port, self_id=1 + n, conn=SHM, uds_dir=folder)
        dial(client, port, self_id=1 + n, conn=TCP, uds_dir=folder)
    until("the server knows", lambda: sorted(p.rank for p in server.peers) == [1, 2, 3500, 3501])


@pytest.mark.parametrize("fallback", ["", "auto"])
def test_a_second_transport_that_cannot_be_had(fallback, run, folder):
    """It is never replaced silently: by name only, and then the first connection has one more name."""
    run(f"""
import hmc, time
from hmc import ConnType as C
server, client = hmc.create_session(buffer_size=64), hmc.create_session(buffer_size=64)
port = {free_port()}
server.init_server(bind_ip="127.0.0.1", ctrl_tcp_port=port, self_id=0, ctrl_uds_dir={str(folder)!r})
where = dict(peer_id=0, self_id=1, peer_ip="127.0.0.1", ctrl_tcp_port=port)
client.connect(data_port=1, conn=C.TCP, **where)
for conn in (C.UCX, C.RDMA):
    try:
        client.connect(data_port=2, conn=conn, **where)
        assert {fallback!r} and client._core._at("127.0.0.1", 2, conn).conn == "tcp"
    except hmc.Unavailable as e:
        assert not {fallback!r} and e.status == hmc.status_t.UNSUPPORT and "HMC_CONN_FALLBACK" in e.msg, e
        assert not client.check_conn("127.0.0.1", 2, conn)
limit = time.monotonic() + 20
while not server.peers and time.monotonic() < limit:
    time.sleep(0.01)
assert len(server.peers) == 1 and not client._seconds
""", env={**NO_LIBRARIES, "HMC_CONN_FALLBACK": fallback}).end()


def test_a_member_of_a_group_is_connected_over_a_named_transport_too(ucx, sessions, folder):
    """Collectives connect all members over what is best there; a program may want another one beside it."""
    pair = [sessions(), sessions()]
    ports = [serve(session, folder, self_id=n) for n, session in enumerate(pair)]
    made = []
    threads = [threading.Thread(target=lambda n=n: made.append(hmc.init_group(
        session=pair[n], rank=n, world_size=2, rendezvous=f"file://{folder}/meet"))) for n in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(LIMIT)
    assert len(made) == 2
    dial(pair[1], ports[0], self_id=1, conn=UCX)
    assert moves(pair[1], 2025, UCX, pair[0])
    threads = [threading.Thread(target=g.barrier) for g in made]
    for t in threads:
        t.start()
    for t in threads:
        t.join(LIMIT)
        assert not t.is_alive()


def test_transfers_that_nobody_waited_for_keep_no_descriptor(sessions, folder, monkeypatch):
    monkeypatch.setenv("CTRL_TRANSPORT", "tcp")
    port = serve(sessions(), folder)
    before = len(os.listdir("/proc/self/fd"))
    client = sessions()
    for number, at in [(5, 2025), (6, 2026)]:
        dial(client, port, self_id=number, data_port=at)
    begun = [client.put_nb(IP, at, 0, 0, 8, TCP) for at in (2025, 2026)]
    client.close()
    # That of the client's buffer stays.
    until("the links are gone", lambda: len(os.listdir("/proc/self/fd")) <= before + 1)
    with pytest.raises(hmc.Closed):
        client.wait(begun)
