"""Compiling some configurations of a problem to see whether they compile, or to what, in a process of their own."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..codec import Document, Finite, Scalar
from ..space import Configuration, config_key
from ..trial import Status
from ..workloads import Problem
from .child import ChildCrashed, ChildProcess, ChildTimeout
from .compile_pool import CompilePool
from .messages import Done, Prepare, Show, Shown
from .nursery import shared_nursery

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import DeviceProperties

#: Seconds for one configuration. The slowest that a built-in space has takes some seconds.
PATIENCE_S = 30.0


class CompiledConfig(Document, frozen=True):
    """What became of one configuration: ``role`` is ``default`` or ``random``; ``error`` says why it did not compile,
    ``metrics`` are those that the compiler knows (registers, spills, shared bytes on GPUs)."""

    role: str
    config: Mapping[str, Scalar]
    grid: tuple[int, ...]
    status: Status
    error: str | None
    metrics: Mapping[str, Finite]
    seconds: Finite


def compile_some(
    problem: Problem, device: DeviceProperties, target: str, *, others: int, seed: int
) -> list[CompiledConfig]:
    """Compile the default configuration, and ``others`` random ones, for a target (``cpu``, ``cuda:90a``).

    The kernel is compiled in a child process: neither a crash of the compiler nor a text that takes it for ever harms
    the caller. What compiles stays in the cache for the search.

    Raises:
        DeuteronError: the problem has no default configuration, or its grid cannot be computed.
    """
    space = problem.full_space(device)
    chosen = [("default", problem.default(space, device.kind))]
    rng = random.Random(seed)
    for config in itertools.islice(space.samples(rng), others):
        if config_key(config) not in {config_key(known) for _, known in chosen}:
            chosen.append(("random", config))
    prepare = Prepare(problem.spec, problem.dims, problem.dtype, target)
    pool = CompilePool(prepare.to_json(), workers=1, timeout=PATIENCE_S, nursery=shared_nursery())
    found = []
    try:
        for role, config in chosen:
            outcome = pool.result(config)
            grid = problem.variant(config).grid
            found.append(
                CompiledConfig(role, config, grid, outcome.status, outcome.error, outcome.metrics, outcome.seconds)
            )
    finally:
        pool.close()
    return found


def show_stages(problem: Problem, config: Configuration, target: str) -> Shown:
    """Compile one configuration for a target, and list the stages; never raises for what is wrong with the kernel.

    In a child process, as :func:`compile_some`.
    """
    child = ChildProcess(nursery=shared_nursery())
    prepare = Prepare(problem.spec, problem.dims, problem.dtype, target)
    try:
        ready = Done.from_json(child.request("prepare", prepare.to_json(), PATIENCE_S))
        if ready.status != "ok":
            return Shown(ready.status, "the kernel cannot be prepared")
        return Shown.from_json(child.request("show", Show(config).to_json(), PATIENCE_S))
    except ChildTimeout:
        return Shown("timeout", f"compiling took more than {PATIENCE_S:g} s")
    except ChildCrashed as error:
        return Shown("crashed", f"compiling: {error}")
    finally:
        child.end()
