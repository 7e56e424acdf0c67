"""The search for one shape and dtype: screen, race, final."""

from __future__ import annotations

from collections.abc import Callable

from .races import Races
from .screening import Screening
from .search_run import SearchRun
from .trial import Trial


def search_shape(search: SearchRun, screening: Screening, before_races: Callable[[], None]) -> list[Trial]:
    """Find the best configuration of one problem; the trials of the final, the default first.

    Every proposal of the screen is timed briefly; those close to the best run against each other in interleaved rounds,
    where losers drop out; the best two run against the default in another process on new inputs, for as many rounds as
    the verdicts need. A complete race or final of an interrupted run is not repeated. ``before_races`` is called when
    nothing more will be proposed.

    Raises:
        Cancelled: the job was asked to stop.
        JobError: no configuration works.
    """
    final = search.ledger.complete("final")
    if final:
        return final
    races = Races(search, screening.default)
    race = search.ledger.complete("race")
    if not race:
        screening.run()
        before_races()
        race = races.race()
    return races.final(race)
