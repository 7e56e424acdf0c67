"""The kernels of kernels.py, as they are and with changes."""

from __future__ import annotations

from pathlib import Path

from deuteron.compiler import KernelSource

KERNELS = (Path(__file__).with_name("kernels.py")).read_text()


def kernel(name: str, *edits: tuple[str, str]) -> KernelSource:
    """A kernel of kernels.py, its text edited."""
    text = KERNELS
    for old, new in edits:
        text = text.replace(old, new)
    return KernelSource.from_text(text, name)
