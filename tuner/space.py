"""Search spaces: parameters with choices, constraints as expressions, JSON in and out."""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, TypeAlias

from msgspec import field
from msgspec.structs import force_setattr, replace

from .codec import MOST_INTEGER, Document, Scalar, canonical_json, convert, expect_object, plain, without_nulls
from .enumeration import (
    MAX_STEPS,
    Component,
    Conjunct,
    Meter,
    TooManySteps,
    components,
    first_point,
    walk,
)
from .errors import ExpressionError, SpaceError
from .expression import Expression

Configuration: TypeAlias = Mapping[str, Scalar]

MAX_PARAMETERS = 64
MAX_CHOICES = 1024
MAX_CONSTRAINTS = 256
#: Names, numbers and operators in all constraints together: each is looked at for every choice.
MAX_NODES = 10_000
#: The largest numbers that a choice can be, which JSON and other languages can hold.
_MOST: Mapping[type, int | float] = {bool: 1, int: MOST_INTEGER, float: sys.float_info.max}


def config_key(config: Configuration) -> str:
    """The canonical text of a configuration: equal exactly when names and values (with their types) are equal."""
    return canonical_json(dict(config))


def _named(choice: float) -> str:
    """A choice in words. Python writes no whole number of more than some thousand digits."""
    if isinstance(choice, int) and choice.bit_length() > 128:
        return f"a choice of {choice.bit_length()} bits"
    return f"the choice {choice!r}"


