"""The model of a search: from what was measured to the candidate with the greatest expected improvement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .candidates import KEPT, candidates
from .domain import Domain
from .encoding import Levels, Matrix, Vector, keys, stacked
from .facts import FactModel
from .gaussian_process import MaternPrior
from .history import Evaluation, History, logs
from .outlook import Observed, outlook
from .prior import Predictions, scale
from .process import Process
from .targets import standardised
from .trend import Trend, trend
from .validity import Validity

#: Evaluations in the model; beyond it, the fastest half and the latest others. A proposal takes some 30 ms then.
MODELLED = 400
#: Kernels are fitted again when the evaluations have grown by this part.
GROWTH = 0.1
#: How far candidates are drawn at random and not strictly by how probably they work: the deviation of the logarithm is
#: 1.3 times this. A wrong belief must not keep a part of the space out of all pools.
SPREAD = 0.5


@dataclass(frozen=True)
class Prospect:
    """A row, and what the model says of it: ``improvement`` of the logarithm of the time that is expected of it and the
    ``probability`` that it is faster than the best, both if it works, its ``variance``, 1 where nothing is known, and
    how probable it is that it ``works``."""

    row: Levels
    improvement: float
    probability: float
    variance: float
    works: float


@dataclass(frozen=True)
class _Pool:
    """Candidates, where each of them is, and the state of the search in which they were drawn: its fastest evaluation,
    whether there were failures. ``predicted``: logarithms of their times, by the prior or the trend."""

    rows: Levels
    index: dict[bytes, int]
    predicted: Vector
    best: bytes
    doubtful: bool


class Model:
    """Processes for times and for failures, and a pool of candidates. Given ``facts`` of the code, these explain times
    first where the fastest variant is known to fill the device (:mod:`.trend`), and the process what they do not.

    Kernels are fitted anew when the evaluations have grown by a tenth; the pool is renewed then, when there is a new
    best, and at the first failure. Between, a proposal costs a row of the Cholesky factors.
    """

    def __init__(
        self, domain: Domain, predictions: Predictions | None, facts: FactModel | None, rng: np.random.Generator
    ) -> None:
        self._domain, self._grid, self._rng = domain, domain.grid, rng
        self._predictions, self._facts = predictions, facts
        self._trend: Trend | None = None
        self._times = Process(MaternPrior())
        self._validity = Validity(domain.grid)
        self._pool: _Pool | None = None
        self._seen: tuple[int, Observed] | None = None
        self._fit_at = 0
        self._slow: frozenset[bytes] = frozenset()
        self._old: frozenset[bytes] = frozenset()

    def choose(self, history: History) -> Prospect | None:
        """The best candidate, given at least one evaluation that worked; None when no candidate is left."""
        pool = self._current(history)
        fresh = _fresh(pool, history)
        if not fresh.any():
            self._fit_at = 0
            pool = self._current(history)
            fresh = _fresh(pool, history)
        if not fresh.any():
            return None
        observed = self._observed(history)
        found = outlook(self._times, observed, pool.predicted, *self._with_open(observed, history))
        works = np.ones(len(pool.rows))
        if pool.doubtful:
            works = self._validity.probability(_worked(self._labelled(history)))
        at = int(np.argmax(np.where(fresh, found.improvement * works, -1.0)))
        said = (found.improvement, found.probability, found.variance, works)
        return Prospect(pool.rows[at], *(float(of_all[at]) for of_all in said))

    # -- what is known -----------------------------------------------------------------------------------------

    def _observed(self, history: History) -> Observed:
        """What the processes for times see, made once for what was told."""
        if self._seen is None or self._seen[0] != history.version:
            self._seen = history.version, self._made(history)
        return self._seen[1]

    def _made(self, history: History) -> Observed:
        evaluations = self._timed(history)
        rows = self._rows(evaluations)
        times = logs(evaluations)
        if self._predictions is not None:
            predicted = self._predictions.of(rows)
            factor = scale(predicted, times)
            shift = factor * predicted
            targets = standardised(times - shift, compress=False)
        elif self._trend is not None:
            shift, factor = self._trend.of(rows), 1.0
            targets = standardised(standardised(times).logs - shift, compress=False)
        else:
            targets, shift, factor = standardised(times), np.zeros(len(rows)), 0.0
        points = self._grid.features(rows)
        return Observed(keys(rows), points, targets.values, targets.unit, targets.mean, shift, factor)

    def _with_open(self, observed: Observed, history: History) -> tuple[list[bytes], Matrix]:
        """Keys and points of observations and of open proposals."""
        rows = stacked(history.open, len(self._grid.sizes))
        return observed.keys + keys(rows), np.concatenate([observed.points, self._grid.features(rows)])

    def _timed(self, history: History) -> list[Evaluation]:
        return [e for e in history.worked if e.key not in self._slow]

    def _labelled(self, history: History) -> list[Evaluation]:
        return [e for e in history.told if e.key not in self._old]

    def _rows(self, evaluations: Sequence[Evaluation]) -> Levels:
        return stacked((e.row for e in evaluations), len(self._grid.sizes))

    # -- kernels and pool --------------------------------------------------------------------------------------

    def _current(self, history: History) -> _Pool:
        """The pool, renewed if need be, with both processes brought up to date."""
        fastest = sorted(history.worked, key=lambda e: e.time or 0.0)
        doubtful = history.failures > 0
        told = len(history.told)
        if told >= self._fit_at:
            self._fit(history, fastest, doubtful)
            self._fit_at = told + max(1, int(GROWTH * told))
        elif self._pool is not None and (self._pool.best, self._pool.doubtful) == (fastest[0].key, doubtful):
            self._follow(history, doubtful)
            return self._pool
        self._pool = self._renewed(history, fastest, doubtful)
        return self._pool

    def _fit(self, history: History, fastest: list[Evaluation], doubtful: bool) -> None:
        latest = history.worked[MODELLED // 2 - MODELLED :]
        kept = {e.key for e in fastest[: MODELLED // 2]} | {e.key for e in latest}
        self._slow = frozenset(e.key for e in fastest if e.key not in kept)
        self._old = frozenset(e.key for e in history.told[:-MODELLED])
        self._seen = None
        self._trend = None
        if self._facts is not None and self._facts.fills(fastest[0].key):
            self._trend = self._explained(history, self._facts)
        observed = self._observed(history)
        self._times.fit(observed.points, observed.values)
        if doubtful:
            labelled = self._labelled(history)
            self._validity.fit(self._rows(labelled), _worked(labelled))

    def _explained(self, history: History, facts: FactModel) -> Trend:
        """What facts of the code explain of the times, beside a process with the kernel of before."""
        evaluations = self._timed(history)
        rows = self._rows(evaluations)
        points = self._grid.features(rows)
        factor = self._times.kernel(points.shape[1]).inverse_factor(points)
        return trend(facts, rows, standardised(logs(evaluations)), factor)

    def _follow(self, history: History, doubtful: bool) -> None:
        observed = self._observed(history)
        self._times.follow(observed.keys, observed.points)
        if doubtful:
            self._validity.follow(self._rows(self._labelled(history)))

    def _renewed(self, history: History, fastest: list[Evaluation], doubtful: bool) -> _Pool:
        best = [e.row for e in fastest]
        limits = self._validity.limits if doubtful else None
        rows = candidates(self._domain, best, history, self._rng, limits, cold=self._predictions is None)
        if doubtful:
            rows = self._most_probable(rows, history)
        observed = self._observed(history)
        self._times.attach(observed.keys, observed.points, self._grid.features(rows))
        expected = self._predictions or self._trend
        predicted = np.zeros(len(rows)) if expected is None else expected.of(rows)
        index = {key: at for at, key in enumerate(keys(rows))}
        return _Pool(rows, index, predicted, fastest[0].key, doubtful)

    def _most_probable(self, rows: Levels, history: History) -> Levels:
        """Those most likely to work, drawn, to which the validity is attached."""
        labelled = self._labelled(history)
        told = self._rows(labelled)
        worked = _worked(labelled)
        if not self._validity.fitted:
            self._validity.fit(told, worked)
        self._validity.attach(told, rows)
        if len(rows) > KEPT:
            weight = np.log(np.maximum(self._validity.probability(worked), 1e-12)) + SPREAD * self._rng.gumbel(
                size=len(rows)
            )
            probable = np.argsort(-weight, kind="stable")[:KEPT]
            self._validity.select(probable)
            rows = rows[probable]
        return rows


def _fresh(pool: _Pool, history: History) -> NDArray[np.bool_]:
    fresh = np.ones(len(pool.rows), bool)
    fresh[[pool.index[key] for key in history.keys if key in pool.index]] = False
    return fresh


def _worked(evaluations: Sequence[Evaluation]) -> list[bool]:
    return [e.time is not None for e in evaluations]
