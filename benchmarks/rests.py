"""What it is worth to rest before a launch is timed, and to hold the launch back until the host has enqueued it.

python benchmarks/rests.py [--out FILE] [--rounds 40]

Products of bf16 matrices in three configurations, of which the second's tile is another one, are launched in turns, in
ways of timing: "enqueued", after a launch that is not timed, as the host comes to it; "held back"; and behind rests of
so many times the launch. Of each: the median in microseconds, how far apart the quartiles are in percent, the medians
and the quartiles' distance of ratios to the first configuration in the same round, and seconds for all. Then a launch
of microseconds beside twice as many busy processes as there are cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from gemm_work import Product, kernel
from sources import environment

import deuteron

SHAPES = ((4096, 4096, 4096), (4096, 14336, 4096), (8192, 8192, 8192))
TILES = ((128, 256, 8), (256, 128, 8), (128, 256, 16))
#: Whether a launch that is not timed comes before, whether the device is held back, rest in times of the launch.
WAYS = {
    "enqueued": (True, False, 0.0),
    "held back": (True, True, 0.0),
    "rest of 0.5": (False, True, 0.5),
    "rest of 1": (False, True, 1.0),
    "rest of 2": (False, True, 2.0),
}
SMALL_LAUNCHES = 300


def launch_of(
    product: Product, rows: int, columns: int, group: int, deep: int = 64, warps: int = 8
) -> Callable[[], Any]:
    """A launch of the example's product on random matrices, compiled."""
    a = torch.randn(product.m, product.k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(product.k, product.n, device="cuda", dtype=torch.bfloat16)
    c = torch.empty(product.m, product.n, device="cuda", dtype=torch.bfloat16)
    blocks = {"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": columns, "BLOCK_SIZE_K": deep, "GROUP_SIZE_M": group}
    options = {**blocks, "ACTIVATION": "", "num_warps": warps, "num_stages": 4, "persistent": True}
    grid = (deuteron.cdiv(product.m, rows) * deuteron.cdiv(product.n, columns),)
    bound: Callable[[], Any] = kernel("deuteron").bound(grid, a, b, c, *product.integers, **options)
    bound()
    return bound


def sample(launch: Callable[[], Any], untimed: bool, held: bool, rest_us: float) -> float:
    """Microseconds of one launch after the L2 was flushed."""
    device = deuteron.get_device("cuda:0")
    if untimed:
        launch()
    timer = device.timer()
    device.flush_l2()
    with device.held_back(rest_us * 1e3) if held else contextlib.nullcontext():
        timer.start()
        launch()
        timer.stop()
    return timer.elapsed_ns() / 1e3


def spread(values: Sequence[float]) -> float:
    """How far apart the quartiles are, in percent of the median."""
    low, middle, high = statistics.quantiles(values, n=4)
    return 100 * (high - low) / middle


def in_turns(launches: Sequence[Callable[[], Any]], way: tuple[bool, bool, float], rounds: int) -> dict[str, Any]:
    """Times of all launches in one way; the first eighth of the rounds warms up."""
    untimed, held, rest = way
    times: list[list[float]] = [[] for _ in launches]
    began = time.perf_counter()
    for turn in range(rounds):
        order = list(zip(launches, times, strict=True))
        for launch, own in order[:: -1 if turn % 2 else 1]:
            own.append(sample(launch, untimed, held, rest * own[-1] if own else 0.0))
    seconds = time.perf_counter() - began
    kept = [own[rounds // 8 :] for own in times]
    ratios = [[other / first for first, other in zip(kept[0], own, strict=True)] for own in kept[1:]]
    return {
        "us": [round(statistics.median(own), 2) for own in kept],
        "spread": [round(spread(own), 2) for own in kept],
        "ratio": [round(statistics.median(own), 4) for own in ratios],
        "ratio_spread": [round(spread(own), 2) for own in ratios],
        "seconds": round(seconds, 3),
    }


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many that compute."""
    made = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    time.sleep(1.0)
    try:
        yield
    finally:
        for process in made:
            process.kill()
            process.wait()


def beside_others(launch: Callable[[], Any]) -> dict[str, dict[str, float]]:
    """Median, 90 % and largest of the times of a short launch, enqueued and held back, alone and beside others."""
    found = {}
    for many in (0, 2 * (os.cpu_count() or 1)):
        with busy_processes(many):
            for held in (False, True):
                times = sorted(sample(launch, True, held, 0.0) for _ in range(SMALL_LAUNCHES))
                name = f"{'held back' if held else 'enqueued'}, {many} busy processes"
                places = {"median": len(times) // 2, "p90": len(times) * 9 // 10, "most": -1}
                found[name] = {what: round(times[place], 2) for what, place in places.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    products = {}
    for shape in SHAPES:
        product = Product(*shape, "bf16", False, "cuda:0")
        launches = [launch_of(product, *tile) for tile in TILES]
        products[str(product)] = {name: in_turns(launches, way, options.rounds) for name, way in WAYS.items()}
        for name, row in products[str(product)].items():
            print(f"{product!s:24} {name:12}", *(f"{key} {value}" for key, value in row.items()), flush=True)
    short = beside_others(launch_of(Product(256, 256, 256, "bf16", False, "cuda:0"), 64, 64, 8, warps=4))
    for name, row in short.items():
        print(f"{name:32}", *(f"{key} {value}" for key, value in row.items()))
    document = {"environment": environment(), "tiles": TILES, "products": products, "short": short}
    if options.out:
        options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
