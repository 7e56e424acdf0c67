"""Candidates against libraries: compiled ahead in parallel, checked, screened, and the best of them timed at length.

What a candidate may do wrong (not compile, hang, crash, a wrong result) is noted and costs only itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from candidates import Candidate, Problem
from isolated import Isolated, WorkFailed
from sources import environment
from timing import Timing, geomean

#: Seconds of silence after which a compilation, a launch, or the drawing of inputs is called a deadlock.
COMPILE_SECONDS, LAUNCH_SECONDS, PREPARE_SECONDS = 60.0, 12.0, 90.0
SCREEN_ROUNDS, FINAL_ROUNDS = 5, 40
#: Of the fastest beside those that it is compared with: the least of many times is too small by chance.
RUN_OFF_ROUNDS = 60
#: How many of each package go into the final: a few launches leave several in doubt.
FINALISTS = {"deuteron": 5, "triton": 2}

Service = Callable[[Callable[[str], None]], object]


@dataclass
class Outcome:
    """What became of one candidate on one problem."""

    candidate: Candidate
    compile_seconds: float | None = None
    error: float | None = None
    failure: str | None = None
    screened: Timing | None = None
    final: Timing | None = None
    run_off: Timing | None = None


@dataclass
class Result:
    """One problem: final timings of the libraries, those that could not run, and every candidate's outcome."""

    problem: Problem
    outcomes: list[Outcome]
    libraries: dict[str, Timing] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def best(self, package: str) -> Outcome | None:
        """The fastest in the final timing."""
        timed = [o for o in self.outcomes if o.candidate.package == package and o.final]
        return min(timed, key=lambda o: o.final.us if o.final else 0.0, default=None)

    def twin(self, of: Outcome | None) -> Outcome | None:
        """deuteron with default schedule and the configuration of one of Triton's."""
        wanted = of.candidate.of("deuteron") if of else None
        return next((o for o in self.outcomes if o.candidate == wanted), None)

    def rate(self, timing: Timing | None) -> float:
        """10^12 operations a second; NaN without a time."""
        return self.problem.operations / timing.us / 1e6 if timing else float("nan")


@dataclass(frozen=True)
class Contest:
    """Who meets on what, and where the figures go. ``compiler`` and ``bench`` make the services of the child processes:
    one has ``build(candidate, problem)``, the other is a ``bench.Bench``."""

    problems: Sequence[Problem]
    candidates: Sequence[Candidate]
    fits: Callable[[Candidate, Any], bool]
    compiler: Service
    bench: Service
    quick: bool = False
    limit: float = float("inf")
    out: Path | None = None
    #: Candidates of a problem that are timed once more beside the fastest of all.
    compared: Mapping[Problem, Sequence[Candidate]] = field(default_factory=dict)

    @classmethod
    def asked(
        cls,
        options: argparse.Namespace,
        problems: Sequence[Problem],
        own: Sequence[Candidate],
        common: Sequence[Candidate],
        fits: Callable[[Candidate, Any], bool],
        compiler: Service,
        bench: Service,
    ) -> Contest:
        """The contest of a command line with :func:`add_options`: ``own`` candidates, and ``common`` ones if there are
        peers."""
        candidates = with_triton(own, common) if options.peers else own
        return cls(problems, candidates, fits, compiler, bench, options.quick, options.limit, options.out)

    def run(self) -> list[Result]:
        """Compile everything, then measure problem by problem; what is done is written after each."""
        begin = time.monotonic()
        chosen = {p: [c for c in self.candidates if self.fits(c, p)] for p in self.problems}
        pairs = [(c, p) for p, own in chosen.items() for c in dict.fromkeys([*own, *self.compared.get(p, ())])]
        compiled = compile_ahead(self.compiler, pairs)
        print(f"{len(compiled)} variants compiled in {time.monotonic() - begin:.0f} s", flush=True)
        bench, results = Isolated(self.bench), []
        for problem in self.problems:
            if time.monotonic() - begin > self.limit:
                print(f"{problem} and those after it: not begun in {self.limit:.0f} s")
                break
            result = Result(problem, [])
            for candidate in (c for c, p in pairs if p == problem):
                built = compiled[candidate, problem.specialised]
                failed = isinstance(built, str)
                result.outcomes.append(Outcome(candidate, None if failed else built, failure=built if failed else None))
            rounds = (2, 8) if self.quick else (SCREEN_ROUNDS, FINAL_ROUNDS)
            measure(bench, result, begin + self.limit, rounds, self.compared.get(problem, ()))
            results.append(result)
            print(f"{problem}: {time.monotonic() - begin:.0f} s", flush=True)
            if self.out:
                self.out.write_text(record(results) + "\n")
        bench.close()
        return results

    def show(self) -> None:
        """Run it, and print who failed and the table."""
        results = self.run()
        if why := failures(results):
            print(why)
        print(table(results))


