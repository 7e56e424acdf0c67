"""A kernel's space, from the kernel."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec.structs import replace as changed

from ..codec import Scalar
from ..errors import ExpressionError, SpaceError
from ..expression import Expression
from ..space import Parameter, Space
from ..workloads import WorkloadSpec
from ..workloads.spec import DEVICE_FACTS, PROBLEM_FACTS
from .inferred_space import FoundConstraint, InferredParameter, InferredSpace
from .limits import MOST_WARPS, PRODUCT_WARPS, TileLimits
from .options import OWN, hint_of, listed_values, options_of
from .results import Verdict, results_of
from .roles import FoundRole, probe_of, roles_of, searched_roles
from .subject import Subject
from .tiles import powers, tiles_of

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import DeviceProperties

#: Choices of what moves the place of programs, and of steps without tiles.
_ORDERS, _STEPS = (1, 2, 4, 8, 16), (1, 2, 4, 8)
_NO_LIMIT = 1 << 40


def infer_space(subject: Subject, device: DeviceProperties) -> InferredSpace:
    """The space of a kernel on a device: parameters with their roles, choices and reasons, and constraints.

    Where the launch is described, the kernel is run by the interpreter at small sizes: what results change with is left
    fixed. Where it is not, only tiles are searched.

    Raises:
        CompilationError: the kernel compiles with none of the values tried; it shows the place.
    """
    roles = roles_of(subject, probe_of(subject))
    subject = _with_extents(subject, roles)
    probe = probe_of(subject)
    verdicts = results_of(subject, searched_roles(roles))
    names = frozenset(name for name, verdict in verdicts.items() if verdict.searched) | (
        roles.keys() & subject.chosen.keys()
    )
    labels = {name: _covering(subject, found) or (name if name in names else None) for name, found in roles.items()}
    tiles = tiles_of(subject.tile(probe), roles, labels, probe)
    shared = device.shared_bytes_per_block or _NO_LIMIT
    limits = TileLimits(subject, tiles, roles, names, shared)
    bases = _bases(subject, limits, names)
    constexprs = [_of_constexpr(subject, found, verdicts, limits, bases) for found in roles.values()]
    warps = PRODUCT_WARPS if tiles.products else MOST_WARPS
    parameters = (*constexprs, *options_of(subject, bases, warps))
    searched = frozenset(p.name for p in parameters if p.searched)
    made = InferredSpace(
        subject.source.name,
        subject.target,
        subject.kind,
        parameters,
        constants={**subject.facts, "sm_count": device.sm_count or 1, "shared_bytes": shared},
        configs=_own_configs(subject, parameters),
        notes=(f"of the kernel's own configurations, {subject.unread}",) if subject.unread else (),
    )
    found = [*TileLimits(subject, tiles, roles, searched, shared).constraints(), *_of_persistence(subject, searched)]
    return _consistent(_with_constraints(made, found))


def with_inferred_space(spec: WorkloadSpec, inferred: InferredSpace) -> WorkloadSpec:
    """``spec`` with the inferred space for its kind of device; what is left fixed is a constexpr of the workload, or
    has one choice. Constraints of ``spec`` stay, where they name nothing that became a constexpr.

    Raises:
        SpaceError: nothing is searched.
    """
    space = inferred.space()
    searched = {p.name for p in inferred.searched}
    constexprs = {n: v for n, v in spec.constexprs.items() if n not in searched}
    held = []
    for found in inferred.parameters:
        if found.searched or found.role == "schedule" or found.name in constexprs or found.default is None:
            continue
        if found.text and not any(found.name in Expression.parse(text).names for text in spec.grid):
            constexprs[found.name] = found.text
        else:
            held.append(Parameter(found.name, (found.default,)))
    parameters = (*space.parameters, *held)
    whole = Space(parameters, (*space.constraints, *_declared(spec, inferred.kind, {p.name for p in parameters})))
    defaults = {inferred.kind: {p.name: p.default for p in whole.parameters}}
    return changed(spec, spaces={inferred.kind: whole}, defaults=defaults, constexprs=constexprs)


def _declared(spec: WorkloadSpec, kind: str, parameters: set[str]) -> Iterator[str]:
    """The constraints of a workload that can be judged of these parameters."""
    space = spec.spaces.get(kind) or spec.spaces.get("any")
    if space is None:
        return
    known = {*spec.dims, *PROBLEM_FACTS, *DEVICE_FACTS} | parameters
    yield from (text for text in space.constraints if Expression.parse(text).names <= known)


def _with_extents(subject: Subject, roles: Mapping[str, FoundRole]) -> Subject:
    """The subject with what covers an axis as large as the axis, where that is known."""
    covered = {name: size for name, found in roles.items() if (size := _covering(subject, found)) is not None}
    changes = {name: Expression.parse(text).evaluate_int(subject.facts) for name, text in covered.items()}
    return replace(subject, base={**subject.base, **changes}) if subject.compiles(changes) is None else subject


def _covering(subject: Subject, found: FoundRole) -> str | None:
    """The least tile that covers the axis that an extent is compared with, as an expression."""
    sizes = {subject.sizes[name] for name in found.influence.bounds if name in subject.sizes}
    return f"next_power_of_2({sizes.pop()})" if found.role == "extent" and len(sizes) == 1 else None


def _of_constexpr(
    subject: Subject,
    found: FoundRole,
    verdicts: Mapping[str, Verdict],
    limits: TileLimits,
    bases: Sequence[Mapping[str, object]],
) -> InferredParameter:
    value = subject.base[found.name]
    base = value if isinstance(value, int | float | str | bool) else None
    text = "" if base is not None else str(value)
    listed = () if found.name in subject.fixed else listed_values(subject, found.name)
    if found.name in subject.chosen:
        chosen = subject.chosen[found.name]
        return InferredParameter(found.name, found.role, chosen, chosen[0], f"given; {found.reason}")
    if found.role == "schedule":
        return hint_of(subject, found.name, found.reason, bases)
    verdict = verdicts.get(found.name)
    if verdict is not None and verdict.searched:
        choices, why = _choices(subject, found, limits, listed)
        return InferredParameter(found.name, found.role, choices, base, f"{found.reason}; {verdict.reason}{why}")
    if len({*listed} | {base}) > 1 and base is not None:
        own = tuple(dict.fromkeys((*listed, base)))
        return InferredParameter(found.name, found.role, own, own[0], f"{OWN}; {found.reason}")
    why = f"; {verdict.reason}" if verdict is not None and verdict.reason else ""
    covering = _covering(subject, found)
    if covering is not None:
        return InferredParameter(found.name, found.role, (), base, f"{found.reason}; {covering} covers it", covering)
    return InferredParameter(found.name, found.role, (), base, f"{found.reason}{why}", text)


def _choices(
    subject: Subject, found: FoundRole, limits: TileLimits, listed: Sequence[Scalar]
) -> tuple[tuple[Scalar, ...], str]:
    """The values of a searched parameter that compile beside the others' base, and why there are no more."""
    base = int(str(subject.base[found.name]))
    if found.role != "tile":
        sizes: Iterable[int] = _ORDERS if found.role == "order" else _STEPS
        why = ""
    else:
        least, most = limits.least(found), limits.largest(found.name)
        size = limits.bound(found)
        covering = None if size is None else _evaluated(f"next_power_of_2({size})", subject.facts)
        why = f"; from {least} up to {most}, for which there is room"
        if covering is not None and covering < most:
            most = max(least, covering)
            why = f"; from {least} up to {most}, which covers {size}"
        sizes = powers(least, max(least, most))
    kept = [size for size in sizes if subject.compiles({found.name: size}) is None]
    own = [value for value in listed if isinstance(value, int) and value not in kept]
    if own:
        why += f"; and the kernel's own {', '.join(map(str, own))}"
    return tuple(sorted({*kept, *own, base})), why


