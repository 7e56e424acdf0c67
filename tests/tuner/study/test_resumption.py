"""Jobs that ended early and go on, from the trials they reported."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace

from deuteron.tuner import setups, study
from deuteron.tuner.events import JobCancelled
from deuteron.tuner.journal import Journal
from deuteron.tuner.space import config_key


@pytest.mark.parametrize("stop", [1, 5, 24, 25, 27, 33, 36])
def test_cancelled_job_resumes_without_measuring_again(fakes: ModuleType, tmp_path: Path, stop: int) -> None:
    whole = fakes.Run(fakes.job(), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    first = fakes.Run(fakes.job(), fakes.FakeEvaluator(fakes.bowl), tmp_path, cancel_after=stop)
    if not first.records:
        assert isinstance(first.events[-1], JobCancelled)
    evaluator = fakes.FakeEvaluator(fakes.bowl)
    second = fakes.Run(fakes.job(), evaluator, tmp_path, finished=first.finished)
    before = {config_key(t.config) for t in first.trials if t.phase == "screen"}
    assert not before & set(evaluator.screened)
    assert len(before) + len(evaluator.screened) == 25
    assert second.records[0].config == whole.records[0].config
    assert second.records[0].trials == 25


def test_a_surrogate_search_goes_on_from_its_journal(fakes: ModuleType, tmp_path: Path) -> None:
    spec = fakes.job(trials=20, strategy="surrogate")
    first = fakes.Run(spec, fakes.FakeEvaluator(fakes.bowl), tmp_path, cancel_after=12)
    with Journal(tmp_path / "kept", spec) as journal:
        for event in first.events:
            journal.append(event)
    with Journal(tmp_path / "kept", spec) as journal:
        assert [trial.reason for _, _, trial in journal.trials] == [trial.reason for trial in first.trials]
        second = fakes.Run(spec, evaluator := fakes.FakeEvaluator(fakes.bowl), tmp_path, finished=journal.trials)
    before = {config_key(trial.config) for trial in first.trials}
    assert len(before) == 12 and not before & set(evaluator.screened)
    assert len(evaluator.screened) == 8
    resumed = [trial.reason for trial in second.trials if trial.phase == "screen"]
    assert all(reason is not None and reason.startswith("expected") for reason in resumed)
    assert second.records[0].config == {"ROWS": 4, "TILES": 2}


def test_finished_job_is_rebuilt_from_its_trials(fakes: ModuleType, tmp_path: Path) -> None:
    first = fakes.Run(fakes.job(), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    again = fakes.Run(fakes.job(), fakes.FakeEvaluator(lambda config: "crashed"), tmp_path, finished=first.finished)
    assert again.trials == []
    assert again.records == first.records


def test_trials_are_taken_over_in_the_order_of_their_numbers(fakes: ModuleType, tmp_path: Path) -> None:
    """Whatever brings them: a final is known by the trials that stand together."""
    first = fakes.Run(fakes.job(), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    for seed in range(5):
        shuffled = random.Random(seed).sample(first.finished, len(first.finished))
        again = fakes.Run(fakes.job(), fakes.FakeEvaluator(lambda config: "crashed"), tmp_path, finished=shuffled)
        assert again.trials == [] and again.records == first.records


def test_half_reported_final_is_run_again(fakes: ModuleType, tmp_path: Path) -> None:
    first = fakes.Run(fakes.job(), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    cut = first.finished[:-1]
    evaluator = fakes.FakeEvaluator(fakes.bowl)
    second = fakes.Run(fakes.job(), evaluator, tmp_path, finished=cut)
    assert evaluator.screened == [] and [fresh for fresh, _ in evaluator.races] == [True, True]
    assert second.records[0].config == first.records[0].config


@pytest.mark.parametrize("part", [9, 37])
def test_trials_of_another_device_or_compiler_are_measured_again(
    fakes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """A job whose worker died may go on at another GPU, a folder of `deuteron tune` with a newer version: what was
    measured before is not what the record there would say."""
    first = fakes.Run(fakes.job(), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    assert len({trial.setup for trial in first.trials}) == 1
    for module in (study, setups):
        monkeypatch.setattr(module, "current_toolchain", lambda device: {"deuteron": "9"})
    evaluator = fakes.FakeEvaluator(lambda config: 2 * fakes.bowl(config))
    second = fakes.Run(fakes.job(), evaluator, tmp_path, finished=first.finished[:part])
    (record,) = second.records
    assert len(evaluator.screened) == 25 and record.time_ns.median == pytest.approx(2000, rel=0.02)
    assert record.id != first.records[0].id, "ids are of one key"
    third = fakes.Run(fakes.job(), evaluator, tmp_path, finished=[*first.finished, *second.finished])
    assert third.trials == [] and third.records == second.records


def test_trials_of_older_versions_are_taken_over(fakes: ModuleType, tmp_path: Path) -> None:
    first = fakes.Run(fakes.job(), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    older = [(shape, dtype, replace(trial, setup=None)) for shape, dtype, trial in first.finished]
    again = fakes.Run(fakes.job(), fakes.FakeEvaluator(lambda config: "crashed"), tmp_path, finished=older)
    assert again.trials == [] and again.records == first.records


@pytest.mark.parametrize("name", ["ratio", "ratio_pairs", "group_index", "group_size"])
def test_a_final_that_lacks_a_figure_is_run_again(fakes: ModuleType, tmp_path: Path, name: str) -> None:
    first = fakes.Run(fakes.job(), fakes.FakeEvaluator(fakes.bowl), tmp_path)
    shape, dtype, last = first.finished[-1]
    damaged = replace(last, metrics={key: value for key, value in last.metrics.items() if key != name})
    evaluator = fakes.FakeEvaluator(fakes.bowl)
    second = fakes.Run(fakes.job(), evaluator, tmp_path, finished=[*first.finished[:-1], (shape, dtype, damaged)])
    assert evaluator.screened == [] and second.records[0].config == first.records[0].config