def add_options(parser: argparse.ArgumentParser, *, configs: str, quick: str, device: str) -> None:
    """What the command line of every contest has; the arguments are help texts in the words of one."""
    parser.add_argument("--peers", action="store_true", help="measure Triton beside it")
    parser.add_argument("--configs", type=Path, help=configs)
    parser.add_argument(
        "--limit", type=float, default=float("inf"), metavar="SECONDS", help="begin no shape after this"
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--device", default="cuda:0", help=device)
    parser.add_argument("--out", type=Path, help="write all figures as JSON")


def with_triton(candidates: Iterable[Candidate], common: Iterable[Candidate]) -> list[Candidate]:
    """``candidates``, and ``common`` under both compilers."""
    both = [c.of(package) for c in common for package in ("deuteron", "triton")]
    return list(dict.fromkeys([*candidates, *both]))


def compile_ahead(
    service: Service, pairs: Sequence[tuple[Candidate, Problem]]
) -> dict[tuple[Candidate, tuple[object, ...]], Any]:
    """Seconds, or why not (text), of each candidate for each kind of problem, compiled into the disk caches by one
    process a core, which a bad candidate may bring down."""
    mine = threading.local()
    made: list[Isolated] = []

    def build(pair: tuple[Candidate, Problem]) -> float | str:
        if not hasattr(mine, "compiler"):
            mine.compiler = Isolated(service)
            made.append(mine.compiler)
        try:
            seconds: float = mine.compiler.ask("build", *pair, patience=COMPILE_SECONDS)
        except WorkFailed as failure:
            return str(failure)
        return seconds

    wanted = {(c, p.specialised): (c, p) for c, p in pairs}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = dict(zip(wanted, pool.map(build, wanted.values()), strict=True))
    for compiler in made:
        compiler.close()
    return found


# ---- measuring -----------------------------------------------------------------------------------------------------


def measure(
    bench: Isolated,
    result: Result,
    deadline: float,
    rounds: tuple[int, int],
    compared: Sequence[Candidate] = (),
) -> None:
    """Check all candidates that compiled, screen those that are right, and time the best of them at length; then the
    fastest once more beside those that it is ``compared`` with."""
    try:
        result.missing = bench.ask("prepare", result.problem, patience=PREPARE_SECONDS)
    except WorkFailed as failure:
        bench.close()
        result.missing = {"all": str(failure)}
        return
    live = [o for o in result.outcomes if o.failure is None]
    for outcome in live:
        if time.monotonic() > deadline:
            outcome.failure = "not tried: out of time"
            continue
        try:
            _ready(bench, result.problem)
            outcome.error = bench.ask("check", outcome.candidate, patience=LAUNCH_SECONDS)
        except WorkFailed as failure:
            outcome.failure = str(failure)
    right = {o.candidate.name: o for o in live if o.failure is None}
    for name, timing in _race(bench, result.problem, right, rounds[0]).items():
        if name in right:
            right[name].screened = timing
    chosen = finalists(result)
    for name, timing in _race(bench, result.problem, chosen, rounds[1]).items():
        if name in chosen:
            chosen[name].final = timing
        else:
            result.libraries[name] = timing
    if compared:
        run_off(bench, result, compared)


def run_off(bench: Isolated, result: Result, compared: Sequence[Candidate]) -> None:
    """Time the fastest candidate and those ``compared`` with it, as far as they were right."""
    timings = [(timing, o) for o in result.outcomes for timing in (o.screened, o.final) if timing is not None]
    most = max((timing.launches for timing, _ in timings), default=0)
    longest = [(timing.us, o.candidate.name) for timing, o in timings if timing.launches == most]
    fastest = min(longest)[1] if longest else None
    chosen = {o.candidate.name: o for _, o in timings if o.candidate.name == fastest or o.candidate in compared}
    for name, timing in _race(bench, result.problem, chosen, RUN_OFF_ROUNDS).items():
        if name in chosen:
            chosen[name].run_off = timing


def finalists(result: Result) -> dict[str, Outcome]:
    """The fastest few of each package, and deuteron's twins of Triton's."""
    chosen: list[Outcome] = []
    for package, count in FINALISTS.items():
        timed = [o for o in result.outcomes if o.candidate.package == package and o.screened]
        chosen += sorted(timed, key=lambda o: o.screened.us if o.screened else 0.0)[:count]
    twins = [result.twin(o) for o in chosen if o.candidate.package == "triton"]
    return {o.candidate.name: o for o in (*chosen, *twins) if o is not None and o.screened}


def _ready(bench: Isolated, problem: Problem) -> None:
    """Give a new child the problem's arrays."""
    if not bench.alive:
        bench.ask("prepare", problem, patience=PREPARE_SECONDS)


def _race(bench: Isolated, problem: Problem, among: dict[str, Outcome], rounds: int) -> dict[str, Timing]:
    """Time candidates beside the libraries; one that hangs is left out, and the others begin again.

    A child that took another's place knows only those that it checked itself."""
    left = dict(among)
    while True:
        try:
            _ready(bench, problem)
            admitted = bench.ask("admitted", patience=LAUNCH_SECONDS)
            for name in [n for n in left if n not in admitted]:
                bench.ask("check", left[name].candidate, patience=LAUNCH_SECONDS)
            timings: dict[str, Timing] = bench.ask("race", list(left), rounds, patience=LAUNCH_SECONDS)
            return timings
        except WorkFailed as failure:
            guilty = left.pop(failure.last, None)
            if guilty is None:
                print(f"{problem}: {failure}", file=sys.stderr)
                return {}
            guilty.failure = f"while it was timed: {failure}"


# ---- what is printed -----------------------------------------------------------------------------------------------


def table(results: Sequence[Result]) -> str:
    """Rates in 10^12 a second and their ratios: deuteron's best against each library and against Triton's best, and
    with default schedule against Triton at Triton's best configuration ("/same")."""
    libraries = list(dict.fromkeys(name for r in results for name in r.libraries))
    heads = [f"/{name}" for name in (*libraries, "triton", "same")]
    lines = [f"{'T/s':30}{'deuteron':>9}{''.join(f'{n:>9}' for n in libraries)}{''.join(f'{h:>9}' for h in heads)}"]
    columns: list[list[float]] = [[] for _ in heads]
    for result in results:
        ours, triton = result.best("deuteron"), result.best("triton")
        twin = result.twin(triton)
        mine, theirs = (result.rate(o.final if o else None) for o in (ours, triton))
        peers = [result.rate(result.libraries.get(name)) for name in libraries]
        ratios = [*(mine / peer for peer in peers), mine / theirs, result.rate(twin.final if twin else None) / theirs]
        for column, ratio in zip(columns, ratios, strict=True):
            column += [ratio] if ratio == ratio else []
        rates = "".join(_cell(v, 1) for v in (mine, *peers))
        chosen = ours.candidate if ours else "none ran"
        lines.append(f"{result.problem!s:30}{rates}{''.join(_cell(r, 2) for r in ratios)}  {chosen}")
    indent = " " * 9 * (1 + len(libraries))
    for what, of in (("geomean", geomean), ("least", min)):
        lines.append(f"{what:30}{indent}{''.join(_cell(of(c) if c else float('nan'), 3) for c in columns)}")
    return "\n".join(lines)


def _cell(value: float, digits: int) -> str:
    return f"{value:>9.{digits}f}" if value == value else f"{'-':>9}"


def failures(results: Sequence[Result]) -> str:
    """Candidates that did not get as far as a time, most frequent reason first, and libraries that could not run."""
    reasons: dict[str, list[str]] = {}
    lines = []
    for result in results:
        for outcome in result.outcomes:
            if outcome.failure:
                where = f"{result.problem} {outcome.candidate.name}"
                reasons.setdefault(outcome.failure.splitlines()[0][:90], []).append(where)
        lines += [f"{result.problem}: {who}: {why.splitlines()[0][:90]}" for who, why in result.missing.items()]
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    return "\n".join([*(f"{len(where)} failed: {why}; first: {where[0]}" for why, where in ordered), *lines])


def record(results: Sequence[Result]) -> str:
    """All figures as JSON."""
    return json.dumps({"environment": environment(), "results": [asdict(r) for r in results]}, indent=1)
