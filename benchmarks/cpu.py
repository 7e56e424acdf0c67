"""The CPU target against NumPy and torch on this machine: rows, products, attention, and what compiling them takes.

``python benchmarks/cpu.py [--out file.json] [--rounds 9]``. A ratio is the time of the fastest peer over ours in one
round, so above 1 is faster than all of them; each line shows the median and the worst round. Peers use their own
threads, one for each core, as ours do. torch is a peer where it can be imported; NumPy is one for f32 (it has no other
fast products). All run in turns in one process: before its turn each one waits until the threads of the one before have
gone to sleep and runs untimed for 20 ms.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

import deuteron
import deuteron.language as tl
from deuteron.compiler.options import Schedule
from deuteron.compiler.runtime.devices import get_device
from deuteron.compiler.targets import cpu

HAS_TORCH = importlib.util.find_spec("torch") is not None

#: Seconds over which threads are watched, and after which one that still spins is taken as it is.
WATCHED, MOST_REST = 0.02, 2.0

#: Seconds of untimed calls after that: cores that had nothing to do take milliseconds to get to their full clock.
WARMED = 0.02

#: Calls of one contestant in a round; the median counts.
BURST = 3

CACHE_LINE = 64  # bytes

Array = np.ndarray
Call = Callable[[], object]


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
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


@deuteron.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """softmax(q k^T * scale / log2(e)) v for [heads, N, D], the softmax computed block by block of BN keys."""
    base = tl.program_id(1) * N * D
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n, offs_d = tl.arange(0, BN), tl.arange(0, D)
    rows = base + offs_m[:, None] * D + offs_d[None, :]
    q = tl.load(q_ptr + rows)
    highest = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for start in range(0, N, BN):
        here = base + (start + offs_n)[:, None] * D + offs_d[None, :]
        scores = tl.dot(q, tl.trans(tl.load(k_ptr + here))) * scale
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + here)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        highest = higher
    tl.store(o_ptr + rows, (acc / total[:, None]).to(o_ptr.dtype.element_ty))


@deuteron.jit
def layer_norm_kernel(x_ptr, y_ptr, w_ptr, b_ptr, n_cols, eps, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    mask = columns < n_cols
    here = tl.program_id(0) * n_cols + columns
    x = tl.load(x_ptr + here, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n_cols
    centred = tl.where(mask, x - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / n_cols + eps)
    y = centred * scale * tl.load(w_ptr + columns, mask=mask) + tl.load(b_ptr + columns, mask=mask)
    tl.store(y_ptr + here, y.to(y_ptr.dtype.element_ty), mask=mask)


@dataclass(frozen=True)
class Result:
    """Times in milliseconds (medians over rounds); ``ratio`` is the fastest peer's time over ours, and its worst."""

    name: str
    ours_ms: float
    peers_ms: dict[str, float]
    ratio: float
    ratio_worst: float
    goal: float


def compare(name: str, ours: Call, peers: Mapping[str, Call], goal: float, rounds: int) -> Result:
    """Time ours and its peers in turns."""
    calls = {"ours": ours, **peers}
    times: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(rounds):
        for who, call in calls.items():
            times[who].append(one_turn(call))
    own = times.pop("ours")
    ratios = [min(others) / mine for mine, *others in zip(own, *times.values(), strict=True)]
    medians = {who: statistics.median(t) for who, t in times.items()}
    return Result(name, statistics.median(own), medians, statistics.median(ratios), min(ratios), goal)


def one_turn(call: Call) -> float:
    """Milliseconds of one call."""
    rest()
    warm = time.perf_counter() + WARMED
    while time.perf_counter() < warm:
        call()
    spent = []
    for _ in range(BURST):
        start = time.perf_counter_ns()
        call()
        spent.append((time.perf_counter_ns() - start) / 1e6)
    return statistics.median(spent)


