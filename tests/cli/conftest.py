"""The command line in this process, with a home of its own; and as a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from deuteron.tuner import ConfigRecord

ROOT = Path(__file__).parents[2]
#: A program that launches a copy of 32 numbers into an array of each size that its first argument names.
SCRIPT = """
import sys

import numpy as np

import deuteron
import deuteron.language as tl


@deuteron.jit
def copy(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


print("arguments", *sys.argv[1:], __name__)
for size in map(int, sys.argv[1].split(",")):
    copy[(2,)](np.ones(32, np.float32), np.zeros(size, np.float32), 32, B=16)
if "fail" in sys.argv:
    raise ValueError("no more")
"""


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory for the test alone, in the environment too."""
    path = tmp_path / "home"
    for name in ("DATABASE_URL", "TOKEN", "HOST", "PORT", "AUTH", "PUBLIC_URL", "SCHEDULER"):
        monkeypatch.delenv(f"DEUTERON_{name}", raising=False)
    monkeypatch.setenv("DEUTERON_HOME", str(path))
    monkeypatch.setenv("NO_COLOR", "1")
    return path


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's program, in the folder in which the test runs."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "user.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """``run("compile", ...)``: the exit code and both streams."""
    from deuteron.cli import main

    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture
def run_process() -> Run:
    """The same as a process of its own."""

    def call(*arguments: object, **options: object) -> Ran:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "deuteron", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            **options,  # type: ignore[call-overload]
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def examples() -> Path:
    return ROOT / "examples"


@pytest.fixture
def kernel_file(tmp_path: Path) -> Callable[[str], Path]:
    """Writes kernel text under the usual imports; returns the file."""

    def write(text: str, name: str = "kernels.py") -> Path:
        path = tmp_path / name
        path.write_text(f"import deuteron as triton\nimport deuteron.language as tl\n\n{text}")
        return path

    return write


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with one record that a search of two seconds found."""
    from deuteron.tuner import Budget, JobSpec, builtin_workload, tune_locally

    job = JobSpec(
        workload=builtin_workload("vector_add"),
        shapes=({"n": 65536},),
        dtypes=("f32",),
        budget=Budget(trials=3, seconds=4),
    )
    folder = tmp_path_factory.mktemp("bundle")
    return tune_locally(job, emit=lambda event: None, folder=folder).bundle


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service in a process of its own, with a real worker for the CPU."""
    from deuteron.cli.demo.service import DemoService

    folder = tmp_path_factory.mktemp("service")
    with DemoService(folder / "data", folder / "service.log") as running:
        yield running.url


@pytest.fixture
def living_members() -> Callable[[int], list[str]]:
    """The processes of a session that still run."""

    def members(session: int) -> list[str]:
        """Command lines of the processes of a session, those without a parent to bury them left out."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                _, _, rest = (entry / "stat").read_text().rpartition(")")
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # not a process, or gone by now
            state, _parent, _group, owner = rest.split()[:4]
            if int(owner) == session and state != "Z":
                found.append(command)
        return found

    return members


@pytest.fixture
def record_of(bundle: Path) -> Callable[..., ConfigRecord]:
    """A record of a GPU with another shape and configuration."""
    from msgspec.structs import replace

    from deuteron.tuner import DeviceFingerprint, read_bundle

    (base,) = read_bundle(bundle).records()

    def make(shape: dict[str, int], config: dict[str, object], device: str = "NVIDIA H200", **changes: object):
        gpu = DeviceFingerprint(kind="cuda", name=device, compute_capability=(9, 0))
        key = ",".join(f"{dim}={size}" for dim, size in sorted(shape.items()))
        return replace(base, shape=shape, shape_key=key, config=config, **{"device": gpu, "dtype": "bf16", **changes})

    return make
