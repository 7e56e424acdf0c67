"""Kernels on a GPU against torch (cuBLAS) and Triton, side by side in one process.

The same kernel text runs under Triton and under deuteron. Every candidate is checked against a float64 reference, then
timed in interleaved rounds with CUDA events and a cold L2; the table shows medians and the ratio to each peer.

python benchmarks/gpu_kernels.py --out results.json
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

import torch

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ROUNDS = 25
LAUNCHES = 4


@dataclass(frozen=True)
class Row:
    """One benchmark: medians in microseconds, spread as (p75 - p25) / median, and the work done."""

    name: str
    size: str
    unit: str
    work: float  # bytes or FLOPs per launch
    microseconds: dict[str, float]
    spread: dict[str, float]

    def rate(self, who: str) -> float:
        """GB/s or TFLOP/s."""
        scale = 1e9 if self.unit == "GB/s" else 1e12
        return self.work / (self.microseconds[who] * 1e-6) / scale


def load_kernels(name: str, package: str) -> ModuleType:
    """An example file with its kernels decorated by ``package`` (deuteron or triton): same text, other compiler."""
    text = (EXAMPLES / f"{name}.py").read_text()
    text = text.replace("import deuteron.language as tl", f"import {package}.language as tl")
    text = text.replace("import deuteron as triton", f"import {package} as triton")
    text = text.replace("from harness import", "from examples_harness import")
    sys.modules.setdefault("examples_harness", _harness())
    path = Path(tempfile.mkdtemp()) / f"{name}_{package}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _harness() -> ModuleType:
    module = ModuleType("examples_harness")
    for name in ("Device", "check", "device_from_command_line"):
        setattr(module, name, None)
    return module


def measure(
    candidates: dict[str, Callable[[], object]],
) -> tuple[dict[str, float], dict[str, float]]:
    """Median and relative spread of each candidate in microseconds, in interleaved rounds, L2 flushed before each."""
    cold = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for run in candidates.values():
        run()
    torch.cuda.synchronize()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(ROUNDS):
        for name, run in candidates.items():
            for _ in range(LAUNCHES):
                cold.zero_()
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                run()
                end.record()
                end.synchronize()
                times[name].append(start.elapsed_time(end) * 1e3)
    medians = {n: statistics.median(t) for n, t in times.items()}
    spread = {}
    for name, values in times.items():
        quartiles = statistics.quantiles(values, n=4)
        spread[name] = (quartiles[2] - quartiles[0]) / medians[name]
    return medians, spread


def check(what: str, found: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> None:
    """Relative error in the Frobenius norm; a NaN never passes."""
    error = ((found.double() - wanted.double()).norm() / wanted.double().norm()).item()
    if not error <= tolerance:
        raise SystemExit(f"{what}: relative error {error:.2e} is above {tolerance:.0e}")


def vector_add(sizes: list[int]) -> list[Row]:
    """output = x + y, f32: 12 bytes per element."""
    modules = {p: load_kernels("vector_add", p) for p in ("deuteron", "triton")}
    rows = []
    for n in sizes:
        x, y = (torch.randn(n, device="cuda") for _ in range(2))
        out = torch.empty_like(x)
        candidates: dict[str, Callable[[], object]] = {}
        for package, module in modules.items():
            out.fill_(float("nan"))
            module.add(x, y, out)
            check(f"vector add {package}", out, x.double() + y.double(), 1e-6)
            candidates[package] = partial(module.add, x, y, out)
        candidates["torch"] = partial(torch.add, x, y, out=out)
        rows.append(Row("vector add", f"2^{n.bit_length() - 1}", "GB/s", 12.0 * n, *measure(candidates)))
    return rows


def softmax(columns: list[int], rows_count: int = 4096) -> list[Row]:
    """Softmax of 4096 rows, f32: 8 bytes per element."""
    modules = {p: load_kernels("softmax", p) for p in ("deuteron", "triton")}
    rows = []
    for n in columns:
        x = torch.randn(rows_count, n, device="cuda")
        wanted = torch.softmax(x.double(), 1)
        out = torch.empty_like(x)
        candidates: dict[str, Callable[[], object]] = {}
        for package, module in modules.items():
            out.fill_(float("nan"))
            module.softmax(x, out, num_programs=rows_count)
            check(f"softmax {package} N={n}", out, wanted, 1e-5)
            candidates[package] = partial(module.softmax, x, out, num_programs=rows_count)
        candidates["torch"] = partial(torch.softmax, x, 1, out=out)
        rows.append(Row("softmax", f"4096x{n}", "GB/s", 8.0 * rows_count * n, *measure(candidates)))
    return rows


def layer_norm(columns: list[int], rows_count: int = 4096) -> list[Row]:
    """Layer norm of 4096 rows, f32: 8 bytes per element (three reads of x count once)."""
    modules = {p: load_kernels("layer_norm", p) for p in ("deuteron", "triton")}
    rows = []
    for n in columns:
        x = torch.randn(rows_count, n, device="cuda") * 2 + 1
        weight, bias = (torch.randn(n, device="cuda") for _ in range(2))
        wanted = torch.nn.functional.layer_norm(x.double(), (n,), weight.double(), bias.double())
        out = torch.empty_like(x)
        stats = [torch.empty(rows_count, device="cuda") for _ in range(2)]
        candidates: dict[str, Callable[[], object]] = {}
        for package, module in modules.items():
            out.fill_(float("nan"))
            module.layer_norm(x, weight, bias, out, *stats)
            check(f"layer norm {package} N={n}", out, wanted, 1e-5)
            candidates[package] = partial(module.layer_norm, x, weight, bias, out, *stats)
        candidates["torch"] = partial(torch.nn.functional.layer_norm, x, (n,), weight, bias)
        rows.append(Row("layer norm", f"4096x{n}", "GB/s", 8.0 * rows_count * n, *measure(candidates)))
    return rows


def matmul(sizes: list[int]) -> list[Row]:
    """f16 n^3 through the example's plain pointer kernel, each compiler autotuning over the example's configs."""
    modules = {p: load_kernels("matmul", p) for p in ("deuteron", "triton")}
    rows = []
    for n in sizes:
        a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
        out = torch.empty_like(a)
        wanted = a.double() @ b.double()
        candidates: dict[str, Callable[[], object]] = {}
        for package, module in modules.items():
            out.fill_(float("nan"))
            module.matmul(a, b, out)
            check(f"matmul {package} {n}", out, wanted, 1e-3)
            candidates[package] = partial(module.matmul, a, b, out)
        candidates["torch"] = partial(torch.mm, a, b, out=out)
        rows.append(Row("matmul f16", f"{n}^3", "TFLOP/s", 2.0 * n**3, *measure(candidates)))
    return rows


def table(rows: list[Row]) -> str:
    """One line a row: rates and ratios."""
    lines = [f"{'':24}{'deuteron':>12}{'triton':>12}{'torch':>12}{'/triton':>9}{'/torch':>8}  spread"]
    for row in rows:
        ours, triton, peer = (row.rate(who) for who in ("deuteron", "triton", "torch"))
        lines.append(
            f"{row.name + ' ' + row.size:24}{ours:>12.1f}{triton:>12.1f}{peer:>12.1f}"
            f"{ours / triton:>9.2f}{ours / peer:>8.2f}  {row.spread['deuteron']:.3f}  {row.unit}"
        )
    return "\n".join(lines)


def environment() -> dict[str, str]:
    """What the figures depend on."""
    import triton

    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "sms": str(properties.multi_processor_count),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": str(torch.version.cuda),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="one size of each")
    options = parser.parse_args()
    quick = options.quick
    rows = vector_add([1 << 27] if quick else [1 << 20, 1 << 24, 1 << 27])
    rows += softmax([4096] if quick else [256, 512, 1024, 2048, 4096, 8192, 16384])
    rows += layer_norm([4096] if quick else [1024, 4096, 16384])
    rows += matmul([2048] if quick else [1024, 2048, 4096])
    print(table(rows))
    if options.out:
        record = {"environment": environment(), "rows": [asdict(r) for r in rows]}
        options.out.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
