"""The newer surface: peers, regions, windows; who is who."""

import signal

import numpy as np
import pytest

import hmc
from conftest import free_port, until


def test_regions_move_without_a_staging_copy(pair):
    a, b, peer, back = pair
    src = np.arange(1000, dtype=np.float64)
    region = a.register(src)
    assert region.ptr == src.__array_interface__["data"][0] and region.array is src and len(region) == src.nbytes
    peer.put(region, remote_offset=64)
    assert bytes(b.buffer.read(src.nbytes, 64)) == src.tobytes()
    dst = np.zeros_like(src)
    back.get(b.register(dst), nbytes=0)
    a.buffer.write(src)
    back.get(b.register(dst), remote_offset=0)
    assert (dst == src).all()
    # Over shared memory and RDMA the peer has moved the bytes of its get; over TCP they were sent.
    assert a.stats()["peers"][1]["bytes_out"] == src.nbytes * (2 if peer.conn == "tcp" else 1)


def test_arrays_are_used_where_they_lie(pair):
    a, b, peer, _ = pair
    src = np.arange(100, dtype=np.int16)
    peer.put(src, 10)
    out = np.zeros_like(src)
    peer.get(out, 10)
    assert (out == src).all()
    peer.put(b"raw", 0)
    part = np.zeros(100, np.int16)
    peer.get(part, 10, local_offset=20, nbytes=40)
    assert (part[10:30] == src[:20]).all() and not part[:10].any() and not part[30:].any()
    with pytest.raises(hmc.InvalidArgument, match="read-only"):
        peer.get(b"frozen", 0)
    with pytest.raises(hmc.InvalidArgument, match="C-contiguous"):
        peer.get(np.zeros((4, 4)).T, 0)


def test_windows_of_arrays(pair):
    a, b, peer, back = pair
    target = np.zeros(4096, np.uint8)
    region = b.register(target)
    with back.expose(region, 7, access="rw") as window:
        assert window.nbytes == 4096
        remote = peer.window(7)
        assert remote.nbytes == 4096
        peer.put(np.full(100, 9, np.uint8), 50, window=remote)
        assert target[50] == 9 and target[149] == 9 and target[150] == 0 and target[49] == 0
        with pytest.raises(hmc.OutOfRange) as e:
            peer.put(bytes(10), 4090, window=remote)
        assert (e.value.side, e.value.offset, e.value.length, e.value.limit) == ("remote", 4090, 10, 4096)
    with pytest.raises((hmc.Revoked, hmc.NotFound)):
        peer.put(bytes(10), 0, window=remote)


def test_read_only_arrays_are_sources(pair):
    a, b, peer, back = pair
    frozen = np.arange(10)
    frozen.flags.writeable = False
    region = a.register(frozen)
    assert region.readonly
    peer.put(region)
    for broken in (lambda: peer.get(region), lambda: region.write(b"x"), lambda: region.fill(0),
                   lambda: peer.expose(region, 1, access="rw")):
        with pytest.raises(hmc.InvalidArgument, match="read-only"):
            broken()
    window = peer.expose(region, 1, access="r")
    out = np.zeros(10, frozen.dtype)
    back.get(out, window=back.window(1))
    assert (out == frozen).all()
    with pytest.raises(hmc.Revoked):
        back.put(out, window=back.window(1))
    window.revoke()
    assert memoryview(region).readonly
    with pytest.raises(BufferError):
        region.__dlpack__()


def test_allocated_memory_is_an_array(pair):
    a, b, peer, back = pair
    region = b.allocate(1 << 16)
    array = np.frombuffer(region, np.int32)
    window = back.expose(region, 3)
    remote = peer.window(3)
    peer.put(np.arange(100, dtype=np.int32), 400, window=remote)
    assert (array[100:200] == np.arange(100)).all()
    window.revoke()


def test_notifications_follow_their_bytes(pair):
    a, b, peer, back = pair
    for i in range(100):
        peer.put_notify(bytes([i]) * 1000, 1000 + i)
        assert back.recv_notify() == 1000 + i
        assert b.buffer.read(1000) == bytes([i]) * 1000
    op = peer.put_nb(b"x", notify=5)
    op.wait()
    assert back.recv_tag(tag=5) == 5


