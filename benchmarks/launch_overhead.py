"""Host time of one launch with four arguments, against torch and Triton where they are installed. Prints JSON.

python benchmarks/launch_overhead.py [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import deuteron
import deuteron.language as tl

#: Fewer launches than a GPU's queue takes before a launch has to wait for the device.
BATCH = 200
BATCHES = 25


@deuteron.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
    tl.store(out + i, total, mask=i < n)


def microseconds(launch: Callable[[], object], synchronize: Callable[[], object]) -> float:
    """Median over batches of the host's time for one launch."""
    launch()
    synchronize()
    batches = []
    for _ in range(BATCHES):
        start = time.perf_counter_ns()
        for _ in range(BATCH):
            launch()
        batches.append((time.perf_counter_ns() - start) / BATCH / 1e3)
        synchronize()
    return statistics.median(batches)


def own(device: deuteron.compiler.Device, arrays: list[Any]) -> dict[str, float]:
    x, y, out = arrays

    def grid(meta: Any) -> tuple[int, ...]:
        return (deuteron.cdiv(meta["n"], meta["BLOCK"]),)

    ready = add[(1,)]
    return {
        "grid tuple": microseconds(lambda: add[(1,)](x, y, out, 128, BLOCK=128), device.synchronize),
        "grid function": microseconds(lambda: add[grid](x, y, out, 128, BLOCK=128), device.synchronize),
        "with options": microseconds(lambda: add[(1,)](x, y, out, 128, BLOCK=128, num_warps=4), device.synchronize),
        "kernel[grid] kept": microseconds(lambda: ready(x, y, out, 128, 128), device.synchronize),
    }


def others() -> dict[str, float]:
    """torch's and Triton's launch of the same work."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    x = torch.zeros(128, device="cuda")
    y, out = torch.zeros_like(x), torch.zeros_like(x)
    found = {"torch.add": microseconds(lambda: torch.add(x, y, out=out), torch.cuda.synchronize)}
    found |= {f"deuteron, torch tensors, {k}": v for k, v in own(deuteron.get_device("cuda:0"), [x, y, out]).items()}
    try:
        import triton
        import triton.language
    except ImportError:
        return found
    names = {"triton": triton, "tl": triton.language}
    kernel = triton.jit(_triton_add(names))
    found["triton, grid tuple"] = microseconds(lambda: kernel[(1,)](x, y, out, 128, BLOCK=128), torch.cuda.synchronize)
    return found


def _triton_add(names: dict[str, Any]) -> Any:
    """The same kernel with Triton's names as its globals; Triton reads the source of ``add``."""
    import types

    original = add.fn
    if original is None:
        raise TypeError("add is a function")
    made = types.FunctionType(original.__code__, {**original.__globals__, **names}, "add")
    made.__annotations__ = {"BLOCK": names["tl"].constexpr}
    made.__module__, made.__qualname__ = original.__module__, original.__qualname__
    return made


def main() -> None:
    """Measure every device of this machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    result: dict[str, dict[str, float]] = {}
    for device in deuteron.list_devices()[:2]:
        arrays = [device.array(np.zeros(128, np.float32)) for _ in range(3)]
        result[f"{device.name} {device.properties.name}"] = own(device, arrays)
    result["others"] = others()
    text = json.dumps({k: {n: round(v, 2) for n, v in r.items()} for k, r in result.items()}, indent=2)
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
