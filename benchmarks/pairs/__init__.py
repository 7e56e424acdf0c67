"""Kernels of the kinds that engineers write, with launches of each: what ``kernel_pairs.py`` times.

A file is a family: kernels, and ``CASES`` that say with what arrays, constants and grids they run. Its text is loaded
once for each compiler (``sources.load_kernels``), so that both get the same kernels and the same launches.
"""

from __future__ import annotations

from pathlib import Path

from sources import load_kernels

from .case import Case

FOLDER = Path(__file__).resolve().parent
FAMILIES = (
    "products",
    "fused_products",
    "made_operands",
    "weights",
    "attention",
    "serving",
    "normalisations",
    "reductions",
    "scans",
    "recurrences",
    "selections",
    "functions",
    "activations",
    "quantisation",
    "movement",
    "images",
)


def cases_of(family: str, package: str) -> list[Case]:
    """The cases of one family, with kernels of ``package``: deuteron or triton."""
    found: list[Case] = load_kernels(family, package, FOLDER).CASES
    return found