def test_what_is_told_of_a_peer(pair):
    a, _, peer, _ = pair
    told = a.explain(1)
    assert told["conn"] == peer.conn and told["text"].startswith(peer.conn)
    assert any(c["chosen"] and c["conn"] == peer.conn for c in told["choices"])
    assert peer.rank == 1 and peer.connected and peer.remote_nbytes == 1 << 20
    assert repr(peer).startswith("<hmc.Peer 1: ")
    assert repr(peer) == f"<hmc.Peer 1: {peer.conn}, connected>"
    assert a.peers[0].rank == 1 and a.peer(1).rank == 1
    with pytest.raises(hmc.DeadlineExceeded):
        a.peer(5, timeout=0.05)


def test_what_memory_shows_of_itself():
    with hmc.Session(rank=0, buffer_size=64) as s:
        peer, region = s.loopback(), s.allocate(40)
        assert [repr(one) for one in (s.buffer, region, s.register(bytearray(3)))] == \
            ["<hmc.Region: 64 bytes of HMC's>", "<hmc.Region: 40 bytes of HMC's>", "<hmc.Region: 3 bytes of the application's>"]
        with peer.expose(region, 5, nbytes=17):
            assert repr(peer.window(5)) == "<hmc.RemoteWindow: 17 bytes>"


def test_a_session_is_a_peer_of_itself():
    with hmc.Session(rank=3, buffer_size=4096) as s:
        me = s.loopback()
        me.put(b"to myself", 100)
        assert s.buffer.read(9, 100) == b"to myself" and me.conn == "loopback"


def test_the_environment_has_sessions_take_part_in_ucx(ucx, run):
    """One that says nothing of UCX can be dialed over it."""
    server = run("""
        import hmc
        with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=4096) as s:
            print(s.address)
            print(s.ctrl_recv(1), bytes(s.buffer.read(5)))
    """, env={"HMC_UCX": "1"})
    with hmc.Session(rank=1, buffer_size=4096, ucx=True) as s:
        peer = s.connect(0, server.line(), hmc.ConnType.UCX)
        peer.put(b"there")
        peer.send_tag(7)
        server.expect("7 b'there'")


def test_errors_can_be_pickled():
    import pickle

    with pytest.raises(hmc.OutOfRange) as e:
        hmc.IOBuffer.create(buffer_size=8).put(bytes(9))
    copy = pickle.loads(pickle.dumps(e.value))
    assert type(copy) is hmc.OutOfRange and str(copy) == str(e.value) and copy.limit == 8


def test_who_left_is_found_as_long_as_its_messages_are_unread(run):
    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=4096) as s:
        process = run("""
            import sys, hmc
            with hmc.Session(rank=1, buffer_size=64) as s:
                peer = s.connect(0, sys.argv[1])
                peer.put(b"gone but here")
                peer.send_tag(7)
                peer.send(b"bye")
        """, s.address)
        process.end()
        until("it has left", lambda: not s.peers)
        peer = s.peer(1, timeout=5)
        with pytest.raises(hmc.DeadlineExceeded):
            s.peer(1, timeout=0.05, alive=True)
        assert not peer.connected and peer.recv_tag() == 7 and peer.recv() == b"bye"
        assert s.buffer.read(13) == b"gone but here"
        with pytest.raises(hmc.DeadlineExceeded):
            s.peer(1, timeout=0.05)


def test_ways_to_name_who_is_connected_to():
    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64) as s:
        ways = [lambda c: c.connect(0, s.address), lambda c: c.connect(0, address=s.address),
                lambda c: c.connect(rank=0, address=s.address), lambda c: c.connect(None, s.address),
                lambda c: c.connect(s.address), lambda c: c.connect(address=s.address),
                lambda c: c.connect(s.address, hmc.ConnType.TCP), lambda c: c.connect(0, s.address, conn=hmc.ConnType.TCP)]
        for rank, way in enumerate(ways, 1):
            with hmc.Session(rank=rank, buffer_size=64) as c:
                assert way(c).rank == 0
        with hmc.Session(rank=9, buffer_size=64) as c:
            for broken in (lambda: c.connect(0), lambda: c.connect(), lambda: c.connect(rank=0), lambda: c.connect("127.0.0.1"),
                           lambda: c.connect("127.0.0.1", hmc.ConnType.TCP), lambda: c.get("127.0.0.1")):
                with pytest.raises(hmc.InvalidArgument):
                    broken()


