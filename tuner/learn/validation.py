"""What predictions are worth: one shape after the other is left out, all of its trials at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..cover import TimeTable
from ..job import shape_key
from ..prediction import Accuracy, CrossValidation
from ..records.nearest import shape_distance
from ..space import Configuration, config_key
from .training import LEAST_SHAPES, LearnError, RankedKernel, grow, rank, rows_of_table


@dataclass(frozen=True)
class HeldOut:
    """One shape and what each way to choose gave there without having seen it: time of the best configuration over that
    of the chosen one, None where nothing that it would choose was measured. ``first``: the predicted one was;
    ``answered``: there was one."""

    shape: int
    predicted: float | None
    nearest: float | None
    default: float | None
    first: bool
    answered: bool = True


def leave_one_out(
    table: TimeTable,
    kernel: RankedKernel,
    default: Callable[[int], Configuration | None] = lambda shape: None,
    tell: Callable[[str], None] = lambda line: None,
) -> Iterator[HeldOut]:
    """Train without each shape in turn and choose for it, as lookups do.

    Predicted and nearest choose among what was measured at the shape: the first in the ranking that the others know to
    be right there; the fastest at the nearest other shape. ``default``: the default configuration at a shape, by its
    place in the table.

    Raises:
        LearnError: there are too few shapes.
        MissingExtra: LightGBM is not installed.
    """
    if len(table.shapes) < LEAST_SHAPES:
        raise LearnError(
            f"{len(table.shapes)} shapes were measured; at least {LEAST_SHAPES} are needed", hint="tune more shapes"
        )
    rows = rows_of_table(table, kernel)
    known = {config_key(config): number for number, config in enumerate(table.configs)}
    for place, shape in enumerate(table.shapes):
        others = [other for other in range(len(table.shapes)) if other != place]
        ranking = rank(table, kernel, rows, grow(rows, rows.shape != place), others)
        usual = default(place)
        choices = [known[config_key(config)] for config in ranking.answers(shape)]
        predicted = _first_measured(table, place, choices)
        yield HeldOut(
            place,
            predicted,
            _first_measured(table, place, _as_nearest(table, place, others)),
            None if usual is None else _first_measured(table, place, [known.get(config_key(usual), -1)]),
            bool(choices) and choices[0] in table.losses[place],
            bool(choices),
        )
        tell(f"{place + 1}/{len(table.shapes)} {shape_key(shape)}: {predicted or 0:.3f} of the best")


def cross_validate(left_out: Sequence[HeldOut]) -> CrossValidation:
    """The summary, over the shapes that predicted and nearest were both scored at.

    Raises:
        LearnError: there is none: no two shapes have a configuration in common.
    """
    scored = [one for one in left_out if one.predicted is not None and one.nearest is not None]
    if not scored:
        raise LearnError(
            "no two shapes have a configuration in common: nothing can be checked",
            hint="measure the same ones at several shapes: --strategy exhaustive, or deuteron cover --measure",
        )
    defaults = [one.default for one in scored]
    return CrossValidation(
        len(scored),
        Accuracy.of([one.predicted for one in scored if one.predicted is not None]),
        Accuracy.of([one.nearest for one in scored if one.nearest is not None]),
        None if None in defaults else Accuracy.of([value for value in defaults if value is not None]),
        sum(not one.first for one in scored) / len(scored),
        sum(not one.answered for one in left_out) / len(left_out),
    )


def _as_nearest(table: TimeTable, place: int, others: Sequence[int]) -> list[int]:
    """The configurations of the nearest other shape, fastest first."""
    shape = table.shapes[place]
    near = min(others, key=lambda o: (shape_distance(table.shapes[o], shape), shape_key(table.shapes[o])))
    return sorted(table.times[near], key=table.times[near].__getitem__)


def _first_measured(table: TimeTable, place: int, configs: Sequence[int]) -> float | None:
    """The best time at a shape over that of the first configuration that was measured there."""
    losses = table.losses[place]
    return next((1 / (1 + losses[config]) for config in configs if config in losses), None)
