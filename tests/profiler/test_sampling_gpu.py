"""Sampling program counters on a GPU. All in one file, so that one process of a test run does it at a time: the
hardware serves one."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
import deuteron.profiler as proton
from deuteron.profiler import sample_lines

EXAMPLES = Path(__file__).parents[2] / "examples"


@deuteron.jit
def copy(x, y, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)  # each program has its own: none waits for another's stores
    for _ in range(1000):
        moved = tl.load(x + at)
        tl.store(y + at, moved)


@pytest.mark.gpu
def test_a_kernel_and_one_of_torch_on_a_gpu(torch: Any, tree: Callable) -> None:
    x = torch.ones(8 * 1024, device="cuda")
    y = torch.zeros_like(x)
    copy[(1,)](x, y, SIZE=1024)  # without lines: compiled once more in the session
    torch.cuda.synchronize()
    proton.start("p", mode="pcsampling", backend="cupti")
    with proton.scope("ours"):
        for _ in range(3):
            copy[(1,)](x, y, SIZE=1024)
    big = torch.ones(1 << 26, device="cuda")
    with proton.scope("torch"):
        big.add_(1.0)
        with proton.scope("inner"):
            copy[(8,)](x, y, SIZE=1024)
    proton.deactivate(flushing=True)
    kernel = tree("ours", "copy")
    assert kernel["metrics"]["count"] == 3 and kernel["metrics"]["time (ns)"] > 3000
    text = Path(__file__).read_text().splitlines()
    places = {
        n for n, line in enumerate(text, 1) if line.strip() in ("moved = tl.load(x + at)", "tl.store(y + at, moved)")
    }
    by_line = {child["frame"]["name"]: child["metrics"]["num_samples"] for child in kernel["children"]}
    frames = {f"{Path(__file__)}:{line}@copy" for line in places}
    # The load is issued and the store waits for it, so that samples may come of the store alone.
    frames &= by_line.keys()
    assert frames and len(places) == 2
    everything = sum(by_line.values()) + kernel["metrics"].get("num_samples", 0)
    assert sum(by_line[frame] for frame in frames) > 0.5 * everything > 50
    reasons = [child["metrics"] for child in kernel["children"]]
    for metrics in reasons:
        waits = sum(count for name, count in metrics.items() if name.startswith("stalled_"))
        assert waits == metrics["num_samples"] >= metrics["num_stalled_samples"]
    (add,) = (child for child in tree("torch")["children"] if "elementwise" in child["frame"]["name"])
    assert add["metrics"]["num_samples"] > 100 and add["children"] == []
    assert add["metrics"]["count"] == 1 and add["metrics"]["time (ns)"] > 10_000
    inner = tree("torch", "inner", "copy")
    # Eight programs, each as long as those of the other launches, which were three of one program.
    inside = sum(child["metrics"]["num_samples"] for child in inner["children"])
    assert 1.5 < inside / sum(by_line.values()) < 4.5
    proton.finalize()
    assert float(y.sum()) == 8 * 1024
    proton.start("q", backend="cupti")
    copy[(1,)](x, y, SIZE=1024)
    proton.deactivate(flushing=True)
    plain = tree("copy", session=1)["metrics"]
    assert plain["count"] == 1 and "num_samples" not in plain


@deuteron.jit
def copy_late(x, y, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    for _ in range(1001):
        tl.store(y + at, tl.load(x + at))


@pytest.mark.gpu
def test_kernels_that_are_loaded_between_sessions_have_samples_on_a_gpu(torch: Any, tree: Callable) -> None:
    x = torch.ones(1 << 22, device="cuda")
    y = torch.zeros_like(x)
    kernels = {
        "mul": lambda: x.mul_(1.0),
        "sin": lambda: x.sin_(),
        "late": lambda: copy_late[(1,)](x, y, SIZE=1024),
        "cos": lambda: x.cos_(),
    }
    for number, name in enumerate(kernels):
        kernels[name]()
        torch.cuda.synchronize()
        proton.start(f"p{number}", mode="pcsampling", backend="cupti")
        for other in list(kernels)[: number + 1]:
            with proton.scope(other):
                for _ in range(20):
                    kernels[other]()
        proton.deactivate(flushing=True)
        for other in list(kernels)[: number + 1]:
            (kernel,) = tree(other, session=number)["children"]
            found = [kernel, *kernel["children"]]
            assert sum(child["metrics"].get("num_samples", 0) for child in found) > 100, (number, other)
        proton.finalize()


@pytest.mark.gpu
def test_many_launches_keep_their_places_on_a_gpu(torch: Any, tree: Callable) -> None:
    """Two kernels in turn, as fast as they can be launched."""
    x = torch.ones(1 << 22, device="cuda")
    y = torch.ones(512, 512, device="cuda", dtype=torch.float16)
    torch.mm(y, y)
    x.mul_(1.0)
    torch.cuda.synchronize()
    begin = time.monotonic()
    proton.start("p", mode="pcsampling:interval=256")
    for _ in range(100):
        with proton.scope("elementwise"):
            x.mul_(1.0)
        with proton.scope("product"):
            torch.mm(y, y)
    proton.deactivate(flushing=True)
    print(f"200 launches took {time.monotonic() - begin:.2f} s")
    for scope, other in (("elementwise", "gemm|nvjet|cutlass|xmma"), ("product", "elementwise")):
        kernels = tree(scope)["children"]
        names = [kernel["frame"]["name"] for kernel in kernels]
        assert not any(word in name for name in names for word in other.split("|")), names
        assert sum(kernel["metrics"].get("num_samples", 0) for kernel in kernels) > 1000
        assert sum(kernel["metrics"]["count"] for kernel in kernels) >= 100
    assert {child["frame"]["name"] for child in proton.data.get()[0]["children"]} == {"elementwise", "product"}  # type: ignore[index]


@pytest.mark.gpu
def test_a_product_is_sampled_at_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from deuteron.compiler.runtime.devices import get_device

    monkeypatch.syspath_prepend(str(EXAMPLES))
    spec = importlib.util.spec_from_file_location("sampled_matmul", EXAMPLES / "matmul.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    device, size = get_device("cuda:0"), 2048
    a, b, c = (device.array(np.ones((size, size), np.float16)) for _ in range(3))
    sizes = (size, size, size, size, 1, size, 1, size, 1)
    blocks = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8, "ACTIVATION": ""}
    grid = ((size // 128) ** 2,)
    kernel = module.matmul_kernel.fn[grid](a, b, c, *sizes, **blocks)
    found = sample_lines(kernel, grid, a, b, c, *sizes, *blocks.values())
    text = (EXAMPLES / "matmul.py").read_text().splitlines()
    print(found)
    assert found.count > 1000 and found.dropped == 0
    dot = next(n for n, line in enumerate(text, 1) if "tl.dot" in line)
    begin = max(n for n, line in enumerate(text[:dot], 1) if line.lstrip().startswith("for "))
    at = {line.line.line: line.count for line in found.lines if line.line}
    assert at.get(dot, 0) > 0
    # Warps that only copy wait elsewhere.
    assert sum(count for line, count in at.items() if begin <= line <= dot) > 0.1 * found.count
    assert float(c.to_numpy()[5, 7]) == size
