"""The table of times: what it asks to be measured is legal, and what was measured is written, whatever else fails."""

from __future__ import annotations

import json
import time
from pathlib import Path

import gpu_table
import pytest
from candidates import Candidate, plain
from gpu_table import Plan, collect, search_of, workload_plan, write
from pretended import DIES, NO_COMPILE, WRONG, Compiler, Service, Sum
from table_work import config_of, kernel

from deuteron.tuner.experience.sources import read_logs
from deuteron.tuner.inference.devices import device_of
from deuteron.tuner.learn import kernel_hash_of
from deuteron.tuner.workloads import builtin_workload


def test_enough_shapes_and_all_kinds_of_them() -> None:
    products, softmaxes = gpu_table.matmul_shapes(), gpu_table.softmax_shapes()
    assert len({tuple(s.values()) for s in products}) == len(products) >= 60
    assert len({tuple(s.values()) for s in softmaxes}) == len(softmaxes) >= 60
    assert {shape["M"] for shape in products} == set(gpu_table.ROWS) and {1, 2, 4, 8, 8192} <= set(gpu_table.ROWS)


def test_what_is_asked_for_is_legal(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(1, 4096, 4096), (48, 1024, 8192), (8192, 4096, 4096)]
    monkeypatch.setattr(gpu_table, "matmul_shapes", lambda: [dict(zip("MNK", size, strict=True)) for size in sizes])
    plan = workload_plan("matmul", "bf16", "cuda:0", "h200")
    assert plan.kernel_hash == kernel_hash_of(builtin_workload("matmul")) == kernel("matmul").source.hash
    used = set()
    for problem in plan.problems:
        space = problem.problem.full_space(device_of("h200")[0])
        assert len(plan.candidates[problem]) >= 20
        for candidate in plan.candidates[problem]:
            used.add(candidate)
            assert space.contains(plan.config(candidate, problem))
    assert used == set(gpu_table.matmul_candidates()), "each is legal somewhere"


def test_softmax_is_the_same_everywhere_as_far_as_legal(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [{"M": 16384, "N": 1024}, {"M": 16384, "N": 1000}]
    monkeypatch.setattr(gpu_table, "softmax_shapes", lambda: shapes)
    plan = workload_plan("softmax", "f32", "cuda:0", "h200")
    one, other = (plan.candidates[problem] for problem in plan.problems)
    assert one == other and len(one) == gpu_table.MOST
    assert set(config_of(one[0], plan.problems[0].problem)) == {"ROWS", "TILES", "num_warps"}
    assert plan.problems[0].specialised != plan.problems[1].specialised, "a stride that is no multiple of 16"


def table_plan(blocks: list[int], problems: int) -> Plan:
    made = tuple(Sum(f"sum {number}") for number in range(problems))
    candidates = {problem: plain(["B"], [(b, 4, 3) for b in blocks]) for problem in made}

    def config(candidate: Candidate, problem: Sum) -> dict[str, int]:
        return {"B": candidate.block("B")}

    shapes = {problem: {"n": 1 + number} for number, problem in enumerate(made)}
    return Plan("sum", "ab" * 32, "f32", made, candidates, shapes.__getitem__, config, Compiler, Service)


def test_what_was_measured_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = table_plan([100, NO_COMPILE, WRONG, DIES, 50], 2)
    path = tmp_path / "table.json"
    searches = []
    for result in collect(plan, rounds=2, deadline=time.monotonic() + 600):
        search = search_of(plan, result, "cuda/h200", {"deuteron": "1"})
        assert search is not None
        searches.append(search)
        write(path, searches)
    assert "5 variants" in capsys.readouterr().out
    found = read_logs(str(path), "sum")
    assert [(log.shape, log.toolchain) for log in found] == [
        ({"n": 1}, {"deuteron": "1"}),
        ({"n": 2}, {"deuteron": "1"}),
    ]
    for log in found:
        assert [(one.config, one.time_ns) for one in log.known] == [({"B": 100}, 10_000.0), ({"B": 50}, 20_000.0)]
    assert json.loads(path.read_text())["environment"]["python"]


def test_no_shape_is_begun_after_the_deadline(capsys: pytest.CaptureFixture[str]) -> None:
    plan = table_plan([100], 3)
    ticks = iter([0.0, 1.0, 2.0, 3.0, 11.0])
    results = list(collect(plan, rounds=1, deadline=10.0, clock=lambda: next(ticks)))
    assert len(results) == 1
    assert "2 shapes are left out: out of time" in capsys.readouterr().out