def test_a_failure_is_not_hidden_by_the_goodbye(run, caplog):
    """A peer that is stopped, and so receives nothing, hears no goodbye in time: said, but not instead of what went wrong before."""
    def leave(fail):
        process = run("""
            import hmc, sys
            with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64, heartbeat=None) as b:
                print(b.address)
                sys.stdin.readline()
        """)
        with hmc.Session(rank=1, buffer_size=64, redial=False, heartbeat=None) as a:
            peer = a.connect(process.line())
            process.stop()
            with pytest.raises(hmc.DeadlineExceeded):
                while True:
                    peer.send(bytes(1 << 20), timeout=0.05)
            if fail:
                raise KeyError("of the program")

    with pytest.raises(hmc.DeadlineExceeded, match="goodbye"):
        leave(False)
    with pytest.raises(KeyError):
        leave(True)
    assert "goodbye" in caplog.text


def test_settings_that_make_no_sense():
    for broken in (dict(rank=4096), dict(rank=0, slots=0), dict(rank=0, listen="tcp://nowhere"), dict(rank=0, timeout=1),
                   dict(rank=0, deadline=-1.0), dict(listen="uds")):
        with pytest.raises(hmc.InvalidArgument):
            hmc.Session(buffer_size=0, **broken)
    with hmc.Session(rank=0, buffer_size=0) as s:
        for broken in ("nonsense", "tcp://127.0.0.1", "127.0.0.1:99999"):
            with pytest.raises(hmc.InvalidArgument):
                s.connect(1, broken)
        with pytest.raises(hmc.Unavailable):
            s.connect(1, "tcp://127.0.0.1:1")
        with pytest.raises(hmc.NotFound):
            s.put_remote("127.0.0.1", 2025, 0, 0, 0, hmc.ConnType.UCX)
    with pytest.raises(hmc.Closed):
        s.stats()
    s.close()


def test_where_a_session_listens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for broken in ("127.0.0.1:0", "5001", "TCP://127.0.0.1:0", "http://127.0.0.1:0", "", "tcp://nobody.invalid:0",
                   ["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"], ["uds", f"uds://{tmp_path}"]):
        with pytest.raises(hmc.InvalidArgument):
            hmc.Session(rank=0, buffer_size=0, listen=broken)
    assert not list(tmp_path.iterdir())
    folder = tmp_path / "s"
    for good in (f"uds://{folder}", str(folder), folder):
        with hmc.Session(rank=0, buffer_size=0, listen=good) as s:
            assert s.address == f"uds://{folder}"
    with hmc.Session(rank=0, buffer_size=0, listen="tcp://localhost:0") as s, hmc.Session(rank=1, buffer_size=0) as t:
        assert t.connect(np.int64(0), s.address).rank == 0


def test_each_call_goes_where_it_is_told(pair):
    """Offsets, lengths and windows, in each of the calls that have them."""
    a, b, peer, back = pair
    src, memory, want = np.arange(100, dtype=np.uint8), np.zeros(4096, np.uint8), np.zeros(4096, np.uint8)
    with back.expose(b.register(memory), 5, offset=1024, nbytes=512) as window:
        there = peer.window(5)
        assert window.nbytes == there.nbytes == 512
        where = dict(local_offset=10, nbytes=20, window=there)
        peer.put(src, 100, **where)
        peer.put_nb(src, 200, **where).wait()
        peer.put_notify(src, 7, 300, **where)
        assert back.recv_notify() == 7
        peer.prepare_put([(10, 400, 20)], src, window=there).run()
        for at in (100, 200, 300, 400):
            want[1024 + at:][:20] = src[10:30]
        assert (memory == want).all()
        want[:] = 0
        want[30:50] = src[10:30]
        for get in (lambda out: peer.get(out, 100, local_offset=30, nbytes=20, window=there),
                    lambda out: peer.get_nb(out, 100, local_offset=30, nbytes=20, window=there).wait(),
                    lambda out: peer.prepare_get([(30, 100, 20)], out, window=there).run()):
            out = np.zeros(4096, np.uint8)
            get(out)
            assert (out == want).all()
    assert not any(b.buffer.read(4096)) and not any(a.buffer.read(4096))


