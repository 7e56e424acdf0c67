"""Trees that the profiler and Proton make of the same work on a GPU: same frames, same counts, how near the times.

python benchmarks/gpu_trees.py [--out FILE]

The work: products and elementwise kernels on two streams, on two threads, in a replayed CUDA graph, forward and
backward of a small network. Each profiler records it in a process of its own, several times, in turns, because CUPTI
serves one client per process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

PROFILERS = {"deuteron": "deuteron.profiler", "proton": "triton.profiler"}
PROCESSES = 3
REPEATS = 20
#: Kernels that run shorter than this have times that two runs of one profiler do not agree on within 1 %.
STEADY_NS = 50_000

Path_ = tuple[str, ...]
Scope = Callable[[str], AbstractContextManager[object]]


def streams(scope: Scope) -> None:
    """A product on each of two streams."""
    import torch

    x = torch.randn(2048, 2048, device="cuda")
    for number in range(2):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), scope(f"stream {number}"):
            for _ in range(REPEATS):
                torch.mm(x, x)
        stream.synchronize()


def threads(scope: Scope) -> None:
    """Elementwise kernels from two threads, one after the other, each in a scope of its own."""
    import torch

    def run(number: int) -> None:
        x = torch.ones(1 << 26, device="cuda")
        with scope(f"thread {number}"):
            for _ in range(REPEATS):
                x.mul_(2.0 if number else 0.5)
        torch.cuda.synchronize()

    for number in range(2):
        thread = threading.Thread(target=run, args=(number,))
        thread.start()
        thread.join()


def graph(scope: Scope) -> None:
    """Two kernels captured under scopes and replayed under another."""
    import torch

    x = torch.randn(2048, 2048, device="cuda")
    torch.mm(x, x).relu_()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured), scope("captured"):
        with scope("product"):
            y = torch.mm(x, x)
        with scope("relu"):
            y.relu_()
    with scope("replays"):
        for _ in range(REPEATS):
            captured.replay()
    torch.cuda.synchronize()


def backward(scope: Scope) -> None:
    """A network of two layers; its gradients are computed by torch's own thread."""
    import torch

    network = torch.nn.Sequential(torch.nn.Linear(2048, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 2048)).cuda()
    x = torch.randn(1024, 2048, device="cuda")
    for _ in range(REPEATS):
        with scope("forward"):
            loss = network(x).square().mean()
        with scope("backward"):
            loss.backward()
    torch.cuda.synchronize()


WORK = (streams, threads, graph, backward)


def child(who: str) -> None:
    """Run the work under a profiler and print (path, launches, ns) of each kernel."""
    import importlib

    import torch

    torch.manual_seed(0)
    proton = importlib.import_module(PROFILERS[who])
    with tempfile.TemporaryDirectory() as folder:
        session = proton.start(str(Path(folder) / "work"))
        for work in WORK:
            with proton.scope(work.__name__):
                work(proton.scope)
        torch.cuda.synchronize()
        proton.finalize(session)
        tree = json.loads((Path(folder) / "work.hatchet").read_text())[0]
    print(json.dumps(list(kernels(tree, ()))))


def kernels(node: dict, outer: Path_) -> Iterator[tuple[Path_, int, float]]:  # type: ignore[type-arg]
    """(frames from the root on, launches, ns) of each frame that has a time."""
    path = (*outer, node["frame"]["name"])
    if node["metrics"].get("time (ns)"):
        yield path, node["metrics"]["count"], node["metrics"]["time (ns)"]
    for inner in node["children"]:
        yield from kernels(inner, path)


def recorded(who: str) -> dict[Path_, tuple[int, float]]:
    """Launches and mean ns by path, of a process of its own."""
    command = [sys.executable, __file__, "--child", who]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=90)
    found: dict[Path_, tuple[int, float]] = {}
    for path, launches, time in json.loads(done.stdout.splitlines()[-1]):
        found[tuple(path)] = (launches, time / launches)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", choices=PROFILERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    runs: dict[str, list[dict[Path_, tuple[int, float]]]] = {who: [] for who in PROFILERS}
    for _ in range(PROCESSES):
        for who, found in runs.items():
            found.append(recorded(who))
    ours, theirs = (found[0] for found in runs.values())
    rows = []
    for path in sorted(ours.keys() | theirs.keys()):
        counts = [side[path][0] if path in side else None for side in (ours, theirs)]
        if None in counts or counts[0] != counts[1]:
            print(f"differs: {' / '.join(path)}: {counts[0]} launches here, {counts[1]} in Proton's tree")
            rows.append({"path": path, "launches": counts})
            continue
        times = [statistics.median(run[path][1] for run in found) for found in runs.values()]
        rows.append({"path": path, "launches": counts, "ns": times})
    steady = [row["ns"][0] / row["ns"][1] for row in rows if "ns" in row and row["ns"][1] >= STEADY_NS]
    same = sum("ns" in row for row in rows)
    print(
        f"{same} of {len(rows)} frames with the same path and launches; times of {len(steady)} that take 50 us or more:"
    )
    print(f"here / Proton's {min(steady):.4f} to {max(steady):.4f}, medians of {PROCESSES} processes each")
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
