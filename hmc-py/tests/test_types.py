"""The types: what checkers and editors are told is what is there."""

import sys
import textwrap
from pathlib import Path

import pytest

import hmc
import hmc.typing
from conftest import LIMIT, ran
from hmc import _hmc

CONFIG = Path(__file__).parents[1] / "pyproject.toml"

#: What no stub can say: the name, and why.
UNSAID = {}
if sys.version_info < (3, 12):
    for name in ("Region", "View"):
        UNSAID[f"hmc._hmc.{name}.__buffer__"] = "a method of Python's since 3.12; checkers look for it before, too"


@pytest.fixture
def mypy(tmp_path):
    """Runs mypy, or a tool of it; its exit status, and what it said."""
    pytest.importorskip("mypy", reason="no mypy: pip install './hmc-py[test]'")

    def check(tool, *args):
        done = ran("-m", tool, *args, cwd=tmp_path, env={"MYPY_CACHE_DIR": str(tmp_path / "cache")}, limit=LIMIT * 4)
        return done.returncode, done.stdout + done.stderr

    return check


def test_the_package_has_no_type_errors(mypy):
    status, said = mypy("mypy", "--strict", "--config-file", CONFIG, "-p", "hmc")
    assert status == 0 and "no issues found" in said, said


def test_the_stub_says_what_the_native_half_is(mypy, tmp_path):
    allowed = tmp_path / "allowed"
    allowed.write_text("".join(f"{name}  # {why}\n" for name, why in UNSAID.items()))
    # PEP 800's decorator is unknown to checkers that are a year old.
    status, said = mypy("mypy.stubtest", "hmc._hmc", "--allowlist", allowed, "--mypy-config-file", CONFIG,
                        "--ignore-disjoint-bases")
    assert status == 0 and "no issues found" in said, said


#: Lines that end in ``# wrong`` are errors, no others.
PROGRAM = """
    import array
    from typing import Any, assert_type

    import numpy as np

    import hmc
    from hmc.typing import ArrayLike


    def peers(s: hmc.Session) -> None:
        assert_type(s.connect(1, "tcp://127.0.0.1:5001"), hmc.Peer)
        assert_type(s.connect(None, "tcp://127.0.0.1:5001", hmc.ConnType.TCP), hmc.Peer)
        assert_type(s.connect("tcp://127.0.0.1:5001", timeout=1), hmc.Peer)
        assert_type(s.connect(rank=1, address="uds:///tmp/hmc"), hmc.Peer)
        assert_type(s.peers, list[hmc.Peer])
        s.connect(peer_id=1, self_id=0, peer_ip="127.0.0.1", data_port=2025, ctrl_tcp_port=5001, conn=hmc.ConnType.UCX)
        s.connect("127.0.0.1", 2025, conn=hmc.ConnType.UCX)
        s.connect("127.0.0.1", 2025).put(b"")  # wrong
        s.connect(peer_id="x", self_id=0, peer_ip="127.0.0.1", data_port=2025, ctrl_tcp_port=5001)  # wrong
        s.connect(peer_id=1, self_id=0, peer_ip="127.0.0.1", data_port=2025)  # wrong
        s.connect(1)  # wrong
        s.init_server(bind_ip="127.0.0.1", ucx_port=2025, ctrl_tcp_port=5001, self_id=0)
        s.init_server("127.0.0.1", 2025, conn=hmc.ConnType.UCX)
        s.init_server(bind_ip="127.0.0.1", self_id=0)  # wrong


    async def transfers(s: hmc.Session, peer: hmc.Peer, data: ArrayLike) -> None:
        op = peer.put_nb(np.zeros(4), remote_offset=8)
        assert_type(op, hmc.Op)
        assert_type(await op, int)
        assert_type(op.wait(timeout=1.5), int)
        for source in (b"", bytearray(4), memoryview(b""), array.array("d"), np.float64(1), s.buffer, data):
            peer.put(source)
        assert_type(s.put_nb("127.0.0.1", 2025, 0, 0, 64), int)
        s.wait(s.get_nb("127.0.0.1", 2025))
        s.wait([1, 2], timeout=1)
        assert_type(s.get("127.0.0.1", 64), bytes)
        assert_type(s.get(64, "127.0.0.1"), bytes)
        assert_type(s.register(np.zeros(4)), hmc.Region)
        assert_type(peer.explain()["choices"][0]["why"], str)
        assert_type(s.stats()["peers"][1]["bytes_out"], int)
        with peer.expose(s.buffer, label=7) as window:
            assert_type(window, hmc.Window)
        s.buf.put(140000000000000, nbytes=8, device="ptr")
        s.buf.put(140000000000000)  # wrong
        peer.prepare_put([(0, 0, 8), (0, 0, 8, 1), hmc.Piece(0, 0, 8, count=2, local_stride=8, remote_stride=16)]).run()
        peer.prepare_get([(0, 0)])  # wrong
        peer.put(3.5)  # wrong
        peer.put("text")  # wrong
        peer.put(b"", timeout="1")  # wrong
        peer.expose(np.zeros(4), label=7)  # wrong
        s.put_remote("127.0.0.1", "2025")  # wrong
        s.wait("1")  # wrong
        peer.putt(b"")  # wrong
        peer.rank = 1  # wrong


    async def tensors(s: hmc.Session, group: hmc.Group) -> None:
        x, out = np.zeros(4, np.int32), bytearray(16)
        assert_type(s.recv(src=0), np.ndarray[Any, Any])
        assert_type(s.recv(out, src=0), bytearray)
        assert_type(s.isend(out, dst=1), hmc.TensorOp[bytearray])
        assert_type(await s.irecv(out, src=1), bytearray)
        assert_type(group.broadcast(out), bytearray)
        assert_type(group.alltoall(x, out, algo="ring"), bytearray)
        assert_type(hmc.alltoall(group, x, out), bytearray)
        assert_type(group.members[0].port_ctrl, int)
        for begun in s.batch_isend_irecv([hmc.P2POp("send", x, 1), hmc.P2POp("recv", out, 1, tag=2)]):
            begun.wait()
        s.recv(src="0")  # wrong
        s.recv(like="jax")  # wrong
        group.allreduce(x, op="mean")  # wrong
        hmc.P2POp("bcast", x, 1)  # wrong


    def lives() -> None:
        with hmc.Session(rank=0, listen=["tcp://127.0.0.1:0", "uds"], heartbeat=None, slots=16) as s:
            assert_type(s, hmc.Session)
        hmc.Session(rank=0, buffersize=64)  # wrong
        hmc.Session(rank=0, slots="16")  # wrong
        c = hmc.Communicator(hmc.IOBuffer.create(buffer_size=64))
        assert_type(c.put("127.0.0.1", 2025, 0, 0, 64), hmc.status_t)
        c.put("127.0.0.1", 2025)  # wrong
        try:
            s.close()
        except hmc.OutOfRange as e:
            assert_type(e.limit, int | None)
"""