def test_no_call_writes_what_is_read_only(pair):
    a, b, peer, back = pair
    frozen = np.zeros(64, np.uint8)
    frozen.flags.writeable = False
    region = a.register(frozen)
    b.buffer.fill(1)
    for broken in (peer.get, peer.get_nb, lambda dst: peer.prepare_get([(0, 0, 1)], dst)):
        for dst in (frozen, region):
            with pytest.raises(hmc.InvalidArgument, match="read-only"):
                broken(dst)
    for broken in (peer.recv_data, peer.irecv_data, lambda dst: a.irecv(dst, 1), lambda dst: a.recv(dst, 1)):
        with pytest.raises(hmc.InvalidArgument, match="read-only"):
            broken(frozen)
    for broken in (lambda: region.copy_within(0, 32, 8), lambda: region.store_flag(0, 1)):
        with pytest.raises(hmc.InvalidArgument, match="read-only"):
            broken()
    assert not frozen.any()


def test_rights_of_windows(pair):
    _, b, peer, back = pair
    region = b.register(bytearray(64))
    for label, (access, reads, writes) in enumerate((("r", True, False), ("w", False, True), ("rw", True, True),
                                                     ("read", True, False), ("write", False, True))):
        with back.expose(region, label, access=access):
            window = peer.window(label)
            for allowed, call in ((reads, lambda: peer.get(bytearray(64), window=window)),
                                  (writes, lambda: peer.put(bytes(64), window=window))):
                if allowed:
                    call()
                else:
                    with pytest.raises(hmc.Revoked):
                        call()
    with pytest.raises(hmc.InvalidArgument, match='access="x"'):
        back.expose(region, 9, access="x")


def test_several_peers_at_one_address_are_not_mixed_up():
    """An address that does not say which one is refused."""
    TCP = hmc.ConnType.TCP
    ports = [free_port(), free_port()]
    with hmc.create_session(buffer_size=64) as a, hmc.create_session(buffer_size=64) as b, hmc.create_session(buffer_size=64) as c:
        for s, port in ((a, ports[0]), (b, ports[1])):
            s.init_server("127.0.0.1", port, TCP)
            c.connect("127.0.0.1", port, TCP)
        for s, port in ((a, ports[0]), (b, ports[1])):
            c.buffer_put_then_put("127.0.0.1", port, port.to_bytes(2), conn=TCP)
            assert s.buf.buffer_get_cpu(nbytes=2) == port.to_bytes(2)
        with pytest.raises(hmc.InvalidArgument, match="several peers"):
            c.put("127.0.0.1", b"x", TCP)
        with pytest.raises(hmc.InvalidArgument, match="several peers .* name one by its rank"):
            c.put_remote("127.0.0.1", 1, 0, 0, 1, TCP)


def test_a_peer_that_came_back_is_at_its_place():
    TCP, port = hmc.ConnType.TCP, free_port()
    place = ("127.0.0.1", 2025, TCP)
    serve = lambda: hmc.Session(rank=0, listen=f"tcp://127.0.0.1:{port}", buffer_size=64)
    with hmc.Session(rank=1, listen="tcp://127.0.0.1:0", buffer_size=64) as c:
        with serve():
            c.connect(peer_id=0, self_id=1, peer_ip="127.0.0.1", data_port=2025, ctrl_tcp_port=port, conn=TCP)
            assert c.check_conn(*place)
        until("it has left", lambda: not c.check_conn(*place) and not c.peers)
        with serve() as back:
            back.connect(1, c.address, TCP).send_tag(1)
            assert c.ctrl_recv(0) == 1
            c.buffer_put_then_put("127.0.0.1", 2025, b"again", conn=TCP)
            assert back.buffer.read(5) == b"again"
            # It is the present link that the place names, and that ends with it.
            c.disconnect(*place)
            until("both know", lambda: not c.peers and not back.peers)
            back.connect(1, c.address, TCP)
        until("it has left", lambda: not c.check_conn(*place) and not c.peers)
        # Who is gone can be forgotten, too, and again.
        c.disconnect(*place), c.disconnect(*place)
        with pytest.raises(hmc.NotFound):
            c.put_remote("127.0.0.1", 2025, 0, 0, 8, TCP)


