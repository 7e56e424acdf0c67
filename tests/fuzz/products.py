"""Random kernels around matrix products: shapes, strides, types and schedules against float64, with poisoned outputs.

    python tests/fuzz/products.py --cases 1000 [--first SEED] [--jobs N] [--target simulated|cuda] [--arch 90a|80|120]
    python tests/fuzz/products.py --show SEED [--arch 90a]

``simulated`` runs small cases on the simulator of this repository, which also finds races, deadlocks and accesses
outside the arrays. ``cuda`` runs larger ones on the first GPU: cases are compiled in a pool of processes and launched
by child processes, which may crash or hang without ending the sweep. A case that the compiler refuses because it lacks
resources or a lowering is counted by its reason; everything else that is not the right result is a finding, and the
exit status is 1. What the code of the cases used is counted too. The suite runs a few dozen cases
(tests/fuzz/test_products.py).
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "development"))  # where the simulator is
sys.path.append(str(Path(__file__).resolve().parent))

import product_cases
from product_cases import Buffer, Case

from deuteron.compiler.errors import DeuteronError, IllegalSchedule, OutOfResources, UnsupportedOp
from deuteron.compiler.launch_recipe import Guard, LaunchRecipe
from deuteron.compiler.runtime.launch.compiled import CompiledKernel, compile_variant
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.runtime.variant.variant import Variant, make_variant
from deuteron.compiler.source.kernel import KernelSource
from deuteron.compiler.targets.nvptx import PtxProgram

#: Seconds after which a case counts as hanging: one on the simulator, one launch on a GPU.
SIMULATED_SECONDS, LAUNCH_SECONDS = 300, 20


@dataclass(frozen=True)
class Outcome:
    """How a case ended: ``good``, ``refused`` or a finding, with the reason; ``uses``: names of :data:`USES`."""

    seed: int
    kind: str
    what: str = ""
    tags: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()

    @property
    def is_finding(self) -> bool:
        return self.kind not in ("good", "refused")


#: What the code of a case may use, and the PTX by which it is known.
USES = {
    "copy engine": "mbarrier::complete_tx",
    "copies by threads": "cp.async.c",
    "warp group products": "wgmma.mma_async",
    "warp products": "mma.sync.aligned",
    "roles": "setmaxnreg",
    "bulk stores": "global.shared::cta",
    "products in flight": "wgmma.wait_group.sync.aligned 1;",
}


def uses_of(text: str, recipe: LaunchRecipe) -> tuple[str, ...]:
    """What code, as LLVM text or as PTX, uses."""
    found = [name for name, instruction in USES.items() if instruction in text]
    return (*found, *(["persistent"] if recipe.persistent else []), *(["guards"] if recipe.guards else []))


def variant_of(case: Case, arch: str) -> Variant:
    """What has to be compiled for a case."""
    source = KernelSource.from_text(case.text, case.name, f"<seed {case.seed}>")
    return make_variant(source, case.signature(), case.constants, f"cuda:{arch}", case.schedule)


def compare(case: Case, after: dict[str, np.ndarray]) -> str:
    """What is wrong with the arrays that a run left ``after`` itself; empty if nothing is."""
    outputs = {e.name: e for e in case.expected}
    for name, argument in case.arguments.items():
        if not isinstance(argument, Buffer):
            continue
        got, touched = after[name], np.zeros(len(argument.flat), np.bool_)
        if name in outputs:
            touched[argument.start + argument.index] = True
        raw = got.view(np.uint8).reshape(len(got), -1) != argument.flat.view(np.uint8).reshape(len(got), -1)
        stray = raw.any(1) & ~touched
        if stray.any():
            return (
                f"{name}: {stray.sum()} elements changed that are none of the output, first {np.flatnonzero(stray)[0]}"
            )
        if name in outputs:
            wrong = _differs(got[argument.start + argument.index], outputs[name])
            if wrong:
                return f"{name}: {wrong}"
    return ""


def reason(error: OutOfResources | UnsupportedOp | IllegalSchedule) -> str:
    """Why the compiler refuses a case, without its numbers."""
    return error.resource if isinstance(error, OutOfResources) else error.message


def _differs(got: np.ndarray, expected: product_cases.Expected) -> str:
    values, want = got.astype(np.float64), expected.values
    with np.errstate(invalid="ignore"):
        allowed = expected.relative * np.abs(want) + expected.absolute
        bad = ~(np.abs(values - want) <= allowed)
    if not bad.any():
        return ""
    places = np.argwhere(bad)
    first = tuple(places[0].tolist())
    low, high = places.min(0).tolist(), places.max(0).tolist()
    return f"WRONG: {bad.sum()} of {bad.size}, {low} to {high}; at {first} {values[first]} instead of {want[first]}"


# On the simulator ---------------------------------------------------------------------------------------------


def check(seed: int, arch: str = "90a") -> Outcome:
    """Run one small case on the simulator."""
    case = product_cases.make(seed)
    try:
        after, program = simulated(case, arch)
        wrong = compare(case, after)
    except (OutOfResources, UnsupportedOp, IllegalSchedule) as error:
        return Outcome(seed, "refused", reason(error), case.tags)
    except Exception as error:
        text = f"{type(error).__name__}: {error}".replace("\n", " | ")
        return Outcome(seed, "failed", text, case.tags)
    uses = uses_of(program.llvm, program.recipe)
    return Outcome(seed, "wrong" if wrong else "good", wrong, case.tags, uses)


def uses(seed: int, arch: str) -> tuple[str, ...]:
    """What the code of one small case uses; nothing where it is refused."""
    try:
        made = build(variant_of(product_cases.make(seed), arch), "llvm")
    except (OutOfResources, UnsupportedOp, IllegalSchedule):
        return ()
    assert made.recipe is not None
    return uses_of(str(made.artifacts["llvm"]), made.recipe)


def simulated(case: Case, arch: str) -> tuple[dict[str, np.ndarray], PtxProgram]:
    """The arrays after a run on the simulator, and what ran."""
    from simulator import simulate_launch

    variant = variant_of(case, arch)
    after = {name: a.flat.copy() for name, a in case.arguments.items() if isinstance(a, Buffer)}
    passed = [after[name][a.start :] if isinstance(a, Buffer) else a for name, a in case.arguments.items()]
    arguments = [a for name, a in zip(case.arguments, passed, strict=True) if name in variant.signature]

    def compiled(denied: frozenset[Guard]) -> PtxProgram:
        made = build(replace(variant, denied=tuple(denied)), "llvm")
        shared, recipe = made.shared_bytes, made.recipe
        assert recipe is not None and shared is not None
        return PtxProgram(
            str(made.artifacts["llvm"]), case.name, tuple(variant.signature), shared, recipe.threads // 32, recipe
        )

    return after, simulate_launch(compiled, case.grid, arguments)


def _simulate(work: tuple[int, str]) -> Outcome:
    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"more than {SIMULATED_SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SIMULATED_SECONDS)
    try:
        return check(*work)
    finally:
        signal.alarm(0)


def on_simulator(seeds: range, arch: str, jobs: int) -> Iterator[Outcome]:
    """The outcomes of all seeds, as they come."""
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(_simulate, ((seed, arch) for seed in seeds))


# On a GPU -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compiled:
    """A case on its way to the GPU: its kernel, or why there is none."""

    seed: int
    kernel: CompiledKernel | None
    outcome: Outcome | None = None


def compile_case(work: tuple[int, str]) -> Compiled:
    """Compile the variant that the arguments of a large case need."""
    seed, arch = work
    case = product_cases.make(seed, large=True)
    try:
        kernel = compile_variant(variant_of(case, arch))
        return Compiled(seed, kernel.fitting({n: v for n, v in case.arguments.items() if isinstance(v, int)}))
    except (OutOfResources, UnsupportedOp, IllegalSchedule) as error:
        return Compiled(seed, None, Outcome(seed, "refused", reason(error), case.tags))
    except Exception as error:
        text = f"{type(error).__name__}: {error}".replace("\n", " | ")
        return Compiled(seed, None, Outcome(seed, "failed", text, case.tags))


class Shifted:
    """Elements of an array on a GPU from one of them on."""

    def __init__(self, array: object, start: int) -> None:
        self.held = array
        self.dtype = array.dtype  # type: ignore[attr-defined]
        interface = dict(array.__cuda_array_interface__)  # type: ignore[attr-defined]
        size = array.nbytes // array.shape[0]  # type: ignore[attr-defined]
        interface |= {"data": (interface["data"][0] + start * size, False), "shape": (array.shape[0] - start,)}  # type: ignore[attr-defined]
        self.__cuda_array_interface__ = interface


def launch(case: Case, kernel: CompiledKernel) -> dict[str, np.ndarray]:
    """The arrays after a run on the first GPU."""
    from deuteron.compiler.runtime.devices import get_device

    device = get_device("cuda:0")
    held = {name: device.array(a.flat) for name, a in case.arguments.items() if isinstance(a, Buffer)}
    passed = [
        Shifted(held[name], a.start) if isinstance(a, Buffer) else a
        for name, a in case.arguments.items()
        if name in kernel.signature
    ]
    kernel.run(case.grid, *passed, device=device)
    device.synchronize()
    return {name: array.to_numpy() for name, array in held.items()}


def _serve(pipe: Connection) -> None:
    """A child process: launch what comes, until None comes."""
    while (work := pipe.recv()) is not None:
        case = product_cases.make(work.seed, large=True)
        try:
            wrong = compare(case, launch(case, work.kernel))
            uses = uses_of(str(work.kernel.asm["ptx"]), work.kernel.metadata.recipe)
            pipe.send(Outcome(work.seed, "wrong" if wrong else "good", wrong, case.tags, uses))
        except DeuteronError as error:
            refused = isinstance(error, OutOfResources)
            text = reason(error) if refused else f"{type(error).__name__}: {error}".replace("\n", " | ")
            pipe.send(Outcome(work.seed, "refused" if refused else "failed", text, case.tags))
            if "context is lost" in text:
                os._exit(1)


class Child:
    """A process that launches, and is replaced when it dies or hangs."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.busy: Compiled | None = None
        self.deadline = float("inf")
        self.fresh = True

    def give(self, work: Compiled) -> None:
        self.busy = work
        # A new process imports and makes a context first.
        self.deadline = time.monotonic() + LAUNCH_SECONDS + (60 if self.fresh else 0)
        self.fresh = False
        self.pipe.send(work)

    def end(self) -> None:
        self.process.kill()
        self.process.join(10)


