"""Whether results depend on a parameter: the kernel runs in the interpreter, at small sizes, for two of its values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from deuteron.compiler.errors import DeuteronError

from ..codec import Scalar
from ..errors import JobError
from ..evaluate.check import interpret
from ..evaluate.cut import SMALL_DIM, cut_problem
from ..job import shape_key
from ..possible import check_host_room
from ..space import Parameter, Space
from ..workloads import Problem
from ..workloads.inputs import make_tensors
from ..workloads.tolerance import Expected, compare_all
from .roles import FoundRole
from .subject import Subject, silent

if TYPE_CHECKING:
    import numpy as np

#: The largest size at which parameters are tried, so that the interpreter has few elements to go through.
_MOST = 128
#: The most programs that the interpreter runs: a second or two of the smallest ones.
_MOST_PROGRAMS = 1 << 14


@dataclass(frozen=True)
class Verdict:
    """``searched``: other values of the parameter are right as far as is known; ``reason`` says how that is known."""

    searched: bool
    reason: str


def results_of(subject: Subject, searched: Sequence[FoundRole]) -> dict[str, Verdict]:
    """A verdict on each parameter: by running the kernel where its launch is described, else by its role."""
    problem = subject.problem
    if problem is None:
        return {found.name: _unchecked(found) for found in searched}
    small = cut_problem(problem, dict.fromkeys(problem.dims, SMALL_DIM))
    names = [found.name for found in searched]
    base = {name: _small(subject, name) for name in names}
    others = {n: v for n, v in subject.base.items() if n not in base and isinstance(v, int | float | str | bool)}
    config = {**others, **base}
    try:
        trial = _over(small, config)
        check_host_room(trial)  # tensors may be large at any size
        _check_grid(trial, config)
        expected = _outputs(trial, config)
    except DeuteronError as error:
        why = f"results were not compared: {error.message.splitlines()[0]}"
        return {found.name: Verdict(found.role == "tile", why) for found in searched}
    return {name: _compared(trial, config, name, expected, subject) for name in names}


def _unchecked(found: FoundRole) -> Verdict:
    if found.role == "tile":
        return Verdict(True, "results were not compared: no launch is described")
    return Verdict(False, "what it means for results is checked where a launch is described (--shape ...)")


def _small(subject: Subject, name: str) -> int:
    """The base value, or a smaller one that compiles beside the others."""
    size = int(str(subject.base[name]))
    smaller = min(size, _MOST)
    return smaller if subject.compiles({name: smaller}) is None else size


def _over(problem: Problem, config: Mapping[str, Scalar]) -> Problem:
    """The problem with the parameters of ``config`` in its space, and not among the constexprs of the workload."""
    spec = problem.spec
    constexprs = {n: v for n, v in spec.constexprs.items() if n not in config or isinstance(v, str)}
    space = Space(
        tuple(Parameter(n, (v,)) for n, v in config.items() if n not in constexprs) or (Parameter("_", (0,)),)
    )
    return Problem(
        replace(spec, spaces={"any": space}, defaults={}, constexprs=constexprs), problem.dims, problem.dtype
    )


def _check_grid(problem: Problem, config: Mapping[str, Scalar]) -> None:
    """Raise JobError for a grid that is large at small sizes, too: the interpreter runs one program after the other."""
    programs = math.prod(problem.variant(_chosen(problem, config)).grid)
    if programs > _MOST_PROGRAMS:
        raise JobError(f"{shape_key(problem.dims)} has {programs:,} programs", hint="make the grid depend on the sizes")


def _chosen(problem: Problem, config: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {n: v for n, v in config.items() if n not in problem.spec.constexprs}


def _outputs(problem: Problem, config: Mapping[str, Scalar]) -> dict[str, np.ndarray]:
    with silent():
        return interpret(problem, _chosen(problem, config), make_tensors(problem, 0))


def _compared(
    problem: Problem, base: Mapping[str, Scalar], name: str, expected: Mapping[str, np.ndarray], subject: Subject
) -> Verdict:
    sizes = ", ".join(f"{dim}={size}" for dim, size in problem.dims.items())
    here = int(str(base[name]))
    wanted = [
        Expected(tensor.name, expected[tensor.name], problem.tolerance_of(tensor))
        for tensor in problem.spec.tensors
        if tensor.role != "input"
    ]
    refused = ""
    compared = []
    for value in (here // 2, 2 * here):
        if value < 1 or subject.compiles({**base, name: value}) is not None:
            continue
        try:
            comparison = compare_all(_outputs(problem, {**base, name: value}), wanted)
        except DeuteronError as error:
            refused = refused or f"with {value} the interpreter says: {error.message.splitlines()[0]}"
            continue
        if not comparison.ok:
            return Verdict(False, f"results change: {value} beside {here} at {sizes}")
        compared.append(value)
    if not compared:
        return Verdict(False, refused or f"no other value than {here} compiles at {sizes}")
    values = ", ".join(map(str, sorted({here, *compared})))
    return Verdict(True, f"results are the same for {values} at {sizes}")
