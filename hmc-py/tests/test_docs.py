"""What the documents show runs: the programs of docs/python.md, and the examples."""

import pathlib
import re

import pytest

from conftest import free_port, ran

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(heading):
    """The programs under a heading of docs/python.md."""
    text = (ROOT / "docs/python.md").read_text()
    part = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```python\n(.*?)```", part, re.S)


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
    assert here.end().strip() == "42 [0 1 2 3] 1023"
    assert told.startswith("shm: chosen") or "shm" in told, told


def test_the_collectives_run(run, tmp_path):
    pytest.importorskip("numpy")
    (program,) = blocks("Collectives")
    assert "/tmp/meet" in program
    program = program.replace("/tmp/meet", str(tmp_path / "meet"))
    members = [run(program, env={"RANK": str(rank), "WORLD_SIZE": "4"}) for rank in range(4)]
    assert [m.end().strip() for m in members] == [f"{rank} of 4: [6. 6. 6.] [0 1 2 3]" for rank in range(4)]


@pytest.mark.parametrize("name", ["cpu", "numpy_arrays", "torch_tensors", "kv_pages"])
def test_examples_run(name):
    pytest.importorskip("numpy")
    if name == "torch_tensors":
        pytest.importorskip("torch", reason="no torch: pip install torch")
    program = ROOT / "examples/python" / f"{name}.py"
    done = ran(program)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr
