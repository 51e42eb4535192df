"""torch tensors on the host."""

import pytest

import hmc
from hmc import tensors

torch = pytest.importorskip("torch", reason="torch is not installed")


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


def _complex():
    return torch.tensor([[1 + 2j, -3 + 4j, 5 - 6j], [0j, 7j, -8 + 0j]])


#: Tensors whose numbers are computed as they are read: what they show is not what lies in memory.
LATER = {
    "negative": lambda: _complex().conj().imag,
    "negative-part": lambda: _complex().conj().imag[:, 1:],
    "conjugate": lambda: _complex().conj(),
    "conjugate-part": lambda: _complex().conj().T[::2],
    "both": lambda: torch._neg_view(_complex().conj()),
    "with-gradient": lambda: torch._neg_view(torch.ones(3, requires_grad=True)),
    "zeros": lambda: torch._efficientzerotensor((2, 3)),
    "zeros-conjugate": lambda: torch._efficientzerotensor((2, 3), dtype=torch.complex64).conj(),
}


@pytest.mark.parametrize("name", LATER)
def test_what_is_computed_when_it_is_read_is_sent_as_it_is_read(buf, pair, name):
    t = LATER[name]()
    want = torch.empty(t.shape, dtype=t.dtype).copy_(t.detach())
    n = want.numel() * want.element_size()
    assert buf.put(t) == n
    assert bytes(buf.buffer_get_cpu(nbytes=n)) == want.numpy().tobytes()
    a, b, to_b, _ = pair
    to_b.put(t, 128)
    to_b.put_nb(t, 4096).wait()
    for at in (128, 4096):
        assert b.buffer.read(n, at) == want.numpy().tobytes()
    out = torch.empty_like(want)
    for begin in (lambda: a.isend(t, 1).wait(), lambda: to_b.send_data(t), lambda: to_b.isend_data(t).wait()):
        out.zero_()
        if begin.__code__.co_names[0] == "isend":
            received = b.irecv(out, 0)
        else:
            received = b.peer(0).irecv_data(out)
        begin()
        received.wait()
        assert torch.equal(out, want)


@pytest.mark.parametrize("name", LATER)
def test_what_is_computed_when_it_is_read_cannot_be_written_or_registered(buf, name):
    t = LATER[name]()
    buf.put(b"\xff" * 64)
    before = t.clone()
    with hmc.Session(rank=0, buffer_size=0) as s:
        for call in (buf.get_into, buf.region.read_into, s.register, s.loopback().irecv_data):
            with pytest.raises(hmc.InvalidArgument, match="resolve_conj"):
                call(t)
    assert torch.equal(t, before)


def _wrapped(kind):
    """A tensor that calls ``seen`` from inside a function transform."""
    def begin(seen):
        t = torch.ones(2, 3)
        if kind == "vmap":
            torch.vmap(lambda x: (seen(x), x)[1])(t)
        elif kind == "grad":
            torch.func.grad(lambda x: (seen(x), x.sum())[1])(t)
        elif kind == "jvp":
            torch.func.jvp(lambda x: (seen(x), x)[1], (t,), (t,))
        else:
            torch.func.functionalize(lambda x: (seen(x), x)[1])(t)
    return begin


class Wrapper(torch.Tensor):
    """A tensor that is made of another one, as DTensor and quantized weights are."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*(a.inner if isinstance(a, Wrapper) else a for a in args), **(kwargs or {}))


class Scaled(Wrapper):
    """One that has memory, in which its numbers are not what it shows."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_subclass(cls, inner)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*(a.inner * 2 if isinstance(a, Wrapper) else a for a in args), **(kwargs or {}))


def _fake(seen):
    from torch._subclasses.fake_tensor import FakeTensorMode

    seen(FakeTensorMode().from_tensor(torch.ones(3)))


def _masked(seen):
    from torch.masked import masked_tensor

    seen(masked_tensor(torch.ones(3), torch.tensor([True, False, True])))


