"""What is wrong with a job before anything runs: every field whose value cannot work, and what would."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from deuteron.compiler.errors import CompilationError, DeuteronError

from ..codec import MOST_INTEGER, Scalar
from ..enumeration import MAX_STEPS, Meter
from ..errors import Fault, WorkloadError
from ..expression import Expression
from .problem import Problem
from .references import INTERPRETER, find_reference
from .spec import Tensor

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import DeviceProperties

T = TypeVar("T")

#: Steps in which the default configurations of all problems together have to be found.
MOST_STEPS = 2 * MAX_STEPS
#: Most operations, or bytes of memory traffic, of one launch: numbers that floats hold, and rates made of them, too.
MAX_AMOUNT = 1e30
#: Most bytes that the tensors of one launch may have together.
MAX_TENSOR_BYTES = 1 << 40

_FIELD = re.compile(r"(?:job\.)?(?P<where>(?:workload|budget|shapes|dtypes|job)[\w.\[\]']*): (?P<what>.*)", re.DOTALL)


def fault_of(error: DeuteronError, where: str) -> Fault:
    """An error as the fault of a field; messages that begin with their field name it."""
    if isinstance(error, CompilationError) and error.location is not None:
        return Fault(
            f"{where} line {error.location.line}, column {error.location.column + 1}", error.message, error.hint
        )
    match = _FIELD.fullmatch(error.message)
    return Fault(match["where"], match["what"], error.hint) if match else Fault(where, error.message, error.hint)


def faults_of(problems: Sequence[Problem], device: DeviceProperties) -> list[Fault]:
    """What of the problems, all of one workload, cannot work on a device like this, in the order of the fields.

    The kernel is parsed and nothing of it is compiled. Each fault is named once, at the first problem that has it.
    """
    if not problems:
        return []
    checks = _Checks()
    spec = problems[0].spec
    # Its hash is of all that it reaches: what constants are, too.
    if checks.value("workload.kernel", lambda: problems[0].source.hash) is None:
        return checks.found
    checks.value("workload.tensors", lambda: problems[0].run_time_arguments)
    for fault in _constexpr_faults(problems[0]):
        checks.add(fault)
    if spec.reference != INTERPRETER:
        checks.value("workload.reference", lambda: find_reference(spec.reference))
    meter = Meter(MOST_STEPS)
    for problem in problems:
        _check_sizes(checks, problem)
        _check_space(checks, problem, device, meter)
    return checks.found


class _Checks:
    """Collects what raises; of one field only the first fault."""

    def __init__(self) -> None:
        self._by_field: dict[str, Fault] = {}

    @property
    def found(self) -> list[Fault]:
        """The faults, in the order in which they were found."""
        return list(self._by_field.values())

    def value(self, where: str, make: Callable[[], T]) -> T | None:
        """What ``make`` returns; None, and a fault of ``where``, if it raises. A field that has a fault is not looked
        at again, at no other shape."""
        if where in self._by_field:
            return None
        try:
            return make()
        except DeuteronError as error:
            self.add(fault_of(error, where))
        return None

    def expression(self, where: str, text: str, names: Mapping[str, Scalar]) -> Scalar | None:
        """The value of an expression; None, and a fault of ``where``, if it has none."""
        return self.value(where, lambda: Expression.parse(text).evaluate(names))

    def add(self, fault: Fault) -> None:
        """Note a fault, unless its field has one."""
        self._by_field.setdefault(fault.where, fault)


def _constexpr_faults(problem: Problem) -> Iterator[Fault]:
    spec = problem.spec
    constexprs = [argument.name for argument in problem.source.arguments if argument.constexpr]
    for name in spec.constexprs:
        if name not in constexprs:
            yield Fault(
                f"workload.constexprs.{name}",
                f"{spec.kernel.name} has no constexpr {name!r}",
                f"it has {', '.join(constexprs) or 'none'}",
            )


def _check_sizes(checks: _Checks, problem: Problem) -> None:
    at = f"at {_shown(problem)}"
    for number, tensor in enumerate(problem.spec.tensors):
        _check_tensor(checks, problem, number, tensor, at)
    for name, text in problem.spec.scalars.items():
        where = f"workload.scalars.{name}"
        value = checks.expression(where, text, problem.names)
        if isinstance(value, str | bool):
            checks.add(Fault(where, f"the scalar {name!r} is {value!r}, not a number"))
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            checks.add(Fault(where, f"the scalar {name!r} is {value} {at}", "at most 64 bits"))
    for field in ("flops", "bytes"):
        where = f"workload.{field}"
        text = getattr(problem.spec, field)
        amount = checks.value(where, lambda text=text: Expression.parse(text).evaluate_number(problem.names))  # type: ignore[misc]
        if amount is not None and abs(amount) > MAX_AMOUNT:
            checks.add(Fault(where, f"{text!r} is {amount:g} {at}", f"at most {MAX_AMOUNT:g}"))
    total = _total_bytes(problem)
    if total is not None and total > MAX_TENSOR_BYTES:
        shown = f"{total >> 30:,}" if total < MAX_TENSOR_BYTES << 60 else "far too many"
        message = f"{at} the tensors have {shown} GiB together"
        checks.add(Fault("shapes", message, f"at most {MAX_TENSOR_BYTES >> 30} GiB"))


def _check_tensor(checks: _Checks, problem: Problem, number: int, tensor: Tensor, at: str) -> None:
    for axis, text in enumerate(tensor.shape):
        where = f"workload.tensors[{number}].shape[{axis}]"
        value = checks.expression(where, text, problem.names)
        if value is None:
            continue
        size = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(size, bool) or not isinstance(size, int):
            checks.add(Fault(where, f"{text!r} gives {size!r}, not a whole number", "use // or cdiv"))
        elif size < 1:
            hint = "sizes are expressions over the dims that are at least 1 for every shape"
            checks.add(Fault(where, f"{text!r} is {size} {at}: the tensor {tensor.name!r} has no elements", hint))
        elif size > MOST_INTEGER:
            checks.add(Fault(where, f"{text!r} is {size} {at}", f"at most {MOST_INTEGER}"))


def _total_bytes(problem: Problem) -> int | None:
    try:
        return problem.tensor_bytes
    except DeuteronError:
        return None


def _check_space(checks: _Checks, problem: Problem, device: DeviceProperties, meter: Meter) -> None:
    spec = problem.spec
    where = f"workload.spaces.{device.kind if device.kind in spec.spaces else 'any'}"
    space = checks.value(where, lambda: problem.full_space(device))
    default = None if space is None else checks.value(where, lambda: problem.default(space, device.kind, meter))
    if space is None or default is None:
        return
    for number, constraint in enumerate(space.constraints):
        names = {**problem.names, **space.constants, **default}
        checks.expression(f"{where}.constraints[{number}]", constraint, names)
    try:
        problem.variant(default)
    except WorkloadError as error:
        field = "workload.grid" if "the grid" in error.message else where
        checks.add(fault_of(error, field))
    except DeuteronError as error:
        checks.add(fault_of(error, "workload.grid"))


def _shown(problem: Problem) -> str:
    return ", ".join(f"{dim}={size}" for dim, size in problem.dims.items())
