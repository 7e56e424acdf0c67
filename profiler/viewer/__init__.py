"""``proton-viewer`` and its functions (``import deuteron.profiler.viewer as proton_viewer``).

The command and :func:`render` need no other package. The functions that Proton's viewer has work on hatchet
``GraphFrame``s, so everything hatchet and pandas can do is open to a caller of :func:`read`. Importing this package
imports neither; those functions do.
"""

from .arguments import main
from .derive import match_available_metrics
from .graphframe import (
    apply_diff_profile,
    derive_metrics,
    filter_frames,
    format_frames,
    get_min_time_bytes,
    get_min_time_flops,
    get_raw_metrics,
    parse,
    print_tree,
    read,
    remove_frames,
)
from .show import list_metrics, render, show_metrics

__all__ = [
    "apply_diff_profile",
    "derive_metrics",
    "filter_frames",
    "format_frames",
    "get_min_time_bytes",
    "get_min_time_flops",
    "get_raw_metrics",
    "list_metrics",
    "main",
    "match_available_metrics",
    "parse",
    "print_tree",
    "read",
    "remove_frames",
    "render",
    "show_metrics",
]
