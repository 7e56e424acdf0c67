"""``deuteron cover`` on a journal: tables, modules, weights, measuring what is missing, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from deuteron.compiler.errors import MissingExtra
from deuteron.tuner.events import JobStarted, TrialFinished
from deuteron.tuner.journal import JournalHeader
from deuteron.tuner.learn import training
from deuteron.tuner.measure.statistics import Interval
from deuteron.tuner.trial import Trial

Run = Callable[..., Any]
TIMES = {1000: {256: 10.0, 1024: 20.0}, 100_000: {1024: 30.0, 4096: 30.5}, 1_000_000: {4096: 300.0, 1024: 306.0}}


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal of the built-in vector_add."""
    return write_journal(tmp_path, TIMES)


def write_journal(folder: Path, times: Mapping[int, Mapping[int, float]]) -> Path:
    """Times in us by size and block."""
    lines = [JournalHeader(1, "some job"), JobStarted("vector_add_kernel", "cpu/some", "random", 3, 9, None)]
    for size, row in times.items():
        for block, time in row.items():
            value = Interval(time * 1e3, time * 1e3, time * 1e3, 5)
            trial = Trial(len(lines), {"BLOCK_SIZE": block}, "ok", "screen", value)
            lines.append(TrialFinished({"n": size}, "f32", trial, None))
    path = folder / "journal.jsonl"
    path.write_text("".join(json.dumps(line.to_json()) + "\n" for line in lines))
    return path


def test_a_table_with_the_rule(run: Run, journal: Path) -> None:
    ran = run("cover", "vector_add_kernel", "--from", journal)
    assert ran.code == 0
    assert "2 configurations for 3 shapes (no fewer do)" in ran.out
    assert "n <= 10000" in ran.out
    assert "3 pairs were not measured" in ran.err and "n=1000 " in ran.err


def test_modules_and_json(run: Run, journal: Path, tmp_path: Path) -> None:
    path = tmp_path / "made.py"
    assert run("cover", "vector_add_kernel", "--from", journal, "--format", "python", "-o", path).code == 0
    scope: dict[str, object] = {}
    exec(path.read_text(), scope)  # noqa: S102 -- a module that was just written
    assert scope["config_for"](n=1000) == {"BLOCK_SIZE": 256}  # type: ignore[operator]
    told = json.loads(run("cover", "vector_add_kernel", "--from", journal, "--format", "json", "--tolerance", 0).out)
    assert told["smallest"] and len(told["rule"]["configs"]) == 3 and told["worst_loss"] == 0


def test_one_configuration(run: Run, journal: Path) -> None:
    """1024 is the one that was measured everywhere, at 100 % loss once."""
    told = json.loads(run("cover", "vector_add_kernel", "--from", journal, "--format", "json", "--k", 1).out)
    assert told["rule"]["configs"] == [{"BLOCK_SIZE": 1024}]
    assert told["worst_loss"] == pytest.approx(1.0)


def many(folder: Path) -> Path:
    """Twelve sizes, of which the larger half wants the larger block."""
    return write_journal(folder, {2**n: {256: 10.0 + n, 1024: 16.0} for n in range(1, 13)})


def test_what_a_rule_is_worth_at_shapes_left_out(run: Run, tmp_path: Path) -> None:
    journal = many(tmp_path)
    assert (
        "left out a fifth at a time, 12 shapes got geomean " in run("cover", "vector_add_kernel", "--from", journal).out
    )
    told = json.loads(run("cover", "vector_add_kernel", "--from", journal, "--format", "json").out)["left_out"]
    assert told["shapes"] == 12 and told["unmeasured"] == 0 and 0.5 < told["worst"] <= told["geomean"] <= 1


def test_without_lightgbm_a_rule_sees_measured_shapes_alone(run: Run, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def missing() -> None:
        raise MissingExtra("learning", ["lightgbm"], ["learn"])

    monkeypatch.setattr(training, "load_lightgbm", missing)
    ran = run("cover", "vector_add_kernel", "--from", many(tmp_path))
    assert ran.code == 0 and "2 configurations for 12 shapes" in ran.out
    assert ran.err.count("the rule sees the measured shapes alone: learning needs a package") == 1


def test_missing_pairs_are_measured(run: Run, tmp_path: Path) -> None:
    """On this machine, checked; afterwards every pair of the shapes' best ones is known."""
    journal = write_journal(tmp_path, {1000: {256: 10.0, 1024: 20.0}, 2000: {1024: 30.0}})
    ran = run("cover", "vector_add", "--from", journal, "--measure", "cpu", "--format", "json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["missing"] == []
    assert "configurations at n=2000" in ran.err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["vector_add_kernel"], ["--from"]),
        (["nothing", "--from", "{journal}"], ["no search of 'nothing'"]),
        (["vector_add_kernel", "--from", "{journal}", "--k", "1", "--tolerance", "2"], ["give one"]),
        (["vector_add_kernel", "--from", "{journal}", "--tolerance", "-1"], ["of -1 %", "hint: 0 or more"]),
        (["vector_add_kernel", "--from", "{journal}", "--tolerance", "inf", "--format", "json"], ["of inf %"]),
        (["vector_add_kernel", "--from", "{journal}", "-o", "c"], ["--output has no meaning with --format table"]),
        (["vector_add", "--from", "{journal}", "--measure", "cpu", "--format", "json", "-o", "no/c"], ["no folder"]),
        (["vector_add_kernel", "--from", "{journal}", "--dtype", "f16"], ["no shape was measured", "f32"]),
        (["vector_add_kernel", "--from", "{journal}", "--weight", "n=1000:0"], ["weight above 0"]),
        (["vector_add_kernel", "--from", "{journal}", "--weight", "n=7:2"], ["n=7"]),
        (["vector_add_kernel", "--from", "{journal}", "--measure", "cpu"], ["there is no workload"]),
    ],
)
def test_refusals(run: Run, journal: Path, arguments: list[str], parts: list[str]) -> None:
    ran = run("cover", *(a.format(journal=journal) for a in arguments))
    assert ran.code == 2 and "Traceback" not in ran.err
    assert all(part in ran.err for part in parts), ran.err
