"""Sub-interpreters are refused, and the main interpreter is as it was, whoever comes first."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("first", ["main", "sub"])
def test_a_sub_interpreter_is_refused_and_the_main_one_goes_on(run, first):
    out = run(f"""
    import sys
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    if {first!r} == "main":
        import hmc
    sub = interpreters.create()
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
    assert said[0].startswith("refused: hmc cannot be used in a sub-interpreter"), out
    assert said[1:] == ["works"], out
