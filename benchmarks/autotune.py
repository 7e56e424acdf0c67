"""How long ``@autotune`` takes from decoration to the first result, beside Triton, and how good its choice is.

python benchmarks/autotune.py [--device cpu] [--before CHECKOUT] [--quick] [--out FILE]

Two searches: six configurations of a vector add that takes about 2 us on a GPU, and twenty of a bf16 matmul 2048^3 (f32
256^3 on a CPU). Every figure is taken in a process of its own: ``cold`` with an empty cache folder, ``warm`` with the
one that the cold search left, where the code is there and the timing is repeated. Loading the libraries and launching a
first kernel come before the clock starts. Then one process each times all configurations in interleaved rounds, and
says how much slower the chosen ones are than the best. ``--before`` names a checkout of another commit, whose searches
are measured beside these.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPEATS = 3
#: Seconds for one process; a search of twenty matmuls by Triton takes about 15.
PATIENCE = 180
#: Rounds over all configurations when the choices are judged.
ROUNDS = 60
#: Bytes that are overwritten before each of those launches on a GPU, as in Triton's do_bench.
FLUSH = 256 << 20

KERNELS = '''
import {package} as triton
import {package}.language as tl


@triton.jit
def touch(x_ptr):
    tl.store(x_ptr, 1.0)


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, total, mask=i < n)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """a [M, K] @ b [K, N], rows of tiles in groups of eight."""
    pid = tl.program_id(0)
    across = tl.cdiv(N, BLOCK_N)
    group = pid // (8 * across)
    height = min(tl.cdiv(M, BLOCK_M) - group * 8, 8)
    tile_m = group * 8 + pid % (8 * across) % height
    tile_n = pid % (8 * across) // height
    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + (m % M)[:, None] * K + k[None, :]
    b = b_ptr + k[:, None] * N + (n % N)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for done in range(0, K, BLOCK_K):
        left = tl.load(a, mask=k[None, :] < K - done, other=0.0)
        right = tl.load(b, mask=k[:, None] < K - done, other=0.0)
        total = tl.dot(left, right, total)
        a += BLOCK_K
        b += BLOCK_K * N
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c_ptr + m[:, None] * N + n[None, :], total.to(c_ptr.dtype.element_ty), mask=inside)
'''

#: (block, warps), and (m, n, k, stages, warps): the list of Triton's matmul tutorial and neighbours of its members.
ADDS = [(128, 4), (256, 4), (512, 4), (1024, 4), (1024, 8), (2048, 8)]
MATMULS = [(128, 256, 64, 3, 8), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 64, 32, 4, 4), (64, 128, 32, 4, 4)]
MATMULS += [(128, 32, 32, 4, 4), (64, 32, 32, 5, 2), (32, 64, 32, 5, 2), (128, 128, 64, 3, 8), (128, 128, 64, 4, 4)]
MATMULS += [(128, 128, 64, 4, 8), (256, 64, 64, 3, 8), (64, 256, 64, 3, 8), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4)]
MATMULS += [(128, 64, 64, 3, 8), (64, 64, 64, 4, 4), (64, 64, 32, 5, 4), (128, 128, 32, 3, 8), (256, 64, 32, 4, 4)]
CASES = {"six adds": len(ADDS), "twenty matmuls": len(MATMULS)}


@dataclass
class Figures:
    """One package on one case: seconds of each search, the places of the chosen configurations in the list, and their
    times over that of the best, all medians of interleaved launches."""

    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)
    milliseconds: list[float | None] = field(default_factory=list)

    def behind(self) -> list[float]:
        """Each choice's time over the best one's."""
        times = [t for t in self.milliseconds if t is not None]
        return [(self.milliseconds[i] or float("nan")) / min(times) for i in self.chosen]


# ---- in a process of its own ---------------------------------------------------------------------------------------


@dataclass
class Problem:
    """A case on a device: arguments, grid, a check of the result, and how to wait for the device."""

    case: str
    device: str

    def __post_init__(self) -> None:
        if self.device == "cpu":
            self._on_cpu()
        else:
            self._on_gpu()

    def _on_cpu(self) -> None:
        import numpy as np

        rng = np.random.default_rng(0)
        shapes: Any = [(1 << 16,)] * 3 if self.case == "six adds" else [(256, 256)] * 3
        self.arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
        self.wait: Callable[[], object] = lambda: None

    def _on_gpu(self) -> None:
        import torch

        torch.manual_seed(0)
        adds = self.case == "six adds"
        shape, dtype = ((1 << 16,), torch.float32) if adds else ((2048, 2048), torch.bfloat16)
        self.arrays = [torch.randn(shape, dtype=dtype, device=self.device) for _ in range(3)]
        self.wait = torch.cuda.synchronize

    @property
    def arguments(self) -> list[Any]:
        x = self.arrays[0]
        return [*self.arrays, *([x.shape[0]] if self.case == "six adds" else [x.shape[0]] * 3)]

    def grid(self, meta: Any) -> tuple[int]:
        if self.case == "six adds":
            return (-(-meta["n"] // meta["BLOCK"]),)
        return (-(-meta["M"] // meta["BLOCK_M"]) * -(-meta["N"] // meta["BLOCK_N"]),)

    def poison(self) -> None:
        """Overwrite the result, so that a kernel that writes nothing is found out."""
        self.arrays[2][...] = float("nan")

    def check(self) -> None:
        """Compare the last array with what it must be, in f64; a NaN never passes."""
        import numpy as np

        x, y, found = (np.asarray(a if self.device == "cpu" else a.double().cpu(), np.float64) for a in self.arrays)
        wanted = x + y if self.case == "six adds" else x @ y
        error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
        assert error < 1e-2, f"{self.case}: relative error {error:.1e}"


def load(package: str) -> ModuleType:
    """The kernels, from a file of their own, since both compilers read source files."""
    path = Path(tempfile.mkdtemp()) / f"kernels_{package}.py"
    path.write_text(KERNELS.replace("{package}", package))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def configurations(package: ModuleType, case: str) -> list[Any]:
    """The case's list as the package's own Config objects."""
    if case == "six adds":
        return [package.Config({"BLOCK": block}, num_warps=warps) for block, warps in ADDS]
    return [
        package.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)
        for m, n, k, stages, warps in MATMULS
    ]


def search(package: ModuleType, problem: Problem) -> dict[str, object]:
    """Seconds from decoration to the first result, and which configuration was chosen."""
    load(package.__name__).touch[(1,)](problem.arrays[2])
    problem.poison()
    problem.wait()
    begin = time.perf_counter()
    kernels = load(package.__name__)
    configs = configurations(package, problem.case)
    kernel = package.autotune(configs, ["n"] if problem.case == "six adds" else ["M", "N", "K"])(
        kernels.add if problem.case == "six adds" else kernels.matmul
    )
    kernel[problem.grid](*problem.arguments)
    problem.wait()
    seconds = time.perf_counter() - begin
    problem.check()
    return {"seconds": seconds, "chosen": next(i for i, c in enumerate(configs) if c is kernel.best_config)}


def judge(package: ModuleType, problem: Problem) -> dict[str, object]:
    """Median milliseconds of every configuration in interleaved rounds; None for those that cannot run."""
    kernels = load(package.__name__)
    kernel = kernels.add if problem.case == "six adds" else kernels.matmul
    timed = _timed_on_cpu if problem.device == "cpu" else _timer_on_gpu()
    launches: dict[int, Callable[[], object]] = {}
    count = CASES[problem.case]
    for i, config in enumerate(configurations(package, problem.case)):
        launch = partial(kernel[problem.grid], *problem.arguments, **config.all_kwargs())
        problem.poison()
        try:
            launch()
            problem.wait()
        except Exception as error:  # too large for the device, in the words of either compiler
            print(f"{config}: {type(error).__name__}", file=sys.stderr)
            continue
        problem.check()
        launches[i] = launch
    times: dict[int, list[float]] = {i: [] for i in launches}
    for _ in range(ROUNDS):
        for i in launches:
            times[i].append(timed(launches[i]))
    return {"milliseconds": [statistics.median(times[i]) if i in times else None for i in range(count)]}


def _timed_on_cpu(launch: Callable[[], object]) -> float:
    begin = time.perf_counter()
    launch()
    return (time.perf_counter() - begin) * 1e3


def _timer_on_gpu() -> Callable[[Callable[[], object]], float]:
    import torch

    cold = torch.empty(FLUSH, dtype=torch.uint8, device="cuda")

    def timed(launch: Callable[[], object]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        cold.zero_()
        begin.record()
        launch()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    return timed


def child(package: str, case: str, device: str, deed: str) -> None:
    """What a process does: one search, or the judgement of one case; prints JSON."""
    module = importlib.import_module(package)
    importlib.import_module(f"{package}.language")
    problem = Problem(case, device)
    print(json.dumps((search if deed == "search" else judge)(module, problem) | {"package": module.__file__}))


# ---- the whole -----------------------------------------------------------------------------------------------------


def run_child(who: str, checkout: Path, case: str, device: str, deed: str, cache: Path) -> dict[str, Any]:
    """Run :func:`child` with its own cache folders; raises SystemExit with its last words where it fails."""
    package = "triton" if who == "triton" else "deuteron"
    environment = dict(os.environ) | {"TRITON_CACHE_DIR": str(cache), "DEUTERON_CACHE_DIR": str(cache)}
    environment["PYTHONPATH"] = f"{checkout / '.typing'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    command = [sys.executable, "-P", __file__, "--child", package, case, device, deed]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{who}, {case}, {deed}: took more than {PATIENCE} s") from None
    if done.returncode:
        raise SystemExit(f"{who}, {case}, {deed}:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if package == "deuteron" and not Path(result["package"]).is_relative_to(checkout):
        raise SystemExit(f"{who} ran {result['package']}, not {checkout}")
    return result


def measure(case: str, device: str, peers: dict[str, Path], repeats: int) -> dict[str, Figures]:
    """All figures of one case. The peers take turns, so that a drift of the machine meets all."""
    figures = {who: Figures() for who in peers}
    for _ in range(repeats):
        for who, checkout in peers.items():
            with tempfile.TemporaryDirectory(prefix="autotune-") as cache:
                for times in (figures[who].cold, figures[who].warm):
                    result = run_child(who, checkout, case, device, "search", Path(cache))
                    times.append(result["seconds"])
                    figures[who].chosen.append(result["chosen"])
    for who, checkout in peers.items():
        with tempfile.TemporaryDirectory(prefix="autotune-") as cache:
            figures[who].milliseconds = run_child(who, checkout, case, device, "judge", Path(cache))["milliseconds"]
    return figures


def environment(device: str) -> dict[str, str]:
    """What the figures depend on."""
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    found = {
        "commit": os.environ.get("COMMIT") or git.stdout.strip(),
        "python": platform.python_version(),
        "cores": str(len(os.sched_getaffinity(0))),
    }
    if device == "cpu":
        import deuteron

        return found | {"device": deuteron.get_device("cpu").properties.name}
    import torch
    import triton

    import deuteron

    properties = deuteron.get_device(device).properties
    found |= {"device": properties.name, "driver": properties.driver or "", "torch": torch.__version__}
    return found | {"cuda": str(torch.version.cuda), "triton": triton.__version__}


def table(cases: dict[str, dict[str, Figures]]) -> str:
    """Medians in seconds, the ratio to each peer's, and how far the worst choice is from the best configuration."""
    lines = [f"{'seconds, median':30}{'cold':>8}{'warm':>8}{'/cold':>8}{'/warm':>8}   slowest choice / best"]
    for case, figures in cases.items():
        ours = figures["deuteron"]
        for who, theirs in figures.items():
            cold, warm = statistics.median(theirs.cold), statistics.median(theirs.warm)
            ratios = f"{statistics.median(ours.cold) / cold:>8.2f}{statistics.median(ours.warm) / warm:>8.2f}"
            lines.append(f"{case + ', ' + who:30}{cold:>8.2f}{warm:>8.2f}{ratios}   {max(theirs.behind()):.3f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0", help="cuda:0, or cpu, where there is no Triton")
    parser.add_argument("--before", type=Path, help="a checkout of another commit to measure beside this one")
    parser.add_argument("--quick", action="store_true", help="one search of each kind")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    peers = {"deuteron": ROOT}
    if options.before:
        peers["before"] = options.before.resolve()
    if options.device != "cpu":
        peers["triton"] = ROOT
    cases = {c: measure(c, options.device, peers, 1 if options.quick else REPEATS) for c in CASES}
    if options.out:
        record: dict[str, object] = {"environment": environment(options.device)}
        record |= {
            case: {who: asdict(f) | {"behind": f.behind()} for who, f in figures.items()}
            for case, figures in cases.items()
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(table(cases))


if __name__ == "__main__":
    main()
