"""What screen, race and final of one search say together of the time that each configuration takes.

A search looks at everything briefly, and measures again, in pairs with the default, what may be fastest. A moment may
be slower than another for all that is measured in it, and who was chosen for a short time was lucky more often than
not. So each configuration counts by the last phase that it reached, and times of an earlier phase are brought to the
scale of the later one, by what those in both took.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..codec import Scalar
from ..ledger import Ledger
from ..measure.statistics import Interval
from ..space import config_key
from ..trial import Trial


@dataclass(frozen=True)
class SettledTime:
    """A configuration and its time in ns; ``interval`` is on the scale of the last phase of its search."""

    config: Mapping[str, Scalar]
    interval: Interval


#: By the key of the configuration.
_Times: TypeAlias = dict[str, SettledTime]


def settled_times(trials: Sequence[Trial]) -> list[SettledTime]:
    """The time of each configuration that was right throughout, of the trials of one search: by the final if it was in
    that, else by the race, else by the screen.

    None that a phase left out is faster than the fastest in it, as for the search itself, nor before that in the order.
    Variants with the same machine code take the same time.
    """
    ledger = Ledger(list(trials))
    originals = {t.number: t for t in ledger.successes() if "duplicate_of" not in t.metrics}
    copies = {
        key: originals[int(trial.metrics["duplicate_of"])]
        for key, trial in ledger.screened.items()
        if trial.status == "ok" and trial.metrics.get("duplicate_of") in originals
    }
    known = _in_pairs(ledger.complete("final"))
    for earlier in (
        _in_pairs(ledger.complete("race")),
        _timed(trial for key, trial in ledger.screened.items() if key not in copies),
    ):
        known |= _left_out(earlier, known)
    for key, original in copies.items():
        time = known.get(config_key(original.config))
        if time is not None and key not in known:
            known[key] = SettledTime(ledger.screened[key].config, time.interval)
    refuted = ledger.refuted()
    return sorted((one for key, one in known.items() if key not in refuted), key=lambda one: one.interval.median)


def _in_pairs(group: Sequence[Trial]) -> _Times:
    """Of a race or final: the default's time, times the ratios to it, in which drift cancels."""
    default = group[0].time_ns if group else None
    if default is None:
        return {}
    times = {}
    for trial in group:
        if trial.time_ns is not None:
            low, ratio, high = (trial.metrics[name] for name in ("ratio_low", "ratio", "ratio_high"))
            paired = Interval(ratio, low, high, trial.time_ns.samples)
            times[config_key(trial.config)] = SettledTime(trial.config, scaled(paired, default.median))
    return _sound(times)


def _timed(trials: Iterable[Trial]) -> _Times:
    return _sound({config_key(t.config): SettledTime(t.config, t.time_ns) for t in trials if t.time_ns is not None})


def _left_out(earlier: _Times, known: _Times) -> _Times:
    """The times of those who are not known from a later phase, on its scale."""
    if not known:
        return earlier
    shared = [known[key].interval.median / one.interval.median for key, one in earlier.items() if key in known]
    scale = statistics.median(shared) if shared else 1.0
    fastest = min(one.interval.median for one in known.values())
    moved = {
        key: SettledTime(one.config, _no_faster(scaled(one.interval, scale), fastest))
        for key, one in sorted(earlier.items(), key=lambda pair: pair[1].interval.median)
        if key not in known
    }
    return _sound(moved)


def scaled(interval: Interval, factor: float) -> Interval:
    """``factor`` times an interval."""
    return Interval(interval.median * factor, interval.low * factor, interval.high * factor, interval.samples)


def _no_faster(interval: Interval, least: float) -> Interval:
    return Interval(max(interval.median, least), interval.low, max(interval.high, least), interval.samples)


def _sound(times: _Times) -> _Times:
    """Without what no clock shows, though a journal from elsewhere may say it."""
    return {key: one for key, one in times.items() if 0 < one.interval.median < math.inf}
