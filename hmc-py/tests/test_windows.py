"""Windows: what becomes of one that the peer does not leave, and how many there may be."""

import signal

import pytest

import hmc
from conftest import LIMIT, until

PUTS = """
    import sys, hmc
    s = hmc.Session(rank=1, buffer_size=64, heartbeat=None)
    peer = s.connect(0, sys.argv[1])
    window, data = peer.window(3), b"1" * (64 << 20)
    print("ready", flush=True)
    while True:
        peer.put(data, window=window)
"""


class Alarm(Exception):
    """What the handler of a signal raises."""


@pytest.fixture
def alarm():
    """A function that has ``Alarm`` raised in so many seconds."""
    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def _revoked(window, timeout):
    """Nothing if the window was taken back, else the kind of the error."""
    try:
        window.revoke(timeout=timeout)
    except hmc.Busy as e:
        return e.kind
    return None


def _under_a_copy(run, first):
    """The peer is stopped while it copies into a window, which is then revoked twice: by ``first``, and again."""
    with hmc.Session(rank=0, listen="uds", buffer_size=64, heartbeat=None) as s:
        process = run(PUTS, s.address)
        peer = s.peer(1)
        memory = s.allocate((64 << 20) + 4096)
        window = peer.expose(memory, 3, offset=1, nbytes=64 << 20)  # not whole pages: they cannot be replaced
        process.expect("ready")
        until("a put has ended", lambda: memory.read(1, 64 << 20) == b"1")
        process.stop()
        answers = [first(window), _revoked(window, 0.2)]
        held = s.stats()["quarantined_bytes"]
        process.signal(signal.SIGKILL)
        return answers, held


@pytest.mark.parametrize("way", ["time", "signal"])
def test_a_window_that_could_not_be_revoked_stays_so(run, alarm, way):
    """A second call promises no more than the first, be that ended by its time or by a signal's handler."""
    def interrupted(window):
        alarm(0.2)
        try:
            return _revoked(window, LIMIT)
        except Alarm:
            return "interrupted"
        finally:
            alarm(0)

    first, told = (lambda window: _revoked(window, 0.2), "quarantined") if way == "time" else (interrupted, "interrupted")
    for _ in range(20):
        answers, held = _under_a_copy(run, first)
        if answers != [None, None]:
            break
        # The stop fell between two copies: the window was taken back.
        assert held == 0
    assert answers == [told, "quarantined"] and held == 64 << 20


def test_no_more_windows_than_were_asked_for():
    with hmc.Session(rank=0, buffer_size=64, windows=2) as s:
        peer, region = s.loopback(), s.allocate(64)
        windows, label = [], 0
        with pytest.raises(hmc.Busy) as e:
            while label < 8:
                windows.append(peer.expose(region, label))
                label += 1
        assert e.value.kind == "full" and 0 < label <= 2
        windows.pop().revoke()
        peer.expose(region, 7).revoke()


def test_blocks_that_were_used_again_are_refused(pair):
    a, b, peer, back = pair
    cache, blocks = b.allocate(64), b.generations(64, 16)
    assert (len(blocks), blocks.block_size, list(blocks)) == (4, 16, [0] * 4)
    with back.expose(cache, label=5, generations=blocks):
        window, out = peer.window(5), bytearray(16)
        cache.write(b"1" * 16, offset=16)
        peer.get(out, 16, window=window, expect=0)
        peer.put(b"2", 17, window=window, expect=0)
        two = peer.prepare_get([(0, 0, 8), (8, 16, 8, 0)], out, window=window)
        two.run()
        assert out == bytes(8) + b"12111111" and blocks.advance(1) == blocks[1] == 1
        stale = [
            lambda: peer.get(out, 16, window=window, expect=0), lambda: peer.put(b"3", 17, window=window, expect=0),
            lambda: peer.get_nb(out, 16, window=window, expect=0).wait(), lambda: peer.put_nb(b"3", 17, window=window, expect=0).wait(),
            two.run, lambda: peer.get(out, 8, window=window, expect=0),
            lambda: peer.prepare_put([(0, 16, 1, 2)], b"3", window=window).run(),
        ]
        for call in stale:
            with pytest.raises(hmc.Revoked) as e:
                call()
            assert e.value.kind == "stale_epoch" and "block 1 of the window has generation 1" in str(e.value)
        assert cache.read(2, 16) == b"12"
        peer.put_nb(b"4", 16, window=window, expect=1).wait()
        peer.get(out, 16, window=window, expect=1)
        assert out[:2] == b"42"
    with pytest.raises(hmc.OutOfRange):
        blocks.advance(4)
    with pytest.raises(IndexError):
        blocks[4]
    with pytest.raises(hmc.InvalidArgument):
        b.generations(64, 15)
    with pytest.raises(hmc.InvalidArgument):
        back.expose(cache, label=6, nbytes=32, generations=blocks)
    with pytest.raises(hmc.Unavailable):
        peer.put(b"x", expect=0)