def rest() -> None:
    """Wait until no thread of this process runs: OpenBLAS's go on spinning for some 0.1 s after a product, OpenMP's for
    some milliseconds, and either takes a core from whoever comes next."""
    until = time.perf_counter() + MOST_REST
    while time.perf_counter() < until:
        before = time.process_time()
        time.sleep(WATCHED)
        if time.process_time() - before < 0.05 * WATCHED:
            return


def torch_tensor(array: Array) -> object:
    """A torch tensor with the numbers of ``array`` in the same dtype."""
    import torch  # optional: only where it is a peer

    return torch.from_numpy(array.astype(np.float32)).to(getattr(torch, array.dtype.name))


def normal(shape: tuple[int, ...], dtype: object, count: int) -> list[Array]:
    """Normally distributed numbers, each time the same."""
    return [aligned(np.random.default_rng(i).standard_normal(shape).astype(dtype)) for i in range(count)]


def aligned(array: Array) -> Array:
    """A copy that begins at a cache line, as torch's tensors do; NumPy promises 16 bytes only."""
    memory = np.empty(array.nbytes + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def check(found: Array, exact: Array, tolerance: float) -> None:
    """``tolerance`` is absolute; exact is f64."""
    worst = np.abs(found.astype(np.float64) - exact).max()
    assert worst < tolerance, f"off by {worst}"


def vector_add(rounds: int) -> Result:
    n = 1 << 24
    x, y = normal((n,), np.float32, 2)
    out, reference = aligned(x), aligned(x)

    def ours() -> None:
        add_kernel[(deuteron.cdiv(n, 8192),)](x, y, out, n, BLOCK=8192)

    # NumPy alone, as in the figures of earlier versions.
    result = compare("vector add 2^24 f32", ours, {"numpy": lambda: np.add(x, y, out=reference)}, 0.8, rounds)
    assert np.array_equal(out, reference)
    return result


def softmax(rounds: int) -> Result:
    (x,) = normal((4096, 1024), np.float32, 1)
    out = aligned(x)

    def ours() -> None:
        softmax_kernel[(4096,)](out, x, 1024, 1024, BLOCK=1024)

    def numpys() -> Array:
        numerator = np.exp(x - x.max(axis=1, keepdims=True))
        return numerator / numerator.sum(axis=1, keepdims=True)

    result = compare("softmax 4096x1024 f32", ours, {"numpy": numpys}, 2.0, rounds)
    check(out, numpys(), 1e-6)
    return result


def matmul(rounds: int, dtype: type, blocks: tuple[int, int, int]) -> Result:
    n = 1024
    a, b = normal((n, n), dtype, 2)
    c = aligned(a)
    bm, bn, bk = blocks

    def ours() -> None:
        grid = (deuteron.cdiv(n, bm) * deuteron.cdiv(n, bn),)
        matmul_kernel[grid](
            a, b, c, n, n, n, n, 1, n, 1, n, 1, BM=bm, BN=bn, BK=bk, GROUP=8
        )  # fmt: skip

    peers: dict[str, Call] = {}
    if dtype is np.float32:
        reference = aligned(a)
        peers["numpy"] = lambda: np.matmul(a, b, out=reference)
    if HAS_TORCH and dtype is not np.float16:  # torch has no fast f16 products on CPUs without AMX: 2 s
        import torch

        left, right = torch_tensor(a), torch_tensor(b)
        made = torch.empty_like(left)
        peers["torch"] = lambda: torch.matmul(left, right, out=made)
    if not peers:  # NumPy has no fast products of 16 bits: its f32 product stands in
        wide = [x.astype(np.float32) for x in (a, b)]
        peers["numpy f32"] = lambda: np.matmul(*wide)
    name = f"matmul 1024^3 {a.dtype.name}, blocks {bm}x{bn}x{bk}"
    result = compare(name, ours, peers, 0.9, rounds)
    check(c, a.astype(np.float64) @ b.astype(np.float64), 1e-3 if dtype is np.float32 else 0.6)
    return result


def attention(rounds: int, dtype: type, heads: int = 8, n: int = 1024, d: int = 64) -> Result:
    q, k, v = normal((heads, n, d), dtype, 3)
    out = aligned(q)
    bm, bn = 128, 128

    def ours() -> None:
        attention_kernel[(n // bm, heads)](q, k, v, out, np.log2(np.e) / np.sqrt(d), n, D=d, BM=bm, BN=bn)

    def numpys() -> Array:
        scores = np.exp(q.astype(np.float32) @ k.astype(np.float32).transpose(0, 2, 1) / np.float32(np.sqrt(d)))
        return scores / scores.sum(axis=2, keepdims=True) @ v.astype(np.float32)

    peers: dict[str, Call] = {"numpy": numpys}
    if HAS_TORCH:
        from torch.nn.functional import scaled_dot_product_attention

        tensors = [torch_tensor(x[None]) for x in (q, k, v)]
        peers = {"torch": lambda: scaled_dot_product_attention(*tensors)}
    result = compare(f"attention {heads}x{n}x{d} {q.dtype.name}", ours, peers, 1.0, rounds)
    check(out, numpys().astype(np.float64), 1e-5 if dtype is np.float32 else 5e-3)
    return result


def layer_norm(rounds: int, dtype: type, rows: int = 4096, columns: int = 1024) -> Result:
    (x,), (w, b) = normal((rows, columns), dtype, 1), normal((columns,), dtype, 2)
    out = aligned(x)

    def ours() -> None:
        layer_norm_kernel[(rows,)](x, out, w, b, columns, 1e-5, BLOCK=columns)

    def numpys() -> Array:
        wide = x.astype(np.float32)
        centred = wide - wide.mean(axis=1, keepdims=True)
        return centred / np.sqrt(centred.var(axis=1, keepdims=True) + 1e-5) * w.astype(np.float32) + b.astype(
            np.float32
        )

    peers: dict[str, Call] = {"numpy": numpys}
    if HAS_TORCH:
        from torch.nn.functional import layer_norm as torchs

        tensors = [torch_tensor(t) for t in (x, w, b)]
        peers = {"torch": lambda: torchs(tensors[0], (columns,), *tensors[1:], 1e-5)}
    result = compare(f"layer norm {rows}x{columns} {x.dtype.name}", ours, peers, 1.0, rounds)
    check(out, numpys().astype(np.float64), 1e-4 if dtype is np.float32 else 0.1)
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
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    results = [vector_add(options.rounds), softmax(options.rounds)]
    for dtype in (np.float32, ml_dtypes.bfloat16):
        results += [matmul(options.rounds, dtype, blocks) for blocks in ((64, 64, 64), (128, 128, 64), (256, 256, 128))]
        results += [attention(options.rounds, dtype), layer_norm(options.rounds, dtype)]
    results.append(matmul(options.rounds, np.float16, (128, 128, 64)))
    for r in results:
        peers = "  ".join(f"{who} {spent:7.2f} ms" for who, spent in r.peers_ms.items())
        print(
            f"{r.name:44} ours {r.ours_ms:7.2f} ms  {peers:32}"
            f"  ratio {r.ratio:5.2f}, worst {r.ratio_worst:.2f}  goal {r.goal}"
        )
    compiles = compile_times(min(options.rounds, 9))
    for t in compiles:
        print(f"{t.name:44} lowering {t.lowering_ms:6.1f} ms  llvm {t.llvm_ms:6.1f} ms  goal {t.goal_ms}")
    if options.out:
        cores = get_device("cpu").properties.sm_count
        report = {
            "cores": cores,
            "numpy": np.__version__,
            "torch": importlib.metadata.version("torch") if HAS_TORCH else None,
            "speed": [asdict(r) for r in results],
            "compile": [asdict(t) for t in compiles],
        }
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
