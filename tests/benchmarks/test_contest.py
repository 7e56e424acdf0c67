"""The contest of the GPU benchmarks, with services that need no GPU: what goes wrong costs only who did it."""

from __future__ import annotations

import json
from pathlib import Path

import contest
import pytest
from candidates import Candidate, plain, read_configs
from contest import Contest, Result, failures, table, with_triton
from isolated import Isolated, WorkFailed
from pretended import CRASHES, DIES, HANGS, HANGS_TIMED, NO_COMPILE, WRONG, Compiler, Service, Sum


def run(blocks: list[int], peers: bool = False, out: Path | None = None) -> list[Result]:
    candidates = plain(["B"], [(b, 4, 3) for b in blocks])
    if peers:
        candidates = with_triton(candidates, candidates)
    problems = [Sum("first"), Sum("second")]
    return Contest(problems, candidates, lambda c, p: True, Compiler, Service, out=out).run()


def test_each_mishap_costs_only_its_candidate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(contest, "LAUNCH_SECONDS", 2.0)
    results = run([100, NO_COMPILE, CRASHES, 50, DIES, HANGS, WRONG, HANGS_TIMED, 200], out=tmp_path / "figures.json")
    for result in results:
        why = {o.candidate.block("B"): o.failure for o in result.outcomes if o.failure}
        assert set(why) == {NO_COMPILE, CRASHES, DIES, HANGS, WRONG, HANGS_TIMED}
        assert "no such block" in why[NO_COMPILE] and "died" in why[CRASHES] and "illegal address" in why[DIES]
        assert "deadlock" in why[HANGS] and "wrong result" in why[WRONG]
        assert why[HANGS_TIMED].startswith("while it was timed")
        finals = {o.candidate.block("B"): o.final.us for o in result.outcomes if o.final}
        assert finals == {200: 5.0, 100: 10.0, 50: 20.0}
    text = failures(results)
    assert "2 failed: no answer for 2 s: deadlock" in text and "first: other: RuntimeError: not here" in text
    recorded = json.loads((tmp_path / "figures.json").read_text())
    assert [len(r["outcomes"]) for r in recorded["results"]] == [9, 9]
    assert recorded["environment"]["python"]


def test_those_compared_are_timed_once_more_beside_the_fastest():
    first, second = Sum("first"), Sum("second")
    candidates = plain(["B"], [(b, 4, 3) for b in (100, 200, 400, WRONG)])
    (found,) = plain(["B"], [(50, 4, 3)])
    compared = {first: [found, candidates[-1]]}
    run = Contest([first, second], candidates, lambda c, p: True, Compiler, Service, compared=compared).run()
    timed = [{o.candidate.block("B"): o.run_off.us for o in result.outcomes if o.run_off} for result in run]
    assert timed == [{50: 20.0, 400: 2.5}, {}]
    assert [len(result.outcomes) for result in run] == [5, 4]


def test_the_table_has_ratios_of_the_best_and_of_the_same_configuration():
    first = table(run([100, 200], peers=True)).splitlines()[1].split()
    # 10^9 operations in 5 us; against 10 us of the library, Triton's 10 us, and Triton's at the same configuration.
    assert first[:6] == ["first", "200.0", "100.0", "2.00", "2.00", "2.00"]
    assert first[6:] == ["200", "w4", "s3"]


def test_a_child_that_is_silent_is_replaced():
    service = Isolated(Service)
    service.ask("prepare", Sum("x"), patience=30)
    with pytest.raises(WorkFailed, match="deadlock") as caught:
        service.ask("check", Candidate("deuteron", (("B", HANGS),), 4, 3), patience=1)
    assert caught.value.lost and caught.value.last == "deuteron 4 w4 s3" and not service.alive
    service.ask("prepare", Sum("x"), patience=30)
    assert service.ask("admitted", patience=30) == []
    service.close()


def test_files_of_configurations(tmp_path: Path):
    file = tmp_path / "configs.json"
    file.write_text('[{"B": [64, 128], "num_warps": 4, "num_stages": [2, 3], "schedule": {"maxnreg": [null, 128]}}]')
    found = read_configs(file, ["B"])
    assert len(found) == 8
    assert found[-1] == Candidate("deuteron", (("B", 128),), 4, 3, (("maxnreg", 128),))
    assert found[-1].schedule == {"num_warps": 4, "num_stages": 3, "maxnreg": 128}
    for text in ("{", '[{"B": 64}]', '[{"B": 64, "C": 1, "num_warps": 4, "num_stages": 3}]', "[3]"):
        file.write_text(text)
        with pytest.raises(SystemExit, match=r"configs\.json: "):
            read_configs(file, ["B"])


def test_a_file_of_what_was_found(tmp_path: Path):
    pytest.importorskip("torch")
    import gemm

    file = tmp_path / "compared.json"
    blocks = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8}
    entry = {**blocks, "num_warps": 4, "num_stages": 3, "schedule": {"persistent": True}}
    file.write_text(json.dumps([{**entry, "shape": [1, 2, 3]}, {**entry, "shape": [4, 5, 6]}]))
    product = gemm.Product(1, 2, 3, "bf16", False, "cpu")
    (found,) = gemm.read_compared(file, [product])[product]
    assert found.extra == (("persistent", True),) and found.block("BLOCK_SIZE_M") == 64
