"""torch tensors on the host."""

import pytest

import hmc

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def buf():
    return hmc.IOBuffer.create(buffer_size=1 << 16)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "uint8", "bool", "complex64"])
def test_tensors_go_in_and_come_out(buf, dtype):
    t = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype))
    assert buf.put(t) == t.numel() * t.element_size()
    out = torch.zeros_like(t)
    assert buf.get_into(out) == t.numel() * t.element_size()
    assert torch.equal(out, t)


def test_tensors_with_gaps(buf):
    t = torch.arange(12, dtype=torch.int32).reshape(3, 4)
    assert buf.put(t.T) == 48
    out = torch.zeros(4, 3, dtype=torch.int32)
    buf.get_into(out)
    assert torch.equal(out, t.T)
    with pytest.raises(hmc.InvalidArgument, match="contiguous"):
        buf.get_into(out.T)


def test_tensors_with_gradients_and_parameters(buf):
    p = torch.nn.Parameter(torch.ones(4))
    assert buf.put(p) == 16
    buf.put(torch.full((4,), 2.0))
    buf.get_into(p)
    assert torch.equal(p.detach(), torch.full((4,), 2.0))


def test_the_buffer_as_a_tensor(buf):
    t = torch.from_dlpack(buf.region)
    assert t.dtype == torch.uint8 and t.numel() == buf.size
    buf.put(b"\x07")
    assert t[0] == 7


def test_tensors_by_rank(pair):
    a, b, _, _ = pair
    t = torch.randn(1000, 33, dtype=torch.bfloat16)
    out = torch.empty_like(t)
    received = b.irecv(out, 0)
    a.isend(t, 1).wait()
    assert received.wait() is out and torch.equal(out, t)
    sent = a.isend(t, 1)
    fresh = b.recv(src=0, like="torch")
    sent.wait()
    assert torch.equal(fresh, t) and fresh.dtype == t.dtype


def test_the_own_block_is_left_alone_if_asked():
    with hmc.Session(hmc.IOBuffer.create(buffer_size=0)) as session:
        group = hmc.init_group(session=session, rank=0, world_size=1)
        recv = torch.full((2, 2), 7, dtype=torch.bfloat16)
        hmc.alltoall(group, torch.zeros(2, 2, dtype=torch.bfloat16), recv, do_self_copy=False)
        assert (recv == 7).all()
        hmc.alltoall(group, torch.zeros(2, 2, dtype=torch.bfloat16), recv)
        assert (recv == 0).all()


def test_where_a_tensor_lives():
    assert hmc.memory_type_from_torch_tensor(torch.zeros(1)) == hmc.MemoryType.CPU
    assert hmc.memory_type_from_torch_tensor(object()) == hmc.MemoryType.DEFAULT
