"""The few configurations that serve many shapes, and the rule that picks one for a launch.

:class:`TimeTable` holds what was measured, :func:`cover_within` and :func:`cover_with` choose the configurations,
:func:`dispatch_tree` makes the rule, :func:`measure_missing` fills what was not measured.
"""

from .answer import Cover, Served, cover_with, cover_within
from .dispatch import DispatchRule, dispatch_nearest, dispatch_tree
from .filling import measure_missing
from .set_cover import MOST_NODES
from .table import CoverError, TimeTable, table_of_logs
from .tree import ExpectedLosses

__all__ = [
    "Cover",
    "CoverError",
    "DispatchRule",
    "ExpectedLosses",
    "MOST_NODES",
    "Served",
    "TimeTable",
    "cover_with",
    "cover_within",
    "dispatch_nearest",
    "dispatch_tree",
    "measure_missing",
    "table_of_logs",
]
