"""Axis facts: what is known about the values of an integer or pointer tile along each dimension.

For dimension d the tile is cut into aligned groups of ``contiguity[d]`` elements in which values go up by one
(pointers: by one element). ``divisibility[d]`` is a power of two that divides the first value of every such group
(pointers: its address in bytes). ``constancy[d]`` is the size of aligned groups whose values are all equal. A scalar
has one dimension of size 1. The same three facts drive vectorisation in Triton (AxisInfo); here every claim is checked
against the interpreter by ``tests/compiler/tile/test_axis.py``.

Assumptions, all of which Triton shares: signed integers of 32 and 64 bits do not overflow, hints of the author
(tl.multiple_of and the like) are true, and nothing is divided by zero. Neither dividends nor divisors are taken to be
non-negative; ``nonnegative`` is tracked instead.
"""

from . import rules, shape_rules
from .analysis import AxisFacts, analyze
from .info import LARGEST, AxisInfo

#: The modules whose import fills the table of rules.
RULE_MODULES = (rules, shape_rules)

__all__ = ["LARGEST", "AxisFacts", "AxisInfo", "analyze"]
