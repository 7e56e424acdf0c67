"""Strategies on recorded searches: how soon each finds what is fast, without a device."""

from __future__ import annotations

from .comparison import CHECKPOINTS, StrategyComparison, StrategyScore, compare
from .files import read_recording
from .journals import read_journal
from .plot import plot_svg
from .recording import RecordedSpace, RecordedTrial, Recording, RecordingError
from .search import PROTOCOLS, Protocol, Run, search
from .warm import warm_surrogate

__all__ = [
    "CHECKPOINTS",
    "PROTOCOLS",
    "StrategyComparison",
    "Protocol",
    "RecordedSpace",
    "RecordedTrial",
    "Recording",
    "RecordingError",
    "Run",
    "StrategyScore",
    "compare",
    "plot_svg",
    "read_journal",
    "read_recording",
    "search",
    "warm_surrogate",
]
