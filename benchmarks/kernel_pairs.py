"""Kernels of the kinds that engineers write, under deuteron and under Triton: the same text and launches.

python benchmarks/kernel_pairs.py [--only NAME ...] [--rounds N] [--seconds S] [--jobs N] [--out FILE.json]

``benchmarks/pairs/`` has the kernels by family, and the launches of each. N processes compile them first. Then one
after the other is launched once under each compiler on arrays of the same numbers, all of which are compared, and both
are timed in turns with a cold L2. What differs may still be right: a function of libdevice near a pole, or a rounding
that two halves share. ``--only`` takes names of cases and of families. The last line has the geometric mean and the
least ratios of Triton's time to ours.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from isolated import Isolated, WorkFailed, raise_if_lost
from pairs import FAMILIES, cases_of
from pairs.arrays import OnGPU
from sources import environment
from timing import Call, Timing, differs, geomean, race

SIDES = ("deuteron", "triton")
#: Seconds of silence after which a process is ended: a kernel that waits for ever costs its process.
PATIENCE = 60.0
#: Of the norm of the difference of two results beside that of one of them: what other orders of summation may make.
CLOSE = 5e-3
#: Of the seconds for all, what compiling may take.
COMPILING = 0.5


@dataclass
class Pair:
    """What came out of one case: timings by compiler, how results differ, and who could not."""

    name: str
    family: str
    timings: dict[str, Timing] = field(default_factory=dict)
    difference: str = ""
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Triton's time over deuteron's; None where one is missing."""
        if len(self.timings) < len(SIDES):
            return None
        return self.timings["triton"].us / self.timings["deuteron"].us


class Bench:
    """The service of a child that holds the device."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce

    def compile(self, family: str, name: str, side: str) -> None:
        """Launch once, so that the cache on disk has what is timed later."""
        import torch  # lazy: what lists the cases needs no torch

        self._launched(family, name, side)
        torch.cuda.empty_cache()  # several processes share the device

    def measure(self, family: str, name: str, rounds: int) -> Pair:
        """Compare and time one case."""
        pair = Pair(name, family)
        calls: dict[str, Call] = {}
        left: dict[str, OnGPU] = {}
        for side in SIDES:
            self._announce(side)
            try:
                calls[side], left[side] = self._launched(family, name, side)
            except Exception as problem:  # of either compiler: the other is still timed
                pair.failures[side] = f"{type(problem).__name__}: {problem}"
                raise_if_lost(problem)
        if not pair.failures:
            both = zip(*(left[side].made for side in SIDES), strict=True)
            found = [differs(ours, theirs, CLOSE) for ours, theirs in both]
            pair.difference = "; ".join(f"array {i}: {text}" for i, text in enumerate(found) if text)
        pair.timings = race(calls, "cuda", rounds, self._announce)
        return pair

    def _launched(self, family: str, name: str, side: str) -> tuple[Call, OnGPU]:
        """The launch of a case, done once, and its arrays."""
        import torch  # lazy: as above

        case = next(case for case in cases_of(family, side) if case.name == name)
        arrays = OnGPU()
        call = partial(case.launch, case.arguments(arrays))
        call()
        torch.cuda.synchronize()
        return call, arrays


def compile_all(chosen: Sequence[tuple[str, str]], jobs: int, until: float) -> None:
    """Compile every case for both sides, several at a time."""

    def work(share: Sequence[tuple[str, str, str]]) -> None:
        bench = Isolated(Bench)
        for asked in share:
            if time.monotonic() < until:
                try:
                    bench.ask("compile", *asked, patience=PATIENCE)
                except WorkFailed:
                    continue  # it is said when it is timed
        bench.close()

    both = [(family, name, side) for family, name in chosen for side in SIDES]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, [both[start::jobs] for start in range(jobs)]))


def detail(pair: Pair) -> str:
    """One line: times, ratio, and what is wrong."""
    times = "".join(f"{pair.timings[side].us:>11.1f}" if side in pair.timings else f"{'-':>11}" for side in SIDES)
    ratio = f"{pair.ratio:8.3f}" if pair.ratio else f"{'-':>8}"
    said = [f"differs: {pair.difference}"] if pair.difference else []
    said += [f"{side}: {why.splitlines()[0]}" for side, why in pair.failures.items()]
    return f"{pair.name:26}{times}{ratio}  {'; '.join(said)}".rstrip()[:200]


def summary(pairs: Sequence[Pair], asked: int) -> str:
    """One line: how many, the geometric mean, the least ratios."""
    timed = sorted((ratio, pair.name) for pair in pairs if (ratio := pair.ratio))
    least = ", ".join(f"{name} {ratio:.2f}" for ratio, name in timed[:3])
    wrong = [f"{sum(bool(p.difference) for p in pairs)} differ", f"{sum(bool(p.failures) for p in pairs)} failed"]
    counts = f"{len(timed)} of {asked} timed, {', '.join(wrong)}"
    return f"{counts}: geomean {geomean([ratio for ratio, _ in timed]):.3f}, least {least or '-'}"


def choose(names: Sequence[str]) -> list[tuple[str, str]]:
    """Families and names of the cases asked for, all without names.

    Raises:
        ValueError: there is no such case or family.
    """
    every = [(family, case.name) for family in FAMILIES for case in cases_of(family, "deuteron")]
    known = {*FAMILIES, *(name for _, name in every)}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no case or family is called {unknown[0]}; families: {', '.join(FAMILIES)}")
    return [(family, name) for family, name in every if not names or family in names or name in names]


def measured(bench: Isolated, family: str, name: str, rounds: int) -> Pair:
    """One case, also where its process does not live to answer."""
    try:
        pair: Pair = bench.ask("measure", family, name, rounds, patience=PATIENCE)
    except WorkFailed as failure:
        pair = Pair(name, family, failures={failure.last or "both": str(failure)})
    return pair


def main() -> None:
    """Compile, compare, time; what is done is written after each case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="cases or families")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument(
        "--seconds", type=float, default=540.0, help="begin nothing after this; half of it for compiling"
    )
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1), help="processes that compile")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    try:
        chosen = choose(options.only)
    except ValueError as problem:
        parser.error(str(problem))
    begun = time.monotonic()
    compile_all(chosen, options.jobs, begun + COMPILING * options.seconds)
    print(f"compiled in {time.monotonic() - begun:.0f} s")
    print(f"{'microseconds':26}{'deuteron':>11}{'triton':>11}{'ratio':>8}", flush=True)
    bench, pairs = Isolated(Bench), []
    for family, name in chosen:
        if time.monotonic() - begun > options.seconds:
            print(f"{name}: not begun in {options.seconds:.0f} s")
            continue
        pairs.append(measured(bench, family, name, options.rounds))
        print(detail(pairs[-1]), flush=True)
        if options.out:
            write(options.out, pairs)
    bench.close()
    print(summary(pairs, len(chosen)))


def write(path: Path, pairs: Sequence[Pair]) -> None:
    """The figures and what they depend on, as JSON."""
    record = {"environment": environment(), "pairs": [{**asdict(pair), "ratio": pair.ratio} for pair in pairs]}
    path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
