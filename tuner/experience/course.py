"""A search that started from others, as it goes: when it is over, and what the start was worth."""

from __future__ import annotations

import math

from ..space import Configuration, config_key
from .patience import Patience
from .report import StartReport
from .start import Start


class Course:
    """Follows the configurations of one search in the order in which they were screened."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._patience = Patience()
        self._first = {config_key(config) for config in start.prior.first}
        self._tried = 0
        self._screened = 0
        self._best_known = self._best = math.inf

    def tell(self, config: Configuration, time_ns: float | None) -> None:
        """``config`` took ``time_ns``; None: it failed."""
        self._screened += 1
        known = config_key(config) in self._first
        self._tried += known
        if time_ns is not None:
            self._best = min(self._best, time_ns)
            self._best_known = min(self._best_known, time_ns) if known else self._best_known
        log_times = self._start.prior.log_times
        if log_times is not None:
            self._patience.tell(float(log_times([config])[0]), time_ns)

    @property
    def over(self) -> bool:
        """Whether nothing better is expected. Only searches of the same device and kernel text are believed so far."""
        return self._start.same_device and self._patience.over

    def report(self, budget: int | None) -> StartReport:
        """What the start was worth, at the end; ``budget``: the most configurations that might have been screened."""
        return StartReport(
            sources=self._start.names,
            tried=self._tried,
            screened=self._screened,
            budget=budget,
            share=self._best / self._best_known if math.isfinite(self._best_known) else None,
            agreement=self._patience.agreement,
            ended_early=self.over and (budget is None or self._screened < budget),
        )
