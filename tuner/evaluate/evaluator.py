"""Evaluating configurations: the interface that searches use, and the one that runs on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from msgspec.structs import replace

from ..codec import JsonObject
from ..space import Configuration
from ..workloads import Problem
from .child import WORKER, ChildCrashed, ChildProcess, ChildTimeout, physical_memory_bytes
from .compile_pool import CompilePool
from .messages import Compiled, Limit, Prepare, Race, Raced, Screen, Screened

PREPARE_SECONDS = 300.0
# The interpreter and the process itself; what a kernel's tensors need comes on top and is bounded by the rest.
MEMORY_SHARE = 0.8


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

    def close(self) -> None:
        """End all processes."""
        ...


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
        base = Prepare(problem.spec, problem.dims, problem.dtype, target)
        self._pool = CompilePool(base.to_json(), workers=workers, command=command)
        self._prepare = replace(base, device=device, default=default)
        self._kind = kind
        self._seed = seed
        self._timeout = timeout
        self._child = ChildProcess(command)
        self._preparing = False
        self._unpreparable: JsonObject | None = None
        self.workers = self._pool.workers

    def submit(self, config: Configuration) -> None:
        """Hand ``config`` to the compile pool. On a GPU the measuring process prepares meanwhile."""
        self._pool.submit(config)
        if not (self.exclusive or self._child.running):
            with suppress(ChildCrashed):  # whoever measures starts another one, and says so if it crashes again
                self._begin_child()

    def compiled(self, config: Configuration) -> Compiled:
        """What became of compiling ``config``; waits for it."""
        return self._pool.result(config)

    def settle(self) -> None:
        """Wait until the pool is idle."""
        self._pool.settle()

    def screen(self, config: Configuration, best_ns: float | None) -> Screened:
        """Check and time ``config`` in the measuring process; a crash or a hang is a status."""
        return Screened.from_json(self._measure("screen", Screen(config, best_ns).to_json(), self._timeout))

    def race(
        self,
        configs: Sequence[Configuration],
        *,
        rounds: int,
        seconds: float,
        seed: int,
        fresh: bool,
    ) -> Raced:
        """Time ``configs`` in the measuring process, in a new one if ``fresh``; ``seconds`` is for timing alone, checks
        come on top."""
        if fresh:
            self._child.kill()
            self._preparing = False
            self._seed = seed
        request = Race(tuple(configs), rounds, seconds, seed, final=fresh)
        limit = self._timeout * max(1, len(configs)) + seconds
        return Raced.from_json(self._measure("race", request.to_json(), limit))

    def close(self) -> None:
        """End the pool's processes and the measuring one."""
        self._pool.close()
        self._child.kill()

    def _measure(self, operation: str, request: JsonObject, timeout: float) -> JsonObject:
        if self._unpreparable is not None:
            return self._unpreparable
        began = time.monotonic()
        try:
            if self._preparing or not self._child.running:
                self._unpreparable = self._start_child()
                if self._unpreparable is not None:
                    return self._unpreparable
            return self._child.request(operation, request, timeout)
        except ChildTimeout:
            spent = time.monotonic() - began
            return {"status": "timeout", "error": f"no result after {spent:.0f} s"}
        except ChildCrashed as error:
            return {"status": "crashed", "error": str(error)}

    def _begin_child(self) -> None:
        """Start a measurement process, which prepares by itself."""
        self._preparing = False
        self._child.send("prepare", replace(self._prepare, seed=self._seed).to_json())
        self._preparing = True

    def _start_child(self) -> JsonObject | None:
        """Wait for a measurement process that is prepared, started here if none was. The answer if that fails: it has
        nothing to do with the configuration at hand, so it would fail for every other one, too."""
        if not self._preparing:
            memory = physical_memory_bytes()
            if self._kind == "cpu" and memory is not None:
                self._child.request("limit", Limit(int(memory * MEMORY_SHARE)).to_json(), PREPARE_SECONDS)
            self._begin_child()
        self._preparing = False
        try:
            answer = self._child.receive(time.monotonic() + PREPARE_SECONDS)
        except ChildTimeout:  # such as a default configuration that deadlocks; once is enough to find out
            return {"status": "timeout", "error": f"not prepared after {PREPARE_SECONDS:.0f} s"}
        if answer.get("status") == "ok":
            return None
        self._child.kill()
        return answer
