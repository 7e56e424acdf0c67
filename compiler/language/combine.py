"""Combining functions of reductions and scans, written in the language."""

from __future__ import annotations

from .conditions import where
from .inline import library
from .maths import maximum, minimum


@library
def add(a, b):
    """a + b."""
    return a + b


@library
def xor(a, b):
    """a ^ b."""
    return a ^ b


@library
def or_(a, b):
    """a | b."""
    return a | b


@library
def multiply(a, b):
    """a * b."""
    return a * b


@library
def larger(a, b):
    """The larger; a number wins over NaN."""
    return maximum(a, b)


@library
def smaller(a, b):
    """The smaller; a number wins over NaN."""
    return minimum(a, b)


@library
def larger_first(value_a, index_a, value_b, index_b):
    """The pair with the larger value; of equal ones the smaller index. NaN is less than every number."""
    above = ~(value_a <= value_b) & (value_a == value_a)
    not_below = (value_b <= value_a) | (value_b != value_b)
    first = not_below & (above | (index_a < index_b))  # above, which says more, falls away where indices are in order
    return where(first, value_a, value_b), where(first, index_a, index_b)


@library
def smaller_first(value_a, index_a, value_b, index_b):
    """The pair with the smaller value; of equal ones the smaller index. NaN is more than every number."""
    below = ~(value_a >= value_b) & (value_a == value_a)
    not_above = (value_b >= value_a) | (value_b != value_b)
    first = not_above & (below | (index_a < index_b))
    return where(first, value_a, value_b), where(first, index_a, index_b)
