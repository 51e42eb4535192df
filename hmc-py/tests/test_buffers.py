"""A session's buffer: its ranges, views of it, copies within it, when its pages are taken."""

import contextlib
import ctypes
import gc
import os
import time
import weakref

import numpy as np
import pytest

import hmc
from conftest import free_port


def test_ranges_that_do_not_fit_write_nothing(buf):
    size = buf.size
    buf.put(b"\xaa" * size)
    for offset, n in ((size - 3, 4), (size, 1), (size + 1, 0), (2**64 - 8, 16), (2**63, 2**20)):
        with pytest.raises(hmc.OutOfRange) as e:
            buf.put(b"x" * n, offset=offset)
        assert (e.value.offset, e.value.length, e.value.limit) == (offset, n, size)
        with pytest.raises(hmc.OutOfRange):
            buf.get_into(bytearray(n), offset=offset)
        with pytest.raises(hmc.OutOfRange):
            buf.buffer_get_cpu(nbytes=n, offset=offset)
    assert bytes(buf.buffer_get_cpu(nbytes=size)) == b"\xaa" * size
    with pytest.raises(hmc.OutOfRange):
        buf.buffer_get_cpu(nbytes=2**62)
    with pytest.raises(OverflowError):
        buf.put(b"x", offset=-1)
    with pytest.raises(hmc.InvalidArgument, match="nbytes=9"):
        buf.put(b"eight by", nbytes=9)
    assert buf.put(b"eight by", nbytes=3) == 3


def test_the_buffer_is_seen_in_place(buf):
    view = memoryview(buf.region)
    assert (view.nbytes, view.readonly, view.format) == (buf.size, False, "B")
    a = np.frombuffer(buf.region, np.int32)
    b = np.from_dlpack(buf.region).view(np.int32)
    buf.put(np.arange(10, dtype=np.int32))
    assert a[9] == 9 and b[9] == 9
    a[3] = -1
    assert int.from_bytes(buf.buffer_get_cpu(nbytes=4, offset=12), "little", signed=True) == -1
    assert a.__array_interface__["data"][0] == buf.ptr


