"""What becomes of configurations that fail, and of shapes of which none works."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace

from deuteron.tuner.errors import JobError, SpaceError
from deuteron.tuner.evaluate.messages import Screened
from deuteron.tuner.events import JobFailed, ShapeFinished, TrialFinished, TuneEvent
from deuteron.tuner.job import JobSpec
from deuteron.tuner.ledger import Ledger
from deuteron.tuner.progress import event_text
from deuteron.tuner.space import Configuration, config_key
from deuteron.tuner.study import run_job
from deuteron.tuner.trial import Status, Trial
from deuteron.tuner.workloads import builtin_workload


def test_failures_are_labels_not_the_end(fakes: ModuleType, tmp_path: Path) -> None:
    def time_of(config: Configuration) -> float | str | None:
        if config["ROWS"] == 2:
            return None
        if config["ROWS"] == 8:
            return "wrong_result" if config["TILES"] == 1 else "crashed"
        return fakes.bowl(config)

    run = fakes.Run(fakes.job(), fakes.FakeEvaluator(time_of), tmp_path)
    statuses = {t.status for t in run.trials}
    assert statuses == {"ok", "compile_error", "wrong_result", "crashed"}
    assert run.records[0].config == {"ROWS": 4, "TILES": 2}
    failed = next(t for t in run.trials if t.status == "compile_error")
    assert failed.error == "line 3: no" and failed.time_ns is None


def test_default_that_does_not_work_is_replaced_as_baseline(fakes: ModuleType, tmp_path: Path) -> None:
    def time_of(config: Configuration) -> float | None:
        return None if config["ROWS"] == 1 else fakes.bowl(config)

    (record,) = fakes.Run(fakes.job(), fakes.FakeEvaluator(time_of), tmp_path).records
    assert record.config == {"ROWS": 4, "TILES": 2}
    assert record.default_config["ROWS"] != 1


def test_a_default_that_is_found_wrong_ends_the_search(fakes: ModuleType, tmp_path: Path) -> None:
    """No trial tells of who showed it: a search that goes on finds it out again."""

    class Doubting(fakes.FakeEvaluator):  # type: ignore[name-defined, misc]
        def screen(
            self, config: Configuration, best_ns: float | None, meanwhile: Callable[[], None] = lambda: None
        ) -> Screened:
            found: Screened = super().screen(config, best_ns)
            return replace(found, doubt="the default does not cover this shape") if config["ROWS"] == 4 else found

    events: list[TuneEvent] = []
    with pytest.raises(JobError, match="the default does not cover this shape") as caught:
        run_job(
            fakes.job(),
            emit=events.append,
            workdir=tmp_path,
            evaluator=lambda *_, **__: Doubting(fakes.bowl),
        )
    assert "--constexpr BLOCK=next_power_of_2(N)" in str(caught.value.hint)
    trials = [event.trial for event in events if isinstance(event, TrialFinished)]
    assert trials and all(trial.config["ROWS"] != 4 for trial in trials)


@pytest.mark.parametrize(
    ("reference", "right", "doubted"),
    [("interpreter", {1}, True), ("interpreter", {1, 2}, False), ("softmax", {1}, False)],
)
def test_a_default_that_contradicts_all_others_is_said_to(
    fakes: ModuleType, tmp_path: Path, reference: str, right: set[int], doubted: bool
) -> None:
    def time_of(config: Configuration) -> float | str:
        return 1000.0 if config["TILES"] == 1 and config["ROWS"] in right else "wrong_result"

    job = fakes.job()
    job = replace(job, workload=replace(job.workload, reference=reference))
    run = fakes.Run(job, fakes.FakeEvaluator(time_of), tmp_path)
    (end,) = [event for event in run.events if isinstance(event, ShapeFinished)]
    assert (end.doubt is not None) == doubted
    assert end.record.checked == run.records[0].checked == (not doubted)
    if doubted:
        assert "the result of 24 others is wrong, or the default does not cover this shape" in str(end.doubt)
        assert f"warning: {end.doubt}" in str(event_text(end))


def test_nothing_works_is_an_error_with_the_commonest_reason(fakes: ModuleType, tmp_path: Path) -> None:
    events: list[TuneEvent] = []
    with pytest.raises(JobError, match="none of 25 .* 25 x crashed, such as: it went wrong"):
        run_job(
            fakes.job(),
            emit=events.append,
            workdir=tmp_path,
            evaluator=lambda *_, **__: fakes.FakeEvaluator(lambda config: "crashed"),
        )
    assert isinstance(events[-1], JobFailed) and "25 x crashed" in events[-1].error


@pytest.mark.parametrize(
    ("reference", "hint"), [("interpreter", "compared with: name choices first"), ("softmax", "the failed trials")]
)
def test_where_the_default_cannot_be_compiled_that_is_why_nothing_works(
    fakes: ModuleType, tmp_path: Path, reference: str, hint: str
) -> None:
    """But for workloads with a reference of their own, which needs no default."""
    job = fakes.job()
    job = replace(job, workload=replace(job.workload, reference=reference))
    with pytest.raises(JobError, match="none of 25 .* works: 25 x compile_error") as caught:
        fakes.Run(job, fakes.FakeEvaluator(lambda config: None), tmp_path)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("statuses", [*itertools.permutations(["crashed", "timeout", "wrong_result"])], ids="-".join)
def test_of_equally_common_failures_the_first_is_named(statuses: tuple[Status, ...]) -> None:
    """Whatever the hashes of their names are in this process."""
    trials = [
        Trial(number, {"ROWS": number}, status, "screen", error=f"{status} of {number}")
        for number, status in enumerate(statuses * 2)
    ]
    assert Ledger(trials).commonest_failure() == f"2 x {statuses[0]}, such as: {statuses[0]} of 0"


def test_crash_in_the_race_drops_the_culprit_only(fakes: ModuleType, tmp_path: Path) -> None:
    best = {"ROWS": 4, "TILES": 2}
    evaluator = fakes.FakeEvaluator(fakes.bowl, crash_in_race=lambda config: dict(config) == best)
    (record,) = fakes.Run(fakes.job(), evaluator, tmp_path).records
    assert record.config != best and fakes.bowl(record.config) == 1100.0
    whole, *others = (configs for _, configs in evaluator.races)
    assert others[len(whole) - 1] == [config for config in whole if config != config_key(best)]


def test_empty_space_of_a_shape_is_reported(fakes: ModuleType, tmp_path: Path) -> None:
    data = builtin_workload("vector_add").to_json()
    data["spaces"] = {"any": {"parameters": {"BLOCK_SIZE": [1024]}, "constraints": ["BLOCK_SIZE <= n"]}}
    spec = JobSpec.from_json({"workload": data, "shapes": [{"n": 8}]})
    with pytest.raises(SpaceError, match="'BLOCK_SIZE <= n' strikes out 1 of 1"):
        fakes.Run(spec, fakes.FakeEvaluator(fakes.bowl), tmp_path)


def test_shape_that_cannot_fit_in_memory_is_refused(fakes: ModuleType, tmp_path: Path) -> None:
    spec = JobSpec(builtin_workload("vector_add"), ({"n": 1 << 39},), ("f32",))
    with pytest.raises(JobError, match=r"n=549755813888 f32 needs 6144.0 GiB on the device"):
        fakes.Run(spec, fakes.FakeEvaluator(fakes.bowl), tmp_path)
