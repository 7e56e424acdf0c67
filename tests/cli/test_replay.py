"""``deuteron replay``: tables, files, and the recordings that it reads."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from deuteron.tuner.codec import decode
from deuteron.tuner.replay import StrategyComparison, StrategyScore
from deuteron.tuner.replay.comparison import Cost, Quartiles

DATA = Path(__file__).parents[1] / "tuner" / "data"
SAMPLE = DATA / "convolution-A4000-sample.json"


def test_a_comparison_with_files(run, tmp_path: Path):
    out, plot = tmp_path / "scores.json", tmp_path / "scores.svg"
    ran = run("replay", SAMPLE, "--budget", "30", "--seeds", "2", "--json", out, "--plot", plot)
    assert ran.code == 0, ran.err
    for text in (
        "convolution-A4000-sample",
        "surrogate",
        "random",
        "25",
        "30",
        "quartiles at 30",
        "ms a proposal",
        "±",
        str(out),
        str(plot),
    ):
        assert text in ran.out
    assert "surrogate: 0." in ran.err or "surrogate: 1." in ran.err
    comparison = decode(out.read_bytes(), StrategyComparison, "scores")
    assert comparison.strategies == ["surrogate", "random"]
    assert comparison.checkpoints == [25, 30]
    assert {score.protocol for score in comparison.scores} == {"constrained"}
    assert ElementTree.fromstring(plot.read_text()).tag.endswith("svg")


def test_several_recordings_are_also_summed_up(run):
    command = ("--strategy", "random", "--budget", "10", "--seeds", "2", "--protocol", "noisy")
    ran = run("replay", SAMPLE, DATA / "convolution-W6600.json.gz", *command)
    assert ran.code == 0, ran.err
    assert "all 2" in ran.out


def test_a_journal_is_a_recording(run):
    ran = run("replay", DATA / "stored" / "journal.jsonl", "--strategy", "exhaustive", "--budget", "3", "--seeds", "1")
    assert ran.code == 0, ran.err
    assert "scale n=4099 f32" in ran.out and "1.000" in ran.out


def test_a_warm_start_is_one_more_strategy(run, tmp_path: Path):
    other = tmp_path / "other.json"
    other.write_text(SAMPLE.read_text())
    ran = run("replay", SAMPLE, "--strategy", "random", "--warm-from", other, "--budget", "10", "--seeds", "1")
    assert ran.code == 0, ran.err
    assert "surrogate (warm)" in ran.out


def test_what_is_no_start_is_told_before_all_searches(run):
    ran = run("replay", SAMPLE, "--warm-from", DATA / "stored" / "journal.jsonl", "--budget", "10", "--seeds", "1")
    assert ran.code == 2 and "has no configurations of the space" in ran.err
    assert "after 10 evaluations" not in ran.err


def test_the_file_has_every_seed(run, tmp_path: Path):
    out = tmp_path / "scores.json"
    command = ("--strategy", "random", "--budget", "25", "--seeds", "3", "--protocol", "charged", "--json", out)
    assert run("replay", SAMPLE, *command).code == 0
    (score,) = json.loads(out.read_text())["scores"]
    assert len(score["fractions"]["25"]) == 3


def test_quartiles_are_those_of_the_seeds():
    score = decode_score({10: (0.5, 0.9, 0.6, 0.8, 0.7)})
    assert score.quartiles_at(10) == (0.6, 0.7, 0.8)
    assert decode_score({10: (0.5,)}).quartiles_at(10) == (0.5, 0.5, 0.5)


def decode_score(fractions: dict[int, tuple[float, ...]]) -> StrategyScore:
    return StrategyScore(
        "space", "random", "charged", 10, fractions, Quartiles((10,), (0.0,), (0.0,), (0.0,)), Cost(0.0, 0.0, 0.0)
    )
