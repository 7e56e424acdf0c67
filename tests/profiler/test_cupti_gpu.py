"""CUPTI on a real GPU: our launches and PyTorch's land in the right place with the times that events show."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import deuteron as triton
import deuteron.language as tl
import deuteron.profiler as proton
import deuteron.profiler.viewer as proton_viewer
from deuteron.profiler import Profile

pytestmark = pytest.mark.gpu


N = 1 << 26  # three arrays of 256 MiB: far more than any cache


def metadata(grid: object, kernel: object, arguments: dict) -> dict:
    return {
        "name": f"add_{arguments['n']}",
        "flops32": float(arguments["n"]),
        "bytes": 12 * arguments["n"],
    }


@triton.jit(launch_metadata=metadata)
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@pytest.fixture
def run_add(torch: Any) -> Callable[[], None]:
    x, y = (torch.ones(N, device="cuda") for _ in range(2))
    out = torch.empty_like(x)

    def run() -> None:
        add[(triton.cdiv(N, 1024),)](x, y, out, N, BLOCK=1024)

    run()
    torch.cuda.synchronize()
    return run


def test_our_launches_with_metadata(run_add: Callable, tree: Callable[..., dict]) -> None:
    session = proton.start("p", hook="triton", backend="cupti")
    with proton.scope("A"):
        for _ in range(5):
            run_add()
        with proton.scope("B"):
            run_add()
    proton.deactivate(session, flushing=True)
    metrics = tree("A", f"add_{N}")["metrics"]
    assert metrics["count"] == 5
    assert metrics["bytes"] == 5 * 12 * N
    assert metrics["device_type"] == "CUDA" and metrics["device_id"] == "0"
    # 12 bytes an element between 1 and 10 TB/s.
    assert 80_000 < metrics["time (ns)"] / 5 < 805_307
    assert tree("A", "B", f"add_{N}")["metrics"]["count"] == 1
    proton.finalize()
    device = Profile.read("p.hatchet").devices["CUDA"]["0"]
    assert int(device["arch"]) >= 70 and device["num_sms"] > 0 and device["bus_width"] > 0


def test_utilisation_of_our_launches(run_add: Callable) -> None:
    pytest.importorskip("hatchet", reason="needs the extra viewer: pip install 'deuteron[viewer]'")
    proton.start("p", hook="triton", backend="cupti")
    run_add()
    proton.finalize()
    util = proton_viewer.render("p.hatchet", ["util"])
    value = next(float(line.split()[-2]) for line in util.splitlines() if line.endswith(f"add_{N}"))
    assert 0.1 < value < 1.1


def test_without_hook_kernels_have_their_own_names(run_add: Callable, tree: Callable[..., dict]) -> None:
    proton.start("p")
    with proton.scope("A"), proton.state("S"):
        run_add()
    proton.deactivate(flushing=True)
    kernels = tree("A", "S")["children"]
    assert [k["metrics"]["count"] for k in kernels] == [1]
    assert "add" in kernels[0]["frame"]["name"]


def test_times_agree_with_events(torch: Any, tree: Callable[..., dict]) -> None:
    """Events also count what other processes do on the GPU meanwhile, so one of five quiet tries has to agree."""
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    torch.mm(x, x)
    torch.cuda.synchronize()
    proton.start("p")
    torch.mm(x, x)  # CUPTI prepares the device at the first launch it sees
    tries = {f"mm {i}": [torch.cuda.Event(enable_timing=True) for _ in range(2)] for i in range(5)}
    for name, (start, end) in tries.items():
        with proton.scope(name):
            start.record()
            for _ in range(20):
                torch.mm(x, x)
            end.record()
        torch.cuda.synchronize()
    proton.deactivate(flushing=True)
    ratios = []
    for name, (start, end) in tries.items():
        kernels = [kernel["metrics"] for kernel in tree(name)["children"]]
        assert sum(kernel["count"] for kernel in kernels) >= 20
        ratios.append(sum(kernel["time (ns)"] for kernel in kernels) / 1e6 / start.elapsed_time(end))
    assert any(ratio == pytest.approx(1, rel=0.05) for ratio in ratios), ratios


def test_threads_and_graphs_of_torch(torch: Any, tree: Callable[..., dict]) -> None:
    x = torch.ones(1 << 20, device="cuda")
    graph = torch.cuda.CUDAGraph()
    x.mul_(1.0)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(3):
            x.mul_(1.0)
    proton.start("p")

    def work() -> None:
        with proton.scope("thread"):
            x.add_(1.0)

    with proton.scope("main"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        with proton.scope("replay"):
            graph.replay()
            graph.replay()
    proton.deactivate(flushing=True)
    assert sum(k["metrics"]["count"] for k in tree("main", "thread")["children"]) == 1
    assert sum(k["metrics"]["count"] for k in tree("main", "replay")["children"]) == 6


def test_many_launches_are_all_counted(torch: Any, tree: Callable[..., dict]) -> None:
    x = torch.ones(16, device="cuda")
    proton.start("p")
    for _ in range(20):
        with proton.scope("loop"):
            for _ in range(1000):
                x.add_(1.0)
    proton.deactivate(flushing=True)
    assert sum(k["metrics"]["count"] for k in tree("loop")["children"]) == 20_000
    assert len(tree()["children"]) == 1


def test_sessions_one_after_the_other(run_add: Callable) -> None:
    for name in ("one", "two"):
        proton.start(name)
        with proton.scope(name):
            run_add()
        proton.finalize()
        (scope,) = Profile.read(f"{name}.hatchet").to_literal()[0]["children"]
        assert scope["frame"]["name"] == name
        assert [kernel["metrics"]["count"] for kernel in scope["children"]] == [1]


def test_a_second_profiler_in_the_process_gets_a_message(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(
        "import deuteron.profiler as proton\n"
        "from deuteron.profiler import CuptiError\n"
        "from deuteron.profiler.sources.cupti import CuptiSource\n"
        "proton.start('p', backend='cupti')\n"
        "try:\n"
        "    CuptiSource().start()\n"
        "except CuptiError as error:\n"
        "    print(error)\n"
        "proton.finalize()\n"
    )
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS" in done.stdout


def test_trace_has_scopes_and_kernels_on_one_clock(torch: Any, run_add: Callable) -> None:
    proton.start("warm")
    run_add()
    proton.finalize()
    proton.start("t", data="trace")
    with proton.scope("A"):
        run_add()
        torch.cuda.synchronize()
    proton.finalize()
    events = json.loads(Path("t.chrome_trace").read_text())["traceEvents"]
    (scope,) = [event for event in events if event.get("cat") == "scope"]
    (kernel,) = [event for event in events if event.get("cat") == "kernel"]
    assert kernel["args"]["call_stack"][:2] == ["ROOT", "A"]
    # The clocks of host and device are set once; a millisecond of slack for their drift.
    assert scope["ts"] - 1000 < kernel["ts"]
    assert kernel["ts"] + kernel["dur"] < scope["ts"] + scope["dur"] + 1000


def test_trace_has_an_arrow_from_each_launch_and_copies_in_lanes_of_their_own(torch: Any, run_add: Callable) -> None:
    host, device = torch.ones(1 << 20).pin_memory(), torch.empty(1 << 20, device="cuda")
    proton.start("t", data="trace", hook="triton")
    with proton.scope("A"):
        for _ in range(3):
            run_add()
        device.copy_(host, non_blocking=True)
        device.zero_()
        torch.cuda.synchronize()
    proton.finalize()
    events = json.loads(Path("t.chrome_trace").read_text())["traceEvents"]
    kernels = [event for event in events if event.get("name") == f"add_{N}"]
    assert [event["args"]["metrics"]["bytes"] for event in kernels] == [str(12 * N)] * 3
    calls = {event["args"]["correlation"]: event for event in events if event.get("cat") == "launch"}
    ends = {(event["tid"], event["ts"]) for event in events if event["ph"] == "f"}
    for kernel in kernels:
        call = calls[kernel["args"]["correlation"]]
        assert call["name"].startswith("cuLaunchKernel") and call["tid"] == threading.get_native_id()
        assert call["ts"] - 1000 < kernel["ts"] and (kernel["tid"], kernel["ts"]) in ends
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    (copy,) = [event for event in events if event.get("cat") == "memcpy"]
    assert copy["name"] == "memcpy HtoD" and copy["args"]["metrics"] == {"bytes": str(4 << 20)}
    assert lanes[copy["tid"]].endswith("memcpy")
