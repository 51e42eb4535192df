"""Which class, kind and fields an error has."""

import pickle
import resource
import socket
import struct
import threading

import numpy as np
import pytest

import hmc
from hmc import _hmc
from conftest import LIMIT, Tensor, asleep, free_port

OK = hmc.status_t


@pytest.fixture
def alone():
    """A session without peers."""
    with hmc.Session(rank=0, buffer_size=64, listen="tcp://127.0.0.1:0") as s:
        yield s


def _closed():
    s = hmc.Session(rank=0, buffer_size=0)
    s.close()
    s.stats()


def _rank_of_another(s):
    with hmc.Session(rank=1, buffer_size=0) as first, hmc.Session(rank=1, buffer_size=0) as second:
        first.connect(0, s.address)
        second.connect(0, s.address)


def _refused(s, code):
    """By a listener that answers with a REJECT (docs/WIRE.md)."""
    _answered(s, struct.pack("<HHIBHQ", 2, 0xC000, 11, 3, code, 1))


def _answered(s, frame):
    """By a listener that says nothing but that."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            with listener.accept()[0] as near:
                near.settimeout(LIMIT)
                near.recv(1)
                near.sendall(frame)
                near.recv(4096)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            s.connect(7, f"tcp://127.0.0.1:{listener.getsockname()[1]}", timeout=10)
        finally:
            thread.join(LIMIT)


def _more_windows():
    """Than one, which is that of the buffer."""
    with hmc.Session(rank=0, buffer_size=64, windows=1) as s:
        s.loopback().expose(s.allocate(64), 1)


def _cancelled(s):
    op = s.loopback().irecv_data(bytearray(8))
    op.cancel()
    op.wait(timeout=5)


def _wrong_access(s):
    peer = s.loopback()
    with peer.expose(s.register(bytearray(8)), 3, access="r"):
        peer.put(b"x", window=peer.window(3))


def _window_of_another_peer(s):
    with hmc.Session(rank=1, buffer_size=64) as other:
        peer = other.connect(0, s.address)
        with other.loopback().expose(other.allocate(8), 3):
            peer.put(b"x", window=other.loopback().window(3))


def _no_descriptor(s):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        hmc.Session(rank=1, buffer_size=4096)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


#: What fails, by kind: how, and the class and status of its error.
FAILURES = {
    "range": (lambda s: s.buffer.read(65), hmc.OutOfRange, OK.INVALID_CONFIG),
    "length": (lambda s: s.buffer.write(b"four", nbytes=5), hmc.InvalidArgument, OK.INVALID_CONFIG),
    "invalid_config": (lambda s: s.connect(1, "nonsense"), hmc.InvalidArgument, OK.INVALID_CONFIG),
    "not_found": (lambda s: s.wait(1 << 60), hmc.NotFound, OK.NOT_FOUND),
    "deadline_exceeded": (lambda s: s.peer(1, timeout=0), hmc.DeadlineExceeded, OK.TIMEOUT),
    "cancelled": (_cancelled, hmc.Cancelled, OK.ERROR),
    "closed": (lambda s: _closed(), hmc.Closed, OK.ERROR),
    "duplicate_rank": (_rank_of_another, hmc.Refused, OK.ERROR),
    "version": (lambda s: _refused(s, 1), hmc.Refused, OK.ERROR),
    "access": (_wrong_access, hmc.Revoked, OK.ERROR),
    "full": (lambda s: _more_windows(), hmc.Busy, OK.ERROR),
    "refused": (lambda s: _refused(s, 2), hmc.Refused, OK.ERROR),
    "protocol": (lambda s: _answered(s, b"HTTP/1.1 400 Bad Request\r\n\r\n"), hmc.Refused, OK.ERROR),
    "stale": (_window_of_another_peer, hmc.NotFound, OK.NOT_FOUND),
    "unsupported": (lambda s: s.buffer.write(Tensor(np.zeros(8, np.int16), (8,), major=2)), hmc.Unavailable, OK.UNSUPPORT),
    "io": (lambda s: hmc.Session(rank=1, buffer_size=0, listen="uds:///dev/null/x"), hmc.IoError, OK.ERROR),
    "no_space": (lambda s: s.allocate(1 << 50), hmc.OutOfMemory, OK.ERROR),
    "system_limit": (_no_descriptor, hmc.SystemLimit, OK.ERROR),
    "unavailable": (lambda s: s.connect(1, f"tcp://127.0.0.1:{free_port()}", timeout=10), hmc.Unavailable, OK.UNSUPPORT),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_kinds_have_their_class_and_status(alone, kind):
    fail, family, status = FAILURES[kind]
    with pytest.raises(hmc.HMCStatusError) as e:
        fail(alone)
    assert (e.value.kind, type(e.value), e.value.status) == (kind, family, status)
    assert e.value.msg and str(e.value) == f"{e.value.msg} (status={int(status)})"
    _, blame, remedy = _hmc.error_kinds()[kind]
    assert e.value.blame == blame and len(e.value.remedy) > 10
    assert e.value.remedy == remedy or e.value.remedy in e.value.msg


def test_every_kind_has_a_class_a_blame_and_a_remedy():
    kinds = _hmc.error_kinds()
    assert len(kinds) == 27 and "other" not in kinds
    for kind, (name, blame, remedy) in kinds.items():
        family = getattr(hmc, name)
        assert issubclass(family, hmc.HMCStatusError) and blame in ("caller", "peer", "system", "nobody") and len(remedy) > 10
        # What Python code makes has them, too, also in another process.
        error = pickle.loads(pickle.dumps(family(OK.ERROR, "text", kind=kind)))
        assert (type(error), error.kind, error.blame, error.remedy) == (family, kind, blame, remedy)
    assert {blame: sum(b == blame for _, b, _ in kinds.values()) for _, blame, _ in kinds.values()} == {
        "caller": 9, "peer": 11, "system": 4, "nobody": 3}
    plain = hmc.HMCStatusError(OK.ERROR, "as the C++ HMC's")
    assert (plain.kind, plain.blame, plain.remedy, plain.limit_name) == ("other", "nobody", "", None)


def test_a_limit_has_numbers(alone):
    with pytest.raises(hmc.OutOfMemory) as e:
        alone.allocate(1 << 50)
    assert e.value.need == 1 << 50 > e.value.have and e.value.limit_name == "bytes that can be mapped" and e.value.limit is None
    with pytest.raises(hmc.Busy) as e:
        _more_windows()
    assert (e.value.limit_name, e.value.need, e.value.have) == ("windows towards this peer", 2, 1)
    with pytest.raises(hmc.SystemLimit) as e:
        _no_descriptor(alone)
    assert (e.value.limit_name, e.value.need, e.value.have) == ("open files (ulimit -n)", 1, 0)
    with pytest.raises(hmc.InvalidArgument) as e:
        alone.buffer.write(b"four", nbytes=5)
    assert (e.value.kind, e.value.blame, e.value.need) == ("length", "caller", None)


def test_fields_of_an_error(pair):
    a, b, peer, _ = pair
    size = b.buf.size
    with pytest.raises(hmc.OutOfRange) as e:
        peer.put(b"12345678", size - 3)
    assert (e.value.side, e.value.offset, e.value.length, e.value.limit) == ("remote", size - 3, 8, size)
    with pytest.raises(hmc.OutOfRange) as e:
        peer.put(b"12345678", local_offset=5, nbytes=4)
    assert (e.value.side, e.value.offset, e.value.length, e.value.limit) == ("local", 5, 4, 8)
    with pytest.raises(hmc.DeadlineExceeded) as e:
        peer.recv_tag(timeout=0)
    assert (e.value.peer, e.value.op, e.value.side, e.value.limit) == (1, None, None, None)
    op = peer.irecv_data(bytearray(1))
    with pytest.raises(hmc.DeadlineExceeded) as e:
        op.wait(timeout=0)
    assert e.value.peer == 1
    with pytest.raises(hmc.OutOfRange) as e:
        a.buffer.write(b"x", offset=a.buf.size)
    assert e.value.peer is None


def test_a_second_collective_of_a_group_finds_it_busy(pair):
    a, b, _, _ = pair
    group, other = a._core._group([0, 1]), b._core._group([0, 1])
    first = threading.Thread(target=lambda: group.barrier(LIMIT))
    first.start()
    asleep(first)
    with pytest.raises(hmc.Busy) as e:
        group.barrier(LIMIT)
    assert (e.value.kind, e.value.status) == ("busy", OK.ERROR)
    other.barrier(LIMIT)
    first.join(LIMIT)
    assert not first.is_alive()


def test_too_little_for_a_small_buffer_is_told_where_it_is_made():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(hmc.SystemLimit):
            hmc.IOBuffer.create(buffer_size=4096)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
