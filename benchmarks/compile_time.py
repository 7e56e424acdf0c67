"""How long compiling for sm_90a takes, without the disk caches, beside Triton: the time that a search is made of.

python benchmarks/compile_time.py [--triton PYTHON] [--quick] [--out FILE]

No GPU is needed. Each figure is taken in fresh processes, those of both compilers in turns, whose modules are bytecode
as those of installed packages. ``first`` includes what a process does once: the import, loading LLVM, parsing the
library. ``next`` is the median over further variants in the same process. To PTX, and to machine code (cubin).
``--triton`` names a Python that has Triton, by default this one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sources import ROOT, environment, load_kernels

PROCESSES = 5


@dataclass(frozen=True)
class Kernel:
    """A kernel of an example as a launch would specialise it; ``variants``: constexprs, the first one asked for."""

    file: str
    name: str
    signature: Mapping[str, str]
    variants: tuple[Mapping[str, object], ...]
    warps: int = 4
    stages: int = 3


def _pointers(dtype: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"*{dtype}:16")


_STRIDES = {f"stride_{n}": "i32:16" for n in ("am", "bk", "cm")} | {f"stride_{n}": "i32:1" for n in ("ak", "bn", "cn")}
_TILE = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 64, "ACTIVATION": ""}
_HEAD = {"HEAD": 128, "BLOCK_M": 128}
KERNELS = {
    "vector add": Kernel(
        "vector_add",
        "add_kernel",
        _pointers("fp32", "x_ptr", "y_ptr", "output_ptr") | {"n_elements": "i32:16"},
        tuple({"BLOCK_SIZE": b} for b in (1024, 512, 2048)),
    ),
    "softmax 4096": Kernel(
        "softmax",
        "softmax_kernel",
        _pointers("fp32", "output_ptr", "input_ptr")
        | {"input_row_stride": "i32:16", "output_row_stride": "i32:16", "n_rows": "i32", "n_cols": "i32"},
        tuple({"BLOCK_SIZE": b, "num_stages": 2} for b in (4096, 2048, 8192)),
        warps=8,
    ),
    "matmul 128x256x64": Kernel(
        "matmul",
        "matmul_kernel",
        _pointers("bf16", "a_ptr", "b_ptr", "c_ptr") | {"M": "i32:16", "N": "i32:16", "K": "i32:16"} | _STRIDES,
        tuple({**_TILE, "GROUP_SIZE_M": group} for group in (8, 4, 2)),
        warps=8,
    ),
    "attention 128x64": Kernel(
        "attention",
        "attention_forward",
        _pointers("bf16", "Q", "K", "V", "Out") | _pointers("fp32", "Lse") | {"N": "i32:16", "scale": "fp32"},
        tuple({**_HEAD, "BLOCK_N": n, "CAUSAL": causal} for n, causal in ((64, True), (64, False), (32, True))),
        warps=8,
    ),
}


@dataclass
class Sample:
    """One process: milliseconds of each variant, in order, and those of each stage."""

    import_ms: float
    variants: list[float] = field(default_factory=list)
    stages: list[dict[str, float]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


# ---- in a process of its own ---------------------------------------------------------------------------------------


def compile_with_deuteron(kernel: Kernel, stage: str) -> Sample:
    """Every variant up to ``stage`` (ptx or cubin), nothing read from the cache."""
    begin = time.perf_counter()
    import deuteron

    sample = Sample((time.perf_counter() - begin) * 1e3)
    heavy = [m for m in ("llvmlite", "fastapi", "pandas", "matplotlib") if m in sys.modules]
    if heavy:
        raise SystemExit(f"import deuteron loads {heavy}")
    from deuteron.compiler import KernelSource, knobs

    source = None
    with knobs.always_compile.scope(True):
        for constexprs in kernel.variants:
            begin = time.perf_counter()
            # Read once, as a search does; Triton's function is read before the clock starts.
            source = source or KernelSource.from_file(ROOT / "examples" / f"{kernel.file}.py", kernel.name)
            made = deuteron.compile(
                source,
                signature=kernel.signature,
                constexprs=constexprs,
                target="cuda:90a",
                num_warps=kernel.warps,
                num_stages=kernel.stages,
                stop_after=stage,
            )
            sample.variants.append((time.perf_counter() - begin) * 1e3)
            sample.stages.append(dict(made.metadata.stage_ms))
    return sample


def compile_with_triton(kernel: Kernel, stage: str) -> Sample:
    """The same by Triton's ahead-of-time interface; its stages are timed by its own listener where it has one."""
    begin = time.perf_counter()
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    sample = Sample((time.perf_counter() - begin) * 1e3, versions={"triton": triton.__version__})
    found = getattr(load_kernels(kernel.file, "triton"), kernel.name)
    function = found if isinstance(found, triton.JITFunction) else found.fn
    stages: dict[str, float] = {}

    def listen(*, times: Any, **_: object) -> None:
        stages.update({"frontend": times.ir_initialization / 1e3})
        stages.update({name: us / 1e3 for name, us in times.lowering_stages})

    if hasattr(triton, "knobs") and hasattr(triton.knobs.compilation, "listener"):
        triton.knobs.compilation.listener = listen
    target = GPUTarget("cuda", 90, 32)
    for constexprs in kernel.variants:
        begin = time.perf_counter()
        signature, constants, promises = _for_triton(kernel.signature, constexprs, function.arg_names)
        source = ASTSource(function, signature, constants, promises)
        triton.compile(source, target=target, options={"num_warps": kernel.warps, "num_stages": kernel.stages})
        spent = (time.perf_counter() - begin) * 1e3
        # It has no way to stop at PTX: what its assembler took is taken off.
        sample.variants.append(spent - (stages["cubin"] if stage == "ptx" else 0.0))
        sample.stages.append({n: ms for n, ms in stages.items() if stage == "cubin" or n != "cubin"})
    return sample


