"""How long calls wait that are given no time."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time

import hmc
import pytest


def _late(call):
    """What ``call`` raises, and after how many seconds."""
    start = time.monotonic()
    with pytest.raises(hmc.DeadlineExceeded):
        call()
    return time.monotonic() - start


def test_a_session_honours_its_deadline_everywhere():
    with hmc.Session(rank=0, buffer_size=64, listen="tcp://127.0.0.1:0", deadline=0.2) as a, \
            hmc.Session(rank=1, buffer_size=64, deadline=0.2) as b:
        peer = b.connect(0, a.addresses[0])
        calls = [lambda: peer.recv_tag(), lambda: peer.recv(), lambda: peer.recv_data(bytearray(8)), lambda: peer.recv_notify(),
                 lambda: a.peer(5), lambda: b.ctrl_recv(0), lambda: b.recv(bytearray(1), 0),
                 lambda: b.send(bytearray(1), 5), lambda: a.explain(5)]
        for call in calls:
            assert 0.15 < _late(call) < 5
        # A time that is given comes first, infinity too.
        assert _late(lambda: peer.recv_tag(timeout=0.01)) < 0.15
        got = []
        waiter = threading.Thread(target=lambda: got.append(b.ctrl_recv(0, timeout=math.inf)))
        waiter.start()
        time.sleep(0.5)  # longer than the deadline, which is what is tested
        a.ctrl_send(1, 9)
        waiter.join(10)
        assert got == [9]


def test_the_environment_sets_the_deadline():
    code = ("import hmc, time\ns = hmc.Session(rank=0, buffer_size=8, listen='tcp://127.0.0.1:0')\nt = time.monotonic()\n"
            "try: s.ctrl_recv(3)\nexcept hmc.DeadlineExceeded: print(time.monotonic() - t)")
    out = subprocess.run([sys.executable, "-c", code], env={**os.environ, "HMC_TIMEOUT": "0.3"}, capture_output=True, text=True,
                         timeout=60, check=True)
    assert 0.2 < float(out.stdout) < 10


def test_calls_of_the_cxx_hmc_have_no_limit_but_the_death_of_the_peer():
    with hmc.Session(rank=0, buffer_size=64, listen="tcp://127.0.0.1:0") as a:
        b = hmc.Session(rank=1, buffer_size=64)
        b.connect(0, a.addresses[0])
        assert a._core._waits == (30.0, math.inf)
        ended = []

        def wait():
            try:
                a.ctrl_recv(1)
            except hmc.HMCStatusError as e:
                ended.append(type(e))

        waiter = threading.Thread(target=wait)
        waiter.start()
        b.close()
        waiter.join(20)
        assert ended and issubclass(ended[0], (hmc.PeerDead, hmc.Closed))


@pytest.mark.skipif(not os.environ.get("HMC_TEST_LATE"), reason="takes 33 s: set HMC_TEST_LATE=1")
def test_a_member_that_is_later_than_the_default_breaks_no_alltoall():
    with hmc.Session(rank=0, buffer_size=64, listen="tcp://127.0.0.1:0") as a, \
            hmc.Session(rank=1, buffer_size=64) as b:
        b.connect(0, a.addresses[0])
        groups = [a._core._group([0, 1]), b._core._group([0, 1])]
        out = [bytearray(2), bytearray(2)]

        def late():
            time.sleep(33)
            groups[1].alltoall(b"cd", out[1], "direct", None)

        other = threading.Thread(target=late)
        other.start()
        groups[0].alltoall(b"ab", out[0], "direct", None)
        other.join()
        assert out == [b"ac", b"bd"]
