"""The strategy: a spread-out start, then what the model expects most of."""

from __future__ import annotations

import numpy as np

from ...codec import Scalar
from ...space import Configuration, Space
from ..base import Outcome
from . import reasons
from .design import EVALUATIONS, is_complete, next_row, predicted_row
from .domain import domain_of
from .encoding import Levels
from .facts import FactModel
from .history import History
from .model import Model
from .one_thread import one_thread
from .prior import Predictions, Prior
from .remedies import Remedies
from .settling import Settling

#: After configurations that were known to be good, so many others make a start.
START_AFTER_KNOWN = 2


class SurrogateStrategy:
    """Bayesian optimisation over a finite space with a Gaussian process.

    A spread-out start, then always the candidate with the greatest expected improvement under a process on the
    logarithms of the times; once something failed, weighted by the probability that it works. Proposals whose outcome
    is not known yet count as having the mean that is expected of them, so that parallel ones go to different places.
    With a ``prior`` (the log of another device, a model of the hardware) the process explains what the prior, scaled
    to what is measured, does not, and as long as no outcome is known the prior alone says what to try. Where outcomes
    come with measurements and there is no prior, facts of the code explain times first, if the fastest variant fills
    the device (:mod:`.trend`); reasons say what a proposal does about what bounds that variant (:mod:`.remedies`).

    ``expected_gain`` is by how much, relative to the best time so far, the model expected the last proposal to be
    faster, where what fails is no gain; None where no model was asked.
    """

    def __init__(self, space: Space, seed: int, prior: Prior | None = None) -> None:
        self._rng = np.random.default_rng(seed)
        self._domain = domain_of(space, seed)
        self._grid = self._domain.grid
        self._history = History()
        facts = FactModel(self._grid)
        self._remedies = Remedies(facts)
        log_times = None if prior is None else prior.log_times
        self._predictions = None if log_times is None else Predictions(log_times, self._grid)
        self._model = Model(self._domain, self._predictions, facts if prior is None else None, self._rng)
        self._known = [row for row in map(self._grid.levels, prior.first if prior else ()) if row is not None]
        self._start = START_AFTER_KNOWN + len(self._known) if self._known else EVALUATIONS
        self._reasons: dict[bytes, str] = {}
        self._exhausted = False
        self._settling = Settling()
        self.expected_gain: float | None = None

    def ask(self) -> dict[str, Scalar] | None:
        """As :meth:`..base.Strategy.ask`."""
        self.expected_gain = None
        with one_thread():
            chosen = None if self._exhausted else self._choose()
        if chosen is None:
            self._exhausted = True
            return None
        row, reason = chosen
        self._settling.proposed(self.expected_gain)
        self._history.propose(row)
        self._reasons[row.tobytes()] = reason
        return self._grid.configuration(row)

    def tell(self, config: Configuration, outcome: Outcome) -> None:
        """As :meth:`..base.Strategy.tell`."""
        row = self._grid.levels(config)
        if row is not None:  # else it is of another space: nothing to learn here
            self._history.tell(row, outcome.value)
            if outcome.measurement is not None:
                self._remedies.learn(row, outcome.measurement)

    def reason(self, config: Configuration) -> str | None:
        """As :meth:`..base.Strategy.reason`."""
        row = self._grid.levels(config)
        return None if row is None else self._reasons.get(row.tobytes())

    def settled(self) -> str | None:
        """As :meth:`..base.Strategy.settled`: when hardly anything is expected, and nothing came of it for a while."""
        return self._settling.why(self._history)

    def _choose(self) -> tuple[Levels, str] | None:
        """The next row and why; None when nothing is left."""
        while self._known:
            row = self._known.pop(0)
            if row.tobytes() not in self._history and self._domain.valid(row[None])[0]:
                return row, reasons.KNOWN_BEFORE
        if self._predictions is not None and not self._history.worked:
            found = predicted_row(self._domain, self._predictions, self._history, self._rng)
            if found is not None:
                return found, reasons.PREDICTED
        elif not is_complete(self._history, self._start):
            reason = reasons.START if len(self._history) else reasons.CENTRE
            found = next_row(self._domain, self._history, self._rng)
            if found is not None:
                return found, reason
        elif self._history.worked:
            candidate = self._model.choose(self._history)
            if candidate is not None:
                self.expected_gain = candidate.improvement * candidate.works
                best = self._history.best.row
                difference = self._grid.difference(best, candidate.row)
                remedy = self._remedies.of(best, candidate.row)
                return candidate.row, reasons.improvement(candidate, difference, remedy)
        left = self._domain.unseen(self._history, self._rng)
        return None if left is None else (left, reasons.UNMODELLED)
