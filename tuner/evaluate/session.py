"""What a child process does: compile variants of one problem, check them, time them."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from typing import TYPE_CHECKING

from deuteron.compiler.errors import TargetError

from ..errors import JobError
from ..json_fields import Fields, JsonObject, canonical_json, expect_number
from ..measure.sampling import Stopwatch, first_look, interleaved_rounds
from ..measure.stopping import LEAST_SECONDS, is_settled
from ..space import Configuration, config_key, read_config
from ..workloads import Problem, Variant, WorkloadSpec
from ..workloads.spec import read_shape
from .check import Checker

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import Device
    from deuteron.compiler.runtime.launch.compiled import CompiledKernel

# Compiled kernels are small next to tensors; this only bounds a search of very many configurations.
KEPT_KERNELS = 256


def compile_variant(problem: Problem, variant: Variant, target: str) -> CompiledKernel:
    """Compile, through the disk cache that all processes share; raises the compiler's errors."""
    from deuteron.compiler.runtime.launch import compiled
    from deuteron.compiler.runtime.variant.variant import make_variant

    return compiled.compile_variant(
        make_variant(problem.source, variant.signature, variant.constexprs, target, variant.schedule)
    )


def code_identity(kernel: CompiledKernel, variant: Variant) -> str:
    """Equal for configurations that run the same code on the same grid with the same launch parameters."""
    digest = hashlib.sha256(canonical_json(list(variant.grid)).encode())
    try:
        digest.update(kernel.code())
    except TargetError:
        digest.update(str(kernel.asm["ptx"]).encode())  # no assembler on this machine
    for name in ("num_warps", "shared_bytes"):
        digest.update(str(getattr(kernel.metadata, name, None)).encode())
    return digest.hexdigest()


def static_metrics(kernel: CompiledKernel) -> dict[str, float]:
    """The numbers of the kernel's metadata that are known."""
    fields = dataclasses.asdict(kernel.metadata)
    return {
        name: float(value)
        for name, value in fields.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


class Session:
    """The state of one child: a device, a problem, its tensors, the kernels compiled so far."""

    def __init__(self) -> None:
        self._problem: Problem | None = None
        self._device: Device | None = None
        self._checker: Checker | None = None
        self._kernels: dict[str, tuple[CompiledKernel, Variant]] = {}

    def prepare(self, request: JsonObject) -> JsonObject:
        """Fields ``workload``, ``dims``, ``dtype``, ``target``; with ``device`` and ``seed`` also make tensors and the
        expected result, ``default`` being the default configuration."""
        from deuteron.compiler.runtime.devices import get_device

        fields = Fields(request, "prepare")
        spec = WorkloadSpec.from_json(fields.get("workload"))
        dims = read_shape(fields.get("dims"), "dims")
        self._problem = Problem(spec, dims, fields.text("dtype"))
        self._kernels.clear()
        self._target = fields.text("target")
        self._device = self._checker = None
        if fields.has("device"):
            self._device = get_device(fields.text("device"))
            default = read_config(fields.get("default"), "default")
            self._checker = Checker(self._problem, self._device, fields.integer("seed"), default, self._compiled)
        return {"status": "ok"}

    def compile(self, request: JsonObject) -> JsonObject:
        """Field ``config``: compile into the shared cache; answers identity, metrics and seconds."""
        config = read_config(request.get("config"), "config")
        began = time.perf_counter()
        kernel, variant = self._compiled(config)
        identity = code_identity(kernel, variant)
        return {
            "status": "ok",
            "identity": identity,
            "metrics": static_metrics(kernel),
            "seconds": time.perf_counter() - began,
        }

    def screen(self, request: JsonObject) -> JsonObject:
        """Fields ``config``, ``best_ns`` (or null): check, then a first look at the time."""
        checker, device = self._ready()
        config = read_config(request.get("config"), "config")
        began = time.perf_counter()
        comparison = checker.check(config)
        checked = time.perf_counter()
        answer: JsonObject = {
            "status": "ok" if comparison.ok else "wrong_result",
            "error": comparison.message,
            "reference": checker.reference,
            "worst_error": min(comparison.worst, 1e300),
            "check_seconds": checked - began,
        }
        if comparison.ok:
            limit = request.get("best_ns")
            best_ns = None if limit is None else expect_number(limit, "best_ns")
            look = first_look(self._stopwatch(device), checker.launch(config), best_ns)
            answer |= {
                "time_ns": look.interval.to_json(),
                "hopeless": look.hopeless,
                "measure_seconds": time.perf_counter() - checked,
            }
        return answer

    def race(self, request: JsonObject) -> JsonObject:
        """Fields ``configs``, ``rounds``, ``seconds``, ``seed``, ``final``: time candidates in interleaved rounds. In the
        ``final`` each is compared with the reference first, those that fail are reported and not timed, and it ends
        once the verdicts on all are settled."""
        checker, device = self._ready()
        fields = Fields(request, "race")
        configs = fields.items("configs", read_config)
        began = time.perf_counter()
        errors: list[str | None] = [None] * len(configs)
        final = fields.boolean("final")
        if final:
            errors = [checker.check(config).message for config in configs]
        sound = [i for i, error in enumerate(errors) if error is None]
        checked = time.perf_counter()
        rounds = interleaved_rounds(
            self._stopwatch(device),
            [checker.launch(configs[i]) for i in sound],
            rounds=fields.integer("rounds"),
            seconds=fields.number("seconds"),
            seed=fields.integer("seed"),
            enough=is_settled if final else None,
            least_seconds=LEAST_SECONDS if final else 0.0,
        )
        times: list[list[float]] = [[] for _ in configs]
        for position, index in enumerate(sound):
            times[index] = rounds.times[position]
        return {
            "status": "ok",
            "times": times,
            "errors": errors,
            "sm_mhz": rounds.sm_mhz,
            "reference": checker.reference,
            "check_seconds": checked - began,
            "measure_seconds": time.perf_counter() - checked,
        }

    def _stopwatch(self, device: Device) -> Stopwatch:
        return Stopwatch(device, cold=device.properties.kind == "cuda")

    def _ready(self) -> tuple[Checker, Device]:
        if self._checker is None or self._device is None:
            raise JobError("the measurement process was not prepared")
        return self._checker, self._device

    def _compiled(self, config: Configuration) -> tuple[CompiledKernel, Variant]:
        if self._problem is None:
            raise JobError("the process was not prepared")
        key = config_key(config)
        if key not in self._kernels:
            if len(self._kernels) >= KEPT_KERNELS:
                self._kernels.pop(next(iter(self._kernels)))
            variant = self._problem.variant(config)
            self._kernels[key] = (compile_variant(self._problem, variant, self._target), variant)
        return self._kernels[key]
