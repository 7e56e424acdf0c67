"""Random kernels as users write them, launched on a target and compared with NumPy.

    python tests/fuzz/kernels.py --programs 1000 [--seed S] [--target TARGET] [--jobs N] [--seconds T]
    python tests/fuzz/kernels.py --seed S --show [--target TARGET]

Tiles of up to four dimensions and of all types are loaded by pointers, block pointers and descriptors, go through
arithmetic, casts, reductions, scans, sorts, products and atomics, in loops and branches, some of them in kernels that
look like matrix products and attention, and are stored again. NumPy computes what each store leaves and by how much a
right result may differ; margins around the arrays must stay as they were.

``cpu``, ``eager`` (TRITON_INTERPRET) and ``cuda`` launch as users do, with specialisation and descriptors;
``interpreter`` runs the tile IR before any pass, ``simulated`` the code for an H100 on the simulator; ``sm_80`` and
``sm_90a`` compile and, where ptxas is installed, assemble. Kernels run in processes that may crash or hang. For each
kind of finding a script is written that runs by itself, of as few statements as fail the same way. The exit status is 1
when something was found. tiles.py and values.py look closer at single operations, products.py at schedules of products,
orders.py at barriers. The suite runs some dozens (tests/fuzz/test_kernels.py).
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "development"))  # where the simulator is
sys.path.append(str(Path(__file__).resolve().parent))

from random_kernels.children import Team
from random_kernels.launching import LAUNCHES
from random_kernels.outcomes import Outcome, Work, check
from random_kernels.rendering import script_of, text_of
from random_kernels.shrinking import shrink

#: Seconds for one kernel, by target, and for those that are not named.
SECONDS = {"cuda": 40.0, "simulated": 300.0}
OTHER_SECONDS = 120.0
#: Findings for which scripts are written, and kernels that are tried to make one smaller.
WRITTEN, ATTEMPTS = 10, 60
#: Seconds between lines that say how far it is.
PROGRESS_SECONDS = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first kernel")
    parser.add_argument("--target", choices=LAUNCHES, default="cpu")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no kernel after that time")
    parser.add_argument("--out", type=Path, help="folder for scripts of what fails (default: a new one)")
    parser.add_argument("--no-shrink", action="store_true", help="write kernels as they were drawn")
    parser.add_argument("--show", action="store_true", help="print one kernel and what happens to it")
    options = parser.parse_args(arguments)
    if options.show:
        return show(Work(options.seed, options.target))
    out = options.out or Path(tempfile.mkdtemp(prefix="random-kernels-"))
    began = said = time.monotonic()
    outcomes: list[Outcome] = []
    with Team(options.jobs, SECONDS.get(options.target, OTHER_SECONDS)) as team:
        for outcome in team.run(_works(options, began)):
            outcomes.append(outcome)
            if time.monotonic() - said > PROGRESS_SECONDS:
                said = time.monotonic()
                counts = dict(collections.Counter(outcome.kind for outcome in outcomes))
                print(f"{len(outcomes)} kernels, {counts}, {said - began:.0f} s", flush=True)
            if outcome.is_finding:
                print(f"seed {outcome.work.seed} {outcome.kind}: {outcome.what[:400]}", flush=True)
        findings = [outcome for outcome in outcomes if outcome.is_finding]
        for outcome in _of_each_kind(findings)[:WRITTEN]:
            print("written:", write(outcome, out, None if options.no_shrink else team), flush=True)
    _summary(outcomes)
    took = f"{time.monotonic() - began:.0f} s"
    last = max((outcome.work.seed for outcome in outcomes), default=options.seed)
    print(
        f"{len(outcomes)} kernels on {options.target}, seeds {options.seed} to {last}, {took}: {len(findings)} findings"
    )
    return 1 if findings else 0


def _works(options: argparse.Namespace, began: float) -> Iterator[Work]:
    for seed in range(options.seed, options.seed + options.programs):
        if time.monotonic() - began > options.seconds:
            return
        yield Work(seed, options.target)


def _of_each_kind(findings: list[Outcome]) -> list[Outcome]:
    """One finding for each reason, the most frequent reason first."""
    groups = collections.defaultdict(list)
    for outcome in findings:
        groups[outcome.kind, outcome.brief].append(outcome)
    return [group[0] for group in sorted(groups.values(), key=len, reverse=True)]


def _summary(outcomes: list[Outcome]) -> None:
    """What was found how often, what kernels had in them, and how many of those were findings."""
    tags, bad = collections.Counter[str](), collections.Counter[str]()
    for outcome in outcomes:
        tags.update(outcome.tags)
        bad.update(outcome.tags if outcome.is_finding else ())
    print(", ".join(f"{tag} {count}" + (f" ({bad[tag]} bad)" if bad[tag] else "") for tag, count in tags.most_common()))
    reasons = collections.Counter((o.kind, o.brief if o.kind != "good" else "") for o in outcomes)
    for (kind, brief), count in reasons.most_common():
        print(f"{count:6} {kind:10} {brief}")


def write(outcome: Outcome, folder: Path, team: Team | None) -> Path:
    """A script for a finding in ``folder``; a ``team`` tries kernels with fewer statements."""
    work = outcome.work
    if team is not None:
        work = smaller(outcome, team)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{work.target}-{work.seed}.py"
    path.write_text(script_of(work.kernel(), work.target, f"{outcome.kind}: {outcome.what}"))
    return path


def smaller(outcome: Outcome, team: Team) -> Work:
    """The kernel of a finding, without what it fails without."""
    seed, target = outcome.work.seed, outcome.work.target

    def fails(left_out: tuple[int, ...]) -> bool:
        again = team.one(Work(seed, target, left_out))
        return again.kind == outcome.kind and (outcome.kind == "wrong" or again.brief == outcome.brief)

    return Work(seed, target, shrink(outcome.work.kernel().body, fails, ATTEMPTS))


def show(work: Work) -> int:
    """Print a kernel and run it in this process."""
    kernel = work.kernel()
    print(text_of(kernel))
    print(f"# {kernel.family}, {kernel.programs} programs, {kernel.options}, {kernel.numbers}")
    outcome = check(work)
    print(outcome.kind, outcome.what)
    return int(outcome.is_finding)


if __name__ == "__main__":
    sys.exit(main())
