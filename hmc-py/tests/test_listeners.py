"""Where sessions listen and dial in the calls of the C++ HMC: warnings, what carries control messages, what is taken where a
transport is missing."""

import pytest

import hmc
from conftest import NO_LIBRARIES, RDMA, free_port, ran

TCP = hmc.ConnType.TCP


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


def test_what_instead_of_rdma(monkeypatch):
    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64) as s:
        there = dict(peer_id=0, peer_ip="127.0.0.1", data_port=2026, ctrl_tcp_port=int(s.address.rsplit(":", 1)[1]))
        monkeypatch.delenv("HMC_CONN_FALLBACK", raising=False)
        monkeypatch.setenv("HMC_VERBS_LIB", NO_LIBRARIES["HMC_VERBS_LIB"])
        with hmc.create_session(buffer_size=64) as c:
            with pytest.raises(hmc.Unavailable, match="use conn=ConnType.UCX.*HMC_CONN_FALLBACK=auto"):
                c.connect(self_id=1, **there)
            monkeypatch.setenv("HMC_CONN_FALLBACK", "pigeons")
            with pytest.raises(hmc.InvalidArgument, match="'pigeons'"):
                c.connect(self_id=1, **there)
            monkeypatch.setenv("HMC_CONN_FALLBACK", "tcp")
            c.connect(self_id=1, **there)
            assert c.peers[0].conn == "tcp"


def test_a_rank_that_somebody_has_is_drawn_anew(monkeypatch):
    """Programs of the older guide have none of their own."""
    import hmc.ranks

    drawn = iter((5, 6, 6, 6, 7))
    monkeypatch.setattr(hmc.ranks, "_drawn", lambda low, high: next(drawn))
    TCP, port = hmc.ConnType.TCP, free_port()
    sessions = [hmc.create_session(buffer_size=64) for _ in range(3)]
    sessions[0].init_server("127.0.0.1", port, TCP)
    for s in sessions[1:]:
        s.connect("127.0.0.1", port, TCP)
    assert [s.rank for s in sessions] == [5, 6, 7]
    for s in reversed(sessions):
        s.close()


@pytest.mark.parametrize("fallback", ["", "shm"])
@pytest.mark.parametrize("conn", ["ucx", RDMA])
def test_another_transport_in_use_is_no_matter_of_packages(request, monkeypatch, fallback, conn):
    """Where the transport can be had; without UCX or a device that is what is missing. A link that a rank names is the only one to it; the
    C++ HMC's form has a second one, or the reason why not."""
    if conn in ("ucx", "rdma"):
        request.getfixturevalue(conn)
    monkeypatch.setenv("HMC_CONN_FALLBACK", fallback)
    address = f"tcp://127.0.0.1:{(port := free_port())}"
    with hmc.Session(rank=0, listen=address), hmc.create_session(buffer_size=64) as s:
        where = dict(peer_id=0, self_id=1, peer_ip="127.0.0.1", ctrl_tcp_port=port)
        s.connect(data_port=1, conn=hmc.ConnType.TCP, **where)
        with pytest.raises(hmc.Unavailable, match="already connected over tcp") as e:
            s.connect(0, address, hmc.ConnType[conn.upper()])
        assert "pip install" not in e.value.msg and "FALLBACK" not in e.value.msg
        assert "::" not in e.value.msg  # a name of Rust is none here
        if conn == "rdma":  # in which every session takes part
            s.connect(data_port=2, conn=hmc.ConnType.RDMA, **where)
            (beside,) = s.stats()["others"].values()
            assert beside["peers"][0]["conn"] == "rdma" and [peer.conn for peer in s.peers] == ["tcp"]
            return
        with pytest.raises(hmc.Unavailable, match="no local socket" if fallback else "takes no part in UCX"):
            s.connect(data_port=2, conn=hmc.ConnType.UCX, **where)
        assert not s._seconds and len(s.peers) == 1


