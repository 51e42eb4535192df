"""Runs an example's two ends as two processes: this one is rank 0, the other one rank 1."""

import multiprocessing
import sys
import tempfile

import hmc


def _other(there, folder):
    with hmc.Session(rank=1, buffer_size=16 << 20) as s:
        there(s, s.connect(0, f"uds://{folder}"))


def run(here, there):
    """``here(session, peer)`` in this process, ``there(session, peer)`` in another one."""
    with tempfile.TemporaryDirectory() as folder:
        child = multiprocessing.get_context("spawn").Process(target=_other, args=(there, folder))
        with hmc.Session(rank=0, listen=f"uds://{folder}", buffer_size=16 << 20) as s:
            child.start()
            here(s, s.peer(1))
            child.join()
    sys.exit(child.exitcode)
