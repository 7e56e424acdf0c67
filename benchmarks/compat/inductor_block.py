"""A transformer block under ``torch.compile``: Inductor's kernels compiled by Triton, and by deuteron.

python benchmarks/compat/inductor_block.py [--device cuda|cpu] [--mode MODE] [--steps N] [--limit S] [--out FILE]

RMSNorm, causal attention, RMSNorm, SwiGLU, with residuals, forward and backward. On a GPU in bf16: batch 4, 2048
tokens, 2048 features, 16 heads. On the CPU in f32 and small, with Inductor's C++ in the place of Triton. Each side runs
in a process of its own with empty caches. It says how far outputs and gradients are from float64's (and how far eager's
are), how long the first step took above a later one, and what a step takes by the device's clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Shape:
    """Of the block: sizes of its input, and of what is inside."""

    batch: int
    tokens: int
    features: int
    heads: int
    hidden: int


SHAPES = {"cuda": Shape(4, 2048, 2048, 16, 5632), "cpu": Shape(2, 64, 128, 4, 352)}
#: Which compilers a device is measured with, the one to compare with first.
SIDES = {"cuda": ("triton", "deuteron"), "cpu": ("cpp", "deuteron")}


def main() -> int:
    """Measure both sides in turn, print a table, write JSON."""
    options = arguments()
    if options.side:
        print("RESULT " + json.dumps(measure(options)))
        return 0
    results = {side: child(side, options) for side in options.sides or SIDES[options.device]}
    document = {
        "device": options.device,
        "shape": asdict(SHAPES[options.device]),
        "mode": options.mode,
        "steps": options.steps,
        "sides": results,
    }
    print(table(results))
    if options.out:
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all("error" not in result and result["correct"] for result in results.values()) else 1


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=SIDES, default="cuda")
    parser.add_argument("--mode", help="of torch.compile, such as max-autotune-no-cudagraphs; by default its own")
    parser.add_argument("--steps", type=int, default=50, help="steps that are timed")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds for a side")
    parser.add_argument("--sides", nargs="*", help="measure these only")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--side", help=argparse.SUPPRESS)  # the child's
    return parser.parse_args()


def child(side: str, options: argparse.Namespace) -> dict[str, Any]:
    """What a process of its own measured; ``error`` and the end of its output where it did not."""
    with tempfile.TemporaryDirectory() as caches:
        names = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "DEUTERON_HOME": "deuteron"}
        command = [
            sys.executable,
            "-P",
            __file__,
            "--side",
            side,
            "--device",
            options.device,
            "--steps",
            str(options.steps),
        ]
        try:
            done = subprocess.run(
                [*command, *(["--mode", options.mode] if options.mode else [])],
                env={**os.environ, **{name: str(Path(caches, folder)) for name, folder in names.items()}},
                capture_output=True,
                text=True,
                timeout=options.limit,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            said = late.stderr.decode(errors="replace") if isinstance(late.stderr, bytes) else late.stderr or ""
            return {"error": f"not done in {options.limit:.0f} s", "output": said[-6000:]}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("RESULT "):
            return dict(json.loads(line.removeprefix("RESULT ")))
    return {"error": f"exit code {done.returncode}", "output": (done.stdout + done.stderr)[-6000:]}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All figures of one side, in this process."""
    if options.side == "deuteron":
        from deuteron.compat import inductor

        inductor.install()
    import torch
    import torch._inductor.config as config
    import torch._inductor.metrics as metrics

    config.cpu_backend = "triton" if options.side == "deuteron" else "cpp"
    torch.manual_seed(0)
    shape = SHAPES[options.device]
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    block = make_block(shape).to(options.device, torch.float64)
    x = torch.randn(shape.batch, shape.tokens, shape.features, dtype=torch.float64).to(options.device)
    weight = torch.randn_like(x)
    block.to(dtype)  # rounded once: the reference computes with the same numbers
    x, weight = x.to(dtype), weight.to(dtype)
    exact = outcome(block.to(torch.float64), x.double(), weight.double())
    block.to(dtype)
    eager = distances(outcome(block, x, weight), exact)
    compiled = torch.compile(block, fullgraph=True, mode=options.mode)
    synchronize = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    first = seconds(lambda: outcome(compiled, x, weight), synchronize)
    found = distances(outcome(compiled, x, weight), exact)
    return {
        "torch": torch.__version__,
        "compiler": compiler(options.side),
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "kernels": metrics.generated_kernel_count,
        "launches": launches(lambda: outcome(compiled, x, weight)) if options.device == "cuda" else None,
        "first_s": first,
        "compile_s": first - seconds(lambda: outcome(compiled, x, weight), synchronize),
        "eager_error": eager,
        "errors": found,
        "correct": all(found[name] <= 2 * eager[name] + 1e-6 for name in found),
        "eager_step_ms": step_ms(lambda: outcome(block, x, weight), options),
        "step_ms": step_ms(lambda: outcome(compiled, x, weight), options),
    }