def test_programs_are_told_what_is_wrong_with_them_and_nothing_else(mypy, tmp_path):
    program = textwrap.dedent(PROGRAM)
    (tmp_path / "program.py").write_text(program)
    # As a user's project has it: without a setting.
    _, said = mypy("mypy", "--strict", "--config-file=", "--no-error-summary", "program.py")
    want = {n for n, line in enumerate(program.splitlines(), 1) if line.endswith("# wrong")}
    found = {int(line.split(":")[1]) for line in said.splitlines() if line.startswith("program.py:") and ": error: " in line}
    assert found == want and len(want) > 20, said


def test_dicts_have_the_keys_that_their_types_name(pair):
    a, _, to_b, _ = pair
    stats, told = a.stats(), to_b.explain()
    assert set(stats) == hmc.typing.SessionStats.__required_keys__
    assert set(stats["peers"][1]) == hmc.typing.PeerStats.__required_keys__
    assert set(told) == hmc.typing.Explanation.__required_keys__
    assert all(set(choice) == hmc.typing.Choice.__required_keys__ for choice in told["choices"]) and told["choices"]


def test_settings_are_those_of_the_native_half():
    samples = {"deadline": 1.0, "heartbeat": None, "spin": 0.0, "slots": 16, "windows": 8, "redial": False, "lazy": True}
    # Those of the start, when rank and addresses are known.
    later = {"job", "accept_upstream", "secret_file", "insecure_loopback"}
    assert samples.keys() | later == hmc.typing.Settings.__optional_keys__
    _hmc.Core(buffer_size=0, settings=samples)
    for key in later:
        with pytest.raises(hmc.InvalidArgument, match=key):
            _hmc.Core(buffer_size=0, settings={key: True})
    with pytest.raises(hmc.InvalidArgument, match="no_such"):
        _hmc.Core(buffer_size=0, settings={"no_such": 1})


def test_types_cost_an_importer_nothing():
    code = "import sys; before = set(sys.modules); import hmc; print(*set(sys.modules) - before)"
    new = ran("-c", code).stdout.split()
    assert "hmc.session" in new
    assert not {"typing", "hmc.typing", "numpy", "torch", "asyncio"} & set(new)


def test_annotations_can_be_evaluated():
    assert hmc.TensorOp[bytes] | hmc.typing.ArrayLike | None
