"""Metrics that a real GPU tells, against what torch says of the same tensors."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deuteron.profiler as proton

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64", "int32", "uint8", "bool"])
def test_tensors_of_every_type_arrive(dtype: str, torch: Any, tree: Callable[..., dict]) -> None:
    rng = random.Random(dtype)
    kind = getattr(torch, dtype)
    proton.start("p", backend="cupti")
    wanted: dict[str, np.ndarray] = {}
    for number in range(60):
        size = rng.choice([1, 2, 127, 128, 129, 300])
        whole = (torch.rand(2 * size, device="cuda") * 50).to(kind)
        tensor = whole[::2] if number % 2 else whole[:size]
        with proton.scope(f"of {size}", {"x": tensor}):
            pass
        told = tensor.to(torch.float64).cpu().numpy()
        wanted[f"of {size}"] = wanted.get(f"of {size}", 0) + told
        whole.zero_()  # the kernel comes first
    proton.deactivate(flushing=True)
    for name, sums in wanted.items():
        np.testing.assert_allclose(np.array(tree(name)["metrics"]["x"], ndmin=1), sums, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_graphs_tell_what_they_find_at_each_replay(seed: int, torch: Any, tree: Callable[..., dict]) -> None:
    rng = random.Random(seed)
    proton.start("p", backend="cupti")
    graphs: list[tuple[Any, list[tuple[str, Any, int]]]] = []
    for number in range(3):
        layers = [(f"layer {number}{at}", torch.zeros(1, device="cuda"), rng.randint(1, 9)) for at in range(3)]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for name, tensor, constant in layers:
                with proton.scope(name, {"twice": tensor * 2, "constant": constant}):
                    tensor + 1
        graphs.append((graph, layers))
    sums: Counter[tuple[str, str, str]] = Counter()
    for _ in range(200):
        graph, layers = rng.choice(graphs)
        place = rng.choice("AB")
        for name, tensor, constant in layers:
            value = rng.randint(-100, 100)
            tensor.fill_(value)
            sums[place, name, "twice"] += 2 * value
            sums[place, name, "constant"] += constant
        with proton.scope(place):
            graph.replay()
        if rng.random() < 0.02:
            proton.deactivate(flushing=True)
            proton.activate()
    proton.deactivate(flushing=True)
    for (place, name, metric), total in sums.items():
        assert tree(place, "<captured_at>", name)["metrics"][metric] == total, (place, name, metric)


def test_ranges_of_torch_are_scopes(tmp_path: Any) -> None:
    """In a process of its own: who listens to NVTX is settled at its first call."""
    import json
    import subprocess
    import sys

    program = """
import torch
import deuteron.profiler as proton

x = torch.ones(8, device="cuda")
proton.start("ranges", backend="cupti")
with proton.scope("A"), torch.cuda.nvtx.range("größer"):
    x + x
proton.finalize()
"""
    subprocess.run([sys.executable, "-P", "-c", program], check=True, cwd=tmp_path, timeout=120)
    (scope,) = json.loads((tmp_path / "ranges.hatchet").read_text())[0]["children"]
    (inner,) = scope["children"]
    assert (scope["frame"]["name"], inner["frame"]["name"]) == ("A", "größer")
    assert inner["children"][0]["metrics"]["count"] == 1
