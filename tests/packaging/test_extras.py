"""Optional packages: who may import them, which extra brings them, and what is said where they are missing."""

from __future__ import annotations

import ast
import pickle
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

import deuteron.profiler as proton
import deuteron.testing
from deuteron.compiler.errors import DeuteronError, MissingExtra
from deuteron.compiler.extras import EXTRAS, require_extras, require_packages

ROOT = Path(__file__).parents[2]
ROOMS = ("compiler", "profiler", "tuner", "server", "migrations", "deuteron")
#: Parts of server and migrations that work without their extra.
FRONT = ("server/__init__.py", "server/settings.py", "server/files.py", "server/client/", "migrations/__init__.py")
#: What profiled programs bring themselves: ``proton pytest``.
BROUGHT = {"pytest"}

Hide = Callable[..., None]


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Hide:
    """``hide("psycopg")``: as if the package were not installed."""

    def set_to_none(*packages: str) -> None:
        for package in packages:
            monkeypatch.setitem(sys.modules, package, None)

    return set_to_none


@pytest.fixture(scope="module")
def modules(closure) -> Callable[..., set[str]]:
    """``modules("server")``: import names of what ``deuteron[server]`` installs, deuteron left out."""
    owners = {name: set(map(canonicalize_name, found)) for name, found in packages_distributions().items()}

    def find(*extras: str) -> set[str]:
        installed = set(closure(*extras))
        return {name for name, found in owners.items() if found & installed}

    return find


def third_party_imports(tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """(line, first part of the name, whether it is imported with the module) of imports from other projects."""

    def walk(parent: ast.AST, eager: bool) -> Iterator[tuple[int, str, bool]]:
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name.partition(".")[0], eager) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                yield node.lineno, (node.module or "").partition(".")[0], eager
            later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            checked = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            yield from walk(node, eager and not later and not checked)

    for line, name, eager in walk(tree, True):
        if name not in sys.stdlib_module_names and name != "deuteron":
            yield line, name, eager


def test_modules_import_what_their_installation_has(modules):
    base, server, everything = modules(), modules("server"), modules("all") | BROUGHT
    for path in sorted(p for room in ROOMS for p in (ROOT / room).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        behind = name.startswith(("server/", "migrations/")) and not name.startswith(FRONT)
        for line, module, eager in third_party_imports(ast.parse(path.read_text(encoding="utf-8"))):
            allowed = everything if not eager else server if behind else base
            assert module in allowed, f"{name}:{line}: {module} is not there in every installation that imports this"


def test_the_list_of_extras_is_that_of_the_project(modules, closure):
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(optional) - {"cuda", "all", "dev"}
    base = modules()
    assert set(closure("all")) == set(closure(*EXTRAS)), "all is every one of them"
    for extra, packages in EXTRAS.items():
        assert set(packages) <= modules(extra) - base, extra
    for one in EXTRAS:
        for other in set(EXTRAS) - {one}:
            assert set(EXTRAS[one]).isdisjoint(EXTRAS[other]), "a package has one extra"


def test_the_base_installs_nothing_large(closure):
    """What compiling and tuning take; a distribution that joins them is a decision."""
    largest = {"numpy", "llvmlite", "cuda-python", "cuda-bindings", "cuda-core", "ml-dtypes", "rich", "typer", "httpx"}
    heavy = {"pandas", "matplotlib", "dask", "distributed", "sqlalchemy", "fastapi", "plotly", "llnl-hatchet", "optuna"}
    assert largest <= set(closure())
    assert heavy.isdisjoint(closure())
    assert heavy <= set(closure("all"))


def test_what_is_missing_is_named_with_its_extras(hide: Hide):
    require_extras("server", "viewer", by="this test")
    hide("dask", "sqlalchemy", "hatchet")
    with pytest.raises(MissingExtra) as caught:
        require_extras("server", "viewer", by="this test")
    assert str(caught.value) == (
        "this test needs packages that are not installed: dask, sqlalchemy, hatchet\n"
        "hint: pip install 'deuteron[server,viewer]'"
    )
    with pytest.raises(MissingExtra, match="this test needs a package that is not installed: hatchet\n"):
        require_packages("pandas", "hatchet", by="this test")
    require_packages("pandas", by="this test")


def test_the_error_is_of_both_trees_and_travels():
    error = MissingExtra("x", ["optuna"], ["optuna"])
    assert isinstance(error, DeuteronError) and isinstance(error, ImportError)
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) and copy.extras == ("optuna",)


def test_a_folder_of_the_same_name_is_no_package(hide: Hide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "optuna").mkdir()
    monkeypatch.delitem(sys.modules, "optuna", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(MissingExtra):
        require_extras("optuna", by="this test")


def test_a_postgres_address_without_its_driver(hide: Hide, capsys: pytest.CaptureFixture[str]):
    from deuteron.cli import main

    hide("psycopg")
    assert main(["db", "current", "--url", "postgresql://user@localhost/deuteron"]) == 2
    assert capsys.readouterr().err == (
        "error: a PostgreSQL database needs a package that is not installed: psycopg\n"
        "hint: pip install 'deuteron[postgres]'\n"
    )
    assert main(["db", "current", "--url", "postgresql+pg8000://user@localhost/deuteron"]) == 2
    assert "database driver 'postgresql+pg8000' is not supported" in capsys.readouterr().err


def test_a_session_survives_a_format_that_cannot_be_written(hide: Hide, tmp_path: Path):
    session = proton.start(str(tmp_path / "kept"), backend="cpu")
    with proton.scope("work", metrics={"bytes": 1}):
        pass
    hide("msgpack")
    with pytest.raises(MissingExtra, match=r"the format hatchet_msgpack .*\n.*deuteron\[viewer\]"):
        proton.finalize(session, output_format="hatchet_msgpack")
    with pytest.raises(MissingExtra):
        proton.data.get_msgpack(session)
    proton.finalize(session)
    assert proton.Profile.read(tmp_path / "kept.hatchet").node(("work",)).metrics["bytes"] == 1


def test_reading_messagepack_without_its_package(hide: Hide, tmp_path: Path):
    (tmp_path / "p.hatchet_msgpack").write_bytes(proton.Profile().to_msgpack())
    hide("msgpack")
    with pytest.raises(MissingExtra, match="p.hatchet_msgpack"):
        proton.Profile.read(tmp_path / "p.hatchet_msgpack")


@pytest.mark.parametrize(("option", "package"), [("return_df", "pandas"), ("show_plots", "matplotlib")])
def test_a_report_says_what_it_lacks_before_it_measures(hide: Hide, option: str, package: str):
    measured = []
    benchmark = deuteron.testing.Benchmark(["n"], [1], "provider", ["a"], ["A"], "speed", {})
    report = deuteron.testing.perf_report(benchmark)(lambda **point: measured.append(point) or 1.0)
    hide(package)
    with pytest.raises(MissingExtra, match=rf"{option} needs .*{package}"):
        report.run(**{option: True})
    assert measured == []
