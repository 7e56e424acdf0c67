"""The CPU target against NumPy on this machine: vector add, softmax, matmul, and how long their compilation takes.

``python benchmarks/cpu.py [--out file.json] [--rounds 15]``. Ratios are NumPy's time over ours in interleaved rounds,
so above 1 is faster than NumPy; each line shows the median and the quartiles over rounds. NumPy uses its own threads
(OpenBLAS for the product, one thread elsewhere); ours uses one thread per core.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import deuteron
import deuteron.language as tl
from deuteron.compiler.options import Schedule
from deuteron.compiler.runtime.devices import get_device
from deuteron.compiler.targets import cpu


@deuteron.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@deuteron.jit
def softmax_kernel(out_ptr, x_ptr, row_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n_cols
    x = tl.load(x_ptr + row * row_stride + columns, mask=mask, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    denominator = tl.sum(numerator, axis=0)
    tl.store(out_ptr + row * row_stride + columns, numerator / denominator, mask=mask)


@deuteron.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    num_m, num_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    in_group = GROUP * num_n
    first_m = (pid // in_group) * GROUP
    size_m = min(num_m - first_m, GROUP)
    pid_m = first_m + (pid % in_group) % size_m
    pid_n = (pid % in_group) // size_m
    offs_m = (pid_m * BM + tl.arange(0, BM)) % M
    offs_n = (pid_n * BN + tl.arange(0, BN)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + (offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK * stride_ak
        b_ptrs += BK * stride_bk
    rows, columns = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
    c_ptrs = c_ptr + stride_cm * rows[:, None] + stride_cn * columns[None, :]
    tl.store(c_ptrs, acc, mask=(rows[:, None] < M) & (columns[None, :] < N))


@dataclass(frozen=True)
class Result:
    """Times in milliseconds (medians); ``ratio`` is NumPy's time over ours, with its quartiles over rounds."""

    name: str
    ours_ms: float
    numpy_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    goal: float


def compare(name: str, ours: Callable[[], object], numpys: Callable[[], object], goal: float, rounds: int) -> Result:
    """Time both alternately, after one round of warming up."""
    times: tuple[list[float], list[float]] = ([], [])
    for round in range(rounds + 1):
        for function, kept in zip((ours, numpys), times, strict=True):
            start = time.perf_counter_ns()
            function()
            if round:
                kept.append((time.perf_counter_ns() - start) / 1e6)
    ratios = [n / o for o, n in zip(*times, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    own, other = (statistics.median(t) for t in times)
    return Result(name, own, other, middle, low, high, goal)


def vector_add(rounds: int) -> Result:
    n = 1 << 24
    x, y = (np.random.default_rng(i).standard_normal(n, dtype=np.float32) for i in range(2))
    out, reference = np.empty_like(x), np.empty_like(x)

    def ours() -> None:
        add_kernel[(deuteron.cdiv(n, 8192),)](x, y, out, n, BLOCK=8192)

    result = compare("vector add 2^24 f32", ours, lambda: np.add(x, y, out=reference), 0.8, rounds)
    assert np.array_equal(out, reference)
    return result


def softmax(rounds: int) -> Result:
    x = np.random.default_rng(0).standard_normal((4096, 1024), dtype=np.float32)
    out = np.empty_like(x)

    def ours() -> None:
        softmax_kernel[(4096,)](out, x, 1024, 1024, BLOCK=1024)

    def numpys() -> np.ndarray:
        numerator = np.exp(x - x.max(axis=1, keepdims=True))
        return numerator / numerator.sum(axis=1, keepdims=True)

    result = compare("softmax 4096x1024 f32", ours, numpys, 2.0, rounds)
    assert np.abs(out - numpys()).max() < 1e-6
    return result


def matmul(rounds: int, blocks: tuple[int, int, int]) -> Result:
    n = 1024
    a, b = (np.random.default_rng(i).standard_normal((n, n), dtype=np.float32) for i in range(2))
    c, reference = np.empty_like(a), np.empty_like(a)
    bm, bn, bk = blocks

    def ours() -> None:
        grid = (deuteron.cdiv(n, bm) * deuteron.cdiv(n, bn),)
        matmul_kernel[grid](
            a, b, c, n, n, n, n, 1, n, 1, n, 1, BM=bm, BN=bn, BK=bk, GROUP=8
        )  # fmt: skip

    name = f"matmul 1024^3 f32, blocks {bm}x{bn}x{bk}"
    result = compare(name, ours, lambda: np.matmul(a, b, out=reference), 0.4, rounds)
    assert np.abs(c - reference).max() < 1e-3
    return result


@dataclass(frozen=True)
class CompileTime:
    """Milliseconds of processor time from tile IR to machine code (median)."""

    name: str
    lowering_ms: float
    llvm_ms: float
    goal_ms: float = 150.0


def compile_times(rounds: int) -> list[CompileTime]:
    """The three kernels, compiled again and again without any cache."""
    signatures = {
        "vector add": (add_kernel, "*fp32:16 *fp32:16 *fp32:16 i32:16", {"BLOCK": 8192}),
        "softmax": (softmax_kernel, "*fp32:16 *fp32:16 i32:16 i32:16", {"BLOCK": 1024}),
        "matmul": (
            matmul_kernel,
            "*fp32:16 *fp32:16 *fp32:16 i32:16 i32:16 i32:16 i32:16 i32:1 i32:16 i32:1 i32:16 i32:1",
            {"BM": 64, "BN": 64, "BK": 64, "GROUP": 8},
        ),
    }
    return [_compile_time(name, *spec, rounds) for name, spec in signatures.items()]


def _compile_time(
    name: str, kernel: deuteron.JITFunction, types: str, constexprs: dict[str, int], rounds: int
) -> CompileTime:
    from deuteron.compiler.frontend import lower
    from deuteron.compiler.tile.passes import optimize

    names = [a.name for a in kernel.source.arguments if not a.constexpr]
    signature = dict(zip(names, types.split(), strict=True))
    function = optimize(lower(kernel.source, signature, constexprs))
    lowering, generating = [], []
    for _ in range(rounds):
        start = time.process_time_ns()
        program = cpu.lower_to_llvm(function, Schedule())
        middle = time.process_time_ns()
        cpu.emit_object(program)
        lowering.append((middle - start) / 1e6)
        generating.append((time.process_time_ns() - middle) / 1e6)
    return CompileTime(f"compile {name}", statistics.median(lowering), statistics.median(generating))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    results = [vector_add(options.rounds), softmax(options.rounds)]
    results += [matmul(options.rounds, blocks) for blocks in ((64, 64, 64), (128, 128, 64))]
    for r in results:
        print(
            f"{r.name:36} ours {r.ours_ms:7.2f} ms  numpy {r.numpy_ms:7.2f} ms"
            f"  ratio {r.ratio:5.2f} [{r.ratio_low:.2f}, {r.ratio_high:.2f}]  goal {r.goal}"
        )
    compiles = compile_times(min(options.rounds, 9))
    for t in compiles:
        print(f"{t.name:36} lowering {t.lowering_ms:6.1f} ms  llvm {t.llvm_ms:6.1f} ms  goal {t.goal_ms}")
    if options.out:
        cores = get_device("cpu").properties.sm_count
        report = {
            "cores": cores,
            "numpy": np.__version__,
            "speed": [asdict(r) for r in results],
            "compile": [asdict(t) for t in compiles],
        }
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
