"""Values of ``stats`` and ``explain``."""

import pytest

import hmc
from conftest import until


def test_counters_count_transfers_bytes_and_messages(pair):
    a, b, peer, back = pair
    ours, theirs = lambda: a.stats()["peers"][1], lambda: b.stats()["peers"][0]
    assert {name: ours()[name] for name in ("puts", "gets", "failures", "bytes_out", "bytes_in", "in_flight", "inbox")} == \
        dict.fromkeys(("puts", "gets", "failures", "bytes_out", "bytes_in", "in_flight", "inbox"), 0)
    src, messages = a.allocate(4096), ours()["messages_out"]
    for _ in range(3):
        peer.put(src, nbytes=1000)
    for _ in range(2):
        peer.get(src, nbytes=500)
    peer.prepare_put([(0, 0, 100), (100, 100, 100)], src).run()
    for tag in range(5):
        peer.send_tag(tag)
    back.send(b"one")
    until("the tags are there", lambda: theirs()["inbox"] == 5)
    until("the message is here", lambda: ours()["inbox"] == 1)
    told = ours()
    assert (told["conn"], told["connected"], told["puts"], told["gets"]) == (peer.conn, True, 4, 2)
    assert (told["messages_out"] - messages, told["messages_in"], told["inbox"]) == (5, 1, 1)
    # Over shared memory and RDMA this end moves the bytes of both; over TCP it sends those of its puts.
    assert (told["bytes_out"], told["bytes_in"]) == ((3200, 1000) if peer.conn == "tcp" else (4200, 0))
    assert (theirs()["bytes_out"], theirs()["bytes_in"]) == ((1000, 3200) if peer.conn == "tcp" else (0, 0))
    assert theirs()["messages_in"] == 5 and theirs()["puts"] == theirs()["gets"] == 0
    assert [back.recv_tag() for _ in range(5)] == list(range(5)) and theirs()["inbox"] == 0


def test_windows_are_counted_while_they_are_exposed(pair):
    a, b, peer, back = pair
    exposed = lambda: a.stats()["peers"][1]["exposed_bytes"]
    before, failed = exposed(), b.stats()["peers"][0]["failures"]
    assert before == a.buf.size
    with peer.expose(a.allocate(4096), 3, offset=96, nbytes=1000):
        assert exposed() == before + 1000
        there = back.window(3)
        back.put(b"there", window=there)
    assert exposed() == before
    for failures in (1, 2):
        with pytest.raises((hmc.Revoked, hmc.NotFound)):
            back.put(b"nowhere", window=there)
        assert b.stats()["peers"][0]["failures"] == failed + failures
    assert a.stats()["peers"][1]["failures"] == 0


def test_operations_are_counted_while_they_run(run):
    target = run("""
        import hmc, sys
        with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64, heartbeat=None) as s:
            print(s.address)
            sys.stdin.readline()
    """)
    with hmc.Session(rank=1, buffer_size=64, heartbeat=None, redial=False) as s:
        peer = s.connect(0, target.line(), hmc.ConnType.TCP)
        target.stop()
        ops = [peer.put_nb(nbytes=8) for _ in range(7)]
        assert s.stats()["peers"][0]["in_flight"] == 7 and s.stats()["peers_lost"] == 0
        target.kill()
        for op in ops:
            with pytest.raises(hmc.PeerDead):
                op.wait()
        until("it is lost", lambda: s.stats()["peers_lost"] == 1)


def test_refused_connections_are_counted():
    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=0, job=1) as s:
        before = s.stats()["strangers_refused"]
        with hmc.Session(rank=1, buffer_size=0, job=2) as other, pytest.raises(hmc.InvalidArgument):
            other.connect(0, s.address)
        until("it is counted", lambda: s.stats()["strangers_refused"] == before + 1)


def test_explain_names_the_transport_and_the_checking_end(pair):
    _, _, peer, _ = pair
    told = peer.explain()
    # Of mapped memory, and of what its NIC does, the target sees nothing.
    assert told["target_checks"] == (peer.conn == "tcp") and told["trust"]
    assert [choice["conn"] for choice in told["choices"] if choice["chosen"]] == [peer.conn] == [told["conn"]]
    assert all(choice["why"] for choice in told["choices"])
    assert peer.conn in told["text"] and isinstance(told["slower"], list)
