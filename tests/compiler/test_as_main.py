"""Scripts as the main program, compared with what Python makes of them."""

from __future__ import annotations

import py_compile
import subprocess
import sys
import traceback
import zipfile
from pathlib import Path

import pytest

from deuteron.compiler.as_main import frames_of_main, main_kept, run_as_main

#: Annotations are objects here: what the compiler imports from __future__ is not the script's.
SCRIPT = '''"""What it is."""
import os, pickle, sys

class Kept:
    field: int

assert sys.modules["__main__"].Kept is Kept
assert type(pickle.loads(pickle.dumps(Kept()))) is Kept
arguments, folder = sys.argv[1:], sys.path[0]
name = os.path.basename(sys.argv[0])
os.chdir("/")
print(__name__, __doc__, __file__, name, arguments, folder, Kept.__annotations__, os.path.exists(__file__))
'''


def as_python_does(script: str, folder: Path) -> str:
    command = [sys.executable, script, "a", "--b"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


@pytest.mark.parametrize("kind", ["script.py", "script.pyc", "script.zip"])
def test_a_script_sees_what_it_sees_under_python(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    py_compile.compile(str(tmp_path / "script.py"), str(tmp_path / "script.pyc"))
    with zipfile.ZipFile(tmp_path / "script.zip", "w") as archive:
        archive.writestr("__main__.py", SCRIPT)
    monkeypatch.chdir(tmp_path)
    before = (sys.argv, list(sys.path), sys.modules["__main__"])
    with main_kept():
        run_as_main(kind, ["a", "--b"])
    assert capsys.readouterr().out == as_python_does(kind, tmp_path)
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before


def test_tracebacks_begin_with_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.py").write_text("import os\nos.chdir('/')\ndef f():\n    raise KeyError(1)\nf()\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyError) as caught, main_kept():
        run_as_main("script.py", [])
    shown = traceback.extract_tb(frames_of_main(caught.value))
    path = str(tmp_path / "script.py")
    assert [(frame.filename, frame.lineno) for frame in shown] == [(path, 5), (path, 4)]
