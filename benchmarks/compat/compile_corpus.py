"""How long the kernels of a corpus of programs take to compile for sm_90a, here and under Triton. No GPU is needed.

python benchmarks/compat/compile_corpus.py FOLDER --triton PYTHON --out FILE.json [--only NAME ...] [--jobs N]

FOLDER holds programs that launch kernels when they are imported, such as data/TritonBench_G_v1 of
github.com/thunlp/TritonBench, with their own part before a line of ``#``. Each is run once with PyTorch's arrays on the
CPU and nothing in the place of a GPU: launches are noted, not run, of autotuned kernels the first configuration's. What
was launched is compiled from source to machine code, here and by Triton (PYTHON has it), each side in a process of its
own that has compiled something else before, without caches. ``ratio`` is our time over Triton's.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from report import write_report

#: Where the tests of a program of TritonBench begin.
TESTS = "\n########"
#: Compiled first, so that what a process does once is done.
WARM_UP = """
import triton
import triton.language as tl

@triton.jit
def warm_up(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    square = tl.zeros((16, 16), tl.float16)
    tl.store(y_ptr + i, tl.dot(square, square).sum() + tl.load(x_ptr + i))
"""
LIMIT_SECONDS = 120


def main() -> int:
    """Measure, write the file and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--triton", default=sys.executable, metavar="PYTHON", help="a Python that has Triton")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="programs, without .py")
    parser.add_argument("--jobs", type=int, default=1, help="programs at once, each on a core of its own")
    parser.add_argument("--side", choices=("deuteron", "triton"), help=argparse.SUPPRESS)  # a child's
    parser.add_argument("--kernels", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print("RESULT " + json.dumps(SIDES[options.side](options.folder, options.kernels)))
        return 0
    programs = sorted(p for p in options.folder.glob("*.py") if not options.only or p.stem in options.only)
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(lambda program: both(program, options.triton), programs):
            rows += found
            for row in found:
                print(f"{row['program']:32}{row.get('kernel', ''):40}{row.get('ratio') or row.get('error', '')!s:.60}")
            if options.out:
                write_report(options.out, document(rows), options.folder.resolve())
    print(table(rows))
    return 0


def both(program: Path, triton: str) -> list[dict[str, Any]]:
    """The kernels of a program, compiled on both sides."""
    with tempfile.TemporaryDirectory() as folder:
        kernels = Path(folder, "kernels.json")
        ours = child(sys.executable, program, "deuteron", kernels, folder)
        if "error" in ours:
            return [{"program": program.stem, "error": ours["error"]}]
        theirs = child(triton, program, "triton", kernels, folder)
    rows = []
    for name, own in ours["kernels"].items():
        other = theirs.get("kernels", {}).get(name, {"error": theirs.get("error", "not compiled")})
        row = {"program": program.stem, "kernel": own["kernel"], "seconds": own.get("seconds")}
        row |= {"triton_seconds": other.get("seconds"), "error": own.get("error") or other.get("error")}
        if row["seconds"] and row["triton_seconds"]:
            row["ratio"] = round(row["seconds"] / row["triton_seconds"], 3)
        rows.append(row)
    return rows


def child(python: str, program: Path, side: str, kernels: Path, folder: str) -> dict[str, Any]:
    """What a side's process says."""
    caches = {"DEUTERON_HOME": f"{folder}/deuteron", "TRITON_CACHE_DIR": f"{folder}/triton"}
    command = [python, "-P", __file__, str(program), "--side", side, "--kernels", str(kernels)]
    beside = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            command, env={**os.environ, **caches, "PYTHONPATH": beside}, capture_output=True, text=True,
            timeout=LIMIT_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"{side}: no end within {LIMIT_SECONDS} s"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("RESULT "):
            return dict(json.loads(line.removeprefix("RESULT ")))
    return {"error": f"{side}: {done.stderr.strip().splitlines()[-1:] or done.returncode}"[:300]}


def ours(program: Path, kernels: Path) -> dict[str, Any]:
    """Note what the program launches, in ``kernels``, and compile it."""
    from deuteron.compat.triton import Autotuner, install

    install()
    pretend()
    from deuteron.compiler.runtime.launch.stand_in import standing
    from deuteron.compiler.runtime.variant.pipeline import build
    from deuteron.compiler.runtime.variant.variant import Variant, make_variant
    from deuteron.compiler.target import Target

    Autotuner.prune = lambda self, args, kwargs: self.configs[:1]
    seen: dict[str, Variant] = {}

    class Notes:
        def run(self, variant: Variant, grid: object, arguments: object) -> None:
            seen.setdefault(variant.key, variant)

    error = ""
    with standing.scope(Notes()):
        try:
            load(program, program.read_text())
        except BaseException as failure:  # what it launched before is compiled all the same
            error = f"{type(failure).__name__}: {failure}"[:200]
    warm = load(kernels.with_name("warm_up.py"), WARM_UP).warm_up
    build(make_variant(warm.source, {"x_ptr": "*f32:16", "y_ptr": "*f32:16"}, {"N": 128}, "cuda:90a", {}))
    made, notes = {}, {}
    for number, variant in enumerate(seen.values()):
        schedule = {"num_warps": variant.schedule.num_warps, "num_stages": variant.schedule.num_stages}
        types = {name: str(kind) for name, kind in variant.signature.items() if "." not in name}
        made[number] = {"kernel": variant.source.name}
        constants = {name: plain(value) for name, value in variant.constants.items()}
        notes[number] = {"kernel": variant.source.name, "types": types, "constants": constants, "options": schedule}
        try:
            wanted = replace(variant, target=Target.parse("cuda:90a"))
            begin = time.perf_counter()
            build(wanted)
            made[number]["seconds"] = round(time.perf_counter() - begin, 4)
        except Exception as failure:
            made[number]["error"] = f"{type(failure).__name__}: {failure}"[:200]
    kernels.write_text(json.dumps(notes))
    return {"kernels": made, "program_error": error} if made else {"error": error or "launches nothing"}


def theirs(program: Path, kernels: Path) -> dict[str, Any]:
    """Compile under Triton what was noted."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    target = GPUTarget("cuda", 90, 32)
    module = load(program, program.read_text().partition(TESTS)[0])
    warm = load(kernels.with_name("warm_up.py"), WARM_UP).warm_up
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "N": "constexpr"}
    triton.compile(ASTSource(fn=warm, signature=signature, constexprs={"N": 128}), target=target)
    made: dict[str, Any] = {}
    for number, note in json.loads(kernels.read_text()).items():
        made[number] = {"kernel": note["kernel"]}
        try:
            kernel = getattr(module, note["kernel"])
            while not isinstance(kernel, triton.JITFunction):
                kernel = kernel.fn
            constants = {name: restored(value, tl) for name, value in note["constants"].items()}
            types, aligned = {}, {}
            for place, name in enumerate(kernel.arg_names):
                text, _, promise = note["types"].get(name, "constexpr").partition(":")
                types[name] = text.replace("f32", "fp32").replace("f16", "fp16").replace("bfp16", "bf16")
                if promise == "16":
                    aligned[(place,)] = [["tt.divisibility", 16]]
            source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=aligned)
            begin = time.perf_counter()
            triton.compile(source, target=target, options=note["options"])
            made[number]["seconds"] = round(time.perf_counter() - begin, 4)
        except Exception as failure:
            made[number]["error"] = f"Triton: {type(failure).__name__}: {failure}"[:200]
    return {"kernels": made}


SIDES = {"deuteron": ours, "triton": theirs}


def pretend() -> None:
    """PyTorch's arrays are made on the CPU, and say that they are on a GPU of compute capability 9.0."""
    import torch
    from cuda_on_cpu import CudaOnCpu, autocast_on_cpu

    autocast_on_cpu((9, 0))
    CudaOnCpu().__enter__()

    class Properties:
        multi_processor_count, total_memory, name, major, minor = 132, 1 << 37, "H200", 9, 0

    cuda: Any = torch.cuda
    cuda.is_available, cuda.device_count, cuda.current_device = lambda: True, lambda: 1, lambda: 0
    cuda.synchronize = cuda.empty_cache = lambda *_: None
    cuda.get_device_properties = lambda *_: Properties
    torch.Tensor.is_cuda = property(lambda self: True)  # type: ignore[assignment, method-assign]


def load(path: Path, text: str) -> ModuleType:
    """``text`` as a module whose source can be looked up."""
    copy = Path(tempfile.mkdtemp()) / f"{path.stem}.py"
    copy.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, copy)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def plain(value: object) -> object:
    """A compile-time value as JSON: element types by their names."""
    spelling = getattr(value, "spelling", None)
    if spelling is not None:
        return {"dtype": spelling}
    if isinstance(value, float):
        return {"float": repr(value)}
    return value if value is None or isinstance(value, bool | int | str) else {"other": repr(value)}


def restored(value: Any, language: Any) -> object:
    """What :func:`plain` wrote, for Triton."""
    if not isinstance(value, Mapping):
        return value
    if "other" in value:
        raise ValueError(f"the compile-time value {value['other']} is not written down")
    return float(value["float"]) if "float" in value else getattr(language, value["dtype"])


def document(rows: list[dict[str, Any]]) -> dict[str, object]:
    """What is written."""
    ratios = [row["ratio"] for row in rows if row.get("ratio")]
    mean = round(statistics.geometric_mean(ratios), 4) if ratios else None
    summary = {"kernels": len(ratios), "geomean": mean, "largest": max(ratios, default=None)}
    return {"summary": summary, "cores": os.cpu_count(), "rows": rows}


def table(rows: list[dict[str, Any]]) -> str:
    """The slowest beside Triton, and the figures of all."""
    timed = sorted((row for row in rows if row.get("ratio")), key=lambda row: -float(row["ratio"]))
    lines = [f"{r['program']:32}{r['kernel']:40}{r['seconds']:8.3f}{r['triton_seconds']:8.3f}{r['ratio']:8.3f}"
             for r in timed[:12]]  # fmt: skip
    if timed:
        total = statistics.geometric_mean(float(row["ratio"]) for row in timed)
        lines.append(
            f"{len(timed)} kernels: our time over Triton's {total:.3f} in the geomean, {timed[0]['ratio']} at most"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
