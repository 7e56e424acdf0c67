"""Limits that nobody stated: products and quotients of parameters above which nothing works.

A CTA has at most 1024 threads, a tile is a multiple of the vector: such constraints of kernels bound a product or a
quotient of two or three parameters. Whatever worked is below such a bound, so each product has but one candidate for
it, the greatest that worked; and a bound is believed as soon as the failures above it are more than chance.
It then is the least that failed: what lies between is not known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...codec import Scalar
from .encoding import Grid, Levels, Matrix, Vector

#: Parameters in a product, and parameters of a space from which on products have one fewer.
FACTORS, MANY = 3, 20
#: Logarithms are sums of rounded numbers.
ROUNDING = 1e-9
#: How much more likely (natural logarithm) failures must be with a limit than by chance, and the least probability by
#: chance of one: failures lie beside each other, and each says less than an independent one would.
EVIDENCE, LEAST_CHANCE = 3.0, 0.35
#: A quotient that is never above 1 says that one parameter divides another, as tiles and vectors do: so much (natural
#: logarithm) more likely beforehand than other limits.
FAMILIAR = 3.0


def logarithms(choices: Sequence[Scalar]) -> Vector:
    """What adds up when choices are multiplied: log2 of positive numbers, the rank of other things."""
    if any(isinstance(choice, str) for choice in choices) or min(map(float, choices)) <= 0:
        return np.arange(len(choices), dtype=float)
    result: Vector = np.log2(np.array([float(choice) for choice in choices]))
    return result


class Limits:
    """Bounds that are believed, of the products and quotients of up to three parameters."""

    def __init__(self, grid: Grid) -> None:
        self._columns = grid.varied
        self._logarithms = [logarithms(grid.parameters[i].choices) for i in grid.varied]
        self._signs, self._surprise = _products(len(grid.varied))
        self._quotient = (self._signs > 0).any(1) & (self._signs < 0).any(1)
        self._believed: list[int] = []
        self._bounds: Vector = np.zeros(len(self._signs))

    def learn(self, rows: Levels, worked: Sequence[bool]) -> None:
        """Believe what explains the failures among ``rows``, the most telling bound first."""
        good = np.array(worked, bool)
        self._believed = []
        if good.all() or not good.any() or not len(self._signs):
            return
        sums = self._points(rows) @ self._signs.T
        self._bounds = sums[good].max(0) + ROUNDING
        above = sums[~good] > self._bounds
        surprise = self._surprise - FAMILIAR * (self._quotient & (np.abs(self._bounds) <= 2 * ROUNDING))
        left = np.ones(len(above), bool)
        while left.any():
            chance = max(LEAST_CHANCE, (left.sum() + 1) / (left.sum() + good.sum() + 1))
            telling = above[left].sum(0) * -math.log(chance) - surprise
            best = int(np.argmax(telling))
            if telling[best] < EVIDENCE:
                break
            self._believed.append(best)
            self._bounds[best] = sums[~good][above[:, best], best].min() - ROUNDING
            left &= ~above[:, best]

    def broken(self, rows: Levels) -> NDArray[np.bool_]:
        """Which rows are above a bound."""
        if not self._believed:
            return np.zeros(len(rows), bool)
        sums = self._points(rows) @ self._signs[self._believed].T
        beyond: NDArray[np.bool_] = sums > self._bounds[self._believed]
        result: NDArray[np.bool_] = np.logical_or.reduce(beyond, axis=1)
        return result

    def _points(self, rows: Levels) -> Matrix:
        columns = [place[rows[:, i]] for i, place in zip(self._columns, self._logarithms, strict=True)]
        return np.stack(columns, axis=1) if columns else np.zeros((len(rows), 0))


def _products(count: int) -> tuple[Matrix, Vector]:
    """Signs of the parameters in every product, a row each, and the logarithm of the number of those as long."""
    rows, surprise = [], []
    for factors in range(1, min(count, FACTORS if count < MANY else FACTORS - 1) + 1):
        made = [
            (chosen, signs)
            for chosen in itertools.combinations(range(count), factors)
            for signs in itertools.product((1.0, -1.0), repeat=factors)
        ]
        for chosen, signs in made:
            row = np.zeros(count)
            row[list(chosen)] = signs
            rows.append(row)
        surprise += [math.log(len(made))] * len(made)
    return np.array(rows).reshape(len(rows), count), np.array(surprise)
