"""Configurations for other programs.

A new format is a :class:`TextFormat` or :class:`FolderFormat` in a file of this folder, named in :data:`FORMATS`.
"""

from __future__ import annotations

from .configs import DISPATCH, PYTHON
from .format import ExportFormat, ExportSource, FolderFormat, Selection, TextFormat, read_source
from .helion import HELION
from .kernel_tuner import T4
from .moe import SGLANG, VLLM
from .records import CSV, JSON
from .triton_cache import TRITON_CACHE

#: The formats by name.
FORMATS: dict[str, ExportFormat] = {
    made.name: made for made in (JSON, CSV, PYTHON, DISPATCH, TRITON_CACHE, VLLM, SGLANG, HELION, T4)
}

__all__ = ["FORMATS", "ExportFormat", "ExportSource", "FolderFormat", "Selection", "TextFormat", "read_source"]