#: Tensors that hold their numbers elsewhere, or none.
NOT_PLAIN = {
    "sparse": lambda seen: seen(torch.eye(3).to_sparse()),
    "csr": lambda seen: seen(torch.eye(3).to_sparse_csr()),
    "quantized": lambda seen: seen(torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)),
    "nested": lambda seen: seen(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])),
    "jagged": lambda seen: seen(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)),
    "mkldnn": lambda seen: seen(torch.ones(3).to_mkldnn()),
    "meta": lambda seen: seen(torch.ones(3, device="meta")),
    "fake": _fake,
    "masked": _masked,
    "wrapper": lambda seen: seen(Wrapper(torch.ones(3))),
    "scaled": lambda seen: seen(Scaled(torch.ones(3))),
    **{kind: _wrapped(kind) for kind in ("vmap", "grad", "jvp", "functionalize")},
}


@pytest.mark.filterwarnings("ignore")  # torch's own: of prototypes, and of what it gives up
@pytest.mark.parametrize("name", NOT_PLAIN)
def test_tensors_that_are_not_plain_memory_are_refused(buf, name):
    made, seen = [], []

    def look(t):
        made.append(name)
        with hmc.Session(rank=0, buffer_size=64) as s:
            peer = s.loopback()
            for call in (buf.put, buf.get_into, s.register, peer.put, peer.send_data, peer.isend_data, peer.irecv_data,
                         lambda t: tensors.isend(peer, t), lambda t: tensors.irecv(peer, t)):
                with pytest.raises(hmc.InvalidArgument, match="plain memory"):
                    call(t)
        seen.append(name)

    try:
        NOT_PLAIN[name](look)
    except (AttributeError, ImportError, RuntimeError) as e:
        if made:
            raise
        pytest.skip(f"this torch cannot make one: {e}")
    assert seen == [name]


def test_plain_subclasses_and_modes_go_through(buf):
    class Sub(torch.Tensor):
        pass

    t = torch.arange(6, dtype=torch.float32)
    with torch.inference_mode():
        inferred = t * 1
    for plain in (t.as_subclass(Sub), torch.nn.Parameter(t), inferred, t.view(2, 3).T.T, t.clone().requires_grad_()):
        assert buf.put(plain) == 24
        assert bytes(buf.buffer_get_cpu(nbytes=24)) == t.numpy().tobytes()
    with torch.no_grad():
        assert buf.put(t) == 24


def test_where_a_tensor_lives():
    assert hmc.memory_type_from_torch_tensor(torch.zeros(1)) == hmc.MemoryType.CPU
    assert hmc.memory_type_from_torch_tensor(torch.zeros(1, device="meta")) == hmc.MemoryType.DEFAULT
    with pytest.raises(TypeError, match="Expected a torch.Tensor"):
        hmc.memory_type_from_torch_tensor(object())


#: What uses a tensor's memory until it has ended, or is let go of.
HELD = {
    "register": lambda s, t: s.register(t),
    "put_nb": lambda s, t: s.loopback().put_nb(t),
    "get_nb": lambda s, t: s.loopback().get_nb(t),
    "prepare_put": lambda s, t: s.loopback().prepare_put([(0, 0, 8)], t),
    "isend_data": lambda s, t: s.loopback().isend_data(t),
    "irecv_data": lambda s, t: s.loopback().irecv_data(t),
    "isend": lambda s, t: tensors.isend(s.loopback(), t),
    "irecv": lambda s, t: tensors.irecv(s.loopback(), t),
}


@pytest.mark.parametrize("way", HELD)
@pytest.mark.parametrize("dtype", ["uint8", "bfloat16"])
def test_memory_that_is_used_is_not_given_back_by_its_storage(way, dtype):
    with hmc.Session(rank=0, buffer_size=1 << 12) as s:
        t = torch.zeros(1 << 8, dtype=getattr(torch, dtype))
        used, at = HELD[way](s, t), t.data_ptr()
        with pytest.raises(RuntimeError, match="not resizable"):
            t.untyped_storage().resize_(0)
        with pytest.raises(RuntimeError, match="not resizable"):
            t.resize_(1 << 20)
        assert t.data_ptr() == at
        if way == "register":
            used.write(b"\x07")
            assert t.view(torch.uint8)[0] == 7


def test_a_tensor_that_is_only_copied_can_be_resized(buf):
    t = torch.zeros(8)
    buf.put(t)
    buf.get_into(t)
    t.untyped_storage().resize_(0)
