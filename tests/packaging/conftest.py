"""What pyproject.toml asks for, the wheel built once, and a fresh environment with the wheel and nothing optional."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]

Closure = Callable[..., dict[str, Distribution]]


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Environment:
    """A virtual environment and an empty folder to work in, with a DEUTERON_HOME of its own."""

    folder: Path
    site_packages: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv/bin/python"

    def run(self, command: str, *arguments: object, path: str = "") -> Ran:
        """Run an installed command; ``path`` becomes PYTHONPATH."""
        done = subprocess.run(
            [self.folder / "venv/bin" / command, *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={"DEUTERON_HOME": str(self.folder / "home"), "PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
            timeout=120,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)


def must(*command: object) -> str:
    """Run a command that has to succeed; its standard output."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def closure() -> Closure:
    """``closure("server")``: the distributions that ``pip install 'deuteron[server]'`` installs here, deuteron left
    out.

    Read from pyproject.toml and from what the installed distributions ask for, so nothing is downloaded.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def find(*extras: str) -> dict[str, Distribution]:
        found: dict[str, Distribution] = {}
        seen: set[tuple[str, frozenset[str]]] = set()
        pending = [Requirement(text) for text in project["dependencies"]]
        pending.append(Requirement(f"deuteron[{','.join(extras)}]"))
        while pending:
            wanted = pending.pop()
            name = canonicalize_name(wanted.name)
            if (name, frozenset(wanted.extras)) in seen:
                continue
            seen.add((name, frozenset(wanted.extras)))
            if name == "deuteron":
                tables = project["optional-dependencies"]
                pending += [Requirement(text) for extra in wanted.extras for text in tables[extra]]
                continue
            found[name] = distribution(name)
            for text in found[name].requires or ():
                needed = Requirement(text)
                chosen = [{"extra": extra} for extra in ("", *wanted.extras)]
                if needed.marker is None or any(needed.marker.evaluate(extra) for extra in chosen):
                    pending.append(needed)
        return found

    return find


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    home = tmp_path_factory.mktemp("wheel")
    source = home / "source"  # a copy: setuptools leaves its build/ folder, and reads it again, in the tree it builds
    ignored = shutil.ignore_patterns(".venv", ".git", "build", "*.egg-info", "__pycache__", "deuteron-demo")
    shutil.copytree(ROOT, source, ignore=ignored, symlinks=True)
    must(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", home, source)
    (built,) = home.glob("deuteron-*.whl")
    return built


@pytest.fixture(scope="session")
def base(wheel: Path, closure: Closure, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What ``pip install deuteron`` leaves behind: the wheel, what it depends on, and what that depends on.

    The dependencies are links to the files of the distributions that are installed here, one by one, so that folders
    which several distributions share (``cuda``) hold only what belongs in them. pip would download 120 MB for the same
    files; whether it would choose them is asked of ``pip check``.
    """
    folder = tmp_path_factory.mktemp("base")
    must(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv/bin/python"
    site_packages = Path(must(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip())
    for found in closure().values():
        for file in found.files or ():
            link, target = site_packages / file, Path(found.locate_file(file))
            # Commands are in ../../../bin; nothing of ours runs another package's.
            if file.parts[0] != ".." and target.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(target)
    must(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel)
    return Environment(folder, site_packages)
