"""Launches of kernels with source lines.

While somebody samples program counters, kernels for GPUs are compiled with a table of lines
(:attr:`..variant.variant.Variant.lined`), and what was loaded of them is kept: samples name a module by its bytes.
"""

from __future__ import annotations

from ... import knobs

_ELF = b"\x7fELF"


class _Lines:
    """Whether launches need lines now, read when a kernel needs a new specialisation; ``images``: the cubins with lines
    that this process has loaded."""

    __slots__ = ("images", "wanted")

    def __init__(self) -> None:
        self.wanted = False
        self.images: list[bytes] = []


lines = _Lines()


def launch_with_lines(wanted: bool) -> None:
    """Let launches from now on run variants with lines, or, for False, those without."""
    if wanted != lines.wanted:
        lines.wanted = wanted
        knobs.epoch.value += 1  # kernels forget what they have prepared


def note_loaded(image: bytes) -> None:
    """Keep the machine code of a variant with lines, unless it is PTX: what a driver assembles has none."""
    if image.startswith(_ELF):
        lines.images.append(image)
