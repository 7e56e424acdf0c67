"""Launches of kernels with source lines.

While somebody samples program counters, kernels for GPUs are compiled with a table of lines
(:attr:`..variant.variant.Variant.lined`), and what was loaded of them is kept: samples name a module by its bytes.
"""

from __future__ import annotations

from ...epoch import Switch

_ELF = b"\x7fELF"


#: Whether launches need lines now, read when a kernel needs a new specialisation.
wanted = Switch(False)
#: The cubins with lines that this process has loaded.
images: list[bytes] = []


def note_loaded(image: bytes) -> None:
    """Keep the machine code of a variant with lines, unless it is PTX: what a driver assembles has none."""
    if image.startswith(_ELF):
        images.append(image)
