"""The tuner on a real GPU."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from deuteron.compiler.runtime.arrays.dtypes import numpy_dtype
from deuteron.compiler.runtime.devices import get_device
from deuteron.tuner import Budget, JobSpec, builtin_workload, resolve_workload, tune_locally
from deuteron.tuner.evaluate.comparison import BLOCK, PROGRAMS, device_comparison
from deuteron.tuner.evaluate.products import Multiplier, multiplier_for
from deuteron.tuner.evaluate.untouched import Untouched
from deuteron.tuner.events import TrialFinished, TuneEvent
from deuteron.tuner.trial import Trial
from deuteron.tuner.workloads.spec import DTYPES
from deuteron.tuner.workloads.tolerance import Expected, tolerance_for

pytestmark = pytest.mark.gpu


def tune(spec: JobSpec, folder: Path, *, checked: bool = True) -> tuple[list[Trial], float]:
    events: list[TuneEvent] = []
    result = tune_locally(spec, emit=events.append, folder=folder)
    (record,) = result.records
    assert record.checked == checked and record.device.kind == "cuda"
    return [e.trial for e in events if isinstance(e, TrialFinished)], record.speedup.median


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("vector_add", {"n": 1 << 22}, "f32"),
        ("softmax", {"M": 1000, "N": 777}, "f16"),
        ("layer_norm", {"M": 512, "N": 1500}, "bf16"),
        ("matmul", {"M": 500, "N": 300, "K": 200}, "bf16"),
    ],
)
def test_builtins_are_correct_and_timed(name: str, shape: dict[str, int], dtype: str, tmp_path: Path) -> None:
    spec = JobSpec(builtin_workload(name), (shape,), (dtype,), "cuda:0", Budget(6), seed=1)
    trials, speedup = tune(spec, tmp_path)
    assert {t.status for t in trials} <= {"ok", "invalid"}, [t.error for t in trials]
    assert trials[0].status == "ok" and speedup >= 1
    final = [t for t in trials if t.phase == "final"]
    assert all(t.time_ns is not None and t.time_ns.median > 500 for t in final)
    assert "sm_mhz" in final[0].metrics
    for trial in final:
        assert trial.measurement is not None and trial.time_ns is not None
        replay_ns = trial.measurement.replay_ns
        if trial.time_ns.median < 15_000:
            assert replay_ns is not None and 200 < replay_ns.median < trial.time_ns.median
        elif trial.time_ns.median > 30_000:
            assert replay_ns is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_gpus_compare_every_dtype(dtype: str) -> None:
    """One wrong element of more than all programs look at together is found, and nothing else comes to the host."""
    device = get_device("cuda:0")
    values = np.resize(np.arange(101) % 2, 2 * BLOCK * PROGRAMS + 5).astype(numpy_dtype(dtype))
    made = device_comparison(device, Expected("y", values, tolerance_for(dtype)), dtype)
    assert made is not None
    assert made.worst(device.array(values)) == 0
    for place in (0, BLOCK * PROGRAMS, values.size - 1):
        got = values.copy()
        got[place] = 1 - got[place].astype(int)
        assert made.worst(device.array(got)) > 1


@pytest.mark.parametrize(("rows", "columns", "depth"), [(2500, 3000, 3300), (4096, 4096, 4096), (1, 8192, 8192)])
def test_gpus_take_products_of_references(rows: int, columns: int, depth: int) -> None:
    """In float64, and as NumPy does."""
    device = get_device("cuda:0")
    multiplier = Multiplier(device, nullcontext, least=0)
    rng = np.random.default_rng(rows)
    a, b = rng.standard_normal((rows, depth)), rng.standard_normal((depth, columns))
    made = multiplier.of(a) @ b
    assert multiplier.taken == 1
    np.testing.assert_allclose(made, a @ b, rtol=1e-9, atol=1e-9)


def test_what_is_expected_of_large_products_is_taken_there(tmp_path: Path) -> None:
    shape = {"M": 4096, "N": 4096, "K": 4096}
    trials, _ = tune(JobSpec(builtin_workload("matmul"), (shape,), ("bf16",), "cuda:0", Budget(2), seed=1), tmp_path)
    fast = multiplier_for(get_device("cuda:0"), nullcontext) is not None
    assert {fast} == {"taken on the GPU" in (trial.reference or "") for trial in trials if trial.status == "ok"}


@pytest.mark.parametrize("dtype", ["u8", "u16", "u32", "u64"])
def test_gpus_see_what_was_changed(dtype: str) -> None:
    """In a part of an array that begins anywhere, too."""
    device, row = get_device("cuda:0"), np.arange(101).astype(numpy_dtype(dtype))
    array = device.empty((2 * BLOCK * PROGRAMS + 5,), dtype).part(row.itemsize, (2 * BLOCK * PROGRAMS + 4,), dtype)
    untouched = Untouched(device, array, row)
    untouched.restore()
    assert untouched._there is not None and untouched._there.worst(array) == 0 and untouched.changed() == 0
    array.part(BLOCK * PROGRAMS * row.itemsize, (1,), dtype).fill(row[-1:] + row[-1:])
    assert untouched._there.worst(array) > 1 and untouched.changed() == 1


KERNEL = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def scale(x_ptr, y_ptr, n, FAR: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x_ptr + offsets, mask=offsets < n) * 2
    tl.store(y_ptr + FAR * 1000000000000 + offsets, y, mask=offsets < n)


workload = {
    "dims": ["n"],
    "tensors": [{"name": "x_ptr", "shape": ["n"]}, {"name": "y_ptr", "shape": ["n"], "role": "output"}],
    "scalars": {"n": "n"},
    "grid": ["cdiv(n, BLOCK)"],
    "space": {"parameters": {"BLOCK": [256, 512], "FAR": [0, 1]}},
}
"""


def test_illegal_access_is_a_label_and_the_search_goes_on(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(KERNEL)
    workload = resolve_workload(f"{tmp_path / 'mine.py'}:scale")
    spec = JobSpec(workload, ({"n": 5000},), ("f32",), "cuda:0", Budget(4), "exhaustive")
    trials, _ = tune(spec, tmp_path / "out")
    status = {(t.config["BLOCK"], t.config["FAR"]): t.status for t in trials if t.phase == "screen"}
    assert status == {(256, 0): "ok", (256, 1): "crashed", (512, 0): "ok", (512, 1): "crashed"}


OUTSIDE = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, MORE: tl.constexpr):
    o = tl.program_id(0) * 256 + tl.arange(0, 256)
    tl.store(y_ptr + o, tl.load(x_ptr + o, mask=o < n) * 2, mask=o < n + MORE)


workload = {
    "dims": ["n"],
    "tensors": [{"name": "x_ptr", "shape": ["n"]}, {"name": "y_ptr", "shape": ["n"], "role": "output"}],
    "scalars": {"n": "n"},
    "grid": ["cdiv(n, 256)"],
    "space": {"parameters": {"MORE": [0, 1]}},
}
"""


def test_what_writes_outside_its_tensors_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text(OUTSIDE)
    workload = resolve_workload(f"{tmp_path / 'outside.py'}:kernel")
    spec = JobSpec(workload, ({"n": 100_000},), ("f32",), "cuda:0", Budget(6))
    trials, _ = tune(spec, tmp_path / "out", checked=False)  # nobody else confirms the default
    said = {t.config["MORE"]: t.error for t in trials if t.phase == "screen"}
    assert said == {0: None, 1: "wrote 4 bytes behind 'y_ptr'"}
