"""What a child process does: compile variants of one problem, check them, time them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.runtime.devices import get_device
from deuteron.compiler.runtime.variant.listings import list_stages

from ..errors import JobError
from ..measure.graph_replay import replayed, short_ones
from ..measure.sampling import Stopwatch, first_look, interleaved_rounds
from ..measure.stopping import LEAST_SECONDS, is_settled
from ..space import Configuration, config_key
from ..workloads import LaunchPlan, Problem
from ..workloads.references import INTERPRETER
from .check import Checker
from .compilation import code_facts, code_identity, compile_variant, static_metrics
from .contradiction import contradicted
from .cores import share_cores
from .growth import extend
from .messages import (
    Compile,
    Compiled,
    Done,
    Extend,
    Extended,
    Open,
    Prepare,
    Race,
    Raced,
    Screen,
    Screened,
    Show,
    Shown,
    ShownLine,
)
from .processes import MEASURING_PROCESSES
from .turns import gpu_name, timing

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import Device
    from deuteron.compiler.runtime.launch.compiled import CompiledKernel

# Compiled kernels are small next to tensors; this only bounds a search of very many configurations.
KEPT_KERNELS = 256
#: Configurations for which it is looked whether the default is wrong rather than they.
MOST_LOOKS = 4


def now_and_then(wrong: str) -> str:
    """Says of one that was right before it was timed what it did later."""
    return f"{wrong} (not in its first launch: its programs may race)"


def _nobody_beside(device: Device) -> AbstractContextManager[None]:
    """While kernels are timed on a GPU no other process of ours computes there. Those that measure on a CPU compute
    nothing meanwhile."""
    return timing(gpu_name(device)) if device.properties.kind == "cuda" else nullcontext()


class ChildSession:
    """The state of one child: a device, a problem, its tensors, the kernels compiled so far."""

    def __init__(self) -> None:
        self._problem: Problem | None = None
        self._device: Device | None = None
        self._checker: Checker | None = None
        self._kernels: dict[str, tuple[CompiledKernel, LaunchPlan]] = {}
        self._shares_cores = False

    def open(self, request: Open) -> None:
        """Open a device before it is known what for; what was prepared before is forgotten."""
        self._problem = self._checker = None
        self._kernels.clear()
        with suppress(DeuteronError):
            self._opened(request.device).synchronize()

    def prepare(self, request: Prepare) -> Done:
        """Take a problem, and on a device what its configurations are checked with."""
        self._problem = Problem(request.workload, request.dims, request.dtype)
        self._kernels.clear()
        self._target, self._processors = request.target, request.processors
        self._device = self._checker = None
        if request.device is not None:
            self._device = self._opened(request.device)
            self._default, self._seed, self._looks = request.default, request.seed, 0
            self._checker = Checker(self._problem, self._device, request.seed, request.default, self._compiled)
        return Done()

    def compile(self, request: Compile) -> Compiled:
        """Compile into the shared cache."""
        began = time.perf_counter()
        kernel, variant = self._compiled(request.config)
        return Compiled(
            "ok",
            identity=code_identity(kernel, variant),
            metrics=static_metrics(kernel),
            code=code_facts(kernel, variant),
            seconds=time.perf_counter() - began,
        )

    def show(self, request: Show) -> Shown:
        """Compile, and list the stages of what a launch at the problem's sizes runs."""
        kernel, _ = self._compiled(request.config)
        if kernel.variant is None:
            raise JobError("a kernel from another process has no stages to show")
        listed = list_stages(kernel.variant)
        stages = {name: [ShownLine(line.text, line.source) for line in lines] for name, lines in listed.items()}
        return Shown("ok", stages=stages)

    def screen(self, request: Screen) -> Screened:
        """Check, then a first look at the time, then check again: one that is right now and then is wrong. Who has no
        hope is not stored, and has only to have left everything else as it was."""
        checker, device = self._ready()
        began = time.perf_counter()
        comparison = checker.check(request.config)
        doubt = None if comparison.ok else self._doubt(request.config)
        checked = time.perf_counter()
        screened = Screened(
            "ok" if comparison.ok else "wrong_result",
            comparison.message,
            reference=checker.reference,
            worst_error=min(comparison.worst, 1e300),
            check_seconds=checked - began,
            doubt=doubt,
        )
        if not comparison.ok:
            return screened
        stopwatch = self._stopwatch(device)
        with _nobody_beside(device):
            look = first_look(stopwatch, checker.launch(request.config), request.best_ns)
        measured = time.perf_counter()
        wrong = checker.damage()
        if wrong is None and not look.hopeless:
            wrong = checker.check(request.config).message
        screened = replace(
            screened,
            check_seconds=screened.check_seconds + time.perf_counter() - measured,
            measure_seconds=measured - checked,
        )
        if wrong is not None:
            return replace(screened, status="wrong_result", error=now_and_then(wrong))
        return replace(
            screened, time_ns=look.interval, protocol=stopwatch.protocol("first look"), hopeless=look.hopeless
        )

    def race(self, request: Race) -> Raced:
        """Time candidates in interleaved rounds. In the final each is compared with the reference first and those that
        fail are not timed, it ends once the verdicts on all are settled, and each is compared often then: whoever is
        wrong once is reported and has no times. Short ones also run in graphs."""
        checker, device = self._ready()
        began = time.perf_counter()
        errors: list[str | None] = [None] * len(request.configs)
        if request.final:
            errors = [checker.check(config).message for config in request.configs]
        sound = [i for i, error in enumerate(errors) if error is None]
        checked = time.perf_counter()
        stopwatch = self._stopwatch(device)
        launches = [checker.launch(request.configs[i]) for i in sound]
        with _nobody_beside(device):
            rounds = interleaved_rounds(
                stopwatch,
                launches,
                rounds=request.rounds,
                seconds=request.seconds,
                seed=request.seed,
                enough=is_settled if request.final else None,
                least_seconds=LEAST_SECONDS if request.final else 0.0,
            )
            short = short_ones(rounds.times) if request.final else []
            replays = replayed(device, [launches[i] for i in short], request.seed) if short else None
        measured = time.perf_counter()
        if request.final:
            errors = self._wrong_after_rounds(checker, request.configs, errors)
        times: list[list[float]] = [[] for _ in request.configs]
        in_graphs: list[list[float]] = [[] for _ in request.configs]
        for position, index in enumerate(sound):
            if errors[index] is None:
                times[index] = rounds.times[position]
        for position, taken in zip(short, replays or [], strict=False):
            in_graphs[sound[position]] = taken
        clocks = sorted(mhz for mhz in rounds.sm_mhz if mhz is not None)
        return Raced(
            "ok",
            times=times,
            errors=errors,
            replays=in_graphs if replays is not None else [],
            sm_mhz=clocks[len(clocks) // 2] if clocks else None,
            protocol=stopwatch.protocol("rounds"),
            reference=checker.reference,
            check_seconds=checked - began + time.perf_counter() - measured,
            measure_seconds=measured - checked,
        )

    def _wrong_after_rounds(
        self, checker: Checker, configs: Sequence[Configuration], errors: Sequence[str | None]
    ) -> list[str | None]:
        """Why each is wrong now, or was before. What the rounds wrote where they must not may be any challenger's: it
        refutes all of them, and the default only if that does it again."""
        damage = checker.damage()
        shared = None if damage is None else f"it, or one beside it, {damage}"
        found = list(errors)
        for index, config in enumerate(configs):
            if found[index] is None:
                wrong = checker.check_often(config).message or (shared if index else None)
                found[index] = None if wrong is None else now_and_then(wrong)
        return found

    def extend(self, request: Extend) -> Extended:
        """Try a configuration at larger shapes."""
        _, device = self._ready()
        if self._problem is None:
            raise JobError("the process was not prepared")
        return extend(self._problem, device, request.config, request.seed)

    def _doubt(self, config: Configuration) -> str | None:
        """Why the default, which says what is expected, is wrong rather than ``config``; looked for a few times."""
        problem, device = self._problem, self._device
        if problem is None or device is None or problem.spec.reference != INTERPRETER or self._looks == MOST_LOOKS:
            return None
        self._looks += 1
        space = problem.full_space(device.properties)
        return contradicted(problem, space, self._default, config, self._seed)

    def _opened(self, name: str) -> Device:
        device = get_device(name)
        if device.properties.kind == "cuda" and not self._shares_cores:
            share_cores(MEASURING_PROCESSES)
            self._shares_cores = True
        return device

    def _stopwatch(self, device: Device) -> Stopwatch:
        return Stopwatch(device, cold=device.properties.kind == "cuda")

    def _ready(self) -> tuple[Checker, Device]:
        if self._checker is None or self._device is None:
            raise JobError("the measurement process was not prepared")
        return self._checker, self._device

    def _compiled(self, config: Configuration) -> tuple[CompiledKernel, LaunchPlan]:
        if self._problem is None:
            raise JobError("the process was not prepared")
        key = config_key(config)
        if key not in self._kernels:
            if len(self._kernels) >= KEPT_KERNELS:
                self._kernels.pop(next(iter(self._kernels)))
            variant = self._problem.variant(config)
            made = compile_variant(self._problem, variant, self._target, self._processors)
            self._kernels[key] = (made, variant)
        return self._kernels[key]
