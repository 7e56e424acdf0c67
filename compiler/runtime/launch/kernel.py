"""A kernel as the parts of a launch see it, and one specialisation of it."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ...launch_recipe import PROGRAMS, Guard, LaunchRecipe
from ...signature import ArgumentType, is_hidden
from ...source.kernel import Sourced
from ..arrays.arguments import Key
from ..device import Device
from ..variant.variant import Variant
from .binding import KernelParameter
from .bound import Bindable, Relaunch
from .compiled import CompiledKernel
from .grid import grid_of
from .guards import programs_per_sm
from .interface import KernelInterface
from .loaded import Direct
from .pending import PendingKernel


@dataclass(frozen=True)
class Specialization:
    """What functions that name a kernel's launches see of one: the types of all parameters as Triton spells them,
    "constexpr" where the value is known, and those values."""

    signature: Mapping[str, str]
    constants: Mapping[str, object]

    @classmethod
    def of(cls, variant: Variant) -> Specialization:
        """That of a variant."""
        signature = {name: kind.spelled for name, kind in variant.signature.items() if not is_hidden(name)}
        return cls(signature | dict.fromkeys(variant.constants, "constexpr"), variant.constants)


@dataclass(frozen=True, slots=True)
class Launch:
    """One specialisation of a kernel: the variant, the device, and which arguments are passed at run time."""

    variant: Variant
    device: Device
    #: Where what remains of the run-time arguments is: the index among the parameters that are not ``tl.constexpr``,
    #: and in a tuple those of the leaf.
    passed: tuple[tuple[int, ...], ...]
    #: Numbers and addresses by name, of the arguments that were given and not only described, and what guards may be
    #: about besides, :data:`PROGRAMS`.
    known: Mapping[str, object] = field(default_factory=dict)
    #: No array says where the launch runs: ``device`` is the default one of this moment.
    anywhere: bool = False

    def without(self, guards: Sequence[Guard]) -> Launch:
        """The same launch with a variant that does without ``guards``."""
        return replace(self, variant=self.variant.without(guards))

    def on(self, grid: object) -> Launch:
        """The same launch, of which the grid is known. Raises LaunchError where it is none."""
        programs = programs_per_sm(grid_of(grid), self.device.properties.sm_count or 1)
        return replace(self, known={**self.known, PROGRAMS: programs})

    @property
    def name(self) -> str:
        """The name of the code, as :attr:`.Variant.name` has it."""
        return self.variant.name

    @property
    def signature(self) -> Mapping[str, ArgumentType]:
        """Types of the run-time arguments by name."""
        return self.variant.signature

    @property
    def constants(self) -> Mapping[str, object]:
        """Values by name of what the variant knows at compile time."""
        return self.variant.constants


class Prepared(Protocol):
    """One specialisation, ready to be launched with the grid, the machine values of all parameters that are not
    ``tl.constexpr``, and the arguments as the user gave them.

    ``direct``: on a GPU, what does so where no hook is installed.
    """

    @property
    def direct(self) -> Direct | None:
        """The same launch as one function of the grid and the values, one by one; None where there is none (yet)."""
        ...

    def __call__(self, grid: object, values: tuple[Any, ...], arguments: tuple[object, ...]) -> CompiledKernel | None:
        """Launch; returns the variant that ran, None under the interpreter."""
        ...

    def bound(self, grid: object, values: tuple[Any, ...], arguments: tuple[object, ...]) -> Relaunch:
        """The launch of a call, to be repeated."""
        ...


class Kernel(Sourced, KernelInterface, Bindable):
    """What specialising, launching and tuning need of a kernel; :class:`.jit.JITFunction` is the one that users make.

    ``cache`` holds the variants compiled so far, and those under way, by their key; ``recipes`` how those would be
    launched that were left because they rely on what did not hold; ``launch_metadata`` is called with grid, launch and
    arguments when a profiler listens.
    """

    __name__: str
    launch_metadata: Callable[..., Mapping[str, object]] | None
    cache: dict[str, CompiledKernel | PendingKernel]
    recipes: dict[str, LaunchRecipe]

    @property
    @abstractmethod
    def parameters(self) -> list[KernelParameter]:
        """How each parameter takes part in specialisation."""

    @property
    @abstractmethod
    def arg_names(self) -> list[str]:
        """Names of the parameters in order, ``tl.constexpr`` ones included."""
        ...

    @abstractmethod
    def repr(self, specialization: Specialization) -> str:
        """The name of a specialisation's code, and of its launches in profiles."""
        ...

    def called(self, variant: Variant) -> Variant:
        """A variant of this kernel, under the name that :meth:`repr` gives it. It is asked where a variant is needed
        for the first time, not at launches."""
        name = self.repr(Specialization.of(variant))
        return variant if name == variant.source.name else replace(variant, called=name)

    @property
    def base_fn(self) -> Kernel:
        """Itself: what decorators around it are asked for."""
        return self

    @property
    def run_time_names(self) -> list[str]:
        """Names of the parameters that are not ``tl.constexpr``, in order."""
        return [p.name for p in self.parameters if not p.constexpr]

    @functools.cached_property
    def positional_names(self) -> list[str]:
        """Names of the parameters that take one positional argument each, in order."""
        return [p.name for p in self.parameters if not (p.keyword_only or p.variadic)]

    @functools.cached_property
    def variadic_name(self) -> str | None:
        """The name of ``*args``; None without."""
        return next((p.name for p in self.parameters if p.variadic), None)

    def named(self, args: Sequence[object]) -> dict[str, object]:
        """Positional arguments by parameter name, those of ``*args`` as a tuple. What is too many is left out."""
        names = self.positional_names
        made = dict(zip(names, args, strict=False))
        if self.variadic_name:
            made[self.variadic_name] = tuple(args[len(names) :])
        return made

    @property
    @abstractmethod
    def debug(self) -> bool:
        """Whether device assertions are compiled in."""

    @property
    @abstractmethod
    def interpreted(self) -> bool:
        """Whether launches run the Python function itself, under the interpreter."""

    @abstractmethod
    def read(self, parameter: KernelParameter, value: object) -> Key:
        """The type key of an argument, or its value as a constant; raises LaunchError that names it."""

    @abstractmethod
    def specialized(self, args: Sequence[object], kwargs: Mapping[str, object], grid: Any = None) -> Launch:
        """The specialisation that a launch with these arguments runs, on that grid if one is given; raises LaunchError
        where they do not fit."""

    @abstractmethod
    def relauncher(self, grid: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> Relaunch:
        """What a launch with these arguments does once everything about them is known; compiles, does not launch."""