def compiler(side: str) -> str:
    """Which compiler the name triton stands for in this process."""
    if side == "cpp":
        return "Inductor's C++"
    import triton

    return f"{triton.__name__} {triton.__version__}"


def make_block(shape: Shape) -> Any:
    """The block, with weights as models are initialised."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before_attention, self.before_mlp = nn.RMSNorm(shape.features), nn.RMSNorm(shape.features)
            self.qkv = nn.Linear(shape.features, 3 * shape.features, bias=False)
            self.out = nn.Linear(shape.features, shape.features, bias=False)
            self.gate_up = nn.Linear(shape.features, 2 * shape.hidden, bias=False)
            self.down = nn.Linear(shape.hidden, shape.features, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            heads = (shape.batch, shape.tokens, shape.heads, shape.features // shape.heads)
            q, k, v = (part.view(heads).transpose(1, 2) for part in self.qkv(self.before_attention(x)).chunk(3, dim=-1))
            attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
            gate, up = self.gate_up(self.before_mlp(x)).chunk(2, dim=-1)
            return x + self.down(functional.silu(gate) * up)

    return Block()


def outcome(block: Any, x: Any, weight: Any) -> dict[str, Any]:
    """One step: the output, and the gradients of its product with ``weight`` by parameter and by ``x``."""
    import torch

    module = getattr(block, "_orig_mod", block)
    x = x.detach().requires_grad_()
    out = block(x)
    names, parameters = zip(*module.named_parameters(), strict=True)
    gradients = torch.autograd.grad(out, [x, *parameters], weight)
    return {"output": out.detach(), **dict(zip(["x", *names], gradients, strict=True))}


def distances(found: dict[str, Any], exact: dict[str, Any]) -> dict[str, float]:
    """Of each array from the exact one, in the norm, relative."""
    return {name: float((found[name].double() - wanted).norm() / wanted.norm()) for name, wanted in exact.items()}


def seconds(work: Callable[[], object], synchronize: Callable[[], None]) -> float:
    """Until the work is done on the device, too."""
    synchronize()
    begin = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - begin


def step_ms(work: Callable[[], object], options: argparse.Namespace) -> float:
    """Median of many steps after a few, by events on a GPU."""
    import torch

    for _ in range(max(3, options.steps // 5)):
        work()
    if options.device == "cpu":
        return statistics.median(seconds(work, lambda: None) for _ in range(options.steps)) * 1e3
    pairs = []
    for _ in range(options.steps):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in pairs)


def launches(work: Callable[[], object]) -> dict[str, Any]:
    """Kernels of a step by PyTorch's profiler: how many, how many of them are Inductor's, and their times in us."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    kernels = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    own = [event for event in kernels if event.name.startswith("triton_")]
    by_name: dict[str, float] = {}
    for event in own:
        by_name[event.name] = by_name.get(event.name, 0.0) + event.device_time_total
    return {"kernels": len(kernels), "inductor": len(own), "inductor_us": sum(by_name.values()), "by_name_us": by_name}


def table(results: dict[str, dict[str, Any]]) -> str:
    """The sides beside each other, and the last one's figures divided by the first one's."""
    rows = [f"{'':24}" + "".join(f"{side:>14}" for side in results) + f"{'ratio':>10}"]
    for side, result in results.items():
        if "step_ms" not in result:
            rows.append(f"{side}: {result['error']}\n{result.get('output', '')}")
    done = [result for result in results.values() if "step_ms" in result]
    for label, key in (("compile, s", "compile_s"), ("step, ms", "step_ms"), ("eager step, ms", "eager_step_ms")):
        values = [float(result[key]) for result in done]
        ratio = f"{values[-1] / values[0]:10.3f}" if len(values) > 1 else ""
        rows.append(f"{label:24}" + "".join(f"{value:14.3f}" for value in values) + ratio)
    if all(result["launches"] for result in done) and len(done) > 1:
        values = [float(result["launches"]["inductor_us"]) for result in done]
        rows.append(
            f"{'Inductor kernels, us':24}" + "".join(f"{v:14.1f}" for v in values) + f"{values[-1] / values[0]:10.3f}"
        )
    rows.append(f"{'kernels':24}" + "".join(f"{result['kernels']:14}" for result in done))
    for label, key in (("largest error", "errors"), ("eager's", "eager_error")):
        rows.append(f"{label:24}" + "".join(f"{max(result[key].values()):14.2e}" for result in done))
    rows.append(f"{'correct':24}" + "".join(f"{result['correct']!s:>14}" for result in done))
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
