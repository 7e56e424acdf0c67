"""The tuner's own search: a Gaussian process learns from every time and failure where the fast configurations are."""

from __future__ import annotations

from .prior import LogTimes, Prior, mixed, remembered
from .strategy import SurrogateStrategy
from .warm_start import prior_from_log

__all__ = ["LogTimes", "Prior", "SurrogateStrategy", "mixed", "prior_from_log", "remembered"]