def test_what_sees_the_buffer_keeps_it():
    buf = hmc.IOBuffer.create(buffer_size=4096)
    buf.put(b"kept")
    seen = [np.frombuffer(buf.region, np.uint8), np.from_dlpack(buf.region), memoryview(buf.region)]
    gone = weakref.ref(buf.region)
    del buf
    gc.collect()
    for view in seen:
        assert bytes(view[:4]) == b"kept"
    del seen, view
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("n", [1, 7, 100, 5000, 70_000, 1 << 20])
def test_copies_between_a_buffer_and_itself(n):
    """As if through a buffer of their own, whichever end lies lower and by how much."""
    whole = np.random.default_rng(n).integers(0, 256, 2 * n + 64, np.uint8)
    buf = hmc.IOBuffer.create(buffer_size=whole.nbytes)
    region = buf.region

    def write(view, at, begin):
        region.write(view[begin:begin + n], at)

    def read_into(view, at, begin):
        region.read_into(view[at:at + n], begin)

    ways = (
        write, read_into,
        lambda view, at, begin: region.write(np.frombuffer(view, np.uint8)[begin:begin + n], at),
        lambda view, at, begin: region.read_into(np.frombuffer(view, np.uint8)[at:at + n], begin),
        lambda view, at, begin: region.write_from_address(region.ptr + begin, n, at),
        lambda view, at, begin: region.read_to_address(region.ptr + at, n, begin),
        lambda view, at, begin: region.copy_within(at, begin, n),
    )
    for distance in sorted({0, 1, 8, 33, n // 2, n - 1, n}):
        for at, begin in ((distance, 0), (0, distance)):
            for number, way in enumerate(ways):
                buf.put(whole)
                way(memoryview(region), at, begin)
                want = whole.copy()
                want[at:at + n] = whole[begin:begin + n].copy()
                got = np.frombuffer(region, np.uint8)
                assert (got == want).all(), (number, at, begin)


def test_transfers_between_a_buffer_and_itself():
    n = 200_000
    whole = np.random.default_rng(1).integers(0, 256, 2 * n, np.uint8)
    with hmc.Session(rank=0, buffer_size=whole.nbytes) as s:
        peer, view = s.loopback(), memoryview(s.buffer)
        ways = (
            lambda at, begin: peer.put(view[begin:begin + n], at),
            lambda at, begin: peer.put(None, at, local_offset=begin, nbytes=n),
            lambda at, begin: peer.get(view[at:at + n], begin, nbytes=n),
            lambda at, begin: peer.put_nb(view[begin:begin + n], at).wait(),
            lambda at, begin: peer.prepare_put([(begin, at, n)]).run(),
        )
        for at, begin in ((1000, 0), (0, 1000), (n - 1, 0), (0, n - 1)):
            for number, way in enumerate(ways):
                s.buffer.write(whole)
                way(at, begin)
                want = whole.copy()
                want[at:at + n] = whole[begin:begin + n].copy()
                assert (np.frombuffer(s.buffer, np.uint8) == want).all(), (number, at, begin)


def test_copies_within_fill_and_checksum(buf):
    buf.put(bytes(range(64)))
    buf.buffer_copy_within(dst_offset=8, src_offset=0, nbytes=32)
    assert bytes(buf.buffer_get_cpu(nbytes=40)) == bytes(range(8)) + bytes(range(32))
    buf.region.fill(7, 4, 4)
    assert bytes(buf.buffer_get_cpu(nbytes=9)) == bytes([0, 1, 2, 3, 7, 7, 7, 7, 0])
    buf.put(b"123456789", offset=1000)
    assert buf.region.crc32c(1000, 9) == 0xE3069283  # the check value of CRC-32C
    buf.region.store_flag(2048, 2**64 - 1)
    assert buf.region.load_flag(2048) == 2**64 - 1
    with pytest.raises(hmc.HMCError):
        buf.region.load_flag(3)


def test_names_of_the_staged_path(buf):
    out = bytearray(4)
    address = ctypes.addressof((ctypes.c_char * 4).from_buffer(out))
    ways_in = (lambda d, at: buf.put(d, bias=at), lambda d, at: buf.buffer_put_cpu(d, offset=at),
               lambda d, at: buf.put(np.frombuffer(d, np.uint8).ctypes.data, nbytes=4, offset=at, device="ptr"),
               lambda d, at: buf.buffer_put_gpu_ptr(np.frombuffer(d, np.uint8).ctypes.data, nbytes=4, bias=at))
    ways_out = (lambda at: buf.get_into(out, bias=at), lambda at: buf.buffer_get_cpu_into(out, offset=at),
                lambda at: buf.get_into(address, nbytes=4, offset=at, device="ptr"),
                lambda at: buf.buffer_get_gpu_ptr(address, nbytes=4, bias=at))
    for i, (way_in, way_out) in enumerate(zip(ways_in, ways_out)):
        data, at = bytes([i + 1] * 4), 100 * (i + 1)
        assert way_in(data, at) == 4 and buf.buffer_get_cpu(nbytes=4, bias=at) == data
        assert way_out(at) == 4 and out == data
    assert not any(buf.buffer_get_cpu(nbytes=100))
    for broken in (lambda: buf.put(address, device="ptr"), lambda: buf.put(out, device="ptr", nbytes=4)):
        with pytest.raises(hmc.InvalidArgument):
            broken()


def test_large_buffers_are_made_meanwhile():
    """Making one returns before its pages are taken; who needs them waits. To touch any of them never fails."""
    size, ratios = 256 << 20, []
    for _ in range(5):
        begun = time.perf_counter()
        buf = hmc.IOBuffer.create(buffer_size=size)
        made = time.perf_counter()
        assert (buf.size, len(buf), buf.core.buffer_size) == (size, size, size)
        assert buf.put(b"last", offset=size - 4) == 4
        there = time.perf_counter()
        blocks = np.frombuffer(buf.region, np.uint8)
        blocks[::4096] = 7
        assert int(blocks[::4096].sum()) == 7 * (size >> 12) and buf.buffer_get_cpu(nbytes=4, offset=size - 4) == b"last"
        ratios.append((made - begun) / (there - begun))
        if ratios[-1] < 0.5:
            break
    assert min(ratios) < 0.5, ratios
    with pytest.raises(hmc.OutOfMemory):
        hmc.IOBuffer.create(buffer_size=1 << 45)
    # One that is not waited for.
    hmc.create_session(buffer_size=size).close()


@pytest.mark.parametrize("conn", ["SHM", "TCP"])
def test_a_lazy_buffer_takes_pages_as_they_are_touched(conn, tmp_path):
    def taken():
        """Bytes of this process's shared memory that have pages, whoever looks at them."""
        sizes = []
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:"):
                    sizes.append(os.fstat(int(fd)).st_blocks * 512)
        return sum(sizes)

    tmp_path.chmod(0o700)
    size, before = 1 << 30, taken()
    with hmc.Session(rank=0, listen=["tcp://127.0.0.1:0", f"uds://{tmp_path}"], buffer_size=size, lazy=True) as a, \
            hmc.create_session(buffer_size=4096, lazy=True) as b:
        b.init_server(bind_ip="127.0.0.1", ctrl_tcp_port=free_port(), self_id=1, ctrl_uds_dir=tmp_path)
        peer = b.connect(0, a.addresses[1 if conn == "SHM" else 0], hmc.ConnType[conn])
        peer.put(b"there", remote_offset=size - 8)
        out = bytearray(5)
        peer.get(out, remote_offset=size - 8)
        assert out == b"there" == a.buffer.read(5, size - 8) and peer.conn == conn.lower()
        assert taken() - before < 256 << 20


def test_settings_belong_to_who_makes_the_buffer():
    buf = hmc.IOBuffer.create(buffer_size=64)
    for settings in ({"deadline": 1.0}, {"ucx": True}):
        with pytest.raises(hmc.InvalidArgument, match="settings"):
            hmc.Session(buf, **settings)


# A thread of a program that counts while it gets the interpreter, which nobody takes from another: `seen`, until `over`.
COUNTS = """
    def count():
        global seen
        while not over:
            seen += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=count)
    sys.setswitchinterval(100)
    thread.start()
""".strip()


def test_a_long_read_lets_other_threads_run(run):
    """No thread takes the interpreter from another that has it: the other one counts while the bytes are copied, or not at all."""
    run(f"""
    import hmc, sys, threading, time
    size, seen, over, counted = 1 << 27, 0, False, 0
    region = hmc.IOBuffer.create(buffer_size=size).region
    region.fill(7)

    {COUNTS}
    for _ in range(10):
        before = seen
        out = region.read(size - 3, 3)
        counted += seen - before
    over = True
    thread.join()
    assert counted, seen
    assert len(out) == size - 3 and out.count(7) == size - 3
    try:
        region.read(size - 3, 4)
    except hmc.OutOfRange as e:
        print(e.offset, e.length == size - 3, e.limit == size)
    """).expect("4 True True")


@pytest.mark.parametrize("copy", ["region.write(array)", "region.read_into(array)", "region.write(array[::2], nbytes=8)"],
                         ids=["write", "read_into", "packed"])
def test_a_long_copy_lets_other_threads_run(run, copy):
    """As a long read does: with the interpreter in the hand of the copy nobody counts."""
    run(f"""
    import hmc, sys, threading, time
    import numpy as np
    size, seen, over, counted = 1 << 27, 0, False, 0
    region, array = hmc.IOBuffer.create(buffer_size=size).region, np.ones(size, np.uint8)

    {COUNTS}
    for _ in range(10):
        before = seen
        {copy}
        counted += seen - before
        if counted:
            break
    over = True
    thread.join()
    print(counted > 0)
    """).expect("True")
