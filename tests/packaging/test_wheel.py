"""The wheel: what is in it, and that every module of it imports away from the checkout."""

from __future__ import annotations

import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
import deuteron
assert "site-packages" in deuteron.__file__ and sys.prefix in deuteron.__file__, deuteron.__file__
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


@pytest.mark.slow
def test_only_the_package_is_in_it(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"deuteron"}
    rooms = {name.split("/")[1] for name in names if name.startswith("deuteron/") and name.count("/") > 1}
    assert rooms == {"cli", "compat", "compiler", "language", "migrations", "profiler", "server", "tools", "tuner"}
    assert not [name for name in names if Path(name).stem in ("simulator", "minimax", "peers")]


@pytest.mark.slow
def test_every_file_that_is_no_module_is_in_it(wheel: Path):
    rooms = ("compiler", "profiler", "tuner", "server", "migrations", "deuteron")
    kept = {
        path.relative_to(ROOT).as_posix()
        for room in rooms
        for path in (ROOT / room).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert len(kept) > 20
    names = {name.removeprefix("deuteron/") for name in zipfile.ZipFile(wheel).namelist()}
    missing = {path for path in kept if path.removeprefix("deuteron/") not in names}
    assert not missing, "name them in package-data (pyproject.toml)"


@pytest.mark.slow
def test_everything_imports(base):
    # A folder on PYTHONPATH adds the packages but does not run their .pth files, so this checkout stays invisible.
    everything = sysconfig.get_paths()["purelib"]
    ran = base.run("python", "-c", IMPORT_EVERYTHING, path=everything)
    assert ran.code == 0, ran.err
    assert int(ran.out.split()[-1]) > 100