def on_gpu(seeds: range, arch: str, jobs: int, children: int = 4) -> Iterator[Outcome]:
    """The outcomes of all seeds, as they come."""
    context = multiprocessing.get_context("spawn")
    ready: collections.deque[Compiled] = collections.deque()
    with context.Pool(jobs) as pool:
        compiling = pool.imap_unordered(compile_case, ((seed, arch) for seed in seeds))
        team = [Child() for _ in range(children)]
        left = len(seeds)
        waiting = len(seeds)
        while left:
            idle = [child for child in team if child.busy is None]
            while waiting and len(ready) < len(idle) + 1:
                try:
                    made = compiling.next(timeout=0.05 if len(idle) == len(team) else 0.001)
                except multiprocessing.TimeoutError:
                    break
                waiting -= 1
                if made.outcome is not None:
                    left -= 1
                    yield made.outcome
                else:
                    ready.append(made)
            for child in idle:
                if ready:
                    child.give(ready.popleft())
            for place, child in enumerate(team):
                if child.busy is None:
                    continue
                outcome = _outcome(child)
                if outcome is not None:
                    left -= 1
                    yield outcome
                    if not child.process.is_alive() or outcome.kind in ("hangs", "crashed"):
                        child.end()
                        team[place] = Child()
            wait([child.pipe for child in team if child.busy is not None], timeout=0.01)
        for child in team:
            child.end()


