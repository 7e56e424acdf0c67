"""The ``proton`` command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from deuteron.compiler import knobs
from deuteron.profiler import Profile
from deuteron.profiler.cli import proton_main
from deuteron.profiler.session import registry
from deuteron.profiler.viewer.arguments import main as viewer_main

SCRIPT = """
import sys
import helper
import deuteron.profiler as proton
assert proton.start("ignored") is None
assert sys.argv[1:] == ["--flag", "x"], sys.argv
assert __name__ == "__main__"
with proton.scope("A", {"m": 1}):
    proton.deactivate(0)
    with proton.scope("B", {"m": 1}):
        pass
    proton.activate()
with proton.scope("C", {"m": helper.VALUE}):
    pass
proton.finalize()
with proton.scope("late", {"m": 1}):
    pass
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "helper.py").write_text("VALUE = 5\n")
    path = folder / "script.py"
    path.write_text(SCRIPT)
    return path


def test_a_script_is_profiled_from_start_to_end(script: Path) -> None:
    argv, path = list(sys.argv), list(sys.path)
    assert proton_main(["-n", "out", str(script), "--flag", "x"]) == 0
    assert (sys.argv, sys.path) == (argv, path)
    names = [node.name for _, node in Profile.read("out.hatchet").walk()]
    assert names == ["ROOT", "A", "C", "late"]
    assert not Path("ignored.hatchet").exists()
    assert not registry.sessions


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("", 0, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(7)", 7, ""),
        ("import sys; sys.exit('went wrong')", 1, "went wrong"),
        ("raise KeyError('boom')", 1, "KeyError: 'boom'"),
        ("raise KeyboardInterrupt", 130, "line 3, in <module>\n    raise KeyboardInterrupt\nKeyboardInterrupt\n"),
        ("import deuteron.profiler as p; p.finalize(3)", 1, "only session 0"),
    ],
)
def test_exit_codes_and_the_profile_is_written_anyway(
    body: str, code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    script = tmp_path / "s.py"
    script.write_text(f"import deuteron.profiler as proton\nproton.enter_scope('A', metrics={{'m': 1}})\n{body}\n")
    assert proton_main([str(script)]) == code
    assert message in capsys.readouterr().err
    assert Profile.read("proton.hatchet").node(("A",)).metrics == {"m": 1}


def test_a_script_finds_its_files_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("import os\nos.chdir('/')\nassert os.path.isfile(__file__), __file__\n")
    assert proton_main(["-n", str(tmp_path / "out"), "s.py"]) == 0


def test_pytest_is_profiled_and_its_exit_code_returned(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import deuteron.profiler as proton\n"
        "def test_it():\n    with proton.scope('in test', {'m': 1}): pass\n"
        "def test_bad():\n    assert False\n"
    )
    command = [sys.executable, "-m", "deuteron.profiler", "-n", "out", "pytest", "-q", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert Profile.read(tmp_path / "out.hatchet").node(("in test",)).metrics == {"m": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to run"),
        (["absent.py"], "no such script: absent.py"),
        (["-n", "no/such/folder", "s.py"], "not a folder"),
        (["-m", "pcsampling:interval=9", "s.py"], "every 9 cycles"),
    ],
)
def test_mistakes_are_messages(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "s.py").write_text("")
    assert proton_main(arguments) == 2
    printed = capsys.readouterr().err
    assert message in printed and "hint: " in printed


def test_a_viewer_without_metrics_is_a_mistake(capsys: pytest.CaptureFixture) -> None:
    assert viewer_main(["absent.hatchet"]) == 2
    printed = capsys.readouterr().err
    assert "no metrics are named" in printed and "-l lists them" in printed


def test_trace_and_mode_reach_the_session(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("import deuteron.profiler as proton\nwith proton.scope('A'): pass\n")
    assert proton_main(["-d", "trace", str(script)]) == 0
    assert json.loads(Path("proton.chrome_trace").read_text())["traceEvents"]
    assert proton_main(["-m", "periodic_flushing:format=hatchet_msgpack", str(script)]) == 0
    assert Path("proton.hatchet_msgpack").exists()


def test_disabled_profiling_runs_the_script_only(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("open('ran', 'w').close()")
    with knobs.proton_disable.scope(True):
        assert proton_main(["s.py"]) == 0
    assert Path("ran").exists() and not Path("proton.hatchet").exists()


def test_every_public_name_is_there() -> None:
    """They are imported on their first use; no module of the package may stand in the place of a name."""
    import deuteron.profiler as proton

    modules = {name for name in proton.__all__ if isinstance(getattr(proton, name), ModuleType)}
    assert modules == {"context", "data", "language", "mode", "specs"}
    folder = Path(proton.__file__).parent
    assert not {path.stem for path in folder.iterdir()} & set(proton.__all__) - modules
    assert set(proton.__all__) <= set(dir(proton))
    assert proton.hooks.LaunchMetadata is proton.LaunchMetadata
    with pytest.raises(AttributeError, match=r"'deuteron.profiler' has no attribute 'begin'"):
        proton.begin  # noqa: B018


@pytest.mark.parametrize("program", ["script.py", "pytest"])
def test_python_frames_begin_in_the_program(tmp_path: Path, program: str) -> None:
    """With its own frames, not those of the command or of what started that."""
    body = "import deuteron.profiler as proton\ndef test_it():\n    with proton.scope('A', {'n': 1}):\n        pass\n"
    path = tmp_path / "test_script.py"
    path.write_text(body + ("test_it()\n" if program != "pytest" else ""))
    target = ["pytest", "-q", "-p", "no:cacheprovider", str(path)] if program == "pytest" else [str(path)]
    command = [sys.executable, "-P", "-m", "deuteron.profiler", "-n", "out", "-c", "python", *target]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    frames = max((where for where, _ in Profile.read(tmp_path / "out.hatchet").walk()), key=len)
    assert frames[-1] == f"{path}:3@test_it"
    if program == "pytest":
        assert "pytest" in frames[0] and not any("runpy" in frame for frame in frames)
    else:
        assert frames == (f"{path}:5@<module>", f"{path}:3@test_it")


def test_threads_that_a_script_leaves_behind_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        "import threading, time\nimport deuteron.profiler as proton\n"
        "def work():\n    threading.main_thread().join()\n    proton.finalize()\n"
        "    with proton.scope('thread', {'n': 1}):\n        pass\n"
        "threading.Thread(target=work).start()\n"
    )
    command = [sys.executable, "-P", "-m", "deuteron.profiler", "-n", "out", str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert [node.name for _, node in Profile.read(tmp_path / "out.hatchet").walk()] == ["ROOT", "thread"]