@pytest.mark.parametrize("conn", [hmc.ConnType.SHM, hmc.ConnType.TCP], ids=["shm", "tcp"])
def test_who_sent_a_tag_can_be_addressed(conn):
    """Also where the tag is faster than the rest of the connection."""
    with hmc.Session(rank=0, listen=["tcp://127.0.0.1:0", "uds"], buffer_size=64) as s:
        for rank in range(1, 101):
            with hmc.Session(rank=rank, buffer_size=64) as c:
                c.connect(0, s.address, conn).send_tag(rank)
                assert s.ctrl_recv(rank) == rank
                s.get_remote("127.0.0.1", 1, 0, 0, 8, conn)
            until("it has left", lambda: not s.peers)


def test_a_subclass_hears_of_transfers():
    class Counting(hmc.Session):
        puts = 0

        def put_remote(self, *args, **kwargs):
            self.puts += 1
            super().put_remote(*args, **kwargs)

    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64) as s, Counting(rank=1, buffer_size=64) as c:
        c.connect(0, s.address)
        c.put_remote("127.0.0.1", 1, nbytes=4, conn=hmc.ConnType.AUTO)
        c.buffer_put_then_put("127.0.0.1", 1, b"four", conn=hmc.ConnType.AUTO)
        assert c.puts == 2 and s.buffer.read(4) == b"four"


FAMILIES = {"OutOfRange": IndexError, "InvalidArgument": ValueError, "NotFound": LookupError, "DeadlineExceeded": TimeoutError,
            "PeerDead": ConnectionError, "Closed": ConnectionError, "Refused": ConnectionError, "NoCredentials": PermissionError,
            "Revoked": PermissionError, "OutOfMemory": MemoryError, "SystemLimit": OSError, "IoError": OSError}


@pytest.mark.parametrize("name", FAMILIES)
def test_families_are_python_s_own(name):
    family = getattr(hmc, name)
    assert issubclass(family, FAMILIES[name]) and issubclass(family, hmc.HMCStatusError) and issubclass(family, hmc.HMCError)


def test_numbers_are_the_seeds_ones():
    names = {enum: [m.name for m in sorted(enum)] for enum in (hmc.status_t, hmc.MemoryType, hmc.ConnType, hmc.CtrlTransport)}
    assert names[hmc.status_t] == ["SUCCESS", "ERROR", "UNSUPPORT", "INVALID_CONFIG", "TIMEOUT", "NOT_FOUND"]
    assert names[hmc.MemoryType][:7] == ["DEFAULT", "CPU", "NVIDIA_GPU", "AMD_GPU", "CAMBRICON_MLU", "MOORE_GPU", "HUAWEI_ASCEND_NPU"]
    assert names[hmc.ConnType][:2] == ["RDMA", "UCX"] and names[hmc.CtrlTransport] == ["TCP", "UDS"]
    assert all([m.value for m in sorted(enum)] == list(range(len(enum))) for enum in names)


def test_ranks_that_nobody_can_have():
    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64) as s, hmc.Session(rank=1, buffer_size=64) as t:
        for broken in (lambda: t.connect(4096, s.address), lambda: t.peer(2**32 - 1), lambda: t.isend(b"x", 5000)):
            with pytest.raises(hmc.InvalidArgument, match="4095"):
                broken()
        with pytest.raises(TypeError, match="positional"):
            t.connect(0, s.address, hmc.ConnType.TCP, 5)