def _evaluated(text: str, names: Mapping[str, Scalar]) -> int | None:
    try:
        return Expression.parse(text).evaluate_int(names)
    except ExpressionError:
        return None


def _bases(subject: Subject, limits: TileLimits, names: Iterable[str]) -> list[Mapping[str, object]]:
    """Constexprs at which options are compared: the base, an author's configuration, and larger tiles."""
    own = [{n: v for n, v in config.items() if n in subject.constexprs} for config in subject.configs]
    large: dict[str, object] = {
        name: min(128, limits.largest(name)) for name in names if limits.roles[name].role == "tile"
    }
    bases: list[Mapping[str, object]] = [{}, *own[:1], *own[-1:], *([large] if limits.tiles.products else [])]
    return [base for base in bases if subject.compiles(base) is None]


def _own_configs(subject: Subject, parameters: Sequence[InferredParameter]) -> tuple[dict[str, Scalar], ...]:
    """The author's configurations over the searched parameters; what one leaves out is at its default."""
    searched = [p for p in parameters if p.searched]
    made = []
    for config in subject.configs:
        values = {p.name: config.get(p.name, p.choices[0] if p.default is None else p.default) for p in searched}
        if all(values[p.name] in p.choices for p in searched):
            made.append({n: v for n, v in values.items() if isinstance(v, int | float | str | bool)})
    return tuple({str(values): values for values in made}.values())


