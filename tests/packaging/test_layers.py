"""The package list, and which room may import which."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

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

#: What each folder of the GPU stage may import of the others. All know the operations of the stage, which arrays they
#: concern and what is estimated; steps beside the folders may import any.
GPU_STAGE = {
    "layouts": set(),
    "streams": {"layouts"},
    "memory": {"layouts"},
    "latency": {"layouts", "streams", "memory"},
}
GPU_VOCABULARY = {"arrays", "asynchronous", "estimates", "ops"}

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
ENVIRONMENT_READERS = {"compiler/knobs.py", "deuteron/compat/triton/environment.py", "server/settings.py"}


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


def test_imports_respect_the_layers():
    assert not [mistake for path in sources() for mistake in unfit_imports(path)]


def unfit_imports(path: Path) -> Iterator[str]:
    """What is wrong with the imports of a file, with places."""
    room = path.relative_to(ROOT).parts[0]
    kernel_text = "workloads/kernels" in path.as_posix()  # data: read as text, never imported
    for line, level, module in imports(path):
        where = f"{path.relative_to(ROOT)}:{line}"
        head, _, rest = module.partition(".")
        if not level and head in set(ROOMS) - {"deuteron"}:
            yield f"{where}: bare import of {module}"
        if not level and head in DEVELOPMENT:
            yield f"{where}: {module} is not part of the wheel"
        target = rest.partition(".")[0]
        if head == "deuteron" and not level and not kernel_text and target != "__version__":
            if target == room:
                yield f"{where}: import your own room relatively, not as {module}"
            elif room != "deuteron" and target and target not in ALLOWED[room]:
                yield f"{where}: {room} must not import {target}"
        if room in ("compiler", "profiler", "tuner") and head in SERVICE_PACKAGES:
            yield f"{where}: {room} must not import {head}"


def test_folders_of_the_gpu_stage_import_one_way():
    stage = ROOT / "compiler/gpu"
    assert {path.parent.name for path in stage.glob("*/__init__.py")} == set(GPU_STAGE)
    for folder, allowed in GPU_STAGE.items():
        for path in (stage / folder).glob("*.py"):
            assert imported(path, level=2) <= allowed | GPU_VOCABULARY, path
    for name in GPU_VOCABULARY:
        assert imported(stage / f"{name}.py", level=1) <= GPU_VOCABULARY, name


def imported(path: Path, level: int) -> set[str]:
    """Modules and folders that a file imports from so many folders up, 1 being its own."""
    return {module.partition(".")[0] for _, up, module in imports(path) if up == level}


def test_only_the_settings_modules_read_the_environment():
    found = []
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        if name not in ENVIRONMENT_READERS:
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            reads = (n for n in nodes if isinstance(n, ast.Attribute) and n.attr in ("environ", "getenv"))
            found += [f"{name}:{node.lineno}" for node in reads]
    assert not found


def test_files_stay_readable():
    lengths = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert not {path: lines for path, lines in lengths.items() if lines > 500}, "split them by concept"
