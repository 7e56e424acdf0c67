"""Configurations of a bundle for other programs.

A new format is a function in a file of this folder, its name in one of the tables below and in ``ExportFormat``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TextIO

from .configs import write_dispatch, write_python
from .moe import moe_files
from .records import write_csv, write_json

if TYPE_CHECKING:
    from deuteron.tuner import ConfigRecord

#: Formats that are one text.
WRITERS: dict[str, Callable[[Iterable[ConfigRecord], TextIO], None]] = {
    "csv": write_csv,
    "dispatch": write_dispatch,
    "json": write_json,
    "python": write_python,
}
#: Formats that are several files: their texts by name.
FOLDERS: dict[str, Callable[[Iterable[ConfigRecord]], dict[str, str]]] = {"vllm": moe_files}
