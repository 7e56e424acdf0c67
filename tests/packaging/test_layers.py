"""The package list, and which room may import which."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("compiler", "profiler", "tuner", "server", "migrations", "deuteron")

#: What each room may import of the others. server and migrations need each other: models, and upgrade().
ALLOWED = {
    "compiler": set(),
    "profiler": {"compiler"},
    "tuner": {"compiler", "profiler"},
    "server": {"compiler", "profiler", "tuner", "migrations"},
    "migrations": {"server", "compiler"},
    "deuteron": {"compiler", "profiler", "tuner", "server", "migrations"},
}

#: Web and database packages stay out of what must run on a GPU machine that has none of them.
SERVICE_PACKAGES = {
    "fastapi",
    "starlette",
    "uvicorn",
    "sqlalchemy",
    "alembic",
    "psycopg",
    "pydantic",
}
#: What only tests and developers use: beside the rooms, left out of the wheel, and imported by none of them.
DEVELOPMENT = {path.stem for path in (ROOT / "development").iterdir() if not path.name.startswith("_")}
#: The only readers of the environment.
ENVIRONMENT_READERS = {"compiler/knobs.py", "server/settings.py"}


def sources() -> list[Path]:
    return sorted(p for room in ROOMS for p in (ROOT / room).rglob("*.py"))


def imports(path: Path) -> list[tuple[int, int, str]]:
    """(line, relative level, module) of every import of a file."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, 0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.lineno, node.level, node.module or ""))
            if node.level == 0 and node.module == "deuteron":
                found += [(node.lineno, 0, f"deuteron.{alias.name}") for alias in node.names]
    return found


def test_package_list_names_every_folder_with_python_files():
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = set()
    for path in sources():
        parts = path.relative_to(ROOT).parent.parts
        found.add(".".join(parts if parts[0] == "deuteron" else ("deuteron", *parts)))
    assert listed == found


def test_type_checkers_and_editors_see_every_room():
    """Links stand for the import hook of the editable install, which tools that read source cannot follow."""
    inside = {p.name for p in (ROOT / "deuteron").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    expected = {room: ROOT / room for room in set(ROOMS) - {"deuteron"}} | {n: ROOT / "deuteron" / n for n in inside}
    assert {link.name: link.resolve() for link in (ROOT / ".typing/deuteron").iterdir()} == expected
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    named = [folder.removeprefix("$MYPY_CONFIG_FILE_DIR/") for folder in tools["mypy"]["mypy_path"].split(":")]
    assert named == tools["pyright"]["extraPaths"] == [".typing", "development"]


def test_version_is_stated_once_more_than_once_alike():
    import deuteron

    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == deuteron.__version__


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_respect_the_layers(path: Path):
    room = path.relative_to(ROOT).parts[0]
    kernel_text = "workloads/kernels" in path.as_posix()  # data: read as text, never imported
    for line, level, module in imports(path):
        where = f"{path.relative_to(ROOT)}:{line}"
        head, _, rest = module.partition(".")
        assert level or head not in set(ROOMS) - {"deuteron"}, f"{where}: bare import of {module}"
        assert level or head not in DEVELOPMENT, f"{where}: {module} is not part of the wheel"
        if head == "deuteron" and not level and not kernel_text:
            target = rest.partition(".")[0]
            if target == "__version__":
                continue
            if target == room:
                raise AssertionError(f"{where}: import your own room relatively, not as {module}")
            if room != "deuteron" and target:
                assert target in ALLOWED[room], f"{where}: {room} must not import {target}"
        if room in ("compiler", "profiler", "tuner"):
            assert head not in SERVICE_PACKAGES, f"{where}: {room} must not import {head}"


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_only_the_settings_modules_read_the_environment(path: Path):
    name = path.relative_to(ROOT).as_posix()
    if name in ENVIRONMENT_READERS:
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        reads = isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
        assert not reads, f"{name}:{getattr(node, 'lineno', 0)} reads the environment"


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_files_stay_readable(path: Path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 500, f"{path.relative_to(ROOT)} has {lines} lines: split it by concept"
