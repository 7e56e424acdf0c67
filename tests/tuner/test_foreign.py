"""Files of other programs as starts of searches: Triton's results, vLLM's and SGLang's files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from deuteron.compiler.runtime.device import DeviceProperties
from deuteron.tuner import JobSpec, builtin_workload
from deuteron.tuner.cover import CoverError, table_of_logs
from deuteron.tuner.experience import SearchLog, SearchPlace, Start, start_from
from deuteron.tuner.experience.foreign import SourceError, adapted
from deuteron.tuner.experience.sources import read_logs
from deuteron.tuner.workloads import Problem, workload_from_json

MATMUL = JobSpec(builtin_workload("matmul"), ({"M": 512, "N": 512, "K": 512},), ("f16", "bf16"), "cuda:0")
FAST = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
SLOW = {**FAST, "BLOCK_N": 64}
ENDLESS = {**FAST, "BLOCK_M": float("inf")}
EXPERTS = {
    "kernel": {
        "name": "experts",
        "source": "import triton\nimport triton.language as tl\n\n@triton.jit\n"
        "def experts(x_ptr, y_ptr, n, BLOCK_SIZE_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)\n"
        "    tl.store(y_ptr + i, tl.load(x_ptr + i, i < n), i < n)\n",
    },
    "dims": ["E", "M", "N", "K"],
    "tensors": [{"name": "x_ptr", "shape": ["M"]}, {"name": "y_ptr", "shape": ["M"], "role": "output"}],
    "scalars": {"n": "M"},
    "dtypes": ["bf16"],
    "grid": ["cdiv(M, BLOCK_SIZE_M)"],
    "space": {
        "parameters": {
            "BLOCK_SIZE_M": [16, 32, 64],
            "BLOCK_N": [32, 64, 128],
            "BLOCK_SIZE_K": [64, 128],
            "num_warps": [4, 8],
        }
    },
}
SHAPES = tuple({"E": 8, "M": m, "N": 7168, "K": k} for m, k in ((64, 4096), (64, 2048), (1, 4096)))
MOE = JobSpec(workload_from_json(EXPERTS, "workload"), SHAPES, ("bf16",), "cuda:0")


def start_of(job: JobSpec, logs: list[SearchLog], shape: Mapping[str, int]) -> Start:
    """Where a search on an H200 begins that knows these logs."""
    name = job.workload.kernel.name
    device = DeviceProperties("NVIDIA H200", "cuda", sm_count=132, shared_bytes_per_block=232448)
    space = Problem(job.workload, shape, job.dtypes[0]).full_space(device)
    found = start_from(
        space, SearchPlace(name, "hash", "cuda/h200/cc90", dict(shape), job.dtypes[0]), logs, lambda at, config: 1.0
    )
    assert found is not None
    return found


# -- Triton


def triton_file(folder: Path, timings: list[tuple[dict[str, int], object]], key: list[object]) -> Path:
    """As Triton writes it."""
    options = {"num_ctas": 1, "maxnreg": None, "pre_hook": None, "ir_override": None}
    configs = [({"kwargs": config, "num_warps": 8, "num_stages": 3, **options}, ms) for config, ms in timings]
    path = folder / "ABC" / "matmul_kernel.autotune.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"key": key, "configs_timings": configs}))
    return path


NEW_KEY, OLD_KEY = ["512", "512", "256", "True", "torch.bfloat16"], [512, 512, 256, True, "torch.bfloat16"]


@pytest.mark.parametrize("key", [NEW_KEY, OLD_KEY])
def test_results_of_triton_are_measurements(tmp_path: Path, key: list[object]) -> None:
    failed = [float("inf")] * 3
    timings = [(SLOW, [0.5, 0.4, 0.6]), (FAST, [0.25, 0.2, 0.3]), ({**FAST, "BLOCK_K": 32}, failed)]
    timings.append(({**SLOW, "BLOCK_K": 32}, [1e308] * 3))  # which in ns no number holds
    path = triton_file(tmp_path, timings, key)
    for source in (path, path.parent, tmp_path):
        (log,) = read_logs(str(source), "matmul_kernel", job=MATMUL)
        assert (log.device, log.dtype, log.shape) == ("cuda", "bf16", {"M": 512, "N": 512, "K": 256})
        assert [known.time_ns for known in log.known] == [250_000, 500_000]
    # A schedule option that Triton does not have is as in the default.
    best = {**FAST, "num_warps": 8, "num_stages": 3, "persistent": False}
    assert adapted(FAST, MATMUL) == best
    start = start_of(MATMUL, [log], MATMUL.shapes[0])
    assert start.prior.first[0] == best and not start.same_device


@pytest.mark.parametrize(
    ("key", "text", "says"),
    [
        ([512, 512], None, "has 2 sizes, matmul has the dims M, N, K"),
        (["9" * 5000, 512, 256], None, "'9999999999999999999999999999999999999999' in its tuning key is no size"),
        (
            OLD_KEY,
            json.dumps({"key": OLD_KEY, "configs_timings": [[{"kwargs": ENDLESS}, 1.0]]}),
            "no configuration has",
        ),
        (OLD_KEY, "{", "not a result of @autotune"),
        (OLD_KEY, '{"key": 3, "configs_timings": []}', "key"),
        (OLD_KEY, json.dumps({"key": OLD_KEY, "configs_timings": []}), "no configuration has all parameters"),
    ],
)
def test_results_that_do_not_fit(tmp_path: Path, key: list[object], text: str | None, says: str) -> None:
    path = triton_file(tmp_path, [(FAST, [1.0, 1.0, 1.0])], key)
    if text is not None:
        path.write_text(text)
    with pytest.raises(SourceError, match=says):
        read_logs(str(path), "matmul_kernel", job=MATMUL)


def test_results_of_other_kernels_are_passed_over(tmp_path: Path) -> None:
    path = triton_file(tmp_path, [(FAST, [1.0, 1.0, 1.0])], OLD_KEY)
    path.rename(path.with_name("other_kernel.autotune.json"))
    assert read_logs(str(tmp_path), "matmul_kernel", job=MATMUL) == []


# -- vLLM and SGLang


CONFIG = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4}


@pytest.mark.parametrize("folder", ["", "configs/triton_3_6_0", "triton_3_6_0"])
def test_files_of_experts_say_what_is_good(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    file = tmp_path / folder / "E=8,N=7168,device_name=NVIDIA_H200.json"
    configs = {"triton_version": "3.6.0", "1": CONFIG, "64": {**CONFIG, "BLOCK_SIZE_M": 64}}
    file.write_text(json.dumps(configs))
    logs = read_logs(str(tmp_path), "experts", job=MOE)
    # One for each M and each size that the file does not name.
    assert {(log.shape["M"], log.shape["K"]) for log in logs} == {(m, k) for m in (1, 64) for k in (2048, 4096)}
    assert {(log.device, log.dtype) for log in logs} == {("cuda/h200", "bf16")}
    start = start_of(MOE, logs, SHAPES[0])
    assert start.prior.first[0] == {"BLOCK_SIZE_M": 64, "BLOCK_N": 64, "BLOCK_SIZE_K": 128, "num_warps": 4}
    assert start.prior.log_times is None  # there are no times to predict from
    with pytest.raises(CoverError, match="no shape was measured"):
        table_of_logs(logs)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("E=8,N=64,device_name=NVIDIA_H200.json", "[]", "expected an object"),
        ("E=0,N=64,device_name=NVIDIA_H200.json", "{}", "its name has a size of 0"),
        ("E=8,N=64,device_name=NVIDIA_H200.json", '{"-1": {}}', "'-1' is no number of tokens"),
        ("E=8,N=64,device_name=NVIDIA_H200.json", '{"1": {"BLOCK_SIZE_M": 16}}', "no configuration has all parameters"),
    ],
)
def test_files_of_experts_that_are_damaged(tmp_path: Path, name: str, content: str, says: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(SourceError, match=says):
        read_logs(str(tmp_path / name), "experts", job=MOE)


def test_foreign_files_need_a_job_that_they_fit(tmp_path: Path) -> None:
    file = tmp_path / "E=8,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"
    file.write_text(json.dumps({"1": CONFIG}))
    with pytest.raises(SourceError, match="matmul has no E"):
        read_logs(str(file), "matmul_kernel", job=MATMUL)
    with pytest.raises(SourceError, match="say too little without a job"):
        read_logs(str(file), "experts")
    assert {log.dtype for log in read_logs(str(file), "experts", job=MOE)} == {"f8e4m3"}


MANY = {**EXPERTS, "dims": ["E", "M", "N", "K", "group_n", "group_k"]}
SCALED = JobSpec(
    workload_from_json(MANY, "workload"),
    ({"E": 8, "M": 64, "N": 7168, "K": 4096, "group_n": 7, "group_k": 9},),
    ("bf16",),
    "cuda:0",
)


@pytest.mark.parametrize(
    ("name", "device", "dtype", "block"),
    [
        (
            "E=8,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 64].json",
            "cuda/h200",
            "f8e4m3",
            (128, 64),
        ),
        ("E=8,N=64,device_name=AMD_Instinct_MI325X,block_shape=[128,128].json", "hip/mi325x", "bf16", (128, 128)),
        ("E=8,N=64,device_name=Radeon_8060S_Graphics,dtype=int4_w4a16.json", "hip/8060s", "bf16", (7, 9)),
        ("E=8,N=64,device_name=NVIDIA_H20,dtype=fp8_w8a8,per_channel_quant=True.json", "cuda/h20", "f8e4m3", (7, 9)),
        ("E=8,N=64,device_name=Intel(R)_Arc(TM)_Pro_B70_Graphics.json", "xpu/arc-pro-b70", "bf16", (7, 9)),
        ("E=8,N=64,device_name=,dtype=int8_w8a8.json", "cuda", "i8", (7, 9)),
    ],
)
def test_names_of_files_of_experts(tmp_path: Path, name: str, device: str, dtype: str, block: tuple[int, int]) -> None:
    (tmp_path / name).write_text(json.dumps({"1": CONFIG}))
    (log,) = read_logs(str(tmp_path / name), "experts", job=SCALED)
    assert (log.device, log.dtype) == (device, dtype)
    assert (log.shape["group_n"], log.shape["group_k"]) == block


def test_a_folder_of_files_says_which_were_passed_over(tmp_path: Path) -> None:
    """As vLLM and SGLang ship them: for other backends, for the second product of the layer, under other names."""
    for name in (
        "E=8,N=64,device_name=NVIDIA_H200.json",
        "E=8,N=64,device_name=NVIDIA_H200_down.json",
        "E=16,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8_down.json",
        "E=8,N=64,device_name=AMD_Instinct_MI355X,dtype=int4_w4a16,backend=flydsl.json",
        "E=8,device_name=NVIDIA_H200.json",
    ):
        (tmp_path / name).write_text(json.dumps({"1": CONFIG}))
    lines: list[str] = []
    logs = read_logs(str(tmp_path), "experts", job=MOE, tell=lines.append)
    assert {log.shape["E"] for log in logs} == {8} and {log.dtype for log in logs} == {"bf16"}
    said = "\n".join(lines)
    assert len(lines) == 3 and "2 of 5 files were passed over, such as " in said
    for reason in (
        "for the second product",
        "for kernels of flydsl, not of Triton",
        "its name says not what it is for",
    ):
        assert reason in said
    with pytest.raises(SourceError, match="for the second product"):
        read_logs(str(tmp_path / "E=8,N=64,device_name=NVIDIA_H200_down.json"), "experts", job=MOE)


def test_a_folder_of_which_nothing_fits_is_refused(tmp_path: Path) -> None:
    for width in (64, 128):
        file = tmp_path / f"E=8,N={width},device_name=NVIDIA_H200.json"
        file.write_text(json.dumps({"1": {"BLOCK_SIZE_M": 16}}))
    with pytest.raises(SourceError, match="no configuration has all parameters"):
        read_logs(str(tmp_path), "experts", job=MOE)
