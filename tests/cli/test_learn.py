"""``deuteron learn``: from searches to a bundle that lookups predict from, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import modelled_products
import pytest
from optional import loads

from deuteron.tuner.experience import KnownConfig, SearchLog
from deuteron.tuner.learn import kernel_hash_of, training
from deuteron.tuner.records import read_bundle
from deuteron.tuner.workloads import builtin_workload, workload_from_json

Run = Callable[..., Any]
H200 = "cuda/h200/cc90/sm132/144gib"

needs_lightgbm = pytest.mark.skipif(not loads("lightgbm"), reason="needs the extra learn, and the system's libgomp1")


@pytest.fixture
def searches(tmp_path: Path) -> Path:
    """A file of searches of the built-in matmul on a modelled GPU: 8 shapes in f16, and one in bf16."""
    spec = builtin_workload("matmul")
    table = modelled_products.table(
        12, seed=3, among=modelled_products.shapes([(4096, 4096), (1024, 8192)], (16, 128, 1024, 4096))
    )
    logs = []
    for shape, row in zip(table.shapes, table.times, strict=True):
        known = tuple(KnownConfig({**table.configs[c], "persistent": False}, time) for c, time in row.items())
        logs.append(SearchLog(spec.kernel.name, kernel_hash_of(spec), H200, shape, "f16", known, {"deuteron": "1"}))
    logs.append(SearchLog(spec.kernel.name, kernel_hash_of(spec), H200, table.shapes[0], "bf16", known, {}))
    path = tmp_path / "searches.json"
    path.write_text(json.dumps({"searches": [log.to_json() for log in logs]}))
    return path


@needs_lightgbm
def test_a_bundle_that_shows_what_it_is_worth(
    run: Run, searches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_TREES", 20)
    path = tmp_path / "learned.bundle"
    ran = run("learn", "matmul", "--from", searches, "--out", path, "--verbose")
    assert ran.code == 0, ran.err
    assert f"{path}: 1 predictor and 0 configurations" in ran.out
    assert "prediction" in ran.out and "nearest shape" in ran.out
    assert "1 shapes are too few" in ran.err and "8/8 " in ran.err
    (predictor,) = read_bundle(path).predictors()
    assert (predictor.dtype, predictor.device.key, len(predictor.shapes)) == ("f16", H200, 8)
    assert predictor.dims_from_arguments == {"M": "M", "N": "N", "K": "K"} and predictor.dtype_argument == "a_ptr"
    shown = run("cache", "show", path)
    assert shown.code == 0 and f"{predictor.accuracy.predicted.geomean:.3f}" in shown.out
    asked = run("cache", "lookup", "matmul_kernel", "--bundle", path, "--shape", "M=1,N=1,K=1")
    assert asked.code == 0 and asked.out.startswith("match   default")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["matmul"], ["--from"]),
        (["nothing", "--from", "{searches}"], ["no workload 'nothing'"]),
        (["softmax", "--from", "{searches}"], ["no search of 'softmax_kernel'"]),
        (["matmul", "--from", "{searches}", "--dtype", "f32"], ["no search", "f16 on cuda/h200", "bf16 on"]),
        (["matmul", "--from", "{searches}", "--dtype", "bf16"], ["too few shapes", "at least 5"]),
        (["matmul", "--from", "missing"], ["missing", "cannot be read"]),
    ],
)
def test_refusals(run: Run, searches: Path, arguments: list[str], parts: list[str]) -> None:
    ran = run("learn", *(a.format(searches=searches) for a in arguments))
    assert ran.code == 2 and "Traceback" not in ran.err
    assert all(part in ran.err for part in parts), ran.err


@needs_lightgbm
def test_a_kernel_of_a_file_takes_the_options_of_tune(
    run: Run, searches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_TREES", 20)
    file = tmp_path / "kernels.py"
    file.write_text(
        "import deuteron as triton\nimport deuteron.language as tl\n\n\n@triton.jit\n"
        "def copy(x_ptr, y_ptr, n, m, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y_ptr + i, tl.load(x_ptr + i, i < n), i < n)\n"
    )
    launch = ["--shape", "n=64", "--scalar", "n=n", "--scalar", "m=n", "--grid", "cdiv(n, BLOCK)"]
    launch += ["--tensor", "x_ptr=n", "--tensor", "y_ptr=n:output", "--search", "BLOCK=16,32,64"]
    ran = run("tune", f"{file}:copy", *launch, "--save-workload", tmp_path / "copy.json")
    assert ran.code == 0, ran.err
    spec = workload_from_json(json.loads((tmp_path / "copy.json").read_text()), "copy.json")
    logs = [
        SearchLog(
            "copy",
            kernel_hash_of(spec),
            "cpu/epyc/cores2",
            {"n": 1000 << at},
            "f32",
            tuple(KnownConfig({"BLOCK": block}, 1e4 * (1 + at) * (1 + 8 / block)) for block in (16, 32, 64)),
            {"deuteron": "1"},
        )
        for at in range(6)
    ]
    searches.write_text(json.dumps({"searches": [log.to_json() for log in logs]}))
    refused = run("learn", f"{file}:copy", "--from", searches)
    assert refused.code == 2 and "copy needs a shape" in refused.err and "--shape" in refused.err
    path = tmp_path / "learned.bundle"
    ran = run("learn", f"{file}:copy", *launch, "--from", searches, "--out", path)
    assert ran.code == 0, ran.err
    (predictor,) = read_bundle(path).predictors()
    assert predictor.kernel_hash == kernel_hash_of(spec) and len(predictor.shapes) == 6


def test_searches_of_another_text_are_said(run: Run, searches: Path) -> None:
    data = json.loads(searches.read_text())
    for search in data["searches"]:
        search["kernel_hash"] = "cd" * 32
    searches.write_text(json.dumps(data))
    ran = run("learn", "matmul", "--from", searches)
    assert ran.code == 2 and "of another text" in ran.err


@pytest.mark.parametrize(
    ("text", "part"), [("{}", "searches"), ("[", "JSON"), ('{"searches": [{"kernel_name": 1}]}', "searches[0]")]
)
def test_a_file_that_is_none_is_refused(run: Run, tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    ran = run("learn", "matmul", "--from", path)
    assert ran.code == 2 and part in ran.err and "Traceback" not in ran.err
