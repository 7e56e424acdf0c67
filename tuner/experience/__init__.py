"""Starting a search from what earlier ones of the same kernel measured: other shapes, dtypes, devices, older texts."""

from __future__ import annotations

from .companions import Companions
from .course import Course
from .report import StartReport
from .search_log import KnownConfig, KnownSearches, SearchLog, known_configs, logs_of_records, logs_of_trials
from .start import SearchPlace, Start, known_at, start_from
from .waves import Waves

__all__ = [
    "Companions",
    "Course",
    "KnownConfig",
    "KnownSearches",
    "SearchLog",
    "SearchPlace",
    "Start",
    "StartReport",
    "Waves",
    "known_at",
    "known_configs",
    "logs_of_records",
    "logs_of_trials",
    "start_from",
]
