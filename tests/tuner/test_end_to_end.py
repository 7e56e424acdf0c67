"""Searches on this machine's CPU with the real compiler, checker and clock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import deuteron
from deuteron.compiler import KernelSource
from deuteron.compiler.runtime.launch.jit import JITFunction
from deuteron.profiler import Profile
from deuteron.tuner import (
    Budget,
    JobSpec,
    RecordIndex,
    WorkloadSpec,
    builtin_workload,
    read_bundle,
    resolve_workload,
    tune_locally,
    tuned,
)
from deuteron.tuner.errors import RecordNotFound, WorkloadError
from deuteron.tuner.events import TrialFinished, TuneEvent
from deuteron.tuner.local import LocalResult
from deuteron.tuner.trial import Trial

KERNEL = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def scale(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr, MODE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x_ptr + offsets, mask=offsets < n) * factor
    if MODE == 1:
        y = y + 0.01
    if MODE == 2:
        y_ptr += 1000000000000
    if MODE == 3:
        while n > 0:
            y = y * 1.0
            tl.store(y_ptr + offsets, y, mask=offsets < n)
    if MODE == 4:
        tl.static_assert(BLOCK == 1, "mode 4 does not compile")
    if MODE == 2:
        tl.store(y_ptr + offsets, y)
    else:
        tl.store(y_ptr + offsets, y, mask=offsets < n)


workload = {
    "dims": ["n"],
    "tensors": [
        {"name": "x_ptr", "shape": ["n"]},
        {"name": "y_ptr", "shape": ["n"], "role": "output"},
    ],
    "scalars": {"n": "n", "factor": "2.5"},
    "grid": ["cdiv(n, BLOCK)"],
    "bytes": "2 * n * element_bytes",
    "space": {"parameters": {"BLOCK": [256, 1024], "MODE": [0, 1, 2, 4]}},
}
"""


def tune(
    workload: WorkloadSpec, shape: Mapping[str, int], folder: Path, trials: int = 40, dtype: str = "f32"
) -> tuple[LocalResult, list[Trial]]:
    events: list[TuneEvent] = []
    spec = JobSpec(workload, (shape,), (dtype,), budget=Budget(trials), strategy="exhaustive")
    result = tune_locally(spec, emit=events.append, folder=folder)
    return result, [e.trial for e in events if isinstance(e, TrialFinished)]


def as_kernel(workload: WorkloadSpec) -> JITFunction:
    kernel = workload.kernel
    return JITFunction(KernelSource.from_text(kernel.source, kernel.name))


@pytest.fixture(scope="module")
def softmax_result(tmp_path_factory: pytest.TempPathFactory) -> tuple[LocalResult, list[Trial]]:
    folder = tmp_path_factory.mktemp("softmax")
    return tune(builtin_workload("softmax"), {"M": 96, "N": 100}, folder, trials=8)


def test_softmax_is_tuned_checked_and_recorded(softmax_result) -> None:  # type: ignore[no-untyped-def]
    result, trials = softmax_result
    assert {t.status for t in trials} == {"ok"}
    assert {t.phase for t in trials} == {"screen", "race", "final"}
    assert all(t.reference == "NumPy float64 softmax" for t in trials)
    assert all(0 < t.metrics["worst_error"] <= 1 for t in trials if "worst_error" in t.metrics)
    for trial in trials:
        found = trial.measurement
        assert found is not None and found.time_ns == trial.time_ns and found.protocol.clock == "host"
        assert found.code is not None and found.code.programs == -(
            -96 // (trial.config["ROWS"] * trial.config["TILES"])
        )
    (record,) = result.records
    assert record.checked and record.trials == 8
    assert record.time_ns.median <= record.default_time_ns.median * 1.001
    assert record.toolchain["target"] == "cpu" and record.device.kind == "cpu"
    assert list(read_bundle(result.bundle).records()) == [record]
    paths = ["/".join(path) for path, _ in Profile.read(result.profile).walk()]
    assert any(path.startswith("softmax_kernel/M=96,N=100 f32/final/") for path in paths)


def test_the_same_command_again_measures_nothing(softmax_result) -> None:  # type: ignore[no-untyped-def]
    result, _ = softmax_result
    again, trials = tune(builtin_workload("softmax"), {"M": 96, "N": 100}, result.folder, 8)
    assert trials == [] and again.records == result.records


def test_tuned_launches_with_the_record(softmax_result) -> None:  # type: ignore[no-untyped-def]
    result, _ = softmax_result
    kernel = tuned(as_kernel(builtin_workload("softmax")), cache=str(result.bundle))
    x = np.random.default_rng(0).standard_normal((96, 100)).astype(np.float32)
    y = np.empty_like(x)

    def grid(meta: Mapping[str, int]) -> tuple[int]:
        return (deuteron.cdiv(96, meta["ROWS"] * meta["TILES"]),)

    kernel[grid](y, x, 100, 100, 96, 100, BLOCK_SIZE=128, ROWS=1, TILES=1)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    assert np.allclose(y, e / e.sum(axis=1, keepdims=True), atol=1e-6)
    answer = kernel.last_answer
    assert answer is not None and answer.match == "exact"
    assert answer.config == result.records[0].config
    assert kernel.answer(y, x, 100, 100, 96, 100) is answer  # kept per shape

    kernel[grid](y[:90], x[:90], 100, 100, 90, 100, BLOCK_SIZE=128)
    assert kernel.last_answer is not None and kernel.last_answer.match == "nearest_shape"
    assert "M=90,N=100 was not tuned" in kernel.last_answer.reason


