"""What trees see of a configuration at a shape: logarithms of sizes, of parameters and of what follows from both.

Nothing is known of the operator. Which parameter cuts which dim is left to the trees: there is a quotient of each dim
and each parameter. A workload's grid says how many programs a launch has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from ..codec import Document, Scalar
from ..expression import Expression
from ..space import Configuration, Space

if TYPE_CHECKING:
    import numpy as np

Form: TypeAlias = Literal["size", "value", "level", "count", "waste", "programs", "waves", "tail", "tiles"]


class Feature(Document, frozen=True):
    """One column. ``dims`` and ``parameters`` are what it is computed from:

    ======== =================================================================================
    size     log2 of the dim
    value    log2 of the parameter, a positive whole number
    level    place of the parameter's value among its choices
    count    log2 of cdiv(dim, parameter): how many pieces cover the dim
    waste    how much longer than the dim those pieces are together, 1 for nothing
    programs log2 of how many programs the grid has
    waves    programs over processors (SMs, cores), rounded up
    tail     the part of the processors that has nothing to do in the last wave
    tiles    log2 of cdiv(dims[0], parameters[0]) * cdiv(dims[1], parameters[1])
    ======== =================================================================================
    """

    noun: ClassVar[str] = "feature"

    form: Form
    dims: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wanted = _NEEDS[self.form]
        if (len(self.dims), len(self.parameters)) != wanted:
            raise ValueError(f"a feature {self.form!r} is of {wanted[0]} dims and {wanted[1]} parameters")

    @property
    def text(self) -> str:
        """Its name for people: ``count M/BLOCK_M``."""
        pairs = [f"{a}/{b}" for a, b in zip(self.dims, self.parameters, strict=False)]
        return " ".join([self.form, *(pairs or (*self.dims, *self.parameters))])


#: The constant of a space that says how many programs run at the same time.
PROCESSORS = "sm_count"

# Expressions may give numbers that no float holds.
_MOST_PROGRAMS = 1 << 62

#: How many dims and parameters each form is of.
_NEEDS: Mapping[str, tuple[int, int]] = {
    "size": (1, 0),
    "value": (0, 1),
    "level": (0, 1),
    "count": (1, 1),
    "waste": (1, 1),
    "programs": (0, 0),
    "waves": (0, 0),
    "tail": (0, 0),
    "tiles": (2, 2),
}


def features_of(space: Space, dims: Sequence[str], grid: Sequence[str]) -> tuple[Feature, ...]:
    """The columns for a space over ``dims``, of parameters that have a choice. Without a grid there is, in place of its
    programs, the number of tiles for each two dims and two parameters."""
    chosen = [p for p in space.parameters if len(p.choices) > 1]
    numbers = [p.name for p in chosen if all(map(is_count, p.choices))]
    found = [Feature("size", (dim,)) for dim in dims]
    found += [Feature("value" if p.name in numbers else "level", (), (p.name,)) for p in chosen]
    for dim in dims:
        found += [Feature(form, (dim,), (name,)) for name in numbers for form in ("count", "waste")]
    if grid:
        return (*found, Feature("programs"), Feature("waves"), Feature("tail"))
    for place, first in enumerate(dims):
        for second in dims[place + 1 :]:
            found += [Feature("tiles", (first, second), (a, b)) for a in numbers for b in numbers if a != b]
    return tuple(found)


def feature_rows(
    features: Sequence[Feature],
    space: Space,
    grid: Sequence[str],
    shape: Mapping[str, int],
    configs: Sequence[Configuration],
) -> np.ndarray:
    """The features of configurations at a shape: [configs, features], f64. ``space`` is bound to the shape: its
    constants are what ``grid`` sees, ``sm_count`` among them, which is a count (:func:`is_count`) where it is given, as
    are all choices of parameters whose form is not ``level``. Sizes are below 2^62.

    Raises:
        ExpressionError: the grid is not one at this shape with one of the configurations.
    """
    import numpy as np

    numbers = {name for feature in features if feature.form != "level" for name in feature.parameters}
    values = {name: np.array([config[name] for config in configs], dtype=np.int64) for name in numbers}
    levels = {name for feature in features if feature.form == "level" for name in feature.parameters}
    places = {name: _places(space, name, configs) for name in levels}
    programs = np.array([_programs(grid, {**space.constants, **config}) for config in configs] if grid else [1])
    processors = max(1, int(space.constants.get(PROCESSORS, 1)))
    rows = np.empty((len(configs), len(features)))
    for place, feature in enumerate(features):
        chosen = [(places if feature.form == "level" else values)[name] for name in feature.parameters]
        rows[:, place] = _column(feature, [max(1, shape[dim]) for dim in feature.dims], chosen, programs, processors)
    return rows


def _places(space: Space, name: str, configs: Sequence[Configuration]) -> np.ndarray:
    """Where among the choices of one parameter the configurations' values are."""
    import numpy as np

    choices = next(p.choices for p in space.parameters if p.name == name)
    # True and 1 are two choices.
    places = {(type(choice), choice): place for place, choice in enumerate(choices)}
    return np.array([places[type(config[name]), config[name]] for config in configs])


def _column(
    feature: Feature, sizes: Sequence[int], chosen: Sequence[np.ndarray], programs: np.ndarray, processors: int
) -> np.ndarray | float:
    import numpy as np

    # Quotients rounded up, of whole numbers.
    pieces = [-(-size // tiles) for size, tiles in zip(sizes, chosen, strict=False)]
    waves = -(-programs // processors)
    column: np.ndarray | float
    match feature.form:
        case "size":
            column = math.log2(sizes[0])
        case "value":
            column = np.log2(chosen[0])
        case "level":
            column = chosen[0]
        case "count":
            column = np.log2(pieces[0])
        case "waste":
            column = pieces[0] * chosen[0] / sizes[0]
        case "programs":
            column = np.log2(programs)
        case "waves":
            column = waves
        case "tail":
            column = 1 - programs / (processors * waves)
        case "tiles":
            column = np.log2(pieces[0]) + np.log2(pieces[1])
    return column


def _programs(grid: Sequence[str], names: Mapping[str, Scalar]) -> int:
    count = math.prod(Expression.parse(text).evaluate_int(names) for text in grid)
    return min(max(1, count), _MOST_PROGRAMS)


def is_count(value: Scalar) -> bool:
    """Whether a value is a positive whole number that a logarithm can be taken of."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 62
