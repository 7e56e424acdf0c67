"""What the recipes of ARCHITECTURE.md have a page name, it names. Settings, commands and schedule options have tests of
their own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from deuteron.cli.exports import FORMATS as EXPORTS
from deuteron.compiler import language
from deuteron.compiler.target import ARCHITECTURES
from deuteron.profiler.viewer.formats import FORMATS as VIEWER_FORMATS
from deuteron.tuner.strategies import STRATEGIES
from deuteron.tuner.workloads import BUILTINS

#: What the columns of the table of GPUs stand for.
RINGS, PRODUCTS = {"cp.async", "tma"}, {"mma.sync", "wgmma"}
DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("config-bundles.md", EXPORTS),
        ("http-api.md", BUILTINS),
        ("language.md", language.__all__),
        ("profiling.md", VIEWER_FORMATS),
        ("search.md", {name.partition(":")[0] for name in STRATEGIES}),
    ],
)
def test_a_page_names_all(page: str, names: Iterable[str]) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    said = {name for code in re.findall(r"`([^`\n]+)`", text) for name in re.findall(r"[\w-]+", code)}
    assert sorted(set(names) - said) == []


def test_the_table_of_gpus_is_that_of_architectures() -> None:
    """Copies by threads are what the copy engine replaces, and every architecture has mma.sync."""
    text = (DOCS / "language.md").read_text(encoding="utf-8")
    table = text[text.index("## GPUs") : text.index("## Aggregates")]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in re.findall(r"^\| `.*$", table, re.MULTILINE)]
    assert [row[0] for row in rows] == [f"`{name}`" for name in ARCHITECTURES]
    for (_, _, rings, products, besides), (name, architecture) in zip(rows, ARCHITECTURES.items(), strict=True):
        said = {rings, products, *filter(None, besides.split(", "))} | ({"cp.async"} if rings == "tma" else set())
        assert said - {"mma.sync"} == architecture.features, name
        assert rings in RINGS and products in PRODUCTS
