"""Variables of the environment: what they set, and that a value which makes no sense is refused by name."""

import math
import os

import pytest

import hmc
from conftest import LIMIT, ran

WRONG = [
    *(("HMC_TIMEOUT", given, "seconds (0 or more; inf: no limit)") for given in ("", "nonsense", "-1", "-inf", "nan", "2s", " 2", "1_0")),
    *(("HMC_SPIN_US", given, "whole microseconds (0 or more)") for given in ("", "-1", "1.5", "inf", "nan", str(2**64), "many")),
    *((name, given, "1 (yes) or 0 (no)") for name in ("HMC_NO_CMA", "HMC_UCX", "HMC_ACCEPT_UPSTREAM") for given in ("yes", "2", " 1", "on")),
    *(("HMC_CONN_FALLBACK", given, "auto, shm, tcp, ucx") for given in ("pigeons", "1", "rdma", "loopback", " tcp", "tcp,shm")),
]


@pytest.mark.parametrize("name, given, form", WRONG)
def test_what_makes_no_sense_is_refused_by_name(monkeypatch, name, given, form):
    """Also where the program itself says what the variable would."""
    monkeypatch.setenv(name, given)
    for begin in (lambda: hmc.create_session(buffer_size=64), lambda: hmc.create_session(buffer_size=64 << 20),
                  lambda: hmc.Session(rank=0, buffer_size=0, listen="tcp://127.0.0.1:0", deadline=1, spin=0),
                  lambda: hmc.Session(hmc.IOBuffer.create(0, 64))):
        with pytest.raises(hmc.InvalidArgument) as e:
            begin()
        assert name + "=" in e.value.msg and form in e.value.msg and (given in e.value.msg), e.value.msg
        assert e.value.status == hmc.status_t.INVALID_CONFIG and isinstance(e.value, ValueError)


def test_a_program_that_is_not_changed_is_told():
    """The text is the last line of what the user sees."""
    for name, given in (("HMC_TIMEOUT", "nonsense"), ("HMC_CONN_FALLBACK", "pigeons")):
        done = ran("-c", "import hmc; hmc.create_session()", env={name: given})
        assert done.returncode == 1 and name in done.stderr.splitlines()[-1] and given in done.stderr.splitlines()[-1], done.stderr


def test_bytes_that_are_no_text_are_refused_too():
    done = ran("-c", "import hmc; hmc.create_session()", env={"HMC_TIMEOUT": os.fsdecode(b"\xff")})
    assert done.returncode == 1 and 'HMC_TIMEOUT="\\xFF"' in done.stderr.splitlines()[-1], done.stderr


@pytest.mark.parametrize("given, want", [("0.5", 0.5), ("7", 7.0), ("1e2", 100.0), ("0", 0.0), ("1e18", 1e18), ("inf", math.inf),
                                         ("Infinity", math.inf), ("1e300", math.inf)])
def test_what_is_a_time_holds(monkeypatch, given, want):
    """Also one that no clock will ever reach."""
    monkeypatch.setenv("HMC_TIMEOUT", given)
    with hmc.Session(rank=0, buffer_size=64, listen="tcp://127.0.0.1:0") as a, hmc.Session(rank=1, buffer_size=64) as b:
        assert a._core._waits == b._core._waits == (want, want)
        if want > 0:
            peer = b.connect(0, a.address)
            peer.put(b"there")
            b.ctrl_send(0, 9)
            assert a.ctrl_recv(1) == 9 and a.buffer.read(5) == b"there"
            b.wait(b.put_nb("127.0.0.1", 1, 0, 0, 8, hmc.ConnType.AUTO))


@pytest.mark.parametrize("name, given", [("HMC_NO_CMA", "0"), ("HMC_UCX", "0"), ("HMC_ACCEPT_UPSTREAM", "0"), ("HMC_CONN_FALLBACK", "TCP"),
                                         ("HMC_SPIN_US", "0"), ("HMC_SPIN_US", str(2**64 - 1)),
                                         *((name, "") for name in ("HMC_NO_CMA", "HMC_UCX", "HMC_ACCEPT_UPSTREAM", "HMC_CONN_FALLBACK",
                                                                   "HMC_JOB", "HMC_SECRET_FILE"))])
def test_what_is_a_value_is_taken(monkeypatch, name, given):
    """A text that is empty is none, but for a number."""
    monkeypatch.setenv(name, given)
    with hmc.Session(rank=0, buffer_size=64, listen="tcp://127.0.0.1:0") as a, hmc.Session(rank=1, buffer_size=64) as b:
        b.connect(0, a.address, hmc.ConnType.TCP).put(b"there")
        assert a.buffer.read(5) == b"there"
