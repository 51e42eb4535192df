"""The names of the C++ HMC's binding at work: memory, buffers, a communicator of two processes."""

import numpy as np
import pytest

import hmc
from conftest import free_port


def test_memory_and_buffers_of_the_binding():
    m = hmc.Memory(0, hmc.MemoryType.CPU)
    (_, a), (_, b) = m.allocateBuffer(16), m.allocatePeerableBuffer(16)
    assert m.copyHostToDevice(a, b"0123456789abcdef", 16) == hmc.status_t.SUCCESS
    assert m.copyDeviceToDevice(b, a, 8) == hmc.status_t.SUCCESS
    out = bytearray(16)
    m.copyDeviceToHost(out, b, 16)
    assert bytes(out) == b"01234567" + bytes(8)
    m.copyDeviceToHost(out, a.ptr, 16)
    assert bytes(out) == b"0123456789abcdef"
    with pytest.raises(hmc.InvalidArgument):
        m.copyHostToDevice(a, b"short", 16)
    m.copyDeviceToHost(np.zeros((4, 2), "M8[s]"), a, 16)
    m.copyHostToDevice(a, np.arange(16, dtype=np.uint8).reshape(4, 4).T, 16)
    assert list(a) == [i // 4 + 4 * (i % 4) for i in range(16)] and repr(a) == "<hmc.Buffer: 16 bytes>"
    assert m.copyHostToDevice(a, np.zeros((0, 3)), 0) == hmc.status_t.SUCCESS
    held = memoryview(a)
    with pytest.raises(hmc.Busy):
        m.freeBuffer(a)
    m.copyDeviceToHost(out, a.ptr, 16)
    held.release()
    m.freeBuffer(a)
    with pytest.raises(hmc.InvalidArgument, match="0 bytes"):
        m.copyHostToDevice(a, bytes(16), 16)
    with pytest.raises(hmc.InvalidArgument, match="freed"):
        m.freeBuffer(a)
    buf = hmc.ConnBuffer(0, 4096, hmc.MemoryType.DEFAULT)
    assert buf.writeFromCpu(b"abcd", 4, 8) == 0
    assert buf.copyWithin(0, 8, 4) == 0
    for broken in (lambda: buf.writeFromCpu(b.ptr), lambda: buf.readToCpu(b.ptr)):
        with pytest.raises(hmc.InvalidArgument, match="nbytes"):
            broken()
    buf.readToCpu(out, 4, 0)
    assert bytes(out[:4]) == b"abcd"
    assert (buf.buffer_size, buf.device_id, buf.mem_type) == (4096, 0, hmc.MemoryType.DEFAULT)


def test_the_binding_s_names(run, env, tmp_path):
    port, ctrl = free_port(), free_port()
    a = run(env.named("""
import sys, hmc
buf = hmc.ConnBuffer(0, 1 << 20, hmc.MemoryType.CPU)
comm = hmc.Communicator(buf, 1)
assert comm.initServer("127.0.0.1", %d, %d, hmc.Communicator.udsPathFor(sys.argv[1], 0), hmc.ConnType.UCX) == 0
print("up")
assert comm.ctrlRecv(1) == (0, 5)
out = bytearray(4)
buf.readToCpu(out, 4, 100)
assert out == b"data"
assert comm.closeServer() == 0
comm.ctrlSend(1, 6)
assert comm.ctrlRecv(1) == (0, 7)
""" % (port, ctrl)), tmp_path, env=env)
    a.expect("up")
    run(env.named("""
import hmc
comm = hmc.Communicator(buf := hmc.ConnBuffer(0, 1 << 20), 1)
link = hmc.CtrlLink(hmc.CtrlTransport.TCP, "127.0.0.1", %d)
assert comm.connectTo(0, 1, "127.0.0.1", %d, link, hmc.ConnType.UCX) == 0
buf.writeFromCpu(b"data", 4, 0)
assert comm.put("127.0.0.1", %d, 0, 100, 4, hmc.ConnType.UCX) == hmc.status_t.SUCCESS
assert comm.put("127.0.0.1", %d, 0, 1 << 20, 4, hmc.ConnType.UCX) == hmc.status_t.ERROR
assert comm.checkConn("127.0.0.1", %d, hmc.ConnType.UCX) == 0
assert comm.checkConn("127.0.0.9", 1, hmc.ConnType.RDMA) == hmc.status_t.NOT_FOUND
comm.ctrlSend(0, 5)
assert comm.ctrlRecv(0) == (0, 6)
comm.ctrlSend(0, 7)
""" % (ctrl, port, port, port, port)), env=env).end()
    a.end()


def test_all_of_the_binding(tmp_path_factory, caplog):
    """Over a local socket, whose name tells the rank; why a call failed is in the log."""
    SHM, OK = hmc.ConnType.SHM, hmc.status_t.SUCCESS
    there, back = ("127.0.0.1", 2025), ("127.0.0.1", 1)
    path = hmc.Communicator.udsPathFor(tmp_path_factory.mktemp("s"), 3)
    a, b = (hmc.Communicator(hmc.ConnBuffer(0, 4096)) for _ in range(2))
    assert a.initServer("127.0.0.1", 2025, free_port(), path, SHM) == OK and a.session.rank == 3
    assert b.connectTo(3, 1, "127.0.0.1", 2025, hmc.CtrlLink(hmc.CtrlTransport.UDS, uds_path=path), SHM) == OK
    b.session.buf.put(b"some bytes", offset=8)
    numbers = [b.putNB(*there, 8, 100, 4, SHM), b.putNB(*there, 12, 104, 6, SHM)]
    assert b.wait(numbers[0]) == OK and b.wait(numbers[1:]) == OK
    assert a.session.buffer.read(10, 100) == b"some bytes"
    assert b.wait(numbers) == hmc.status_t.NOT_FOUND and "wait: " in caplog.text
    assert b.wait(b.getNB(*there, 0, 105, 5, SHM)) == OK and b.get(*there, 5, 100, 5, SHM) == OK
    assert b.session.buffer.read(10) == b"bytessome "
    out, flag = bytearray(4), bytearray(8)
    op = b.session.peer(3).isend_data(b"data")
    assert a.recvDataFrom(*back, out, 4, hmc.MemoryType.CPU, flag, SHM) == OK
    op.wait()
    assert out == b"data" and int.from_bytes(flag, "little") == 1
    op = a.session.peer(1).irecv_data(out)
    assert b.sendDataTo(*there, b"more", 4, hmc.MemoryType.CPU, SHM) == OK
    op.wait()
    assert out == b"more"
    assert b.ctrlSend(3, 5) == OK and a.ctrlRecv(1) == (OK, 5)
    assert b.disConnect(*there, SHM) == OK and b.checkConn(*there, SHM) == hmc.status_t.NOT_FOUND
    assert a.closeCtrl() == OK and b.closeCtrl() == OK
    assert b.ctrlSend(3, 5) != OK
