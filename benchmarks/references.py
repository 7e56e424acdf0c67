"""Products in float64 that references take, on a device with NumPy's proof and by NumPy alone.

python benchmarks/references.py [--device cuda:0] [--sizes 4096 8192] [--repeats 3] [--out FILE]

Square matrices from host to host, in seconds, the best of the repeats: transfers there and back, the kernel, and the
check that the result is the product. NumPy takes all cores. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from sources import environment

from deuteron.compiler.runtime.devices import get_device
from deuteron.tuner.evaluate.products import Multiplier, is_product


def best(function: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest of so many calls."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return round(min(seconds), 4)


def compare(multiplier: Multiplier, size: int, repeats: int) -> dict[str, object]:
    """Times of both for matrices of ``size`` x ``size``, and of the check alone."""
    rng = np.random.default_rng(size)
    a, b = (rng.standard_normal((size, size)) for _ in range(2))
    made = multiplier.product(a, b)
    if made is None:
        raise SystemExit(f"the device did not take the product of {size} x {size} matrices")
    return {
        "size": size,
        "device": best(lambda: multiplier.product(a, b), repeats),
        "check": best(lambda: is_product(a, b, made), repeats),
        "numpy": best(lambda: a @ b, repeats),
        "largest difference": float(np.abs(made - a @ b).max()),
    }


def main() -> None:
    """Both for each size, as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    multiplier = Multiplier(get_device(options.device), nullcontext, least=0)
    products = [compare(multiplier, size, options.repeats) for size in options.sizes]
    text = json.dumps({"environment": environment(), "device": options.device, "products": products}, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
