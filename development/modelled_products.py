"""Times of matrix products on a modelled GPU: what predictions are developed and tested on where there is none.

A roofline of a multiprocessor (tensor cores, memory through L2, latency of the ring) by waves of programs, above it
that of the device's memory, and noise. The figures are near an H200's data sheet; shares and latencies are guesses. It
ranks configurations for reasons that hardware has, and measures nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from deuteron.tuner.cover import TimeTable

SMS, SHARED_BYTES, REGISTERS, WARPS = 132, 227 << 10, 65536, 64
#: A second: f16 operations and bytes of the device's memory; what L2 gives of the latter.
PEAK, BANDWIDTH, CACHED = 989e12, 4.8e12, 2.2

ROWS = (1, 4, 16, 32, 64, 128, 256, 1024, 4096)
PLANES = ((4096, 4096), (14336, 4096), (4096, 14336), (6144, 4096), (8192, 8192), (1024, 8192), (2048, 2048))


def shapes(planes: Sequence[tuple[int, int]] = PLANES, rows: Sequence[int] = ROWS) -> list[dict[str, int]]:
    """Every M with every N, K: 63 shapes."""
    return [{"M": m, "N": n, "K": k} for n, k in planes for m in rows]


def time_ns(shape: Mapping[str, int], config: Mapping[str, int]) -> float:
    """The modelled time of f16 inputs; infinite where shared memory is too small."""
    m, n, k = (shape[name] for name in "MNK")
    rows, columns, depth = (config[f"BLOCK_{name}"] for name in "MNK")
    warps, stages = config["num_warps"], config["num_stages"]
    shared, tile = stages * (rows + columns) * depth * 2, rows * columns
    if shared > SHARED_BYTES:
        return math.inf
    registers = warps * 32 * min(255, 40 + tile // (warps * 32))
    resident = max(1, min(SHARED_BYTES // shared, WARPS // warps, REGISTERS // registers))
    programs = math.ceil(m / rows) * math.ceil(n / columns)
    beside = min(resident, math.ceil(programs / SMS))
    share = min(1.0, math.pow(tile / 32768, 0.35)) * min(1.0, math.pow(depth / 64, 0.15))
    share *= 0.55 if tile > warps * 32 * 128 else 0.9 if tile < warps * 32 * 16 else 1.0
    compute = 2 * tile * depth / (PEAK / SMS / beside * share)
    hidden = min(1.0, 0.45 + 0.14 * stages * min(resident, 2))
    memory = (rows + columns) * depth * 2 * beside / (BANDWIDTH * CACHED / SMS * hidden)
    latency = 0.6e-6 / stages / min(resident, 2)
    waves = math.ceil(programs / (SMS * resident))
    busy = waves * (math.ceil(k / depth) * max(compute, memory, latency) + 2e-6 + tile * 4 / 2e11)
    again = 0.3 if config["GROUP_M"] == 1 and m > 2048 else 0.0
    least = (m * k + k * n * (1 + again) + m * n) * 2 / BANDWIDTH * (1.05 if config["GROUP_M"] > 1 else 1.12)
    return (max(busy, least) + 2e-6) * 1e9


def fits(shape: Mapping[str, int], config: Mapping[str, int]) -> bool:
    """What the space of the built-in matmul says of tiles and warps (tuner/workloads/builtin.py)."""
    tall, wide = (1 << max(0, shape[name] - 1).bit_length() for name in "MN")
    tile, warps = config["BLOCK_M"] * config["BLOCK_N"], config["num_warps"]
    return (
        min(64, tall) <= config["BLOCK_M"] <= max(64, tall)
        and min(64, wide) <= config["BLOCK_N"] <= max(64, wide)
        and 128 * warps <= tile <= 4096 * warps
        and config["num_stages"] <= max(2, -(-shape["K"] // config["BLOCK_K"]))
    )


def configurations(count: int, seed: int, among: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    """Half of them good somewhere among the shapes, the others drawn."""
    sizes, drawn = (16, 32, 64, 128, 256), random.Random(seed)
    everything = [
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": g, "num_warps": w, "num_stages": s}
        for m in sizes
        for n in sizes
        for k in (32, 64, 128)
        for g in (1, 8)
        for w in (4, 8)
        for s in (2, 3, 4, 5)
    ]
    good: dict[int, float] = {}
    for shape in among:
        times = {c: time_ns(shape, config) for c, config in enumerate(everything) if fits(shape, config)}
        best = min(times.values())
        for c in sorted(times, key=times.__getitem__)[:40]:
            good[c] = good.get(c, 0.0) + best / times[c]
    chosen = sorted(good, key=lambda c: -good[c])[: count // 2]
    rest = [c for c, config in enumerate(everything) if c not in chosen and any(fits(s, config) for s in among)]
    return [everything[c] for c in [*chosen, *drawn.sample(rest, count - len(chosen))]]


def table(
    count: int = 40, seed: int = 0, noise: float = 0.01, among: Sequence[Mapping[str, int]] | None = None
) -> TimeTable:
    """``count`` configurations at all shapes that they fit, each time off by ``noise`` (of its logarithm)."""
    measured, drawn = list(among or shapes()), random.Random(seed)
    configs = configurations(count, seed, measured)
    rows = []
    for shape in measured:
        times = {c: time_ns(shape, config) for c, config in enumerate(configs) if fits(shape, config)}
        rows.append({c: t * math.exp(drawn.gauss(0, noise)) for c, t in times.items() if t < math.inf})
    return TimeTable(tuple(measured), tuple(configs), tuple(rows), (1.0,) * len(measured))
