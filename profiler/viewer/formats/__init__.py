"""Formats of ``proton-viewer --format``: what each is called and knows, and the function that writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .document import json_text
from .exports import Export
from .graph import dot_text
from .page import html_text
from .stacks import folded_text, speedscope_text
from .tables import table_text
from .values import csv_text


@dataclass(frozen=True)
class WrittenFormat:
    """One way to write a profile, beside the tree.

    ``all_metrics``: without -m it shows every metric that holds numbers, the others time. ``differences``: can it show
    the difference of two profiles?
    """

    write: Callable[[Export], str]
    all_metrics: bool = False
    differences: bool = True


FORMATS: Mapping[str, WrittenFormat] = {
    "table": WrittenFormat(table_text),
    "json": WrittenFormat(json_text, all_metrics=True),
    "csv": WrittenFormat(csv_text, all_metrics=True),
    "html": WrittenFormat(html_text, all_metrics=True),
    "speedscope": WrittenFormat(speedscope_text, differences=False),
    "folded": WrittenFormat(folded_text),
    "dot": WrittenFormat(dot_text),
}
