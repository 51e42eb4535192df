"""Sub-interpreters are refused, and the main interpreter is as it was, whoever comes first."""

from __future__ import annotations

import sys

import pytest

#: What the native half says. CPython refuses it first where an interpreter has a lock of its own (3.12 and later).
OURS = "refused: hmc cannot be used in a sub-interpreter"
CPYTHON_S = "refused: module hmc._hmc does not support loading in subinterpreters"


@pytest.mark.parametrize("kind", ["isolated", "legacy"])
@pytest.mark.parametrize("first", ["main", "sub"])
def test_a_sub_interpreter_is_refused_and_the_main_one_goes_on(run, first, kind):
    out = run(f"""
    import sys
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    if {first!r} == "main":
        import hmc
    sub = interpreters.create({kind!r}) if sys.version_info >= (3, 13) else interpreters.create(isolated={kind == "isolated"})
    code = [
        "import sys",
        "sys.path[:] = " + repr(sys.path),
        "try:",
        "    import hmc",
        "    print('admitted')",
        "except ImportError as e:",
        "    print('refused:', e)",
        "sys.stdout.flush()",
    ]
    interpreters.run_string(sub, chr(10).join(code))
    interpreters.destroy(sub)
    import hmc
    with hmc.Session(rank=0, buffer_size=4096) as s:
        s.loopback().put(b"works")
        try:
            s.buffer.read(5000)
        except hmc.OutOfRange:
            print(bytes(s.buffer.read(5)).decode())
    """).end()
    said = out.splitlines()
    own_lock = kind == "isolated" and sys.version_info >= (3, 12)
    assert said[0].startswith(CPYTHON_S if own_lock else OURS), out
    assert said[1:] == ["works"], out
