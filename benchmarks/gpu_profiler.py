"""Profiler on a GPU: what it costs beside Proton and torch.profiler, and whether its times are those of events.

Tiny kernels, with and without a scope around each, and products of 8192^3. Each profiler runs in processes of its own,
because CUPTI serves one client per process. In each it is switched on and off in turns. Launches are timed some at a
time, and the fastest of these blocks under a profiler is compared with the fastest without it: on rented machines a
core does half as much while somebody else uses its other half, so launches come from the core that is fastest at the
moment, and the other blocks say more of neighbours than of profilers. Then a million launches in one session, and how
much memory that takes.

python benchmarks/gpu_profiler.py --out results.json --profile NAME    writes NAME.hatchet too
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

#: Launches that are timed together, how often in a turn (15,000 launches), and after how many a core is chosen anew.
LAUNCHES, BLOCKS, ON_ONE_CORE = 500, 30, 10
#: Times that a profiler is switched on in one process.
TURNS = 4
#: Processes for each profiler.
PROCESSES = 2
MEASURED = ("deuteron", "proton", "torch")
MODES = ("tiny", "tiny in scopes", "8192^3")
PRODUCTS, PRODUCT_BLOCKS = 10, 9
#: Launches of the session whose memory is looked at.
MANY = 1_000_000

Scope = Callable[[str], contextlib.AbstractContextManager[object]]


@contextlib.contextmanager
def on_the_fastest_core() -> Iterator[None]:
    """Keep this thread, not others, on the core that counts fastest now."""
    cores = os.sched_getaffinity(0)

    def seconds(core: int) -> float:
        os.sched_setaffinity(0, {core})
        begin = time.perf_counter()
        for _ in range(50_000):
            pass
        return time.perf_counter() - begin

    os.sched_setaffinity(0, {min(cores, key=seconds)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def fastest_time(run: Callable[[], None], count: int, blocks: int) -> float:
    """Microseconds of each of the ``count`` launches in ``run``: the least of so many ``blocks``. Each choice of a core
    is followed by one that is not timed and brings the GPU to the clock that it can keep."""
    import torch

    times = []
    for done in range(0, blocks, ON_ONE_CORE):
        with on_the_fastest_core():
            run()
            for _ in range(min(ON_ONE_CORE, blocks - done)):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                run()
                torch.cuda.synchronize()
                times.append((time.perf_counter() - begin) / count * 1e6)
    return min(times)


def workloads() -> dict[str, Callable[[Scope], float]]:
    """Microseconds a launch by mode: tiny Triton-compiled kernels, and large products."""
    import torch
    from sources import load_kernels

    module = load_kernels("vector_add", "triton")
    x, y = (torch.randn(1024, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    launch = module.add_kernel[(1,)]
    large = torch.randn(8192, 8192, device="cuda").to(torch.bfloat16)
    product = torch.empty_like(large)

    def tiny() -> None:
        for _ in range(LAUNCHES):
            launch(x, y, out, 1024, BLOCK_SIZE=1024)

    def scoped(scope: Scope) -> None:
        for _ in range(LAUNCHES):
            with scope("step"):
                launch(x, y, out, 1024, BLOCK_SIZE=1024)

    def products() -> None:
        for _ in range(PRODUCTS):
            torch.mm(large, large, out=product)

    for warm in (tiny, products):
        warm()
    return {
        "tiny": lambda scope: fastest_time(tiny, LAUNCHES, BLOCKS),
        "tiny in scopes": lambda scope: fastest_time(lambda: scoped(scope), LAUNCHES, BLOCKS),
        "8192^3": lambda scope: fastest_time(products, PRODUCTS, PRODUCT_BLOCKS),
    }


@contextlib.contextmanager
def profiled_by(who: str, name: str) -> Iterator[Scope]:
    """Record under deuteron, proton or torch; gives what makes a scope."""
    import torch

    if who == "torch":
        with torch.profiler.profile():
            yield torch.profiler.record_function
        return
    if who == "deuteron":
        import deuteron.profiler as proton
    else:
        import triton.profiler as proton  # type: ignore[no-redef]
    session = proton.start(name)
    yield proton.scope
    proton.finalize(session)


def child(who: str) -> None:
    """Print microseconds a launch by mode, of each turn: ``plain`` without a profiler, and ``under`` one."""
    found = workloads()
    plain: dict[str, list[float]] = {mode: [run(contextlib.nullcontext)] for mode, run in found.items()}
    under: dict[str, list[float]] = {mode: [] for mode in MODES}
    for turn in range(TURNS):
        with profiled_by(who, str(Path(tempfile.mkdtemp()) / f"turn{turn}")) as scope:
            found["tiny"](scope)  # the first launches, in which CUPTI allocates
            for mode, run in found.items():
                under[mode].append(run(scope))
        for mode, run in found.items():
            plain[mode].append(run(contextlib.nullcontext))
    print(json.dumps({mode: {"plain": plain[mode], "under": under[mode]} for mode in MODES}))


def ratio(times: dict[str, list[float]]) -> float:
    """What a launch takes under the profiler over what it takes without, each as its fastest turn has it."""
    return min(times["under"]) / min(times["plain"])


def in_turns() -> dict[str, dict[str, list[dict[str, list[float]]]]]:
    """What :func:`child` prints, by mode and by profiler, for each process."""
    times: dict[str, dict[str, list[dict[str, list[float]]]]] = {mode: {who: [] for who in MEASURED} for mode in MODES}
    for _ in range(PROCESSES):
        for who in MEASURED:
            command = [sys.executable, __file__, "--child", who]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
            if done.returncode:
                print(f"{who} failed:\n{done.stderr[-800:]}")
                continue
            found = json.loads(done.stdout.splitlines()[-1])
            print(f"{who}: " + ", ".join(f"{mode} {ratio(found[mode]):.3f}x" for mode in MODES), flush=True)
            for mode in MODES:
                times[mode][who].append(found[mode])
    return times


def many_launches() -> None:
    """Print how much memory a session of :data:`MANY` launches took, and how many of them it counted."""
    import resource

    import torch

    import deuteron.profiler as proton

    x = torch.ones(1024, device="cuda")
    with tempfile.TemporaryDirectory() as folder:
        session = proton.start(str(Path(folder) / "many"))
        marks = []
        for launch in range(MANY):
            x.add_(1.0)
            if (launch + 1) % (MANY // 10) == 0:
                torch.cuda.synchronize()
                marks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        proton.finalize(session)
        tree = json.loads((Path(folder) / "many.hatchet").read_text())[0]
    counted = max(inner["metrics"].get("count", 0) for inner in tree["children"])
    print(json.dumps({"launches": MANY, "counted": counted, "MiB after each tenth": marks}))


def memory() -> dict[str, object]:
    """What :func:`many_launches` prints in a process of its own."""
    command = [sys.executable, __file__, "--child", "many"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        return {"error": done.stderr[-800:]}
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def profile_examples(name: str) -> dict[str, float]:
    """Profile three kernels under scopes; returns GPU milliseconds per scope by profiler and by CUDA events."""
    import torch
    from sources import load_kernels

    import deuteron.profiler as proton

    add, softmax = (load_kernels(n, "deuteron") for n in ("vector_add", "softmax"))
    x = torch.randn(4096, 4096, device="cuda")
    out = torch.empty_like(x)
    work = {
        "vector_add": lambda: add.add(x.view(-1), x.view(-1), out.view(-1)),
        "softmax": lambda: softmax.softmax(x, out, num_programs=4096),
        "torch_mm": lambda: torch.mm(x, x, out=out),
    }
    for run in work.values():
        run()
    torch.cuda.synchronize()
    session = proton.start(name, hook="triton")
    with proton.scope("the first launches, in which CUPTI allocates"):
        for run in work.values():
            run()
        torch.cuda.synchronize()
    events = {}
    launches = 10
    bytes_moved = {"vector_add": 12 * x.numel() * launches, "softmax": 8 * x.numel() * launches}
    for scope, run in work.items():
        metrics = {"bytes": bytes_moved[scope]} if scope in bytes_moved else {"flops32": 2.0 * 4096**3 * launches}
        with proton.scope(scope, metrics):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(launches):
                run()
            end.record()
        torch.cuda.synchronize()
        events[f"{scope} events"] = start.elapsed_time(end)
    proton.finalize(session)
    tree = json.loads(Path(f"{name}.hatchet").read_text())[0]
    named = {n["frame"]["name"]: n for n in tree["children"]}
    return {**{f"{scope} profiler": total_time(named[scope]) / 1e6 for scope in work}, **events}


def total_time(node: dict) -> float:  # type: ignore[type-arg]
    """Nanoseconds of kernels below a node of a .hatchet tree."""
    own = node["metrics"].get("time (ns)", 0)
    return own + sum(total_time(c) for c in node["children"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--profile", default="examples", help="profile to write, without suffix")
    parser.add_argument("--child", choices=(*MEASURED, "many"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        many_launches() if options.child == "many" else child(options.child)
        return
    record: dict[str, object] = {}
    for mode, times in in_turns().items():
        record[f"launches {mode}, us without and under"] = times
        parts = []
        for who, processes in times.items():
            ratios = sorted(ratio(found) for found in processes)
            if ratios:
                spread = f"{ratios[0]:.3f}-{ratios[-1]:.3f}"
                fastest = min(us for found in processes for us in found["under"])
                parts.append(f"{who} {statistics.median(ratios):.3f}x ({spread}, {fastest:.2f} us)")
        print(f"{mode}: " + ", ".join(parts))
    record["a million launches"] = taken = memory()
    print(f"a million launches: {taken}")
    record["GPU time, ms"] = found = profile_examples(options.profile)
    print("  ".join(f"{k} {v:.3f} ms" for k, v in found.items()))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
