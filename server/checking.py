"""What can be refused when a job is submitted is: the tuner's checks, run for the device that the job asks for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deuteron.compiler.runtime.device import DeviceProperties
from deuteron.compiler.runtime.devices import get_device
from deuteron.compiler.target import ARCHITECTURES
from deuteron.tuner import BUILTINS, DeviceFingerprint, JobSpec, builtin_workload
from deuteron.tuner.errors import Fault
from deuteron.tuner.evaluate.messages import Shown
from deuteron.tuner.evaluate.trial_compile import CompiledConfig, compile_some, show_stages
from deuteron.tuner.space import Configuration
from deuteron.tuner.workloads import Problem
from deuteron.tuner.workloads.validation import faults_of

from .problems import HttpProblem, fault_list
from .store import Job

if TYPE_CHECKING:
    from .context import ServiceContext

# What a GPU job is compiled for while no GPU has announced itself.
_USUAL_TARGET = "cuda:90a"

# Compiling takes a core for a second or more, and half a minute for some kernels. A few requests beyond these wait for
# their turn, and not for long: waiting requests hold threads, of which the service has 40, that others need.
_compilers = threading.BoundedSemaphore(2)
_places = threading.BoundedSemaphore(10)
_TURN_S = 5.0


@dataclass(frozen=True, slots=True)
class JobTarget:
    """The device that a job would run on, as far as this service knows it, and what it would be compiled for."""

    properties: DeviceProperties
    target: str


def target_of(context: ServiceContext, selector: str) -> JobTarget:
    """Where jobs with this device selector run. A GPU that nobody announced has no limits that could be broken."""
    if selector == "cpu":
        return JobTarget(get_device("cpu").properties, "cpu")
    with context.store.read() as tx:
        announced = [device for device in tx.devices.all() if device.kind == "cuda" and device.worker]
    if not announced:
        return JobTarget(DeviceProperties("cuda", "cuda"), _USUAL_TARGET)
    known = DeviceFingerprint.from_json(json.loads(announced[0].fingerprint))
    properties = DeviceProperties(
        known.name,
        "cuda",
        sm_count=known.sm_count,
        memory_bytes=known.memory_bytes,
        compute_capability=known.compute_capability,
    )
    return JobTarget(properties, _target(known.compute_capability))


def _target(capability: tuple[int, int] | None) -> str:
    if capability is None:
        return _USUAL_TARGET
    name = "{}{}".format(*capability)
    return f"cuda:{name}a" if f"{name}a" in ARCHITECTURES else f"cuda:{name}"


def check_job(context: ServiceContext, spec: JobSpec) -> list[Fault]:
    """What is wrong with a job: with its fields, else with its kernel, whose default configuration is compiled.

    A built-in workload is not compiled. Neither is a kernel refused that takes very long to compile: the worker has
    more patience.

    Raises:
        HttpProblem: 503, others are compiling, and went on for too long.
    """
    target = target_of(context, spec.device)
    found = faults_of(list(spec.problems()), target.properties)
    if found or _is_builtin(spec):
        return found
    return compile_faults(compile_for(spec, target, others=0))


def compile_for(spec: JobSpec, target: JobTarget, *, others: int) -> list[CompiledConfig]:
    """The default configuration, and random ones, of the job's first shape and dtype, compiled. Their fields are
    sound.

    Raises:
        HttpProblem: 503, others are compiling, and went on for too long.
    """
    problem = next(spec.problems())
    with _turn():
        return compile_some(problem, target.properties, target.target, others=others, seed=spec.seed)


def show_code(context: ServiceContext, job: Job, dims: Mapping[str, int], dtype: str, config: Configuration) -> Shown:
    """The stages of one configuration of a job's kernel, compiled again for the device that the job ran on. The text is
    parsed, never executed, in a process of its own that has half a minute.

    Raises:
        HttpProblem: 503, others are compiling, and went on for too long.
        DeuteronError: the stored job is not one that this version can read.
    """
    spec = JobSpec.from_json(json.loads(job.spec))
    problem = Problem(spec.workload, dims, dtype)
    with _turn():
        return show_stages(problem, config, _target_of_job(context, job))


@contextmanager
def _turn() -> Iterator[None]:
    """Compiling while no more than two do. Raises HttpProblem, at once where enough others wait."""
    busy = HttpProblem(
        503, "compilers-busy", "other kernels are being compiled", hint="try again", headers={"Retry-After": "5"}
    )
    if not _places.acquire(blocking=False):
        raise busy
    try:
        if not _compilers.acquire(timeout=_TURN_S):
            raise busy
        try:
            yield
        finally:
            _compilers.release()
    finally:
        _places.release()


def _target_of_job(context: ServiceContext, job: Job) -> str:
    with context.store.read() as tx:
        known = tx.devices.find(job.device_key) if job.device_key is not None else None
    if known is None or known.kind != "cuda":
        return target_of(context, job.device).target
    return _target(DeviceFingerprint.from_json(json.loads(known.fingerprint)).compute_capability)


def compile_faults(compiled: Sequence[CompiledConfig]) -> list[Fault]:
    """The default configuration has to compile. Random ones need not: a search passes over what does not."""
    return [
        Fault(
            "workload.kernel",
            f"the default configuration {dict(item.config)} does not compile: {item.error}",
            "POST /v1/workloads/validate tries changes without a job",
        )
        for item in compiled
        if item.role == "default" and item.status not in ("ok", "timeout")
    ]


def refuse_faults(faults: Sequence[Fault]) -> None:
    """Raises:
    HttpProblem: 422, there are faults; ``errors`` has them all.
    """
    if faults:
        first = faults[0]
        raise HttpProblem(
            422,
            "workload-error",
            f"{first.where}: {first.message}",
            hint=first.hint,
            members={"errors": fault_list(faults)},
        )


def _is_builtin(spec: JobSpec) -> bool:
    return spec.workload.name in BUILTINS and spec.workload == builtin_workload(spec.workload.name)
