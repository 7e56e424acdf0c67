"""From a file to the frames and columns that are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import UsageError
from .derive import derive_metrics
from .frames import Source, filter_frames, read

if TYPE_CHECKING:
    import hatchet as ht


def parse(
    metrics: Sequence[str],
    filename: Source,
    include: str | None = None,
    exclude: str | None = None,
    threshold: float | None = None,
) -> tuple[ht.GraphFrame, list[str]]:
    """Read a profile, filter it and derive metrics; returns the frame and the columns to show.

    Metrics are derived after ``include`` and ``exclude``, so totals are those of what is shown. ``threshold`` is on the
    first metric. Raises the errors of :func:`read`, :func:`filter_frames` and :func:`derive_metrics`.
    """
    if not metrics:
        raise UsageError("no metric was asked for", hint="-m time/ms,util, for example; -l lists them")
    gf, inclusive, exclusive, devices = read(filename)
    gf = filter_frames(gf, include, exclude)
    columns = derive_metrics(gf, metrics, inclusive, exclusive, devices)
    gf = filter_frames(gf, threshold=threshold, metric=columns[0])
    return gf, columns
