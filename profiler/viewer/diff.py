"""The difference of two profiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .frames import Source

if TYPE_CHECKING:
    import hatchet as ht


def apply_diff_profile(
    gf: ht.GraphFrame,
    derived_metrics: Sequence[str],
    diff_file: Source,
    metrics: Sequence[str],
    include: str | None = None,
    exclude: str | None = None,
    threshold: float | None = None,
) -> ht.GraphFrame:
    """``gf`` minus the profile in ``diff_file``, for the same metrics and filters.

    Frames that only one of the two has are marked; one that only ``diff_file`` has shows nan.
    """
    from .show import parse

    other, _ = parse(metrics, diff_file, include, exclude, threshold)
    inclusive = [metric for metric in derived_metrics if metric.endswith("(inc)")]
    exclusive = [metric for metric in derived_metrics if not metric.endswith("(inc)")]
    for frame in (gf, other):
        frame.inc_metrics = list(inclusive)
        frame.exc_metrics = list(exclusive)
    return gf.sub(other)
