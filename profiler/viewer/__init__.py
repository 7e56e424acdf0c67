"""``proton-viewer`` and its functions (``import deuteron.profiler.viewer as proton_viewer``).

The data are hatchet ``GraphFrame``s, so everything hatchet and pandas can do is open to a caller of :func:`read`.
Importing this package imports neither; the functions do.
"""

from .arguments import main
from .derive import derive_metrics, get_min_time_bytes, get_min_time_flops, match_available_metrics
from .diff import apply_diff_profile
from .frames import filter_frames, format_frames, get_raw_metrics, read, remove_frames
from .parse import parse
from .show import list_metrics, print_tree, render, show_metrics

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
