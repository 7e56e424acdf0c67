"""What the recipes of ARCHITECTURE.md have a page name, it names. Settings, commands, schedule options and routes have
tests of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from deuteron.cli.exports import FORMATS as EXPORTS
from deuteron.profiler.viewer.formats import FORMATS as VIEWER_FORMATS
from deuteron.tuner.strategies import STRATEGIES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("config-bundles.md", EXPORTS),
        ("profiling.md", VIEWER_FORMATS),
        ("search.md", {name.partition(":")[0] for name in STRATEGIES}),
    ],
)
def test_a_page_names_all(page: str, names: Iterable[str]) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    said = {name for code in re.findall(r"`([^`\n]+)`", text) for name in re.findall(r"[\w-]+", code)}
    assert sorted(set(names) - said) == []
