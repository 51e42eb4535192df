"""Tensors whose bytes differ from the values that they show. A fake of torch offers what this package asks of a tensor."""

import sys
import types

import numpy as np
import pytest

import hmc

#: Keys of torch's dispatcher that say nothing of how bytes and numbers belong together.
PLAIN = ["CPU", "ADInplaceOrView", "BackendSelect", "AutogradCPU", "AutocastCPU", "PrivateUse1"]


class Fake:
    """A tensor over an array of NumPy. ``later``: what is done to its numbers when they are read; ``kind``: what else it is."""

    def __init__(self, array, later=(), kind=None, stubborn=False):
        self.array, self.later, self.kind, self.stubborn = array, frozenset(later), kind, stubborn
        if kind is not None:
            setattr(self, f"is_{kind}", True)

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def is_neg(self):
        return "Negative" in self.later

    def is_conj(self):
        return "Conjugate" in self.later

    def _is_zerotensor(self):
        return "ZeroTensor" in self.later

    def detach(self):
        return Fake(self.array, self.later, self.kind, self.stubborn)

    def _without(self, key, array):
        return Fake(array, self.later if self.stubborn else self.later - {key}, self.kind)

    def resolve_neg(self):
        return self._without("Negative", -self.array)

    def resolve_conj(self):
        return self._without("Conjugate", self.array.conj())

    def clone(self):
        return self._without("ZeroTensor", np.zeros_like(self.array))


class KeySet:
    """What the dispatcher says of a tensor."""

    def __init__(self, tensor):
        self.names = [*PLAIN, *sorted(tensor.later), *([] if tensor.kind is None else [tensor.kind])]

    def raw_repr(self):
        return 1 + hash(tuple(self.names)) % 2**63

    def __str__(self):
        return f"DispatchKeySet({', '.join(self.names)})"


@pytest.fixture(params=["dispatcher", "methods"])
def fake(request, monkeypatch):
    """Tensors as of a torch that has a dispatcher to be asked, and of one that has none."""
    torch, native = types.ModuleType("torch"), types.ModuleType("torch._C")
    torch.Tensor = Fake
    if request.param == "dispatcher":
        native._dispatch_keys = KeySet
    for module in (torch, native):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return Fake


NUMBERS = np.array([1 + 2j, -3 - 4j, 5j], np.complex64)
SHOWN = {("Negative",): -NUMBERS, ("Conjugate",): NUMBERS.conj(), ("Negative", "Conjugate"): -NUMBERS.conj(),
         ("ZeroTensor",): np.zeros_like(NUMBERS)}


def test_plain_tensors_are_used_in_place(buf, fake):
    array = NUMBERS.copy()
    for _ in range(2):
        assert buf.put(fake(array)) == 24 and buf.buffer_get_cpu(nbytes=24) == NUMBERS.tobytes()
    buf.put(bytes(24))
    assert buf.get_into(fake(array)) == 24 and not array.any()


@pytest.mark.parametrize("later", SHOWN, ids="-".join)
def test_lazy_tensors_are_sent_with_the_values_that_they_show(buf, fake, later):
    """Also after a plain tensor, whose keys are remembered."""
    for _ in range(2):
        buf.put(fake(NUMBERS))
        assert buf.put(fake(NUMBERS, later)) == 24
        assert np.frombuffer(buf.region, np.complex64, 3).tolist() == SHOWN[later].tolist()
    array = NUMBERS.copy()
    with hmc.Session(rank=0, buffer_size=0) as s:
        for call in (buf.get_into, s.register, s.loopback().irecv_data):
            with pytest.raises(hmc.InvalidArgument, match="resolve_conj"):
                call(fake(array, later))
    assert (array == NUMBERS).all()


@pytest.mark.parametrize("kind", ["sparse", "sparse_csr", "mkldnn", "quantized", "nested", "meta"])
def test_tensors_without_plain_memory_are_refused(buf, fake, kind):
    for later in ((), ("Negative",)):
        for call in (buf.put, buf.get_into):
            with pytest.raises(hmc.InvalidArgument, match=f"{kind}.*plain memory"):
                call(fake(NUMBERS.copy(), later, kind))


def test_a_copy_that_is_still_lazy_is_refused(buf, fake):
    """As of a mode that changes what calls of torch do."""
    with pytest.raises(hmc.InvalidArgument, match="Negative.*plain memory"):
        buf.put(fake(NUMBERS, ("Negative",), stubborn=True))


def test_objects_of_other_packages_are_not_inspected(buf, fake):
    class Other:
        def __init__(self, array):
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

        def is_neg(self):
            raise AssertionError("no tensor of torch")

    assert buf.put(Other(NUMBERS)) == 24


def test_a_tensor_that_nothing_is_known_of_is_looked_at(buf, fake, monkeypatch):
    """Also one without keys: that such a one was plain is not remembered."""
    monkeypatch.setattr(KeySet, "raw_repr", lambda _: 0)
    assert buf.put(fake(NUMBERS)) == 24
    with pytest.raises(hmc.InvalidArgument, match="sparse.*plain memory"):
        buf.put(fake(NUMBERS, kind="sparse"))


class Storage:
    """What holds a tensor's bytes: it can be resized until an array of NumPy was made of it."""

    def __init__(self, resizable=True, error=None):
        self.can, self.error, self.asked = resizable, error, 0

    def resizable(self):
        return self.can

    def set_(self, storage):
        self.storage = storage
        return self

    def numpy(self):
        self.storage.asked += 1
        if self.storage.error is not None:
            raise self.storage.error
        self.storage.can = False


@pytest.fixture
def stored(fake, monkeypatch):
    """Makes tensors over a storage, of the host or of a device."""
    def make(storage, is_cpu=True):
        tensor = fake(NUMBERS.copy())
        tensor.is_cpu, tensor.untyped_storage = is_cpu, lambda: storage
        return tensor

    torch = sys.modules["torch"]
    monkeypatch.setattr(torch, "uint8", "uint8", raising=False)
    empty = lambda n, dtype, device: (n, dtype, device) == (0, "uint8", "cpu") and Storage()
    monkeypatch.setattr(torch, "empty", empty, raising=False)
    return make


def test_the_storage_of_a_registered_tensor_keeps_its_size(buf, fake, stored):
    """As after ``tensor.numpy()``. Of one that is only copied it is left alone."""
    copied, kept = Storage(), Storage()
    buf.put(stored(copied))
    buf.get_into(stored(copied))
    assert copied.can and not copied.asked
    with hmc.Session(rank=0, buffer_size=64) as s:
        s.register(stored(kept))
        assert not kept.can and kept.asked == 1
        # Nothing is asked of what cannot be resized anyway, or is elsewhere.
        fixed, elsewhere = Storage(resizable=False), Storage()
        s.register(stored(fixed))
        s.register(stored(elsewhere, is_cpu=False))
        assert not fixed.asked and not elsewhere.asked and elsewhere.can
        # A torch that has no storages, or no NumPy.
        none = fake(NUMBERS.copy())
        none.is_cpu = True
        s.register(none)
        without = Storage(error=RuntimeError("Numpy is not available"))
        s.register(stored(without))
        assert without.asked == 1
        with pytest.raises(KeyError):
            s.register(stored(Storage(error=KeyError("another mistake"))))


def test_tensors_of_other_packages_are_registered_beside_torch(fake):
    class Other:
        def __init__(self, array):
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    with hmc.Session(rank=0, buffer_size=64) as s:
        assert len(s.register(Other(NUMBERS))) == 24
