"""Why a configuration is proposed, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...codec import Scalar
from .model import Prospect

START = "spread-out start"
CENTRE = "centre of the space"
KNOWN_BEFORE = "among the best known before"
PREDICTED = "predicted to be fast"
UNMODELLED = "not tried yet"

#: Differences from the best that are named one by one.
NAMED = 3
#: Variance, 1 where nothing is known, above which a region counts as unexplored.
UNEXPLORED = 0.6
#: Probability of a gain below which its size says nothing: little is left to try.
UNLIKELY = 0.01
#: A probable gain of less than this part is that of a model whose times are all the same, or one alone.
NO_DIFFERENCE = 1e-7


def improvement(
    candidate: Prospect, difference: Sequence[tuple[str, Scalar, Scalar]], remedy: str | None = None
) -> str:
    """Why the model chose ``candidate``: how probable it is that it is faster than the best so far, by how much it then
    is on average, and what it changes. ``difference``: parameters, their values in the best and in the candidate.
    ``remedy``: what it does about what bounds the best."""
    hope = _hope(candidate)
    if remedy is not None:
        hope += f", {remedy}"
    if len(difference) <= NAMED:
        changes = ", ".join(f"{name} {before}->{after}" for name, before, after in difference)
        return f"{hope}: {changes} beside the best"
    if candidate.variance > UNEXPLORED:
        return f"{hope}: unexplored region"
    return f"{hope}: {len(difference)} changes from the best"


def _hope(candidate: Prospect) -> str:
    if candidate.probability < UNLIKELY:
        return f"expected no gain (p={candidate.probability:.2g})"
    gain = -math.expm1(-candidate.improvement / candidate.probability)
    if gain < NO_DIFFERENCE:
        return "no two times differ so far"
    return f"expected {100 * gain:.{0 if gain >= 0.1 else 1}f} % better (p={candidate.probability:.2g})"
