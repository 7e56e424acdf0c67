"""What is kept says nothing of the machine on which it was made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: A path of somebody's machine: what stands before it is not part of a longer name or address.
_PATH = re.compile(r"(?<![\w.:/~-])/(?:work|tmp|home|root|Users|mnt)/[\w.-]+")
#: Hosts of package registries, in pieces: this file names none either.
_HOSTS = (("files", "pythonhosted", "org"), ("pypi", "org/simple"), ("registry", "npmjs", "org"))
_REGISTRY = re.compile("|".join([r"\b" + r"\.".join(parts) for parts in _HOSTS] + ["art" + "ifactory"]))
_TEXT = {".json", ".md", ".csv", ".txt", ".svg", ".toml", ".yaml", ".yml", ".html", ".cfg", ".ini"}


def texts(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in _TEXT]
    return [path for path in found if path.is_file()]


def test_results_name_no_path_of_a_machine():
    results = texts("benchmarks/results")
    assert len(results) > 80
    said = {
        str(path.relative_to(ROOT)): found.group()
        for path in results
        if (found := _PATH.search(path.read_text(encoding="utf-8", errors="replace")))
    }
    assert said == {}


def test_no_file_names_a_registry():
    kept = [*texts("benchmarks", "docker", "docs"), *(path for path in ROOT.glob("*") if path.suffix in _TEXT)]
    said = [str(path.relative_to(ROOT)) for path in kept if _REGISTRY.search(path.read_text(errors="replace"))]
    assert said == []


@pytest.mark.parametrize("folder", ["work", "tmp", "home", "root", "Users", "mnt"])
def test_paths_of_a_machine_are_told_from_others(folder):
    path = f"/{folder}/x/y.py"
    for text in (path, f'"{path}"', f"({path})", f"File {path}"):
        assert _PATH.search(text), text
    for text in (f"https://host{path}", f"a{path}", f"~{path}", f".{path}"):
        assert _PATH.search(text) is None, text


def test_registries_are_found():
    for parts in _HOSTS:
        assert _REGISTRY.search(f"https://{'.'.join(parts)}/package")
    assert _REGISTRY.search("https://art" + "ifactory.example/package")
    assert _REGISTRY.search("https://example.org/simple") is None
