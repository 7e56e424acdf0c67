"""What a search strategy is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..measure.measurement import Measurement
from ..space import Configuration


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a configuration: ``value`` to minimise (median time in ns), None if it failed; ``label`` is
    the trial's status ("ok", "invalid", "compile_error", "wrong_result", "crashed", "timeout", "failed").
    ``measurement``: what else is known of it; None where nothing is, as in recorded spaces. Strategies do without."""

    value: float | None
    label: str = "ok"
    measurement: Measurement | None = None


class Strategy(Protocol):
    """Proposes configurations of one space and learns from what they gave.

    The contract, which the conformance suite in the tests holds every strategy to:

    - ``ask`` may be called several times before the outcomes of earlier proposals are told (trials are compiled in
      parallel). It gives a valid configuration that was neither proposed nor told before, or None: nothing is left
      to propose. Once None, always None.
    - ``tell`` takes outcomes in any order, and also of configurations that were never asked for: the default
      configuration, and finished trials of an interrupted search. Telling the same configuration again is allowed,
      the last outcome counts. Failures are told too, as labels with no value.
    - A finite space is proposed completely if asked long enough.
    - The same space, seed and sequence of calls give the same proposals.
    - Strategies do not measure, read clocks, or touch global random state, and are used by one thread.
    """

    def ask(self) -> dict[str, int | float | str | bool] | None:
        """The next configuration to try, None when nothing is left."""
        ...

    def tell(self, config: Configuration, outcome: Outcome) -> None:
        """Learn what ``config`` gave: its time in ns, or the label of its failure."""
        ...

    def reason(self, config: Configuration) -> str | None:
        """Why ``config`` was proposed, in a few words for people; None where it was not, or for no special reason."""
        ...

    def settled(self) -> str | None:
        """Why the search may end before its budget does: nothing that matters is expected of what is left. None as
        long as something is, and of strategies that expect nothing. ``ask`` goes on all the same."""
        ...
