"""Damaged profiles through every format of the viewer: a message or a result, never a traceback, never for long.

    python tests/profiler/mutated_profiles.py [--count 5000] [--seed 0]

The suite runs some hundreds of them (test_mutated.py); this runs as many as asked for, and prints what went wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deuteron.profiler.viewer.arguments import main as viewer_main
from deuteron.profiler.viewer.formats import FORMATS

REAL = Path(__file__).parent / "data" / "proton-h200.hatchet"
OUTPUTS = ("tree", *FORMATS)
SECONDS = 10.0  # of one command; most take some milliseconds

#: What takes the place of a value somewhere in the file.
VALUES: list[Any] = [
    None, True, 0, -1, 1 << 62, 1 << 64, 10**400, 0.5, -1e308, 1e308, float("nan"), float("inf"), "", "x", "0", "CUDA",
    "</script>", "\x1b[2J", "\ud800", "a\nb", "ROOT", [], [1, 2], [[]], {}, {"a": 1}, ["x"],
]  # fmt: skip
NAMES = [
    "time (ns)", "count", "bytes", "flops8", "flops16", "flops", "device_id", "device_type", "time", "util", "x (inc)",
    "time/ms", "max_x", "", "name", "cycles", "a;b", "constructor", "__proto__",
]  # fmt: skip
OPTIONS: list[list[str]] = [
    [], ["-m", "time"], ["-m", "time/ms,util"], ["-m", "bytes"], ["-m", "gflop16/s,avg_time/us"], ["-m", "time/%"],
    ["-m", "flops16"], ["-t", "100"], ["-d", "2"], ["-i", ".*add.*"], ["-e", "step"], ["-f", "function_line"],
]  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """A command that did not end as it should."""

    number: int
    arguments: list[str]
    problem: str


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside a JSON value."""
    found: list[tuple[Any, Any]] = []
    pending = [value]
    while pending:
        part = pending.pop()
        entries = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        for key, inner in entries:
            found.append((part, key))
            pending.append(inner)
    return found


def readable(draw: random.Random) -> bytes:
    """A real profile with one to eight other metrics, values of metrics and names, of kinds that a file may hold."""
    literal = json.loads(REAL.read_bytes())
    places = _places(literal[0])
    metrics = [inner for container, key in places if isinstance(inner := container[key], dict) and key == "metrics"]
    frames = [inner for container, key in places if isinstance(inner := container[key], dict) and key == "frame"]
    for _ in range(draw.randint(1, 8)):
        if draw.random() < 0.3:
            draw.choice(frames)["name"] = draw.choice([value for value in VALUES if value and isinstance(value, str)])
            continue
        target = draw.choice(metrics)
        name = draw.choice([*target, *NAMES[:13], *NAMES[-3:]])
        target[name] = draw.choice(
            [value for value in VALUES if isinstance(value, int | float) and abs(value) <= 1e308]
        )
    return json.dumps(literal).encode()


def mutated(draw: random.Random) -> bytes:
    """A real profile with one to three changes: values, keys, lists, and sometimes bytes of the text."""
    if draw.random() < 0.5:
        return readable(draw)
    literal = json.loads(REAL.read_bytes())
    for _ in range(draw.randint(1, 3)):
        container, key = draw.choice(_places(literal))
        change = draw.randrange(6)
        if change <= 1:
            container[key] = copy.deepcopy(draw.choice(VALUES))
        elif change == 2 and isinstance(container, dict):
            container[draw.choice(NAMES)] = container.pop(key)
        elif change == 3:
            del container[key]
        elif change == 4 and isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
        elif isinstance(container, dict):
            container[draw.choice(NAMES)] = copy.deepcopy(draw.choice(VALUES))
    data = json.dumps(literal).encode()
    if draw.random() < 0.2:
        at = draw.randrange(len(data))
        data = draw.choice(
            [data[:at], data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :], data[:at] + data[at + 2 :]]
        )
    return data


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    """Ends what takes three times as long as it may: a hang is a failure among others."""

    def ring(number: int, frame: object) -> None:
        raise TimeoutError(f"no end within {3 * SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 3 * SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def outcome(arguments: list[str]) -> tuple[int | None, str]:
    """(exit code, what is wrong with how the command ended: nothing if it is empty)."""
    out, error = io.StringIO(), io.StringIO()
    began = time.perf_counter()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error), _alarm():
            code = viewer_main(arguments)
    except BaseException:  # whatever it is, it is what this looks for
        return None, traceback.format_exc()
    if time.perf_counter() - began > SECONDS:
        return code, f"took {time.perf_counter() - began:.1f} s"
    if code not in (0, 2):
        return code, f"exit code {code}"
    if code == 2 and not (error.getvalue().startswith("proton-viewer: ") and "Traceback" not in error.getvalue()):
        return code, f"no message: {error.getvalue()!r}"
    if code == 0 and arguments[1] in ("json", "speedscope"):
        json.loads(out.getvalue())
    return code, ""


def failures(count: int, seed: int, folder: Path, codes: Counter[int | None]) -> Iterator[Failure]:
    """Run ``count`` mutated files through every format; ``codes`` counts how commands ended."""
    path, other = folder / "mutated.hatchet", folder / "other.hatchet"
    for number in range(count):
        draw = random.Random(f"{seed}:{number}")
        path.write_bytes(mutated(draw))
        for output in OUTPUTS:
            options = draw.choice(OPTIONS)
            if output == "tree" and "-m" not in options:
                options = [*options, "-m", "time"]
            if output != "speedscope" and draw.random() < 0.15:
                other.write_bytes(mutated(draw) if draw.random() < 0.5 else REAL.read_bytes())
                options = [*options, "-diff", str(other)]
            arguments = ["-f", output, *options, str(path)]
            code, problem = outcome(arguments)
            codes[code] += 1
            if problem:
                yield Failure(number, arguments, problem)


def main() -> int:
    """Run and report; the exit code is 1 if anything failed."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=5000)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    codes: Counter[int | None] = Counter()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for failure in failures(given.count, given.seed, Path(folder), codes):
            failed += 1
            print(f"file {failure.number}: {' '.join(failure.arguments)}\n{failure.problem}", flush=True)
    ended = ", ".join(f"{count} with {code}" for code, count in sorted(codes.items(), key=str))
    print(f"{given.count} files, {sum(codes.values())} commands, {failed} failures; exit codes: {ended}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