def _of_persistence(subject: Subject, searched: frozenset[str]) -> list[FoundConstraint]:
    if "persistent" not in searched or subject.problem is None:
        return []
    programs = " * ".join(f"({text})" for text in subject.problem.spec.grid)
    return [FoundConstraint(f"not persistent or {programs} > sm_count", "staying pays with more tiles than SMs")]


def _with_constraints(made: InferredSpace, found: Sequence[FoundConstraint]) -> InferredSpace:
    """The space with constraints that let all of the author's configurations through."""
    kept, notes = [], list(made.notes)
    for constraint in dict.fromkeys(found):
        names = [p.name for p in made.searched if p.name in Expression.parse(constraint.text).names]
        if not names:
            continue
        broken = [config for config in made.configs if not _holds(constraint.text, {**made.constants, **config})]
        if not broken:
            kept.append(constraint)
            continue
        exempt = _exemption(constraint.text, names, broken)
        if exempt is None:
            notes.append(
                f"left out, since {len(broken)} of the kernel's own configurations break it: {constraint.text}"
            )
            continue
        kept.append(FoundConstraint(exempt, f"{constraint.reason}; but for the kernel's own configurations"))
    return changed(made, constraints=tuple(kept), notes=tuple(notes))


def _holds(text: str, names: Mapping[str, Scalar]) -> bool:
    """Whether a constraint is true; one over sizes that are not known may not be."""
    try:
        return bool(Expression.parse(text).evaluate(names))
    except ExpressionError:
        return False


def _exemption(text: str, names: Sequence[str], broken: Iterable[Mapping[str, Scalar]]) -> str | None:
    """The constraint, or else the values that the author gives its parameters together; None if that is too long."""
    points = dict.fromkeys(tuple(config[name] for name in names) for config in broken)
    if len(names) == 1:
        own = f"{names[0]} in ({', '.join(repr(value) for (value,) in points)},)"
    else:
        own = " or ".join(
            "(" + " and ".join(f"{n} == {v!r}" for n, v in zip(names, point, strict=True)) + ")" for point in points
        )
    made = f"({text}) or {own}"
    try:
        Expression.parse(made)
    except ExpressionError:
        return None
    return made


def _consistent(made: InferredSpace) -> InferredSpace:
    """The space without the constraints that leave nothing of it, each with a note."""
    if not made.searched:
        return made
    for size in itertools.count():
        kept = made.constraints[: len(made.constraints) - size]
        smaller = changed(made, constraints=kept)
        try:
            smaller.bound().default()
        except SpaceError:
            continue
        left = made.constraints[len(kept) :]
        notes = tuple(f"left out, since nothing satisfies it beside the others: {c.text}" for c in left)
        return changed(smaller, notes=(*made.notes, *notes))
    raise AssertionError("a space without constraints is never empty")
