"""The kernel whose space is wanted, ready to be compiled with other values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import TYPE_CHECKING

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.options import SCHEDULE_OPTIONS
from deuteron.compiler.source.configs import listed_configs

from ..codec import Scalar
from ..workloads import Problem

if TYPE_CHECKING:
    from deuteron.compiler.ir.core import Function
    from deuteron.compiler.runtime.variant.variant import Variant
    from deuteron.compiler.source.kernel import KernelSource

#: Sizes that are tried in place of ones that do not compile.
_FALLBACKS = (64, 32, 128, 16, 256, 1024)


@dataclass(frozen=True)
class Subject:
    """``base``: a value of every constexpr; ``fixed``: names of those that the caller fixed, with the reason.
    ``signature``: types of the run-time arguments. ``sizes``: run-time integers as expressions over the dims.
    ``options``: schedule options of the base. ``configs``: what the kernel's author listed, ``unread`` why not all.
    ``facts``: what constraints know of the shape. ``chosen``: choices that the caller gave. ``problem``: the launch,
    where one is described."""

    source: KernelSource
    target: str
    signature: Mapping[str, str]
    base: Mapping[str, object]
    fixed: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    configs: tuple[Mapping[str, object], ...] = ()
    unread: str | None = None
    facts: Mapping[str, Scalar] = field(default_factory=dict)
    chosen: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)
    problem: Problem | None = None

    @property
    def kind(self) -> str:
        """cpu or cuda."""
        return self.target.partition(":")[0]

    @property
    def constexprs(self) -> tuple[str, ...]:
        """Names of the compile-time parameters, in order."""
        return tuple(argument.name for argument in self.source.arguments if argument.constexpr)

    def variant(self, changes: Mapping[str, object]) -> Variant:
        """The kernel with these constexprs and schedule options in place of the base's. Raises DeuteronError."""
        from deuteron.compiler.runtime.variant.variant import make_variant  # lazy: the compiler takes a while to load

        constexprs = {**self.base, **{n: v for n, v in changes.items() if n in self.constexprs}}
        options = {**self.options, **{n: v for n, v in changes.items() if n in SCHEDULE_OPTIONS}}
        return make_variant(self.source, self.signature, constexprs, self.target, options)

    def tile(self, changes: Mapping[str, object]) -> Function:
        """The kernel in tile IR as the frontend writes it, before any pass. Raises CompilationError with its place."""
        from deuteron.compiler.frontend import lower  # lazy: as above

        variant = self.variant(changes)
        types = {name: str(kind) for name, kind in variant.signature.items()}
        with silent():
            return lower(variant.source, types, variant.constants, target=variant.target)

    def compiles(self, changes: Mapping[str, object]) -> DeuteronError | None:
        """Why the tile IR cannot be made; None if it can."""
        try:
            self.tile(changes)
        except DeuteronError as error:
            return error
        return None


def silent() -> AbstractContextManager[object]:
    """Keeps what a kernel prints while it is compiled (``tl.static_print``) to itself: it is compiled many times."""
    return redirect_stdout(StringIO())


def subject_of_problem(
    problem: Problem,
    kind: str,
    target: str,
    *,
    given: Mapping[str, str] | None = None,
    chosen: Mapping[str, tuple[Scalar, ...]] | None = None,
) -> Subject:
    """The kernel of a workload at one shape and dtype. ``given``: constexprs that the caller fixed, and why, by default
    those that the workload fixes; its other values are where the inference begins. ``chosen``: choices that stay.

    Raises:
        DeuteronError: the workload contradicts its kernel, or the kernel compiles with none of the values tried.
    """
    spec = problem.spec
    config: dict[str, Scalar] = {}
    if kind in spec.spaces or "any" in spec.spaces:
        space = spec.space_for(kind).bind({**problem.names, "sm_count": 1, "shared_bytes": 1 << 40})
        config = problem.default(space, kind)
    plan = problem.variant(config)
    names = {argument.name for argument in problem.source.arguments if argument.constexpr}
    subject = Subject(
        problem.source,
        target,
        plan.signature,
        {n: v for n, v in plan.constexprs.items() if n in names} | _defaults(problem.source, plan.constexprs),
        dict.fromkeys(spec.constexprs, "the workload fixes it") if given is None else given,
        {name: text for name, text in spec.scalars.items() if isinstance(problem.scalars[name], int)},
        _effective(plan.schedule),
        facts=problem.names,
        chosen=chosen or {},
        problem=problem,
    )
    return _working(_with_configs(subject))


def subject_of_kernel(
    source: KernelSource,
    target: str,
    *,
    constexprs: Mapping[str, object] | None = None,
    chosen: Mapping[str, tuple[Scalar, ...]] | None = None,
    dtype: str = "f16",
) -> Subject:
    """A kernel whose launches nobody described: types are assumed as by ``deuteron compile``, sizes are unknown.

    Raises:
        DeuteronError: types cannot be told, or the kernel compiles with none of the values tried.
    """
    from deuteron.compiler.source.assume import assume  # lazy: as above

    found = assume(source, constexprs=constexprs, dtype=dtype)
    given = dict.fromkeys(constexprs or {}, "given")
    base = dict(found.constexprs) | _defaults(source, found.constexprs)
    subject = Subject(source, target, found.signature, base, given, {}, _effective(found.schedule), chosen=chosen or {})
    return _working(_with_configs(subject))


def _defaults(source: KernelSource, known: Mapping[str, object]) -> dict[str, object]:
    from deuteron.compiler.language.constexpr import unwrap  # lazy: as above
    from deuteron.compiler.source.namespace import evaluate_constant  # lazy: as above

    return {
        argument.name: unwrap(evaluate_constant(argument.default, source.namespace))
        for argument in source.arguments
        if argument.constexpr and argument.default is not None and argument.name not in known
    }


def _effective(options: Mapping[str, object]) -> dict[str, object]:
    return {n: v for n, v in options.items() if n in SCHEDULE_OPTIONS}


def _with_configs(subject: Subject) -> Subject:
    listed = listed_configs(subject.source)
    return replace(subject, configs=listed.configs, unread=listed.unread)


def _working(subject: Subject) -> Subject:
    """The subject with the first base that compiles; raises what the first one said if none does."""
    first = subject.compiles({})
    if first is None:
        return subject
    for changes in _other_bases(subject):
        if subject.compiles(changes) is None:
            return replace(subject, base={**subject.base, **changes})
    raise first


def _other_bases(subject: Subject) -> Iterator[dict[str, object]]:
    """Values to begin with: the author's, then whole numbers all alike, then one parameter after the other."""
    for config in subject.configs[:8]:
        yield {n: v for n, v in config.items() if n in subject.constexprs and n not in subject.fixed}
    sizes = [n for n, v in subject.base.items() if type(v) is int and n not in subject.fixed]
    for size in _FALLBACKS:
        yield dict.fromkeys(sizes, size)
    for name in sizes:
        for size in (*_FALLBACKS, 1, 8):
            yield {name: size}
    for name in _flags(subject):
        yield {name: not subject.base[name]}


def _flags(subject: Subject) -> Iterable[str]:
    return (n for n, v in subject.base.items() if isinstance(v, bool) and n not in subject.fixed)
