"""The wheel: built, installed into a fresh environment away from the checkout, imported whole, and used once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
import deuteron
assert "site-packages" in deuteron.__file__, deuteron.__file__
skip = ("deuteron.tuner.workloads.kernels.", "deuteron.migrations.env", "deuteron.migrations.versions.")
count = 0
for room in ("cli", "compiler", "language", "migrations", "profiler", "server", "tuner"):
    package = importlib.import_module(f"deuteron.{room}")
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not info.name.startswith(skip) and not info.name.endswith("__main__"):
            importlib.import_module(info.name)
            count += 1
print("imported", count)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """A fresh environment with the wheel; third-party packages are borrowed from this one."""
    home = tmp_path_factory.mktemp("wheel")
    source = home / "source"  # a copy: setuptools leaves its build/ folder, and reads it again, in the tree it builds
    ignored = shutil.ignore_patterns(".venv", ".git", "build", "*.egg-info", "__pycache__", "deuteron-demo")
    shutil.copytree(ROOT, source, ignore=ignored, symlinks=True)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(home), str(source))
    (wheel,) = home.glob("deuteron-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", str(home / "venv"))
    python = home / "venv" / "bin" / "python"
    purelib = Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip())
    run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(purelib),
        str(wheel),
    )
    # A path line adds the packages but does not run their .pth files, so this checkout stays invisible.
    borrowed = {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]}
    (purelib / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")
    return home


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=280, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_everything_imports(environment: Path):
    out = run(str(environment / "venv/bin/python"), "-c", IMPORT_EVERYTHING, cwd=environment)
    assert int(out.split()[-1]) > 100


@pytest.mark.slow
def test_one_tune_runs(environment: Path):
    python = str(environment / "venv/bin/python")
    command = "tune softmax --shape M=64,N=256 --dtype f32 --device cpu --trials 2 --out out"
    out = run(python, "-m", "deuteron.cli", *command.split(), cwd=environment)
    assert "M=64,N=256" in out.replace(" ", "")
    assert list((environment / "out").rglob("*.hatchet"))
