"""A workload at one shape and dtype: everything its expressions say, evaluated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from deuteron.compiler.options import SCHEDULE_OPTIONS, effective_options
from deuteron.compiler.runtime.arrays.dtypes import item_bytes

from ..codec import Document, Scalar
from ..enumeration import Meter
from ..errors import WorkloadError
from ..expression import Expression
from ..space import Configuration, Space
from .effect import COMPARED, gpu_code, without_effect
from .legal import refuse_variadic, strike_illegal
from .references import INTERPRETER
from .spec import Tensor, WorkloadSpec
from .tolerance import Tolerance, tolerance_for

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import DeviceProperties
    from deuteron.compiler.runtime.variant.variant import Variant
    from deuteron.compiler.source.kernel import KernelSource

MAX_GRID = 2**31 - 1
_NO_LIMIT = 1 << 40


class LaunchPlan(Document, frozen=True):
    """What the compiler is given for one configuration, and the grid it is launched on."""

    signature: Mapping[str, str]
    constexprs: Mapping[str, Scalar]
    schedule: Mapping[str, Scalar]
    grid: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """``spec`` at the shape ``dims`` with ``$dtype`` = ``dtype``.

    Raises :class:`WorkloadError` when the shape does not fit the workload's dims.
    """

    spec: WorkloadSpec
    dims: Mapping[str, int]
    dtype: str

    def __post_init__(self) -> None:
        self.spec.check_shape(self.dims)
        if self.dtype not in self.spec.dtypes:
            raise WorkloadError(
                f"the workload {self.spec.name!r} does not support dtype {self.dtype!r}",
                hint=f"dtypes: {', '.join(self.spec.dtypes)}",
            )

    @cached_property
    def names(self) -> dict[str, Scalar]:
        """What expressions see: dims, ``dtype`` and ``element_bytes``."""
        return {**self.dims, "dtype": self.dtype, "element_bytes": item_bytes(self.dtype)}

    @cached_property
    def source(self) -> KernelSource:
        """The kernel, parsed; raises the compiler's errors, and WorkloadError for one that takes ``*args``."""
        from deuteron.compiler.source.kernel import (
            KernelSource,  # lazy: the language takes 90 ms, and a bundle is read without it
        )

        kernel = self.spec.kernel
        source = KernelSource.from_text(kernel.source, kernel.name, kernel.filename)
        refuse_variadic(source)
        return source

    @cached_property
    def scalars(self) -> dict[str, int | float]:
        """Scalar arguments by name, evaluated; raises :class:`WorkloadError` for text or a truth value."""
        values: dict[str, int | float] = {}
        for name, text in self.spec.scalars.items():
            value = Expression.parse(text).evaluate(self.names)
            if isinstance(value, str | bool):
                raise WorkloadError(f"the scalar {name!r} is {value!r}, not a number")
            values[name] = value
        return values

    @cached_property
    def run_time_arguments(self) -> tuple[str, ...]:
        """Names of the non-constexpr arguments in the kernel's order, each described by the workload."""
        known = {t.name for t in self.spec.tensors} | set(self.spec.scalars)
        names = tuple(a.name for a in self.source.arguments if not a.constexpr)
        for name in names:
            if name not in known:
                raise WorkloadError(
                    f"the workload {self.spec.name!r} does not describe the argument {name!r} of "
                    f"{self.spec.kernel.name}",
                    hint="add it to tensors or scalars",
                )
        surplus = known - set(names)
        if surplus:
            raise WorkloadError(
                f"{self.spec.kernel.name} has no run-time argument {min(surplus)!r}",
                hint=f"it has {', '.join(names)}",
            )
        return names

    def tensor_shape(self, tensor: Tensor) -> tuple[int, ...]:
        """The shape of a tensor in elements; raises :class:`WorkloadError` for a negative size."""
        shape = tuple(Expression.parse(text).evaluate_int(self.names) for text in tensor.shape)
        if any(size < 0 for size in shape):
            raise WorkloadError(f"the tensor {tensor.name!r} has the shape {list(shape)}")
        return shape

    def tensor_dtype(self, tensor: Tensor) -> str:
        """The dtype of a tensor, ``$dtype`` replaced."""
        return self.dtype if tensor.dtype == "$dtype" else tensor.dtype

    def tolerance_of(self, tensor: Tensor) -> Tolerance:
        """The workload's tolerance, or that of the tensor's dtype; twice that where the expected result is no float64
        reference but the kernel's own, whose roundings are as large as those of what it judges."""
        if self.spec.tolerance is not None:
            return self.spec.tolerance
        tolerance = tolerance_for(self.tensor_dtype(tensor))
        return tolerance.times(2.0) if self.spec.reference == INTERPRETER else tolerance

    @property
    def elements(self) -> int:
        """Of all tensors together."""
        return sum(math.prod(self.tensor_shape(tensor)) for tensor in self.spec.tensors)

    @property
    def tensor_bytes(self) -> int:
        """Memory of all tensors on the device."""
        return sum(
            math.prod(self.tensor_shape(tensor)) * item_bytes(self.tensor_dtype(tensor)) for tensor in self.spec.tensors
        )

    @property
    def host_bytes(self) -> int:
        """About what checking needs on the host: tensors, what came back, and both in float64."""
        return 2 * self.tensor_bytes + 24 * self.elements

    @property
    def flops(self) -> float:
        """Floating-point operations of one launch, by the workload's formula."""
        return Expression.parse(self.spec.flops).evaluate_number(self.names)

    @property
    def bytes(self) -> float:
        """Compulsory memory traffic of one launch in bytes, by the workload's formula."""
        return Expression.parse(self.spec.bytes).evaluate_number(self.names)

    def searched(self, device: DeviceProperties, target: str | None = None) -> tuple[Space, dict[str, Scalar]]:
        """What is searched on a device: :meth:`full_space`, with parameters held at their values in the default
        configuration where others would measure the same code again; and those values. That configuration is the
        default of the space.

        Held are :meth:`idle_parameters` and, where ``target`` says what the device runs (``cuda:90a``), schedule
        options that turn out to change no code at this shape and dtype (:mod:`.effect`).
        """
        space, idle = self.full_space(device), self.idle_parameters(device.kind)
        default = self.default(space, device.kind)
        space = space.starting_from(default)
        if target is not None and device.kind == "cuda":
            searched = (p.name for p in space.parameters if p.name in COMPARED and p.name not in idle)
            idle += without_effect(
                space, default, searched, lambda config: gpu_code(self._made_for(target, config), self.scalars)
            )
        return space.hold(default, idle), {name: default[name] for name in idle}

    def idle_parameters(self, kind: str) -> tuple[str, ...]:
        """Parameters of the space that change no code on devices of this kind: schedule options that its targets, or
        kernels without products, do not depend on and constexprs that the kernel does not use, but for what grid and
        constexprs are computed from."""
        from deuteron.compiler.source.usage import usage_of  # lazy: the language takes 90 ms, as above

        constexprs = {a.name for a in self.source.arguments if a.constexpr}
        usage = usage_of(self.source)
        options = effective_options(kind, products=usage.has_dot)
        idle = usage.idle if "num_stages" in options else usage.idle | usage.stages
        used = (constexprs - idle) | {*options} | self._names_in_launch
        known = constexprs | {*SCHEDULE_OPTIONS}
        return tuple(
            parameter.name
            for parameter in self.spec.space_for(kind).parameters
            if parameter.name in known - used and len(parameter.choices) > 1
        )

    def full_space(self, device: DeviceProperties) -> Space:
        """The space as the workload gives it, without schedules that the kernel cannot have, its constraints bound to
        this shape and to the device's limits. A limit that the driver does not tell does not constrain."""
        facts = {
            "sm_count": device.sm_count or 1,
            "shared_bytes": device.shared_bytes_per_block or _NO_LIMIT,
        }
        space = strike_illegal(self.spec.space_for(device.kind), self.source, device.kind)
        return space.bind({**self.names, **facts})

    def default(self, space: Space, kind: str, meter: Meter | None = None) -> dict[str, Scalar]:
        """The default configuration, moved into the space where the shape does not allow it; looked for within the
        steps of ``meter``."""
        return space.nearest(self.spec.default_for(kind), meter)

    def variant(self, config: Configuration) -> LaunchPlan:
        """Split ``config`` into constexprs and schedule, evaluate the constexprs and the grid."""
        names: dict[str, Scalar] = {**self.names, **config}
        constexpr_names = {a.name for a in self.source.arguments if a.constexpr}
        constexprs = {n: v for n, v in config.items() if n in constexpr_names}
        for name, value in self.spec.constexprs.items():
            constexprs[name] = Expression.parse(value).evaluate(names) if isinstance(value, str) else value
        missing = [
            a.name for a in self.source.arguments if a.constexpr and not a.has_default and a.name not in constexprs
        ]
        if missing:
            raise WorkloadError(
                f"nothing gives the constexpr {missing[0]!r} of {self.spec.kernel.name} a value",
                hint="add it to the workload's constexprs or as a parameter of its space",
            )
        schedule = {n: v for n, v in config.items() if n in SCHEDULE_OPTIONS}
        self._check_used(config, constexpr_names)
        return LaunchPlan(self._signature(), constexprs, schedule, self.grid(config))

    def grid(self, config: Configuration) -> tuple[int, ...]:
        """The grid that ``config`` is launched on; raises :class:`WorkloadError` for one that cannot be launched."""
        names: dict[str, Scalar] = {**self.names, **config}
        grid = tuple(Expression.parse(text).evaluate_int(names) for text in self.spec.grid)
        if any(not 0 < size <= MAX_GRID for size in grid):
            raise WorkloadError(f"the grid {list(grid)} of {self.spec.name!r} cannot be launched")
        return grid

    def _signature(self) -> dict[str, str]:
        tensors = {tensor.name: tensor for tensor in self.spec.tensors}
        return {
            name: f"*{self.tensor_dtype(tensors[name])}:16" if name in tensors else _scalar_type(self.scalars[name])
            for name in self.run_time_arguments
        }

    @cached_property
    def _names_in_launch(self) -> frozenset[str]:
        """Names in the expressions of the grid and of the constexprs."""
        texts = [*self.spec.grid, *(v for v in self.spec.constexprs.values() if isinstance(v, str))]
        return frozenset(name for text in texts for name in Expression.parse(text).names)

    def _made_for(self, target: str, config: Configuration) -> Variant:
        from deuteron.compiler.runtime.variant.variant import make_variant  # lazy: as above

        plan = self.variant(config)
        return make_variant(self.source, plan.signature, plan.constexprs, target, plan.schedule)

    def _check_used(self, config: Configuration, constexpr_names: set[str]) -> None:
        for name in config:
            if name in self.spec.constexprs:  # what is measured would not be what the configuration says
                raise WorkloadError(
                    f"{name!r} of {self.spec.kernel.name} is a parameter of the space and has a value in constexprs",
                    hint="leave it out of one of them",
                )
            if name not in constexpr_names and name not in SCHEDULE_OPTIONS and name not in self._names_in_launch:
                raise WorkloadError(
                    f"the parameter {name!r} is no constexpr of {self.spec.kernel.name}, no schedule option "
                    "and not used by grid or constexprs",
                    hint=f"schedule options: {', '.join(SCHEDULE_OPTIONS)}",
                )


def _scalar_type(value: float) -> str:
    """The signature type of a scalar with what launches know about its value."""
    if isinstance(value, float):
        return "f32"
    if value == 1:
        return "i32:1"
    width = "i32" if -(2**31) <= value < 2**31 else "i64"
    return f"{width}:16" if value % 16 == 0 else width
