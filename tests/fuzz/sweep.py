"""The command of scripts that check programs of many seeds: in processes, with progress, and what was wrong counted."""

from __future__ import annotations

import argparse
import collections
import functools
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mismatch:
    """A program that a target runs otherwise than it should, or refuses."""

    seed: int
    target: str
    what: str


#: The mismatches of the program of a seed on some targets.
Check = Callable[[int, tuple[str, ...]], Sequence[Mismatch]]
#: How many mismatches are shown, and how many kinds of them are counted at the end.
SHOWN = 20


def sweep(description: str | None, targets: Sequence[str], check: Check, show: Callable[[int], str]) -> int:
    """Read the command line and run ``check``, a function of a module; ``show`` is the text of one seed's program.
    Returns the exit status: 1 when something was wrong."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--targets", default=",".join(targets))
    parser.add_argument("--show", type=int, metavar="SEED", help="print a program and what happens to it")
    options = parser.parse_args()
    chosen = tuple(options.targets.split(","))
    if options.show is not None:
        print(show(options.show), *check(options.show, chosen), sep="\n")
        return 0
    began, counts, bad = time.time(), collections.Counter[tuple[str, str]](), 0
    seeds = range(options.first, options.first + options.programs)
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        work = pool.imap_unordered(functools.partial(_run, check, chosen), seeds, chunksize=4)
        for done, found in enumerate(work, 1):
            bad += bool(found)
            for mismatch in found:
                counts[mismatch.target, mismatch.what.split("\n")[0][:100]] += 1
            if found and bad <= SHOWN:
                print(found[0], flush=True)
            if done % 1000 == 0:
                print(f"{done} programs, {bad} wrong, {time.time() - began:.0f} s", flush=True)
    for (target, what), count in counts.most_common(SHOWN):
        print(f"{count:6} {target}: {what}")
    print(f"{options.programs} programs on {', '.join(chosen)}: {bad} wrong")
    return 1 if bad else 0


def _run(check: Check, targets: tuple[str, ...], seed: int) -> Sequence[Mismatch]:
    return check(seed, targets)
