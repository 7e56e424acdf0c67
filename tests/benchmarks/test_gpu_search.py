"""What is read of a search, and what it is compared with: every configuration found is among those that are timed."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import gpu_search
import gpu_table
import pytest
import search_found
from contest import Outcome, Result
from search_found import Found, read_journal, tables
from table_work import candidate_of
from timing import Timing

FOUND = Found({"M": 4096, "N": 1024}, {"ROWS": 2, "TILES": 8, "num_warps": 4}, 5.0, 9, "FASTER")


def test_a_journal_says_how_long_each_shape_took(tmp_path: Path) -> None:
    record = {"shape": {"M": 8}, "config": {"ROWS": 1}, "trials": 3, "verdict": "SAME"}
    events = [
        {"kind": "job_started", "at": "2026-01-01T00:00:10"},
        {"kind": "shape_finished", "at": "2026-01-01T00:00:15", "record": record},
        {"kind": "trial"},
        {"kind": "shape_finished", "at": "2026-01-01T00:00:18.5", "record": {**record, "shape": {"M": 9}}},
    ]
    path = tmp_path / "journal.jsonl"
    path.write_text("\n".join(map(json.dumps, events)))
    assert [(f.size, f.seconds) for f in read_journal(path)] == [((8,), 5.0), ((9,), 3.5)]


def test_what_was_found_is_timed_beside_the_whole_space(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(FOUND, config={"ROWS": 1, "TILES": 512, "num_warps": 4}, how="random")  # in no space
    best = candidate_of({"ROWS": 4, "TILES": 1, "num_warps": 4})

    def collect(plan: gpu_table.Plan, rounds: int, deadline: float) -> list[Result]:
        del rounds, deadline
        (problem,) = plan.problems
        timed = plan.candidates[problem]
        assert len(set(timed)) == len(timed) > 60
        times = {candidate_of(FOUND.config): 5.0, candidate_of(other.config): 8.0, best: 4.0}
        assert set(times) <= set(timed)
        assert set(plan.compared[problem]) == {candidate_of(FOUND.config), candidate_of(other.config)}
        outcomes = [Outcome(c, screened=Timing(times.get(c, 9.0) - 1, 0.0, 1)) for c in timed]
        for outcome in outcomes:
            us = times.get(outcome.candidate)
            outcome.run_off = Timing(us, 0.0, 9, (us - 1.5, us + 1.5)) if us else None
        return [Result(problem, [*outcomes, Outcome(best, failure="ran into its limit")])]

    monkeypatch.setattr(gpu_table, "collect", collect)
    rows = tables("softmax", [FOUND, other], 1.0, device="h200")
    assert [(row["us"], row["best_us"], row["how"]) for row in rows] == [(5.0, 4.0, "cold"), (8.0, 4.0, "random")]
    lines = gpu_search.table(rows).splitlines()
    assert lines[1].split() == ["4096x1024", "cold", "5.0", "9", "5.0", "0.800", "-"]  # as good as the best, by chance
    assert lines[2].split() == ["4096x1024", "random", "5.0", "9", "8.0", "0.500", "-", "behind"]


def test_a_product_is_told_as_the_other_program_reads_it() -> None:
    config = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8, "num_stages": 3}
    found = Found({"M": 1, "N": 2, "K": 3}, {**config, "persistent": True}, 1.0, 1, "SAME")
    entry = search_found._entry(found)
    assert entry["BLOCK_SIZE_N"] == 256 and entry["schedule"] == {"persistent": True}
    chosen = {"blocks": [[n, entry[n]] for n in search_found.NAMES], "warps": 8, "stages": 3}
    slow = {"candidate": {**chosen, "extra": []}, "run_off": None, "screened": {}}
    fast = {
        "candidate": {**chosen, "extra": [["persistent", True]]},
        "run_off": asdict(Timing(7.0, 0.0, 1)),
        "screened": {},
    }
    row = search_found._compare_product(found, {"outcomes": [slow, fast], "libraries": {"torch": {"us": 6.0}}})
    assert (row["us"], row["best_us"], row["known"], row["library_us"]) == (7.0, 7.0, 2, 6.0)
