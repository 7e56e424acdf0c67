"""``deuteron sanitize``: exit codes, what is printed, and that a script runs as Python would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted(p.stem for p in (Path(__file__).parents[2] / "examples").glob("*.py") if p.stem != "harness")


def test_a_clean_script(run, script: Path) -> None:
    ran = run("sanitize", script, "32", "--size", "-x")
    assert ran.code == 0
    assert ran.out == "arguments 32 --size -x __main__\n"
    assert ran.err == "no findings in 1 launch (2 programs)\n"


def test_findings_are_shown_with_their_place(run, script: Path) -> None:
    ran = run("sanitize", script, "24")
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[1].startswith(
        "out-of-bounds write in copy: program (1, 0, 0), tile index (8,): writes element 24 of y"
    )
    assert lines[2] == f"  at {script}:13:5, 8 elements"
    assert lines[3].strip() == script.read_text().splitlines()[12].strip()
    assert lines[4] == "    ^"
    assert lines[5].startswith("  hint: mask")
    assert "1 finding in" in ran.err


def test_json(run, script: Path) -> None:
    ran = run("sanitize", "--json", script, "24")
    assert ran.code == 1
    assert "arguments 24" in ran.err
    made = json.loads(ran.out)
    assert (made["version"], made["launches"], made["programs"]) == (1, 1, 2)
    (finding,) = made["findings"]
    assert finding | {"message": ""} == {
        "kind": "out-of-bounds write",
        "kernel": "copy",
        "file": str(script),
        "line": 13,
        "column": 5,
        "text": script.read_text().splitlines()[12].strip(),
        "array": "y",
        "program": [1, 0, 0],
        "index": [8],
        "message": "",
        "count": 8,
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "launched no kernel"),
        ("raise ValueError('mine')", "it raised ValueError"),
        ("import sys\nsys.exit(3)", "it exited with 3"),
        ("import sys\nsys.exit('no')", "it exited with a message"),
        ("def (", "it raised SyntaxError"),
    ],
)
def test_a_script_that_does_not_run_to_its_end(run, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "user.py"
    path.write_text(text)
    ran = run("sanitize", path)
    assert ran.code == 2
    assert words in ran.err
    assert "no findings" not in ran.err, "nothing was checked"
    assert "deuteron/cli" not in ran.err
    assert "runpy" not in ran.err


def test_a_script_finds_its_files_from_any_folder(
    run, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write_text(f"import os\nos.chdir('/')\nassert os.path.isfile(__file__), __file__\n{script.read_text()}")
    monkeypatch.chdir(script.parent)
    assert run("sanitize", script.name, "32").code == 0


@pytest.mark.parametrize("change", ["sys.stdout = open('log.txt', 'w')", "sys.stdout = sys.stderr = None"])
def test_findings_are_on_the_streams_of_the_command_whatever_the_script_made_of_them(
    run, script: Path, change: str
) -> None:
    """They were written to the script's log, or nowhere."""
    script.write_text(f"{script.read_text()}\n{change}\n")
    ran = run("sanitize", script, "24")
    assert ran.code == 1
    assert "out-of-bounds write in copy" in ran.out and "1 finding in" in ran.err


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize(
    "change",
    [
        "sys.stdout.close()",
        "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, 'utf-8')",
        "sys.stdout = codecs.getwriter('utf-8')(sys.stdout.detach())",
        "sys.stdout = os.fdopen(sys.stdout.fileno(), 'w')",
    ],
)
def test_a_script_may_wrap_and_close_its_output(
    run_process, script: Path, options: tuple[str, ...], change: str
) -> None:
    """What was wrapped is closed with the script, and took the findings with it."""
    script.write_text(f"import codecs, io, os\n{script.read_text()}\n{change}\n")
    ran = run_process("sanitize", *options, script, "24")
    assert ran.code == 1 and "Traceback" not in ran.err
    if options:
        assert len(json.loads(ran.out)["findings"]) == 1
    else:
        assert "out-of-bounds write in copy" in ran.out and "1 finding in" in ran.err


def test_what_a_script_prints_last_comes_before_the_findings(run_process, script: Path) -> None:
    script.write_text(f"{script.read_text()}\nprint('last')\nsys.exit('done')\n")
    lines = run_process("sanitize", script, "24").out.splitlines()
    assert lines.index("last") < min(i for i, line in enumerate(lines) if "out-of-bounds" in line)


def test_what_was_found_before_a_script_fails_counts(run, script: Path) -> None:
    script.write_text(script.read_text() + "\nraise RuntimeError\n")
    assert run("sanitize", script, "24").code == 1
    ran = run("sanitize", script, "32")
    assert ran.code == 2
    assert "RuntimeError" in ran.err


def test_bad_input(run, tmp_path: Path) -> None:
    ran = run("sanitize", tmp_path / "nothing.py")
    assert (ran.code, "there is no file" in ran.err) == (2, True)
    assert run("sanitize").code == 2
    assert run("sanitize", tmp_path).code == 2


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "softmax"])
def test_examples_are_clean(examples: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "deuteron", "sanitize", "--json", f"{examples}/{name}.py"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = json.loads(done.stdout)
    assert made["launches"] >= 1
    assert made["findings"] == []


def test_the_softmax_example_is_clean_at_a_smaller_size(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands it has 4158 programs, which take a minute."""
    from deuteron.compiler.sanitizer import sanitized

    monkeypatch.syspath_prepend(str(examples))
    import harness
    import softmax

    with sanitized() as report:
        softmax.main(harness.Device("cpu"), (37, 781))
    assert report.launches == 3
    assert not report.findings


def test_a_program_that_imports_triton_is_checked_as_the_documentation_says(tmp_path: Path) -> None:
    script = tmp_path / "user.py"
    script.write_text(
        "import numpy as np, triton, triton.language as tl\n"
        "@triton.jit\ndef k(x, n, B: tl.constexpr):\n    i = tl.arange(0, B)\n    tl.store(x + i, 1.0, mask=i <= n)\n"
        "k[(1,)](np.ones(5, np.float32), 5, B=8)\n"
    )
    command = [sys.executable, "-m", "deuteron.compat.triton", "-m", "deuteron", "sanitize", str(script)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert ran.returncode == 1, ran.stderr
    assert "writes element 5 of x (5 elements" in ran.stdout