@pytest.mark.parametrize("fallback", ["", "tcp"])
@pytest.mark.parametrize("conn", ["ucx", RDMA, "tcp"])
def test_nobody_listens_is_no_matter_of_transports(request, monkeypatch, caplog, fallback, conn):
    """Where the transport can be had; without UCX or a device that is what is missing, whoever listens."""
    if conn in ("ucx", "rdma"):
        request.getfixturevalue(conn)
    monkeypatch.setenv("HMC_CONN_FALLBACK", fallback)
    conn = hmc.ConnType[conn.upper()]
    with hmc.create_session(buffer_size=64) as old, hmc.create_session(buffer_size=64) as new:
        ranked = dict(peer_id=0, self_id=1, peer_ip="127.0.0.1", data_port=2025, ctrl_tcp_port=free_port(), conn=conn)
        for call in (lambda: old.connect("127.0.0.1", free_port(), conn), lambda: new.connect(**ranked)):
            with pytest.raises(hmc.Unavailable, match="is the peer listening there") as e:
                call()
            assert "pip install" not in e.value.msg and "FALLBACK" not in e.value.msg
    assert "cannot be had" not in caplog.text


@pytest.mark.parametrize("call, named", [
    (lambda s: s.init_server("127.0.0.1", 0, TCP, self_id=3, ctrl_tcp_port=1), "ctrl_tcp_port"),
    (lambda s: s.init_server("127.0.0.1", 0, TCP, self_id=3), "self_id"),
    (lambda s: s.init_server("127.0.0.1", 0, TCP, ctrl_uds_dir="/tmp"), "ctrl_uds_dir"),
    (lambda s: s.init_server("127.0.0.1", 0, TCP, 4), "4"),
    (lambda s: s.init_server("127.0.0.1", 0, ip="127.0.0.2"), "ip"),
    (lambda s: s.init_server("127.0.0.1", 0, bind_ip="127.0.0.1", ctrl_tcp_port=0, self_id=3), "ip"),
    (lambda s: s.init_server(bind_ip="127.0.0.1", ctrl_tcp_port=0, self_id=3, conn=TCP), "conn"),
    (lambda s: s.connect("127.0.0.1", 1, TCP, self_id=3), "self_id"),
    (lambda s: s.connect("127.0.0.1", 1, TCP, 4), "4"),
    (lambda s: s.connect(1, "tcp://127.0.0.1:1", TCP, uds_dir="/tmp"), "uds_dir"),
    (lambda s: s.connect(1, "tcp://127.0.0.1:1", port=2), "port"),
    (lambda s: s.connect(1, "tcp://127.0.0.1:1", rank=2), "rank"),
    (lambda s: s.connect(1, "tcp://127.0.0.1:1", address="tcp://127.0.0.1:2"), "address"),
    (lambda s: s.connect(1, peer_id=1, self_id=0, peer_ip="127.0.0.1", data_port=1, ctrl_tcp_port=1), "1"),
    (lambda s: s.connect(peer_id=1, self_id=0, peer_ip="127.0.0.1", data_port=1, ctrl_tcp_port=1, port=2), "port"),
])
def test_no_argument_is_passed_over(call, named):
    """Each form of a call takes its own; a session that was refused one has not begun."""
    with hmc.create_session(buffer_size=64) as s:
        with pytest.raises(TypeError, match=f"no {named}=|arguments: {named}$"):
            call(s)
        assert not s._core._is_live


@pytest.mark.parametrize("call", [
    lambda s: s.connect("127.0.0.1", 1, upstream=True), lambda s: s.connect(ip="127.0.0.1", port=1, upstream=True),
    lambda s: s.connect("tcp://127.0.0.1:1", upstream=True),
])
def test_a_node_of_the_cpp_hmc_needs_a_name(call):
    with hmc.create_session(buffer_size=64) as s:
        with pytest.raises(hmc.InvalidArgument, match="does not tell its rank: give it, as connect"):
            call(s)
        assert not s._core._is_live