def _outcome(child: Child) -> Outcome | None:
    """How the case of ``child`` ended; None while it runs."""
    assert child.busy is not None
    seed = child.busy.seed
    made: Outcome | None = None
    try:
        if child.pipe.poll():
            made = child.pipe.recv()
            if "context is lost" in made.what:
                child.process.join(10)
    except (EOFError, ConnectionError):
        made = Outcome(seed, "crashed", f"the process ended with status {child.process.exitcode}")
    if made is None and time.monotonic() > child.deadline:
        made = Outcome(seed, "hangs", f"no result after {LAUNCH_SECONDS} s")
    if made is not None:
        child.busy = None
    return made


# The command --------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--target", choices=("simulated", "cuda"), default="simulated")
    parser.add_argument("--arch", default="90a")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after that time")
    parser.add_argument("--show", type=int, metavar="SEED", help="print a case and what happens to it")
    options = parser.parse_args()
    if options.show is not None:
        return show(options.show, options.arch, options.target)
    began, counts, refused = time.monotonic(), collections.Counter(), collections.Counter()
    findings: collections.Counter[str] = collections.Counter()
    used: collections.Counter[str] = collections.Counter()
    seeds = range(options.first, options.first + options.cases)
    run = on_gpu if options.target == "cuda" else on_simulator
    for done, outcome in enumerate(run(seeds, options.arch, options.jobs), 1):
        counts[outcome.kind] += 1
        used.update(outcome.uses)
        if outcome.kind == "refused":
            refused[outcome.what] += 1
        if outcome.is_finding:
            findings[f"{outcome.kind} {outcome.what[:60]}"] += 1
            print(
                f"seed {outcome.seed} [{' '.join(filter(None, outcome.tags))}] {outcome.kind}: {outcome.what[:300]}",
                flush=True,
            )
        if done % 100 == 0:
            print(f"{done} cases, {dict(counts)}, {time.monotonic() - began:.0f} s", flush=True)
        if time.monotonic() - began > options.seconds:
            break
    for reason, count in refused.most_common():
        print(f"{count:6} refused: {reason}")
    for what, count in findings.most_common(30):
        print(f"{count:6} {what}")
    print("used by", ", ".join(f"{name}: {count}" for name, count in used.most_common()))
    took = f"{time.monotonic() - began:.0f} s"
    print(f"{sum(counts.values())} cases for {options.arch}, {options.target}: {dict(counts)}, {took}")
    return 1 if findings else 0


def show(seed: int, arch: str, target: str) -> int:
    """Print a case and run it in this process, with a traceback where it fails."""
    case = product_cases.make(seed, large=target == "cuda")
    print(case.describe())
    if target == "cuda":
        made = compile_case((seed, arch))
        print(made.outcome or compare(case, launch(case, made.kernel)) or "good")  # type: ignore[arg-type]
    else:
        print(compare(case, simulated(case, arch)[0]) or "good")
    return 0


if __name__ == "__main__":
    sys.exit(main())
