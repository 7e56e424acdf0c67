"""What is known of a space before anything is measured in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...space import Configuration, config_key
from .encoding import Grid, Levels, Vector, keys

#: Natural logarithms of predicted times, one a configuration. Only differences count: units and constant factors drop
#: out, and how far the prediction is to be trusted is fitted to what is measured.
LogTimes: TypeAlias = Callable[[Sequence[Configuration]], Sequence[float]]

#: The factor of a prediction lies between these.
LEAST_SCALE, GREATEST_SCALE = 0.2, 2.0


@dataclass(frozen=True)
class Prior:
    """``log_times`` predicts, None where nothing does; the configurations ``first`` are tried before all others, in
    their order."""

    log_times: LogTimes | None
    first: tuple[Configuration, ...] = ()


class Predictions:
    """Predictions for rows, each asked for once."""

    def __init__(self, log_times: LogTimes, grid: Grid) -> None:
        self._log_times, self._grid = log_times, grid
        self._known: dict[bytes, float] = {}

    def of(self, rows: Levels) -> Vector:
        """Predicted logarithms of times, one a row."""
        wanted = dict(zip(keys(rows), rows, strict=True))
        missing = {key: row for key, row in wanted.items() if key not in self._known}
        if missing:
            predicted = self._log_times([self._grid.configuration(row) for row in missing.values()])
            self._known |= dict(zip(missing, map(float, predicted), strict=True))
        return np.array([self._known[key] for key in keys(rows)], float)


def mixed(predictions: Sequence[tuple[float, LogTimes]]) -> LogTimes:
    """The weighted mean of several predictions; ``predictions``: at least one, with weights above 0."""
    total = sum(weight for weight, _ in predictions)

    def log_times(configs: Sequence[Configuration]) -> list[float]:
        parts = np.array([np.array(predict(configs), float) * (weight / total) for weight, predict in predictions])
        summed: list[float] = parts.sum(axis=0).tolist()
        return summed

    return log_times


def remembered(log_times: LogTimes) -> LogTimes:
    """The same predictions, each made once: who follows a search asks again for what the strategy asked for."""
    known: dict[str, float] = {}

    def ask(configs: Sequence[Configuration]) -> list[float]:
        wanted = [config_key(config) for config in configs]
        missing = {key: config for key, config in zip(wanted, configs, strict=True) if key not in known}
        if missing:
            known.update(zip(missing, map(float, log_times([*missing.values()])), strict=True))
        return [known[key] for key in wanted]

    return ask


def scale(predicted: Vector, logs: Vector) -> float:
    """The factor of the predicted logarithms that fits the measured ones best, by least squares, within bounds."""
    predicted, logs = predicted - predicted.mean(), logs - logs.mean()
    fitted = float(predicted @ logs) / max(1e-9, float(predicted @ predicted))
    return float(np.clip(fitted, LEAST_SCALE, GREATEST_SCALE))
