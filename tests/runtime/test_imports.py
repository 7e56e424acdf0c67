"""``import deuteron`` is light, and every public name is where it says."""

from __future__ import annotations

import subprocess
import sys

import pytest

import deuteron
import deuteron.compiler

HEAVY = (
    "numpy",
    "llvmlite",
    "fastapi",
    "pandas",
    "matplotlib",
    "cuda",
    "sqlalchemy",
    "distributed",
    "hatchet",
    "httpx",
    "optuna",
)


def loaded_after(statement: str) -> set[str]:
    """Which heavy packages a fresh interpreter has loaded after a statement."""
    program = f"import sys\n{statement}\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import deuteron",
        "import deuteron, deuteron.language",
        "import deuteron; deuteron.jit; deuteron.autotune; deuteron.Config; deuteron.compile",
        "import deuteron.testing",
    ],
)
def test_no_heavy_import(statement: str) -> None:
    assert loaded_after(statement) == set()


def test_import_loads_the_standard_library_and_itself() -> None:
    program = "import sys; before = set(sys.modules); import deuteron; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names} == {
        "deuteron"
    }


def test_import_time() -> None:
    """At most 20 ms of this process's own time, on the best of five runs."""
    program = "import time; t = time.process_time(); import deuteron; print(time.process_time() - t)"
    seconds = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    assert min(seconds) <= 0.020


@pytest.mark.parametrize("module", [deuteron, deuteron.compiler])
def test_public_names(module: object) -> None:
    for name in module.__all__:  # type: ignore[attr-defined]
        if name != "tuned":  # the tuner's own tests import it
            assert getattr(module, name) is not None
        assert name in dir(module)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        module.nothing  # type: ignore[attr-defined]  # noqa: B018