def test_tuned_without_a_record_uses_what_the_launch_gives(softmax_result) -> None:  # type: ignore[no-untyped-def]
    result, _ = softmax_result
    other = as_kernel(builtin_workload("vector_add"))
    kernel = tuned(other, cache=result.bundle)
    x = np.arange(100, dtype=np.float32)
    y = np.empty_like(x)
    kernel[(1,)](x, x, y, 100, BLOCK_SIZE=128)
    assert np.array_equal(y, 2 * x)
    assert kernel.last_answer is not None and kernel.last_answer.match == "default"
    assert "no record of the kernel" in kernel.last_answer.reason
    strict = tuned(other, RecordIndex(), strict=True)
    with pytest.raises(RecordNotFound):
        strict[(1,)](x, x, y, 100, BLOCK_SIZE=128)


def test_dtype_of_the_arrays_chooses_the_record(softmax_result) -> None:  # type: ignore[no-untyped-def]
    result, _ = softmax_result
    kernel = tuned(as_kernel(builtin_workload("softmax")), cache=result.bundle)
    half = np.zeros((96, 100), np.float16)
    assert kernel.answer(half, half, 100, 100, 96, 100).match == "default"


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("vector_add", {"n": 10_007}, "f16"),
        ("layer_norm", {"M": 17, "N": 300}, "bf16"),
        ("matmul", {"M": 33, "N": 50, "K": 65}, "f32"),
    ],
)
def test_every_builtin_tunes(name: str, shape: dict[str, int], dtype: str, tmp_path: Path) -> None:
    result, trials = tune(builtin_workload(name), shape, tmp_path, trials=3, dtype=dtype)
    assert {t.status for t in trials} == {"ok"}, [t.error for t in trials]
    assert result.records[0].dtype == dtype


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(KERNEL)
    return path


def test_users_kernel_with_wrong_crashing_and_uncompilable_variants(user_file: Path) -> None:
    workload = resolve_workload(f"{user_file}:scale")
    result, trials = tune(workload, {"n": 5000}, user_file.parent / "out")
    status = {(t.config["BLOCK"], t.config["MODE"]): t.status for t in trials if t.phase == "screen"}
    expected = {0: "ok", 1: "wrong_result", 2: "crashed", 4: "compile_error"}
    assert status == {(b, m): expected[m] for b in (256, 1024) for m in expected}
    crashed = next(t for t in trials if t.status == "crashed")
    assert "SIGSEGV" in (crashed.error or "")
    wrong = next(t for t in trials if t.status == "wrong_result")
    assert "output 'y_ptr': 5000 of 5000 elements are wrong" in (wrong.error or "")
    refused = next(t for t in trials if t.status == "compile_error")
    assert "mode 4 does not compile" in (refused.error or "")
    assert result.records[0].config["MODE"] == 0
    reference = next(t for t in trials if t.status == "ok").reference or ""
    assert reference.endswith("itself checked with the interpreter at n=104")


def test_constraint_over_a_dim_holds_at_the_real_shape(user_file: Path) -> None:
    """The interpreter runs a reduced shape, at which no block of the space would satisfy the constraint."""
    text = KERNEL.replace('"MODE": [0, 1, 2, 4]}', '"MODE": [0]}, "constraints": ["BLOCK <= n"]')
    user_file.write_text(text)
    _, trials = tune(resolve_workload(f"{user_file}:scale"), {"n": 5000}, user_file.parent / "out")
    screened = {t.config["BLOCK"]: t for t in trials if t.phase == "screen"}
    assert {block: t.status for block, t in screened.items()} == {256: "ok", 1024: "ok"}
    assert (screened[256].reference or "").endswith("itself checked with the interpreter at n=392")


def test_kernel_that_never_ends_is_a_timeout(user_file: Path) -> None:
    from deuteron.tuner.evaluate.evaluator import LocalEvaluator
    from deuteron.tuner.workloads import Problem

    problem = Problem(resolve_workload(f"{user_file}:scale"), {"n": 300}, "f32")
    default = {"BLOCK": 256, "MODE": 0}
    evaluator = LocalEvaluator(problem, "cpu", "cpu", "cpu", default, 0, timeout=3.0)
    try:
        assert evaluator.screen(default, None).status == "ok"
        stuck = evaluator.screen({"BLOCK": 256, "MODE": 3}, None)
        assert stuck.status == "timeout" and "no result after" in (stuck.error or "")
        assert evaluator.screen(default, None).status == "ok"
    finally:
        evaluator.close()


def test_wrong_default_is_reported_not_trusted(user_file: Path, tmp_path: Path) -> None:
    """A kernel that reads what it did not write: interpreter and device cannot agree."""
    text = KERNEL.replace(
        "if MODE == 1:\n        y = y + 0.01",
        "y = y + tl.load(y_ptr + offsets + 1, mask=offsets < n)",
    )
    user_file.write_text(text.replace('"MODE": [0, 1, 2, 4]', '"MODE": [0]'))
    with pytest.raises(Exception, match="does not give what the interpreter gives|Memory|outside"):
        tune(resolve_workload(f"{user_file}:scale"), {"n": 5000}, tmp_path / "out", trials=2)


def test_workload_that_contradicts_its_kernel_fails_before_anything_runs(user_file: Path, tmp_path: Path) -> None:
    user_file.write_text(KERNEL.replace('"factor": "2.5"', '"facto": "2.5"'))
    with pytest.raises(WorkloadError, match="does not describe the argument 'factor'"):
        tune(resolve_workload(f"{user_file}:scale"), {"n": 64}, tmp_path / "out")


def test_absent_device_is_named(tmp_path: Path) -> None:
    spec = JobSpec(builtin_workload("softmax"), ({"M": 1, "N": 1},), ("f32",), device="cuda:1000")
    with pytest.raises(deuteron.DeuteronError, match="cuda:1000"):
        tune_locally(spec, emit=lambda event: None, folder=tmp_path)
