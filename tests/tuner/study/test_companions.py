"""Searches that run side by side: one that begins with nothing goes on from what others measure meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace

from deuteron.tuner.events import ShapeFinished, ShapeStarted, TrialFinished, TuneEvent
from deuteron.tuner.experience import Companions, SearchLog, SearchPlace, Start
from deuteron.tuner.experience.companions import EVERY, LEAST
from deuteron.tuner.experience.sources import read_logs
from deuteron.tuner.local import tune_locally
from deuteron.tuner.space import config_key
from deuteron.tuner.strategies.surrogate import Prior
from deuteron.tuner.study import run_job


@pytest.fixture
def other(fakes: ModuleType, tmp_path: Path) -> SearchLog:
    """What a search of another shape, as alike as can be, came to know."""
    job = replace(fakes.job(trials=25, strategy="surrogate"), shapes=({"M": 8192, "N": 512},))
    result = tune_locally(
        job, emit=lambda _: None, folder=tmp_path, evaluator=lambda *_: fakes.FakeEvaluator(fakes.bowl)
    )
    (log,) = read_logs(str(result.folder), "softmax_kernel")
    return log


def search(fakes: ModuleType, folder: Path, answers: Iterable[list[SearchLog]]) -> tuple[list[TuneEvent], int]:
    """The events of a search that is told the answers, one after the other, and how often it asked."""
    events: list[TuneEvent] = []
    told, asked = iter(answers), []

    def known(place: SearchPlace) -> list[SearchLog]:
        asked.append(place)
        return next(told, [])

    run_job(
        fakes.job(trials=25, strategy="surrogate"),
        emit=events.append,
        workdir=folder,
        evaluator=lambda *_: fakes.FakeEvaluator(fakes.bowl),
        known=known,
    )
    return events, len(asked)


def test_a_search_goes_on_from_what_others_measure_meanwhile(
    fakes: ModuleType, tmp_path: Path, other: SearchLog
) -> None:
    events, asked = search(fakes, tmp_path, [[], [other]])
    (started,) = (event for event in events if isinstance(event, ShapeStarted))
    (finished,) = (event for event in events if isinstance(event, ShapeFinished))
    assert started.known == () and asked == 1 + finished.record.trials // EVERY
    assert finished.start is not None and finished.start.sources[0].startswith("M=8192,N=512 f32")
    assert finished.start.agreement is not None and finished.start.agreement > 0.9
    assert finished.record.config == {"ROWS": 4, "TILES": 2}
    screened = [e.trial for e in events if isinstance(e, TrialFinished) and e.trial.phase == "screen"]
    assert len({config_key(trial.config) for trial in screened}) == len(screened)
    assert screened[0].reason == "the default" and all(trial.reason for trial in screened)
    # What waited then is measured first.
    soon = {config_key(trial.config) for trial in screened[: EVERY + 1 + 4 + 2]}
    assert soon >= {config_key(one.config) for one in other.known[:4]}


def test_a_search_that_nobody_accompanies_is_as_it_was(fakes: ModuleType, tmp_path: Path, other: SearchLog) -> None:
    """Also where others know little, or know it from another device: it asks, and takes its whole budget."""
    few = replace_known(other, LEAST - 1)
    elsewhere = SearchLog(other.kernel_name, other.kernel_hash, "cpu/other", other.shape, other.dtype, other.known)
    for answers in ([[]] * 9, [[], *[[few]] * 8], [[], *[[elsewhere]] * 8]):
        events, asked = search(fakes, tmp_path, answers)
        (finished,) = (event for event in events if isinstance(event, ShapeFinished))
        assert finished.start is None and finished.record.trials == 25
        assert asked == 1 + 25 // EVERY


def test_a_search_that_started_from_its_own_device_asks_nobody_else(
    fakes: ModuleType, tmp_path: Path, other: SearchLog
) -> None:
    _, asked = search(fakes, tmp_path, [[other]] * 9)
    assert asked == 1


def test_news_is_what_is_known_so_much_more() -> None:
    """Again only for half as much more, never twice at once, and without waiting unless told to."""
    wanted: list[int] = []
    answers: list[Future[Start | None]] = []

    def ask(least: int) -> Future[Start | None]:
        wanted.append(least)
        answers.append(Future())
        return answers[-1]

    companions = Companions(ask, None)
    assert companions.news(EVERY - 1, wait=False) is None and not wanted
    assert companions.news(EVERY, wait=False) is None and companions.news(EVERY + 5, wait=False) is None
    assert wanted == [LEAST]
    first = start_of(20)
    answers[0].set_result(first)
    assert companions.news(EVERY + 6, wait=False) is first
    assert companions.news(EVERY + 7, wait=False) is None and wanted == [LEAST]
    assert companions.news(2 * EVERY + 6, wait=False) is None and wanted == [LEAST, 30]
    answers[1].set_result(start_of(29))
    assert companions.news(2 * EVERY + 7, wait=True) is None
    known = start_of(5)
    assert Companions(ask, known).news(1000, wait=True) is None and len(wanted) == 2
    foreign = Companions(ask, start_of(0))
    assert foreign.news(EVERY, wait=False) is None and wanted[2:] == [LEAST]


def start_of(known_here: int) -> Start:
    return Start(Prior(None), (), known_here)


def replace_known(log: SearchLog, count: int) -> SearchLog:
    return SearchLog(log.kernel_name, log.kernel_hash, log.device, log.shape, log.dtype, log.known[:count])
