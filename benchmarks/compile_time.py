"""How long compiling takes, without the disk cache: the time that a search is made of.

python benchmarks/compile_time.py [--out FILE]

Each figure is taken in fresh processes. ``first`` includes what a process does once (loading LLVM, parsing the
library); ``next`` is the median of further variants in the same process. No GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROCESSES = 5

KERNELS = {
    "vector add": (
        "vector_add.py:add_kernel",
        {
            "x_ptr": "*fp32:16",
            "y_ptr": "*fp32:16",
            "output_ptr": "*fp32:16",
            "n_elements": "i32:16",
        },
        [{"BLOCK_SIZE": b} for b in (1024, 512, 2048)],
    ),
    "softmax 4096": (
        "softmax.py:softmax_kernel",
        {"output_ptr": "*fp32:16", "input_ptr": "*fp32:16", "input_row_stride": "i32:16"}
        | {"output_row_stride": "i32:16", "n_rows": "i32", "n_cols": "i32"},
        [{"BLOCK_SIZE": b, "num_stages": 2} for b in (4096, 2048, 8192)],
    ),
    "matmul 128x128x32": (
        "matmul.py:matmul_kernel",
        {
            "a_ptr": "*fp16:16",
            "b_ptr": "*fp16:16",
            "c_ptr": "*fp16:16",
            "M": "i32:16",
            "N": "i32:16",
        }
        | {"K": "i32:16", "stride_am": "i32:16", "stride_ak": "i32:1", "stride_bk": "i32:16"}
        | {"stride_bn": "i32:1", "stride_cm": "i32:16", "stride_cn": "i32:1"},
        [
            {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": g} | {"ACTIVATION": ""}
            for k, g in ((32, 8), (32, 4), (32, 2))
        ],
    ),
}

CHILD = """
import json, sys, time
name, stage = sys.argv[1:3]
path, signature, variants = json.loads(sys.argv[3])
start = time.perf_counter()
import deuteron
imported = time.perf_counter()
heavy = [m for m in ("llvmlite", "fastapi", "pandas", "matplotlib") if m in sys.modules]
from deuteron.compiler import KernelSource, compile
from deuteron.compiler import knobs
times = []
with knobs.always_compile.scope(True):
    for constexprs in variants:
        begin = time.perf_counter()
        file, kernel = path.split(":")
        source = KernelSource.from_file(file, kernel)
        made = compile(source, signature=signature, constexprs=constexprs, target="cuda:90a")
        spent = time.perf_counter() - begin
        times.append(spent - (made.metadata.cubin_ms / 1e3 if stage == "ptx" else 0.0))
print(json.dumps({"import": imported - start, "heavy": heavy, "times": times}))
"""


def child(name: str, stage: str) -> dict[str, object]:
    """One fresh process: import time and the compile time of each variant, in seconds."""
    path, signature, variants = KERNELS[name]
    spec = json.dumps([str(ROOT / "examples" / path), signature, variants])
    command = [sys.executable, "-c", CHILD, name, stage, spec]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def milliseconds(values: list[float]) -> str:
    """Median and range."""
    median = statistics.median(values) * 1e3
    return f"{median:7.1f} ({min(values) * 1e3:.1f}-{max(values) * 1e3:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    record: dict[str, object] = {"python": platform.python_version(), "machine": platform.machine()}
    imports: list[float] = []
    print(f"{'ms, median (range)':24}{'first in a process':>28}{'next':>28}")
    for name in KERNELS:
        for stage in ("ptx", "cubin"):
            runs = [child(name, stage) for _ in range(PROCESSES)]
            first = [r["times"][0] for r in runs]  # type: ignore[index]
            later = [t for r in runs for t in r["times"][1:]]  # type: ignore[index]
            imports += [r["import"] for r in runs]  # type: ignore[misc]
            if any(r["heavy"] for r in runs):
                raise SystemExit(f"import deuteron loads {runs[0]['heavy']}")
            record[f"{name} to {stage}"] = {"first": first, "next": later}
            print(f"{name + ' to ' + stage:24}{milliseconds(first):>28}{milliseconds(later):>28}")
    record["import deuteron"] = imports
    print(f"{'import deuteron':24}{milliseconds(imports):>28}")
    if options.out:
        options.out.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
