"""Learning which configuration is fast where nothing was measured, from the trials of earlier searches.

:func:`learn` makes a :class:`~..records.Predictor`, which bundles carry and lookups ask (:mod:`..prediction`);
:func:`leave_one_out` says what predicting is worth on any table of times. :func:`learnt_tree` is a cover's rule that
also looks between the measured shapes.
"""

from __future__ import annotations

from .dispatch import RuleWorth, fractions_at, learnt_tree, left_out
from .learning import SearchGroup, groups_of_logs, kernel_hash_of, kernel_of_workload, learn
from .training import LEAST_SHAPES, LearnError, RankedKernel, grow, kernel_of_table, load_lightgbm, rank, rows_of_table
from .validation import HeldOut, cross_validate, leave_one_out

__all__ = [
    "LEAST_SHAPES",
    "SearchGroup",
    "RankedKernel",
    "LearnError",
    "HeldOut",
    "RuleWorth",
    "cross_validate",
    "fractions_at",
    "groups_of_logs",
    "grow",
    "kernel_hash_of",
    "kernel_of_table",
    "kernel_of_workload",
    "learn",
    "learnt_tree",
    "leave_one_out",
    "left_out",
    "load_lightgbm",
    "rank",
    "rows_of_table",
]
