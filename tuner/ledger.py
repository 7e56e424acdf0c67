"""The trials of one search so far: who was measured, who leads, what a resumed search need not repeat."""

from __future__ import annotations

import math

from deuteron.compiler.options import SCHEDULE_OPTIONS

from .space import config_key
from .trial import Phase, Trial

# What a trial of a race or final says of itself; one that does not, in a journal that was changed, counts as missing.
_IN_PAIRS = {"ratio", "ratio_low", "ratio_high", "ratio_pairs"}


class Ledger:
    """The trials of one problem in the order in which they finished, and what they say together."""

    def __init__(self, trials: list[Trial]) -> None:
        #: Grows with :meth:`add`; the caller's own list.
        self.trials = trials
        #: What was screened, by the key of its configuration.
        self.screened = {config_key(trial.config): trial for trial in trials if trial.phase == "screen"}

    @property
    def spent_s(self) -> float:
        """Seconds that the trials took."""
        return sum(trial.duration_s for trial in self.trials)

    def add(self, trial: Trial) -> None:
        """Take a finished trial in."""
        self.trials.append(trial)
        if trial.phase == "screen":
            self.screened[config_key(trial.config)] = trial

    def successes(self) -> list[Trial]:
        """Screened trials that worked, fastest first."""
        return sorted((t for t in self.screened.values() if t.status == "ok"), key=median_ns)

    def refuted(self) -> set[str]:
        """Keys of the configurations that a final found wrong, and of those with the same machine code."""
        keys = {config_key(t.config) for t in self.trials if t.phase == "final" and t.status == "wrong_result"}
        numbers = {trial.number for key, trial in self.screened.items() if key in keys}
        return keys | {key for key, t in self.screened.items() if t.metrics.get("duplicate_of") in numbers}

    def contradicted(self) -> int:
        """How many configurations gave another result where only one gave the expected one; 0 where several did.
        Configurations that differ in their schedules alone, which change no result, count as one."""
        right = {_without_schedule(trial) for trial in self.screened.values() if trial.status == "ok"}
        wrong = {_without_schedule(trial) for trial in self.screened.values() if trial.status == "wrong_result"}
        return len(wrong - right) if len(right) == 1 else 0

    def incumbent(self) -> Trial | None:
        """The best so far: by ratio within a race or final, by median while screening."""
        for phase in ("final", "race"):
            latest = [t for t in self.trials if t.phase == phase and t.status == "ok"]
            if latest:
                return min(latest, key=lambda t: t.metrics.get("ratio", math.inf))
        return next(iter(self.successes()), None)

    def complete(self, phase: Phase) -> list[Trial]:
        """The trials of the last race or final that worked, if all of them were reported; else none."""
        found = [trial for trial in self.trials if trial.phase == phase and trial.status == "ok"]
        if not found:
            return []
        size = found[-1].metrics.get("group_size", 0)
        if not 1 <= size <= len(found):  # before anything of that size is made
            return []
        group = found[-int(size) :]
        indices = [trial.metrics.get("group_index") for trial in group if trial.metrics.keys() >= _IN_PAIRS]
        return group if indices == list(range(len(group))) else []

    def commonest_failure(self) -> str:
        """What most trials that did not work died of, the first of equally common ones, with an example."""
        failures = [t for t in self.screened.values() if t.status != "ok"]
        labels = [t.status for t in failures]
        label = max(labels, key=labels.count)
        example = next(t for t in failures if t.status == label)
        return f"{labels.count(label)} x {label}, such as: {example.error}"


def _without_schedule(trial: Trial) -> str:
    return config_key({name: value for name, value in trial.config.items() if name not in SCHEDULE_OPTIONS})


def median_ns(trial: Trial) -> float:
    """A trial's time; infinite of one that has none."""
    return trial.time_ns.median if trial.time_ns is not None else float("inf")


def low_ns(trial: Trial) -> float:
    """The low end of the interval of a trial's time; infinite of one that has none."""
    return trial.time_ns.low if trial.time_ns is not None else float("inf")
