"""One public class name, one meaning: no two modules define a class of the same name; errors are public."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from pathlib import Path

import deuteron
from deuteron.compiler import errors

ROOT = Path(__file__).parents[2]
ROOMS = ("compiler", "profiler", "tuner", "server", "deuteron", "migrations")


def public_classes() -> dict[str, list[str]]:
    """Name -> places of the classes without a leading underscore that modules define at their top level."""
    found: dict[str, list[str]] = defaultdict(list)
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def test_every_public_class_name_is_defined_once() -> None:
    classes = public_classes()
    assert len(classes) > 300, "the folders moved: this looks at nothing"
    twice = {name: places for name, places in classes.items() if len(places) > 1}
    assert not twice, "name each after what it holds: " + "; ".join(
        f"{name} ({', '.join(places)})" for name, places in sorted(twice.items())
    )


def test_every_error_of_the_compiler_is_public() -> None:
    tree = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)}
    assert set(deuteron.errors.__all__) == tree
    assert all(getattr(deuteron.errors, name) is getattr(errors, name) for name in tree)
    assert deuteron.LaunchError is errors.LaunchError
