"""Evaluating configurations: the interface that searches use, and the one that runs on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import SchemaError
from ..json_fields import Fields, JsonObject, expect_list, expect_number
from ..measure.statistics import Interval
from ..space import Configuration
from ..workloads import Problem
from .child import WORKER, ChildCrashed, ChildProcess, ChildTimeout, physical_memory_bytes
from .compile_pool import Compiled, CompilePool

PREPARE_SECONDS = 300.0
# The interpreter and the process itself; what a kernel's tensors need comes on top and is bounded by the rest.
MEMORY_SHARE = 0.8


@dataclass(frozen=True)
class Screened:
    """Outcome of checking and first timing. ``status`` as in a trial; ``time_ns`` is None unless it is ok."""

    status: str
    error: str | None = None
    time_ns: Interval | None = None
    hopeless: bool = False
    reference: str | None = None
    worst_error: float | None = None
    check_seconds: float = 0.0
    measure_seconds: float = 0.0


@dataclass(frozen=True)
class Raced:
    """Outcome of interleaved rounds. ``times[c][r]`` in ns, empty for a candidate that failed its check with
    ``errors[c]``. ``status`` other than ok: the whole race failed, with ``error``."""

    status: str
    error: str | None = None
    times: list[list[float]] = field(default_factory=list)
    errors: list[str | None] = field(default_factory=list)
    sm_mhz: float | None = None
    reference: str | None = None
    check_seconds: float = 0.0
    measure_seconds: float = 0.0


class Evaluator(Protocol):
    """Compiles, checks and times configurations of one problem. Nothing a configuration does raises: failures are
    statuses. ``exclusive``: compiling would disturb timing (same cores), so searches settle before they screen."""

    exclusive: bool
    workers: int

    def submit(self, config: Configuration) -> None:
        """Start compiling in the background."""
        ...

    def compiled(self, config: Configuration) -> Compiled:
        """Wait for the compilation of ``config``."""
        ...

    def settle(self) -> None:
        """Wait until nothing compiles."""
        ...

    def screen(self, config: Configuration, best_ns: float | None) -> Screened:
        """Check, then a first look at the time; ``best_ns`` lets hopeless candidates end early."""
        ...

    def race(
        self,
        configs: Sequence[Configuration],
        *,
        rounds: int,
        seconds: float,
        seed: int,
        fresh: bool,
    ) -> Raced:
        """Time candidates in interleaved rounds, the default first. ``fresh``, for the final: in a new process, on new
        inputs, checked again, and only until the verdicts on all of them are settled."""
        ...

    def close(self) -> None: ...


class LocalEvaluator:
    """Child processes on this machine: a pool that compiles and one that measures on the device."""

    def __init__(
        self,
        problem: Problem,
        device: str,
        target: str,
        kind: str,
        default: Configuration,
        seed: int,
        *,
        workers: int | None = None,
        timeout: float = 60.0,
        command: Sequence[str] = WORKER,
    ) -> None:
        self.exclusive = kind == "cpu"
        base: JsonObject = {
            "workload": problem.spec.to_json(),
            "dims": dict(problem.dims),
            "dtype": problem.dtype,
            "target": target,
        }
        self._pool = CompilePool(base, workers=workers, command=command)
        self._prepare = base | {"device": device, "default": dict(default)}
        self._kind = kind
        self._seed = seed
        self._timeout = timeout
        self._child = ChildProcess(command)
        self._unpreparable: JsonObject | None = None
        self.workers = self._pool.workers

    def submit(self, config: Configuration) -> None:
        self._pool.submit(config)

    def compiled(self, config: Configuration) -> Compiled:
        return self._pool.result(config)

    def settle(self) -> None:
        self._pool.settle()

    def screen(self, config: Configuration, best_ns: float | None) -> Screened:
        answer = self._measure("screen", {"config": dict(config), "best_ns": best_ns}, self._timeout)
        return _read_screened(answer)

    def race(
        self,
        configs: Sequence[Configuration],
        *,
        rounds: int,
        seconds: float,
        seed: int,
        fresh: bool,
    ) -> Raced:
        if fresh:
            self._child.kill()
            self._seed = seed
        request: JsonObject = {
            "configs": [dict(config) for config in configs],
            "rounds": rounds,
            "seconds": seconds,
            "seed": seed,
            "final": fresh,
        }
        limit = self._timeout * max(1, len(configs)) + seconds
        return _read_raced(self._measure("race", request, limit))

    def close(self) -> None:
        self._pool.close()
        self._child.kill()

    def _measure(self, operation: str, request: JsonObject, timeout: float) -> JsonObject:
        if self._unpreparable is not None:
            return self._unpreparable
        began = time.monotonic()
        try:
            if not self._child.running:
                self._unpreparable = self._start_child()
                if self._unpreparable is not None:
                    return self._unpreparable
            return self._child.request(operation, request, timeout)
        except ChildTimeout:
            spent = time.monotonic() - began
            return {"status": "timeout", "error": f"no result after {spent:.0f} s"}
        except ChildCrashed as error:
            return {"status": "crashed", "error": str(error)}

    def _start_child(self) -> JsonObject | None:
        """Start and prepare a measurement process. The answer if that fails: it has nothing to do with the
        configuration at hand, so it would fail for every other one, too."""
        memory = physical_memory_bytes()
        if self._kind == "cpu" and memory is not None:
            self._child.request("limit", {"bytes": int(memory * MEMORY_SHARE)}, PREPARE_SECONDS)
        request = self._prepare | {"seed": self._seed}
        answer = self._child.request("prepare", request, PREPARE_SECONDS)
        if answer.get("status") == "ok":
            return None
        self._child.kill()
        return answer


def _read_screened(answer: JsonObject) -> Screened:
    fields = Fields(answer, "screen answer")
    return Screened(
        fields.text("status"),
        fields.optional_text("error"),
        Interval.from_json(fields.get("time_ns")) if fields.has("time_ns") else None,
        fields.has("hopeless") and fields.boolean("hopeless"),
        fields.optional_text("reference"),
        fields.optional_number("worst_error"),
        fields.optional_number("check_seconds") or 0.0,
        fields.optional_number("measure_seconds") or 0.0,
    )


def _read_raced(answer: JsonObject) -> Raced:
    fields = Fields(answer, "race answer")
    if fields.text("status") != "ok":
        return Raced(fields.text("status"), fields.optional_text("error"))
    clocks = [mhz for mhz in expect_list(fields.get("sm_mhz"), "sm_mhz") if isinstance(mhz, int)]
    return Raced(
        "ok",
        times=[_read_times(row) for row in expect_list(fields.get("times"), "times")],
        errors=[_read_error(error) for error in expect_list(fields.get("errors"), "errors")],
        sm_mhz=sorted(clocks)[len(clocks) // 2] if clocks else None,
        reference=fields.optional_text("reference"),
        check_seconds=fields.number("check_seconds"),
        measure_seconds=fields.number("measure_seconds"),
    )


def _read_times(value: object) -> list[float]:
    return [expect_number(time, "times") for time in expect_list(value, "times")]


def _read_error(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise SchemaError("errors: expected text or null")
    return value