def _for_triton(
    signature: Mapping[str, str], constexprs: Mapping[str, object], names: list[str]
) -> tuple[dict[str, str], dict[str, object], dict[tuple[int], list[list[object]]]]:
    """Types, compile-time values and promises of divisibility in the form that Triton takes."""
    types, constants, promises = {}, dict(constexprs), {}
    for i, name in enumerate(names):
        kind, _, promise = signature.get(name, "constexpr").partition(":")
        if promise == "1":
            constants[name], kind = 1, "constexpr"
        types[name] = kind
        if promise == "16":
            promises[(i,)] = [["tt.divisibility", 16]]
    return types, constants, promises


# ---- the whole -----------------------------------------------------------------------------------------------------


def run_child(who: str, python: str, name: str, stage: str, bytecode: str) -> Sample:
    """One fresh process with empty caches; modules are read from the folder ``bytecode`` once a process was there."""
    with tempfile.TemporaryDirectory(prefix="compile-time-") as cache:
        variables = {"TRITON_CACHE_DIR": cache, "DEUTERON_CACHE_DIR": cache, "TRITON_ALWAYS_COMPILE": "1"}
        variables |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": bytecode}
        command = [python, __file__, "--child", who, name, stage]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    if done.returncode:
        raise SystemExit(f"{who}, {name}:\n{done.stderr[-2000:]}")
    return Sample(**json.loads(done.stdout.splitlines()[-1]))


def table(figures: Mapping[str, Mapping[str, list[Sample]]]) -> str:
    """Medians over processes, and the ratio to Triton's."""
    lines = [f"{'ms':30}{'first':>9}{'triton':>9}{'ratio':>7}{'next':>9}{'triton':>9}{'ratio':>7}   range of next"]
    for name, of in figures.items():
        cells = ""
        for wanted in (_first, _next):
            medians = {who: statistics.median(wanted(samples)) for who, samples in of.items()}
            cells += f"{medians['deuteron']:>9.1f}"
            theirs = medians.get("triton")
            cells += f"{theirs:>9.1f}{medians['deuteron'] / theirs:>7.2f}" if theirs else f"{'-':>9}{'-':>7}"
        later = _next(of["deuteron"])
        lines.append(f"{name:30}{cells}   {min(later):.1f}-{max(later):.1f}")
    return "\n".join(lines)


def _first(samples: list[Sample]) -> list[float]:
    return [s.import_ms + s.variants[0] for s in samples]


def _next(samples: list[Sample]) -> list[float]:
    return [t for s in samples for t in s.variants[1:]]


def stages(figures: Mapping[str, Mapping[str, list[Sample]]]) -> str:
    """Where the time of the later variants goes: medians of each stage."""
    lines = ["ms a stage, median of next:"]
    for name, of in figures.items():
        for who, samples in of.items():
            later = [stage for s in samples for stage in s.stages[1:]]
            parts = {n: statistics.median([s[n] for s in later if n in s]) for n in (later[0] if later else {})}
            lines.append(f"{name + ', ' + who:40}" + "  ".join(f"{n} {ms:.1f}" for n, ms in parts.items()))
    return "\n".join(lines)


def measure(pythons: Mapping[str, str], stages: Sequence[str], processes: int) -> dict[str, dict[str, list[Sample]]]:
    """Samples of each kernel and stage, by compiler."""
    figures: dict[str, dict[str, list[Sample]]] = {}
    with tempfile.TemporaryDirectory(prefix="compile-time-") as bytecode:
        for name in KERNELS:
            for who, python in pythons.items():  # it leaves the bytecode of what this kernel imports
                run_child(who, python, name, stages[-1], bytecode)
            for stage in stages:
                runs = figures[f"{name} to {stage}"] = {who: [] for who in pythons}
                for _ in range(processes):
                    for who, python in pythons.items():
                        runs[who].append(run_child(who, python, name, stage, bytecode))
    return figures


def has_triton(python: str) -> bool:
    """Whether this Python can import Triton."""
    return not subprocess.run([python, "-c", "import triton"], capture_output=True, check=False).returncode


def main() -> None:
    """Measure all kernels, or be the child that compiles one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--triton", default=sys.executable, metavar="PYTHON", help="a Python that has Triton")
    parser.add_argument("--quick", action="store_true", help="one process each, machine code only")
    parser.add_argument("--out", type=Path, help="write all figures as JSON")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if shutil.which(options.triton) is None:
        parser.error(f"--triton: there is no program {options.triton}")
    if options.child:
        who, name, stage = options.child
        compiling = compile_with_deuteron if who == "deuteron" else compile_with_triton
        print(json.dumps(asdict(compiling(KERNELS[name], stage))))
        return
    pythons = {"deuteron": sys.executable}
    if has_triton(options.triton):
        pythons["triton"] = options.triton
    figures = measure(pythons, ("cubin",), 1) if options.quick else measure(pythons, ("ptx", "cubin"), PROCESSES)
    print(stages(figures))
    print(table(figures))
    imports = [s.import_ms for of in figures.values() for s in of["deuteron"]]
    print(f"{'import deuteron':30}{statistics.median(imports):>9.1f}")
    if options.out:
        versions = {k: v for of in figures.values() for s in of.get("triton", []) for k, v in s.versions.items()}
        record = {who: {name: [asdict(s) for s in of[who]] for name, of in figures.items()} for who in pythons}
        options.out.write_text(json.dumps({"environment": environment() | versions, **record}, indent=1) + "\n")


if __name__ == "__main__":
    main()
