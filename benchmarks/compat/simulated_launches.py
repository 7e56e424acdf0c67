"""Every variant that a program launches on the CPU, compiled for a GPU as well and simulated with the same arguments.

A launch hook: the first launch of each variant goes to a child process, which has the memory as it was before the
launch. It runs the kernel there on the CPU and on the simulated GPU, and compares what the two leave. The program
itself goes on beside it. library_suite.py and triton_suite.py use it (``--simulate ARCH``): it finds wrong GPU code
with tests that nobody wrote for it, on machines without a GPU.

The journal has a line of JSON for each variant: ``good``; ``wrong``, with the arrays that differ; ``failed``, which the
simulator or the compiler said; ``refused`` by the compiler with an error of its own; ``late``; or ``crashed``.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import pickle
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from deuteron.compiler.errors import DeuteronError, OutOfResources
from deuteron.compiler.launch_recipe import Guard
from deuteron.compiler.runtime.arrays.arguments import readers
from deuteron.compiler.runtime.arrays.dtypes import numpy_dtype
from deuteron.compiler.runtime.arrays.reinterpret import Reinterpreted
from deuteron.compiler.runtime.launch.hooks import Launched, LaunchEvent, add_launch_hook
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.runtime.variant.variant import Variant
from deuteron.compiler.signature import ArgumentType
from deuteron.compiler.target import Target
from deuteron.compiler.targets import cpu
from deuteron.compiler.targets.nvptx import PtxProgram

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "development"))
from simulator import SimulationError, simulate_launch  # noqa: E402

Bytes = npt.NDArray[np.uint8]

#: Elements that may differ by roundings; others are compared byte by byte.
FLOATS = ("f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64")
#: How far two orders of summation, or two roundings of an exponential, may be apart: the root of the mean square of the
#: differences beside that of the values, by bytes of an element, the least of all arrays of the launch. The largest
#: difference may be ten times as much beside the largest value. What is wrong is so by more: an element of a hundred
#: that comes from elsewhere is 0.1.
TOLERANCES = {1: 0.04, 2: 0.01, 4: 0.003, 8: 1e-6}
#: Copies of memory begin where the memory does, modulo this.
ALIGNMENT = 256


@dataclass(frozen=True)
class Settings:
    """``arch``: the target that is simulated. ``programs``: of a larger grid so many run, on either side.
    ``schedules``: the launch's own, and random numbers of warps and stages. ``seconds`` for a variant, all its
    schedules together. ``processes`` at once. ``keep``: a folder for what is wrong or failed, see :class:`Job`.
    ``kernel``: only those whose names contain it."""

    arch: str
    programs: int = 64
    schedules: int = 1
    seconds: int = 60
    processes: int = 1
    seed: int = 0
    keep: Path | None = None
    kernel: str = ""


@dataclass
class Result:
    """What came of a variant; ``text`` says what is wrong."""

    kernel: str
    outcome: str
    text: str
    grid: tuple[int, ...]
    signature: dict[str, str]
    constants: dict[str, str]
    schedule: str
    test: str
    seconds: float = 0.0


class SimulatedLaunches:
    """The launch hook. :meth:`finish` waits for the child processes."""

    def __init__(self, settings: Settings, journal: Path) -> None:
        self._settings, self._journal = settings, journal
        self._seen: set[str] = set()
        self._children: dict[int, Result] = {}

    def enter(self, event: LaunchEvent) -> None:
        """Fork, unless the variant was seen."""
        kernel = event.kernel
        variant = kernel.variant if kernel else None
        if kernel is None or variant is None or variant.target.kind != "cpu" or self._settings.kernel not in event.name:
            return
        if variant.key in self._seen:
            return
        self._seen.add(variant.key)
        while len(self._children) >= self._settings.processes:
            self._wait()
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        schedule = str(variant.schedule)
        kinds = {name: str(kind) for name, kind in variant.signature.items()}
        constants = {name: str(value) for name, value in variant.constants.items()}
        result = Result(variant.source.name, "", "", event.grid, kinds, constants, schedule, test)
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child:
            self._children[child] = result
            return
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(self._settings.seconds)
            for outcome in compare_schedules(kernel, variant, event, self._settings):
                self._write(replace(result, **outcome))
        finally:
            os._exit(0)  # no handlers, no buffers: they are the parent's

    def exit(self, event: LaunchEvent) -> None:
        """Nothing: the child has run it."""

    def finish(self) -> None:
        """Wait until all variants are compared."""
        while self._children:
            self._wait()

    def _wait(self) -> None:
        """Until the oldest child has ended (others may be the program's); one that a signal ended has said nothing."""
        child, result = next(iter(self._children.items()))
        try:
            _, status = os.waitpid(child, 0)
        except ChildProcessError:  # a case ran out of time between these lines: the child has said what it had to
            status = 0
        del self._children[child]
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            outcome = "late" if number == signal.SIGALRM else "crashed"
            self._write(replace(result, outcome=outcome, text=signal.Signals(number).name))

    def _write(self, result: Result) -> None:
        with self._journal.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")


# Options of the suites ----------------------------------------------------------------------------------------

#: What library_suite.py and triton_suite.py take, and hand on to their plugins as ``--suite-NAME``.
OPTIONS: dict[str, tuple[type, object, str]] = {
    "simulate": (str, "", "a GPU target, such as cuda:90a: every variant is simulated for it, too"),
    "schedules": (int, 1, "schedules of each variant that are simulated"),
    "programs": (int, 64, "programs of a larger grid that are"),
    "simulation-limit": (int, 60, "seconds for a variant"),
    "simulations": (int, 1, "simulated launches at once"),
    "kernel": (str, "", "simulate only kernels whose names contain this"),
    "keep": (str, "", "folder for simulated launches that are wrong or fail"),
}


def add_options(parser: Any, prefix: str) -> None:
    """Add the options to a parser of arguments, or to a group of pytest's."""
    add = getattr(parser, "addoption", None) or parser.add_argument
    for name, (kind, default, text) in OPTIONS.items():
        add(f"{prefix}{name}", type=kind, default=default, help=text)


def handed_on(options: argparse.Namespace) -> list[str]:
    """The options that differ from their defaults, as a plugin takes them."""
    given = {name: getattr(options, name.replace("-", "_")) for name in OPTIONS}
    return [f"--suite-{name}={value}" for name, value in given.items() if value != OPTIONS[name][1]]


def begin(config: pytest.Config, journal: Path) -> None:
    """Simulate from now on, if a plugin was asked to, and until the run ends."""
    arch, *_ = given = [config.getoption(f"--suite-{name}") for name in OPTIONS]
    if not arch:
        return
    _, schedules, programs, seconds, processes, kernel, keep = given
    seed = config.getoption("--suite-seed")
    settings = Settings(arch, programs, schedules, seconds, processes, seed, Path(keep) if keep else None, kernel)
    launches = SimulatedLaunches(settings, journal.with_suffix(".launches"))
    add_launch_hook(launches)
    config.add_cleanup(launches.finish)


# In the child -------------------------------------------------------------------------------------------------


@dataclass
class Job:
    """A launch as it can be repeated in another process: ``program`` is what was simulated, if it was compiled;
    ``before`` and ``wanted`` have the pieces of memory, by address, as they were and as the CPU leaves them;
    ``arguments`` a number, or the address of an array. ``pickle`` reads and writes it."""

    program: PtxProgram | None
    grid: tuple[int, int, int]
    programs: list[tuple[int, int, int]] | None
    kinds: dict[str, ArgumentType]
    arguments: dict[str, Any]
    before: dict[int, Bytes]
    wanted: dict[int, Bytes]


def compare_schedules(
    kernel: Launched, variant: Variant, event: LaunchEvent, settings: Settings
) -> Iterator[dict[str, Any]]:
    """Run the launch on the CPU, and under each schedule on the simulator: outcome, text, schedule and seconds."""
    begun = time.monotonic()
    try:
        job = on_cpu(kernel, variant, event, settings)
    except Exception as error:
        yield {"outcome": "failed", "text": f"on the CPU: {type(error).__name__}: {error}"}
        return
    for number, schedule in enumerate(schedules(variant, settings)):
        tried = replace(variant, target=Target.parse(settings.arch), schedule=schedule)
        outcome, text = simulate(job, tried)
        if outcome in ("wrong", "failed") and settings.keep:
            settings.keep.mkdir(parents=True, exist_ok=True)
            path = settings.keep / f"{variant.source.name}-{variant.key[:8]}-{number}.pickle"
            path.write_bytes(pickle.dumps(job))
        seconds = round(time.monotonic() - begun, 1)
        yield {"outcome": outcome, "text": text, "schedule": str(schedule), "seconds": seconds}
        begun = time.monotonic()


def schedules(variant: Variant, settings: Settings) -> Iterator[Any]:
    """The launch's own, and random ones with other numbers of warps and stages."""
    yield variant.schedule
    chance = random.Random(f"{settings.seed} {variant.key}")
    for _ in range(settings.schedules - 1):
        yield replace(variant.schedule, num_warps=chance.choice((1, 2, 4, 8)), num_stages=chance.choice((1, 2, 3, 4)))


def on_cpu(kernel: Launched, variant: Variant, event: LaunchEvent, settings: Settings) -> Job:
    """Run the launch, or some of its programs, in this process's memory."""
    given = event.arguments()
    values = [readers[type(given[name])](given[name])[1] for name in variant.signature]
    arguments = dict(zip(variant.signature, values, strict=True))
    before: dict[int, Bytes] = {}
    for name, kind in variant.signature.items():
        if kind.pointer:
            start, size = memory_of(given[name])
            if start not in before or before[start].nbytes < size:
                before[start] = copied(in_memory(start, size))
    total, chosen = math.prod(event.grid), None
    if total > settings.programs:
        chosen = sorted(random.Random(f"{settings.seed} {variant.key}").sample(range(total), settings.programs))
    loaded = cpu.load(kernel.code(), kernel.metadata.name)
    types = [kind.tile for kind in variant.signature.values()]
    loaded.launch_some(range(total) if chosen is None else chosen, event.grid, values, types)
    wanted = {start: in_memory(start, piece.nbytes) for start, piece in before.items()}
    programs = None if chosen is None else [cpu.position(event.grid, number) for number in chosen]
    return Job(None, event.grid, programs, dict(variant.signature), arguments, before, wanted)


def memory_of(value: Any) -> tuple[int, int]:
    """Address and bytes of the piece of memory that an array is in."""
    if isinstance(value, Reinterpreted):
        return memory_of(value.base)
    if hasattr(value, "untyped_storage"):
        storage = value.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    array = np.asarray(getattr(value, "numpy", value))
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.ctypes.data, array.nbytes


def in_memory(start: int, size: int) -> Bytes:
    """The bytes themselves, not a copy."""
    return np.frombuffer((ctypes.c_ubyte * size).from_address(start), np.uint8) if size else np.zeros(0, np.uint8)


def copied(piece: Bytes) -> Bytes:
    """A copy that is aligned as the original."""
    room = np.empty(piece.nbytes + ALIGNMENT, np.uint8)
    start = (piece.ctypes.data - room.ctypes.data) % ALIGNMENT
    room[start : start + piece.nbytes] = piece
    return room[start : start + piece.nbytes]


def simulate(job: Job, variant: Variant) -> tuple[str, str]:
    """Outcome and text of a variant for a GPU."""
    if job.programs is not None:
        variant = replace(variant, schedule=replace(variant.schedule, persistent=False))

    def compiled(denied: frozenset[Guard]) -> PtxProgram:
        made = build(replace(variant, denied=tuple(denied)), "llvm")
        recipe, shared = made.recipe, made.shared_bytes
        assert recipe is not None and shared is not None
        text, names = str(made.artifacts["llvm"]), tuple(variant.signature)
        job.program = PtxProgram(text, variant.source.name, names, shared, recipe.threads // 32, recipe)
        return job.program

    try:
        wrong = differences(job, compiled)
    except SimulationError as error:
        return "failed", str(error)
    except DeuteronError as error:
        return "refused", error.resource if isinstance(error, OutOfResources) else str(error)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    return ("wrong", "; ".join(wrong)) if wrong else ("good", "")


def differences(job: Job, compiled: Callable[[frozenset[Guard]], PtxProgram]) -> list[str]:
    """What the simulated program leaves otherwise than the CPU did, array by array."""
    after = {start: copied(piece) for start, piece in job.before.items()}
    parts: dict[tuple[int, str], npt.NDArray[Any]] = {}
    passed = []
    for name, kind in job.kinds.items():
        value = job.arguments[name]
        if kind.pointer:
            key = (value, kind.dtype)
            if key not in parts:
                parts[key] = elements(after, value, kind.dtype)
            passed.append(parts[key])
        else:
            passed.append(value)
    simulate_launch(compiled, job.grid, passed, programs=job.programs)
    pointers = {name: kind.dtype for name, kind in job.kinds.items() if kind.pointer}
    least = min((numpy_dtype(dtype).itemsize for dtype in pointers.values() if dtype in FLOATS), default=8)
    found = {}
    for name, dtype in pointers.items():
        pieces = (raw(side, job.arguments[name]) for side in (after, job.wanted, job.before))
        found[name] = difference(dtype, *pieces, TOLERANCES[least])
    return [f"{name} ({job.kinds[name].dtype}): {text}" for name, text in found.items() if text]


def raw(pieces: Mapping[int, Bytes], address: int) -> Bytes:
    """The bytes from an address to the end of its piece of memory."""
    for start, piece in pieces.items():
        if start <= address < start + piece.nbytes:
            return piece[address - start :]
    return np.zeros(0, np.uint8)


def elements(pieces: Mapping[int, Bytes], address: int, dtype: str) -> npt.NDArray[Any]:
    """The same as numbers, where NumPy has them."""
    here = raw(pieces, address)
    kind = numpy_dtype(dtype)
    return here[: here.nbytes // kind.itemsize * kind.itemsize].view(kind)


def difference(dtype: str, got: Bytes, wanted: Bytes, before: Bytes, allowed: float) -> str:
    """How an array differs, looking at elements that either side has changed; empty where it does not by more than
    ``allowed``."""
    kind = numpy_dtype(dtype)
    if dtype not in FLOATS:
        differ = got != wanted
        return f"{differ.sum()} of {differ.size} bytes differ, the first at {differ.argmax()}" if differ.any() else ""
    size = got.nbytes // kind.itemsize * kind.itemsize
    rows = [piece[:size].reshape(-1, kind.itemsize) for piece in (got, wanted, before)]
    moved = (rows[0] != rows[2]).any(1) | (rows[1] != rows[2]).any(1)
    x, y = (np.ascontiguousarray(piece[moved]).view(kind).reshape(-1).astype(np.float64) for piece in rows[:2])
    finite = np.isfinite(x) & np.isfinite(y)
    special = ~finite & ~((x == y) | (np.isnan(x) & np.isnan(y)))
    if special.any():
        return f"{special.sum()} of {special.size} are not finite, or here alone: {x[special][0]}, not {y[special][0]}"
    x, y = x[finite], y[finite]
    if not len(x):
        return ""
    with np.errstate(all="ignore"):
        mean = math.sqrt(((x - y) ** 2).mean()) / (math.sqrt((y * y).mean()) + 1e-30)
        worst = np.abs(x - y).max() / (np.abs(y).max() + 1e-30)
    return f"error {mean:.3g}, largest {worst:.3g}, of {len(x)}" if mean > allowed or worst > 10 * allowed else ""
