"""ARCHITECTURE.md and the pages that go on from it name only what exists: every word in backticks is looked up, and
every path in a picture or before lines that a recipe adds."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("compiler", "profiler", "tuner", "server", "migrations", "deuteron")
PAGES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in ("ARCHITECTURE.md", "docs/life-of-a-job.md", "docs/life-of-a-kernel.md", "docs/how-to-add.md")
}
TEXT = PAGES["ARCHITECTURE.md"]
_FENCED = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def prose(text: str) -> str:
    return _FENCED.sub("", text)


def names() -> list[tuple[str, str]]:
    """Each page and each of its words in backticks."""
    return sorted(
        {
            (page, " ".join(name.split()))
            for page, text in PAGES.items()
            for name in re.findall(r"`([^`]+)`", prose(text))
        }
    )


def drawn_paths() -> list[tuple[str, str]]:
    """Each page and each path in its pictures, and before lines that are added to files that are there."""
    rooms = "|".join((*ROOMS, "tests"))
    found = set()
    for page, text in PAGES.items():
        for kind, block in _FENCED.findall(text):
            if kind == "":
                found |= {(page, path) for path in re.findall(rf"(?<!\S)((?:{rooms})/[\w/.]*)", block)}
            elif kind == "diff":
                found |= {(page, head.partition(",")[0]) for head in re.findall(r"^--- (.*)$", block, re.MULTILINE)
                          if not head.endswith(", new")}  # fmt: skip
    return sorted(found)


@cache
def paths() -> frozenset[str]:
    """All files and folders of the source tree, folders with a slash at the end."""
    found = {path.name for path in ROOT.iterdir() if path.is_file()}
    for top in (*ROOMS, "development", "tests", "docs", "benchmarks", "examples", "docker", ".typing"):
        for path in [ROOT / top, *(ROOT / top).rglob("*")]:
            if "__pycache__" not in path.parts:
                found.add(path.relative_to(ROOT).as_posix() + ("/" if path.is_dir() else ""))
    return frozenset(found)


@cache
def definitions() -> frozenset[str]:
    """Names of all classes, functions and methods, and of what modules and classes assign."""
    found: set[str] = set()
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    found.add(name)
                case ast.Module(body=body):
                    found |= {target.id for item in body for target in _targets(item)}
    return frozenset(found)


def _targets(statement: ast.stmt) -> Iterator[ast.Name]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    yield from (target for target in targets if isinstance(target, ast.Name))


def exists(name: str) -> bool:  # noqa: PLR0911 - one line for each kind of name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    command, _, argument = name.partition(" ")
    if name.startswith("--"):
        return f'"{name}"' in (ROOT / "tests/conftest.py").read_text()
    if name.startswith("["):
        return name in (ROOT / "pyproject.toml").read_text()
    if command in ("GET", "POST", "PUT", "DELETE"):
        return _is_route(command.lower(), argument)
    if command == "make":
        return re.search(rf"^{argument}:", (ROOT / "Makefile").read_text(), re.MULTILINE) is not None
    if command == "deuteron" and argument:
        return f"\n## {name}\n" in (ROOT / "docs/cli.md").read_text()
    if command == "from":
        return importlib.import_module(argument.split()[0]) is not None
    if " -> " in name:
        return all(exists(part) for part in name.split(" -> "))
    if "=" in name and name.partition("=")[0].isupper():
        from deuteron.compiler import knobs

        return name.partition("=")[0] in knobs.describe()
    if name == "pip install deuteron":
        return project["project"]["name"] == argument.split()[-1]
    if "/" in name or name.endswith((".py", ".toml")):
        return any(path.rstrip("/") == name.rstrip("/") or path.endswith("/" + name) for path in paths())
    if name.startswith("."):
        return f'"{name[1:]}"' in (ROOT / "profiler/session.py").read_text()
    return (
        name in project["project"]["scripts"]
        or any(mark.startswith(f"{name}:") for mark in project["tool"]["pytest"]["ini_options"]["markers"])
        or _is_defined(re.sub(r"\(.*\)$", "", name).removeprefix("@"))
    )


def _is_route(method: str, path: str) -> bool:
    from deuteron.server import Settings, create_app

    routes = create_app(Settings(home=ROOT / "build" / "none", scheduler="none")).openapi()["paths"]
    return method in routes.get(path, {})


def _is_defined(name: str) -> bool:
    """A dotted name in the module that its front names, a plain one anywhere, or as what examples import."""
    module, _, attribute = name.rpartition(".")
    if not module:
        imported = any(f" as {name}\n" in path.read_text() for path in (ROOT / "examples").glob("*.py"))
        return name in definitions() or name in ("deuteron", *ROOMS) or imported
    return any(hasattr(importlib.import_module(home), attribute) for home in _modules_called(module))


def _modules_called(name: str) -> list[str]:
    """Modules of ours whose dotted name is ``name`` or ends with it."""
    end = name.removeprefix("deuteron").removeprefix(".").replace(".", "/")
    found = [] if end else ["deuteron"]
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            if end and f"/{'/'.join(parts)}".endswith(f"/{end}"):
                found.append(".".join(parts if parts[0] == "deuteron" else ("deuteron", *parts)))
    return found


@pytest.mark.parametrize(("page", "name"), names())
def test_every_name_exists(page: str, name: str) -> None:
    assert exists(name), f"{page} names `{name}`"


@pytest.mark.parametrize(("page", "path"), drawn_paths())
def test_every_path_of_pictures_and_recipes_exists(page: str, path: str) -> None:
    assert {path, f"{path}/"} & paths(), f"{page} names {path}"


def test_there_are_pictures_and_recipes() -> None:
    assert {page for page, _ in drawn_paths()} == {"ARCHITECTURE.md", "docs/how-to-add.md"}


def test_architecture_is_read_in_ten_minutes() -> None:
    """At 200 words a minute, beside its tables and pictures."""
    assert sum(len(line.split()) for line in prose(TEXT).splitlines() if not line.startswith("|")) < 2000


def test_begin_reading_at_is_in_its_folder() -> None:
    rows = re.findall(r"^\| `([\w/]+/)` \|.*\| (.+) \|$", prose(TEXT), re.MULTILINE)
    assert len(rows) > 10
    missing = [
        folder + file
        for folder, cell in rows
        for file in re.findall(r"`([^`]+)`", cell)
        if folder + file not in paths()
    ]
    assert not missing


@pytest.mark.parametrize(
    "name",
    ["tuner.job.run_job", "Studies", "tuner/nowhere.py", "GET /v1/nothing", "make tea", "deuteron brew", "--no-gpu"],
)
def test_what_does_not_exist_is_found_out(name: str) -> None:
    assert not exists(name)


def field_words() -> list[tuple[str, str]]:
    """Each word of the table and each module that it names."""
    table = TEXT.partition("### The field's words")[2].partition("\n## ")[0]
    rows = [row.strip("|").split("|") for row in re.findall(r"^\| [a-z].*\|$", table, re.MULTILINE)][1:]
    return [
        (word.strip(), path)
        for words, _, where in rows
        for word in words.split(",")
        for path in re.findall(r"`([^`]+)`", where)
    ]


@pytest.mark.parametrize(("word", "path"), field_words())
def test_a_search_for_the_words_of_the_field_finds_the_module(word: str, path: str) -> None:
    assert word in (ROOT / path).read_text(encoding="utf-8").partition("\n")[0].lower()
