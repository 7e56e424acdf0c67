"""What measurements must be to be stored: readers take logarithms of sizes, divide by times and round ratios."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deuteron.compiler.printable import printable_line
from deuteron.tuner import Interval, Trial
from deuteron.tuner.codec import MOST_INTEGER
from deuteron.tuner.errors import SchemaError

#: Of times in ns and of ratios: below it the reciprocal of one says nothing, and soon is infinite.
LEAST_VALUE = 1e-9

# Of metrics by which a search that goes on, and those that start from it, find what was measured together and what has
# the same code. Races have nine members; up to 2**53 a float is the whole number that was meant.
_MOST_COUNTED = {"group_size": 1000, "group_index": 1000, "ratio_pairs": 1 << 53, "duplicate_of": 1 << 53}
_RATIOS = ("ratio", "ratio_low", "ratio_high")


def check_sizes(shape: Mapping[str, int], where: str) -> None:
    """Refuse what no search has: readers of what is stored compare the logarithms of sizes.

    Raises:
        SchemaError: a size is out of range.
    """
    for dim, size in shape.items():
        if not 1 <= size <= MOST_INTEGER:
            raise SchemaError(f"{where}: {dim[:40]!r} is {str(size)[:40]}", hint="sizes are from 1 to 2**63 - 1")


def check_positive(value: Interval, where: str) -> None:
    """Refuse a time or a ratio that nobody measured: what divides by it, or rounds it, would fail.

    Raises:
        SchemaError: it is not above 0, or too large.
    """
    for name, number in (("median", value.median), ("low", value.low), ("high", value.high)):
        if not LEAST_VALUE <= number <= MOST_INTEGER:
            raise SchemaError(f"{where}.{name}: {number:g}", hint=f"from {LEAST_VALUE:g} to 2**63 - 1")


def check_names(where: str, names: Iterable[str]) -> None:
    """Refuse what would act on the terminals and in the files of those who read it.

    Raises:
        SchemaError: a name has a control character.
    """
    for name in names:
        if printable_line(name) != name:
            raise SchemaError(f"{where}: {name[:40]!r} has a control character", hint="names are of printable text")


def check_trial(trial: Trial) -> None:
    """Raises :class:`SchemaError` for a time, a figure or a configuration that no trial has."""
    times = () if trial.time_ns is None else (trial.time_ns.median, trial.time_ns.low, trial.time_ns.high)
    # A clock may be too coarse for a kernel: a time of 0 is one, though nobody starts from it.
    if not all(0 <= time <= MOST_INTEGER for time in times):
        raise SchemaError(f"trial.time_ns: {max(times, key=abs):g} ns", hint="from 0 to 2**63 - 1")
    check_names("trial.config", trial.config)
    for name, value in trial.config.items():
        if isinstance(value, int | float) and not abs(value) <= MOST_INTEGER:
            raise SchemaError(f"trial.config: {name[:40]!r} is beyond 64 bits")
    _check_metrics(trial.metrics)


def _check_metrics(metrics: Mapping[str, float]) -> None:
    for name in metrics.keys() & _MOST_COUNTED.keys():
        value, most = metrics[name], _MOST_COUNTED[name]
        if not 0 <= value <= most or value != int(value):
            raise SchemaError(f"trial.metrics.{name}: {value:g}", hint=f"a whole number from 0 to {most}")
    for name in metrics.keys() & set(_RATIOS):
        if not 0 <= metrics[name] <= MOST_INTEGER:
            raise SchemaError(f"trial.metrics.{name}: {metrics[name]:g}", hint="from 0 to 2**63 - 1")


def check_integers(value: object, where: str) -> None:
    """Refuse whole numbers that neither databases nor other readers of what is stored can hold, however deep.

    Raises:
        SchemaError: one is beyond 64 bits; the message says which.
    """
    match value:
        case dict():
            for name, item in value.items():
                check_integers(item, f"{where}.{str(name)[:40]}")
        case list():
            for place, item in enumerate(value):
                check_integers(item, f"{where}[{place}]")
        case int() if not abs(value) <= MOST_INTEGER:
            raise SchemaError(f"{where}: a whole number beyond 64 bits", hint="from -(2**63 - 1) to 2**63 - 1")
        case _:
            pass