class Parameter(Document, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One axis of a space.

    ``default`` is the first choice unless given. Where ``when`` (an expression over other parameters) is false the
    parameter has no effect and keeps its default, so equivalent configurations are not tried twice.
    """

    noun: ClassVar[str] = "parameter"

    name: str
    choices: tuple[Scalar, ...]
    default: Scalar = None  # type: ignore[assignment]  # replaced by the first choice in __post_init__
    when: str | None = None

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise SpaceError(f"{self.name!r} cannot name a parameter", hint="use an identifier")
        if not self.choices:
            raise SpaceError(f"the parameter {self.name!r} has no choices")
        if len(self.choices) > MAX_CHOICES:
            raise SpaceError(f"the parameter {self.name!r} has {len(self.choices)} choices; at most {MAX_CHOICES}")
        force_setattr(self, "choices", tuple(map(plain, self.choices)))
        force_setattr(self, "default", plain(self.default))
        strange = next((choice for choice in self.choices if type(choice) not in (int, float, str, bool)), None)
        if strange is not None or None in self.choices:
            hint = "numbers, text, True and False"
            raise SpaceError(f"the parameter {self.name!r} has {strange!r} as a choice", hint=hint)
        beyond = [
            choice
            for choice in self.choices
            if isinstance(choice, int | float) and not abs(choice) <= _MOST[type(choice)]
        ]
        if beyond:
            hint = "whole numbers of 64 bits, and floats that are finite"
            raise SpaceError(f"the parameter {self.name!r} has {_named(beyond[0])}", hint=hint)
        if self.default is None:
            force_setattr(self, "default", self.choices[0])
        keys = [canonical_json(choice) for choice in self.choices]
        if len(set(keys)) != len(keys):
            raise SpaceError(f"the parameter {self.name!r} lists a choice twice")
        if canonical_json(self.default) not in keys:
            raise SpaceError(
                f"the default {self.default!r} of {self.name!r} is not one of its choices",
                hint=f"choices: {list(self.choices)}",
            )

    @classmethod
    def spelled_out(cls, value: object, where: str) -> object:
        """A default of null is the first choice."""
        return without_nulls(value, where)


class Space(Document, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """Parameters, and the constraints that valid configurations satisfy.

    Constraints are :class:`~.expression.Expression` texts over parameter names and over ``constants``: facts of the
    shape and the device (``M``, ``shared_bytes``) that :meth:`bind` supplies. Enumeration is in the order of the
    choices, last parameter fastest, and never builds a point whose prefix already breaks a constraint.
    """

    noun: ClassVar[str] = "space"

    parameters: tuple[Parameter, ...]
    # Written even where there are none: omit_defaults knows only plain defaults.
    constraints: tuple[str, ...] = field(default_factory=lambda: ())
    constants: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.parameters or len(self.parameters) > MAX_PARAMETERS:
            raise SpaceError(f"a space has 1 to {MAX_PARAMETERS} parameters, not {len(self.parameters)}")
        if len(self.constraints) > MAX_CONSTRAINTS:
            raise SpaceError(f"a space has at most {MAX_CONSTRAINTS} constraints")
        seen: set[str] = set()
        for name in self.names:
            if name in seen:
                raise SpaceError(f"the parameter {name!r} appears twice")
            seen.add(name)
        clash = seen & set(self.constants)
        if clash:
            raise SpaceError(f"{min(clash)!r} is a parameter and also a fact of the shape or device")
        nodes = sum(Expression.parse(text).nodes for text in self.constraints)
        if nodes > MAX_NODES:
            raise SpaceError(
                f"the constraints of a space have {nodes} names, numbers and operators; at most {MAX_NODES}",
                hint="drop those that follow from others",
            )
        for text in self.constraints:
            for part in Expression.parse(text).conjuncts():
                if not part.names and isinstance(part.evaluate({}), str):
                    raise SpaceError(f"the constraint {text} is a text, which is no condition", hint="BLOCK <= 256")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, in order."""
        return tuple(parameter.name for parameter in self.parameters)

    @cached_property
    def free_names(self) -> frozenset[str]:
        """Names in constraints that are neither parameters nor bound constants."""
        used: set[str] = set()
        for conjunct in self._conjuncts:
            used |= conjunct.expression.names
        return frozenset(used - set(self.names) - set(self.constants))

    def bind(self, constants: Mapping[str, Scalar]) -> Space:
        """This space with more names known to its constraints."""
        return replace(self, constants={**self.constants, **constants})

    def hold(self, config: Configuration, names: Collection[str]) -> Space:
        """This space with the parameters ``names`` held at their values in ``config``, a valid configuration."""
        held = (Parameter(p.name, (config[p.name],)) if p.name in names else p for p in self.parameters)
        return replace(self, parameters=tuple(held))

    def starting_from(self, config: Configuration) -> Space:
        """This space with ``config``, a valid configuration, as its default; but parameters with a ``when`` keep their
        own, which says what they are where they have no effect."""
        started = (p if p.when is not None else Parameter(p.name, p.choices, config[p.name]) for p in self.parameters)
        return replace(self, parameters=tuple(started))

    @property
    def conditions(self) -> tuple[Conjunct, ...] | None:
        """All constraints, taken apart; None where they are not known as expressions."""
        return self._conjuncts

    @property
    def cartesian_size(self) -> int:
        """How many points the product of the choices has, constraints ignored."""
        size = 1
        for parameter in self.parameters:
            size *= len(parameter.choices)
        return size

    def count(self, limit: int | None = None) -> int | None:
        """How many configurations are valid; None when finding out would take more than two million steps in
        one group of related parameters, or when there are more than ``limit``."""
        total = 1
        for component in self._components:
            size = component.size
            if size is None:
                return None
            total *= size
        return None if limit is not None and total > limit else total

    def configurations(self) -> Iterator[dict[str, Scalar]]:
        """All valid configurations in order, lazily. Raises :class:`SpaceError` on the way when two million
        steps lead to no further one: such a space cannot be enumerated, only sampled."""
        self._require_bound()
        meter = Meter()
        try:
            for config in walk(self._axes(), self._conjuncts, self.constants, meter=meter):
                yield config
                meter.renew()
        except TooManySteps:
            raise SpaceError(
                f"valid configurations lie more than {MAX_STEPS} steps apart",
                hint="write constraints over few parameters each, and these parameters next to each other",
            ) from None

    def violations(self, config: Configuration) -> list[str]:
        """Why ``config`` is not in the space; empty when it is."""
        reasons = []
        for parameter in self.parameters:
            if parameter.name not in config:
                reasons.append(f"{parameter.name} is missing")
            elif canonical_json(config[parameter.name]) not in self._choice_keys[parameter.name]:
                reasons.append(f"{parameter.name}={config[parameter.name]!r} is not a choice")
        reasons += [f"unknown parameter {name!r}" for name in config if name not in self._choice_keys]
        if reasons:
            return reasons
        names = {**self.constants, **config}
        return [c.origin for c in self._conjuncts if not c.expression.evaluate(names)]

    def allows(self, config: Configuration) -> bool:
        """Whether the constraints hold of ``config``, whose values are known to be choices. Raises
        :class:`~.errors.ExpressionError` where one cannot be judged."""
        names = {**self.constants, **config}
        return all(conjunct.expression.evaluate(names) for conjunct in self._conjuncts)

    def contains(self, config: Configuration) -> bool:
        """Whether ``config`` has exactly the space's parameters, each a choice, and satisfies all constraints."""
        return not self.violations(config)

    def sample(self, rng: random.Random) -> dict[str, Scalar]:
        """The first of :meth:`samples`."""
        return next(self.samples(rng))

    def samples(self, rng: random.Random) -> Iterator[dict[str, Scalar]]:
        """Random valid configurations without end. Uniform, except in groups of related parameters that are both too
        large to list and almost empty, where branches are chosen uniformly instead; if that finds none either, the
        group is walked through from its default, so that one configuration is like the one before. Raises
        :class:`SpaceError` where the space is empty, or none is found and no default is valid."""
        return self._together([component.samples(rng, self.default) for component in self._components])

    def walked(self, rng: random.Random) -> Iterator[dict[str, Scalar]]:
        """As :meth:`samples`, for a space of which hardly any draw is valid: groups that are too large to list are
        walked through from the beginning."""
        return self._together([component.walked(rng, self.default) for component in self._components])

    def _together(self, groups: Sequence[Iterator[Configuration]]) -> Iterator[dict[str, Scalar]]:
        while True:
            drawn: dict[str, Scalar] = {}
            for group in groups:
                drawn |= next(group)
            yield {name: drawn[name] for name in self.names}

    def nearest(self, preferred: Configuration, meter: Meter | None = None) -> dict[str, Scalar]:
        """``preferred`` if valid, else the valid configuration that keeps the longest prefix of its values; looked for
        within the steps of ``meter``.

        Raises :class:`SpaceError` naming the constraints when the space is empty.
        """
        self._require_bound()
        axes = []
        for parameter in self.parameters:
            first = preferred.get(parameter.name, parameter.default)
            key = canonical_json(first)
            if key not in self._choice_keys[parameter.name]:
                first, key = parameter.default, canonical_json(parameter.default)
            rest = [choice for choice in parameter.choices if canonical_json(choice) != key]
            axes.append((parameter.name, (first, *rest)))
        config = first_point(axes, self._conjuncts, self.constants, meter or Meter())
        if config is None:
            raise self._empty_error()
        return config

    def default(self) -> dict[str, Scalar]:
        """Every parameter at its default, or the nearest valid configuration. Raises :class:`SpaceError` if empty."""
        return self.nearest({})

    @classmethod
    def spelled_out(cls, value: object, where: str) -> object:
        """``"parameters": {"BLOCK": [64, 128]}``, the form people write by hand, stands for a list of parameters."""
        fields = without_nulls(value, where)
        parameters = fields.get("parameters")
        if isinstance(parameters, Mapping):
            read = {
                name: convert(choices, tuple[Scalar, ...], f"{where}.parameters.{name}")
                for name, choices in expect_object(parameters, f"{where}.parameters").items()
            }
            fields["parameters"] = [Parameter(name, choices) for name, choices in read.items()]
        return fields

    @cached_property
    def _choice_keys(self) -> dict[str, frozenset[str]]:
        return {p.name: frozenset(map(canonical_json, p.choices)) for p in self.parameters}

    @cached_property
    def _conjuncts(self) -> tuple[Conjunct, ...]:
        texts = list(self.constraints)
        for parameter in self.parameters:
            if parameter.when is not None:
                texts.append(f"({parameter.when}) or {parameter.name} == {parameter.default!r}")
        return tuple(Conjunct(part, text) for text in texts for part in Expression.parse(text).conjuncts())

    @cached_property
    def _components(self) -> tuple[Component, ...]:
        self._require_bound()
        return components(self._axes(), self._conjuncts, self.constants)

    def _axes(self) -> list[tuple[str, tuple[Scalar, ...]]]:
        return [(parameter.name, parameter.choices) for parameter in self.parameters]

    def _require_bound(self) -> None:
        for conjunct in self._conjuncts:
            unknown = (conjunct.expression.names & self.free_names) - set(self.names)
            if unknown:
                name = min(unknown)
                raise ExpressionError(
                    f"the constraint uses {name!r}, which is neither a parameter nor a known fact",
                    text=conjunct.expression.text,
                    column=max(conjunct.expression.text.find(name), 0),
                    hint=f"known: {', '.join([*self.names, *self.constants])}",
                )

    def _empty_error(self) -> SpaceError:
        """Names the constraints of the first group of parameters that has no valid point, worst first."""
        for component in self._components:
            if component.size is None or component.size > 0:
                continue
            struck = component.strike_counts()
            total = sum(struck.values())
            lines = [f"  {text!r} strikes out {count} of {total}" for text, count in struck.most_common(5)]
            return SpaceError(
                "no configuration satisfies all constraints of the space:\n" + "\n".join(lines),
                hint=f"these tie {', '.join(component.names)} together: widen their choices or drop a constraint",
            )
        return SpaceError(
            "no valid configuration was found in a space too large to list",
            hint="give a default that satisfies the constraints, or write constraints over few parameters each",
        )
