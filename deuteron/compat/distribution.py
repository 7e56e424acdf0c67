"""The distribution ``triton`` as ``importlib.metadata`` describes it while its name is an alias."""

from __future__ import annotations

import os
from importlib.metadata import Distribution
from pathlib import Path
from typing import ClassVar

from deuteron.compat.triton.version import __version__


class TritonDistribution(Distribution):
    """Its version is that of the language that is here; it has no files and needs nothing."""

    project: ClassVar[str] = "triton"

    def read_text(self, filename: str) -> str | None:
        """The files of a distribution that say what it is; None for all others."""
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: {self.project}\nVersion: {__version__}\n"
        return f"{self.project}\n" if filename == "top_level.txt" else None

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        """Where a file of it would be."""
        return Path(__file__).with_name(self.project) / path
