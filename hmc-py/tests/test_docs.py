"""What the documents show runs: the programs of docs/python.md and of the README, and the examples."""

import contextlib
import pathlib
import re
import socket
import struct
import threading

import pytest

import hmc
from conftest import LIMIT, free_port, ran

ROOT = pathlib.Path(__file__).resolve().parents[2]


def part(heading):
    """What stands under a heading of docs/python.md."""
    text = (ROOT / "docs/python.md").read_text()
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def blocks(heading):
    """The programs under a heading of docs/python.md."""
    return re.findall(r"```python\n(.*?)```", part(heading), re.S)


def test_no_program_of_the_page_is_left_out():
    """Each block is one of those that the tests below run. `cargo xtask documents` allows none elsewhere."""
    text = (ROOT / "docs/python.md").read_text()
    assert re.findall(r"```python\n(.*?)```", text, re.S) == blocks("Quick start") + blocks("Collectives")


def test_the_quick_start_runs(run):
    pytest.importorskip("numpy")
    port = str(free_port())
    first, second = [b.replace("5001", port) for b in blocks("Quick start")]
    here = run(first)
    # The second terminal comes later than the first one.
    told = there = None
    for _ in range(100):
        there = run(second)
        if there.in_time("its end", there.process.wait) == 0:
            told = there.end()
            break
        assert "is the peer listening there?" in there.process.stderr.read()
    assert told is not None, "nobody listened"
    assert here.end().strip() == "42 [0 1 2 3] 1023"
    assert told.splitlines()[0] == "shm" and "  shm: chosen: " in told, told


def test_the_program_of_the_readme_runs(run):
    np = pytest.importorskip("numpy")
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=1 << 16) as session:
        assert "127.0.0.1:5001" in program
        run(program.replace("5001", session.address.rpartition(":")[2])).end()
        assert session.ctrl_recv(1) == 42
        assert (np.frombuffer(session.buffer, np.int64, count=1024) == np.arange(1024)).all()


def test_the_collectives_run(run, tmp_path):
    pytest.importorskip("numpy")
    (program,) = blocks("Collectives")
    assert "/tmp/meet" in program
    program = program.replace("/tmp/meet", str(tmp_path / "meet"))
    members = [run(program, env={"RANK": str(rank), "WORLD_SIZE": "4"}) for rank in range(4)]
    assert [m.end().strip() for m in members] == [f"{rank} of 4: [6. 6. 6.] [0 1 2 3]" for rank in range(4)]


@contextlib.contextmanager
def listener(serve):
    """The address of a listener that gives its first connection to ``serve``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def accept():
            with contextlib.suppress(OSError), listener.accept()[0] as first:
                first.settimeout(LIMIT)
                serve(first)

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(LIMIT)


def passed_on(address):
    """Sends a connection's bytes to an address, and what comes back, as ``ssh -L`` does."""
    def serve(near):
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        with socket.create_connection((host, int(port))) as far:
            def pump(source, target):
                with contextlib.suppress(OSError):
                    while data := source.recv(4096):
                        target.sendall(data)
                    target.shutdown(socket.SHUT_WR)

            back = threading.Thread(target=pump, args=(far, near))
            back.start()
            pump(near, far)
            back.join(LIMIT)
    return serve


def test_why_two_processes_do_not_meet(tmp_path):
    """Each row of the table comes with that class and those words."""
    rows = re.findall(r"^\| `(\w+): \.\.\. (.+?)` \|", part("Two processes do not meet"), re.M)
    one, two = tmp_path / "one", tmp_path / "two"
    # REJECT by code 1, as a process of version 1 says it (docs/WIRE.md).
    version_1 = lambda near: (near.recv(1), near.sendall(struct.pack("<HHIBHQ", 2, 0xC000, 11, 3, 1, 1)), near.recv(4096))
    with hmc.Session(rank=0, listen="tcp://127.0.0.1:0", buffer_size=64, secret_file=one, job=1) as server, \
            listener(passed_on(server.address)) as relayed, listener(version_1) as older:
        cases = [({"secret_file": two}, server.address), ({}, relayed), ({"job": 2}, server.address), ({}, older)]
        assert len(rows) == len(cases)
        for (name, text), (setting, address) in zip(rows, cases):
            settings = {"secret_file": one, "job": 1, **setting}
            with hmc.Session(rank=1, buffer_size=64, **settings) as other, pytest.raises(getattr(hmc, name)) as raised:
                other.connect(0, address, timeout=10)
            assert text in raised.value.msg, raised.value


@pytest.mark.parametrize("name", ["cpu", "numpy_arrays", "torch_tensors", "kv_pages"])
def test_examples_run(name):
    pytest.importorskip("numpy")
    if name == "torch_tensors":
        pytest.importorskip("torch", reason="no torch: pip install torch")
    program = ROOT / "examples/python" / f"{name}.py"
    done = ran(program)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr
