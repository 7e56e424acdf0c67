"""Metrics computed from those in the file: times in other units, rates, shares, and the roofline's ``util``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from .. import specs
from ..errors import MetricError, MetricNotFound
from ..metrics import FLOPS_WIDTHS
from .columns import Column, is_set, quotient, quotients, sum_of, unit_of
from .frames import NAN, DeviceInfo, FrameTree, Numbers
from .names import printable

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_TIME = re.compile(r"(?P<average>avg_)?(?P<metric>(?:cpu_)?time)/(?P<unit>s|ms|us|ns)")
_RATE = re.compile(r"(?P<prefix>[gt]?)(?P<quantity>byte|flop(?:8|16|32|64)?)/s")
_TIMES = ("time", "cpu_time")
_PREFIX = {"": 1.0, "g": 1e9, "t": 1e12}
_UNIT = re.compile(r"\((s|ms|us|ns)\)")
# Instrumented frames name device types by number.
_DEVICE_TYPES = {"0": "HIP", "1": "CUDA"}
# Quantities of kernels and samples: those of a subtree are the sum of its frames', on ROOT or not. cpu_time is not
# one: that of a scope contains that of the scopes inside.
_QUANTITY = re.compile(r"time|count|bytes|flops(8|16|32|64)?|cycles|num_(stalled_)?samples|stalled_\w+")


def match_available_metrics(
    metrics: str | Sequence[str], inclusive_metrics: Sequence[str], exclusive_metrics: Sequence[str]
) -> list[str]:
    """The columns of metrics given by name, in any case, with or without unit. Raises MetricNotFound."""
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    columns = []
    for name in names:
        raw = raw_metric(name, inclusive_metrics, exclusive_metrics)
        columns.append(f"{raw} (inc)" if raw in inclusive_metrics else raw)
    return columns


def raw_metric(name: str, inclusive: Sequence[str], exclusive: Sequence[str]) -> str:
    """The metric of the file that is meant by a name in any case, with or without unit. Raises MetricNotFound."""
    known, wanted = [*inclusive, *exclusive], name.lower()
    meant = [raw for raw in known if wanted in (raw.lower(), base_name(raw))]
    if not meant:
        listed = sorted({printable(base_name(raw)) for raw in known})
        raise MetricNotFound(
            f"metric {name!r} is not in the profile",
            hint=f"it has {', '.join(listed)}; -l lists them",
        )
    # A user may call a metric "time" or "Count", too: then that of the kernels is meant.
    timed = wanted in _TIMES
    return min(meant, key=lambda raw: (timed and _UNIT.search(raw) is None, wanted != raw, wanted != raw.lower()))


def base_name(raw: str) -> str:
    """A metric's name without unit, in lower case."""
    return raw.split("(")[0].strip().lower()


def derive(tree: FrameTree, metrics: Sequence[str]) -> list[Column]:
    """The columns of metrics as they are asked for with -m.

    These are ``[avg_][cpu_]time/{s,ms,us,ns}``, ``[g|t]flop[8|16|32|64]/s``, ``[g|t]byte/s``, ``util``,
    ``<metric>/%`` and every metric of the file, in any case. Raises MetricNotFound, MetricError.
    """
    deriver = _Deriver(tree)
    return [deriver.derive(metric.strip().lower()) for metric in metrics]


def all_columns(tree: FrameTree) -> list[Column]:
    """The columns of all metrics of the file that hold numbers, time first."""
    numbers = [raw for raw in [*tree.inclusive, *tree.exclusive] if tree.is_number(raw)]
    return [raw_column(tree, raw) for raw in sorted(numbers, key=lambda raw: base_name(raw) != "time")]


def raw_column(tree: FrameTree, raw: str) -> Column:
    """The column of a metric of the file that holds numbers, by its name there."""
    own, unit = tree.own(raw), unit_of(raw)
    if raw in tree.inclusive:
        total = tree.totals(raw)
        return Column(f"{raw} (inc)", raw, unit, total, own, total, raw=raw)
    if is_quantity(raw):
        return Column(raw, raw, unit, own, own, tree.totals(raw), inclusive=False, raw=raw)
    return Column(raw, raw, unit, own, inclusive=False, raw=raw)


def is_quantity(raw: str) -> bool:
    """Is it a metric of kernels or samples, whose values add up even if ROOT does not have it?"""
    return _QUANTITY.fullmatch(base_name(raw)) is not None


class _Deriver:
    """Columns of one tree."""

    def __init__(self, tree: FrameTree) -> None:
        self.tree = tree

    def column(self, metric: str) -> Column:
        """A metric of the file; raises MetricError for text and lists."""
        tree = self.tree
        raw = raw_metric(metric, tree.inclusive, tree.exclusive)
        if not tree.is_number(raw):
            kind = "lists" if any(isinstance(value, list) for value in tree.cells[raw].values()) else "text"
            raise MetricError(
                f"metric {metric!r} holds {kind}, and only numbers can be shown",
                hint="choose another metric",
            )
        return raw_column(tree, raw)

    def seconds(self, metric: str) -> Column:
        """A time metric in seconds."""
        column = self.column(metric)
        unit = _UNIT.search(column.name)
        if unit is None:
            raise MetricError(f"metric {column.name!r} has no unit of time", hint="name it 'time (ns)', or s, ms, us")
        factor = _SECONDS[unit[1]]
        return column.each(column.name, column.label, "s", lambda number: number * factor)

    def derive(self, metric: str) -> Column:
        """One metric's column."""
        if metric == "util":
            return self.utilisation()
        name = f"{metric} (inc)"
        if match := _RATE.fullmatch(metric):
            quantity = match["quantity"].replace("byte", "bytes").replace("flop", "flops")
            prefix = _PREFIX[match["prefix"]]
            rates = quotients(self.column(quantity).values, self.seconds("time").values)
            unit = metric.replace("byte", "B").replace("flop", "FLOP").replace("g", "G").replace("t", "T")
            return Column(name, metric, unit, [rate / prefix for rate in rates])
        if match := _TIME.fullmatch(metric):
            unit = match["unit"]
            seconds = self.seconds(match["metric"])
            if match["average"]:
                averages = quotients(seconds.values, self.column("count").values)
                return Column(name, metric, unit, [value / _SECONDS[unit] for value in averages])
            return replace(seconds.each(name, metric, unit, lambda number: number / _SECONDS[unit]), inclusive=True)
        return self.raw_or_share(metric)

    def raw_or_share(self, metric: str) -> Column:
        """A metric of the file, or ``<metric>/%``: its share of ROOT if inclusive, of the sum if not."""
        name, slash, unit = metric.partition("/")
        if not slash or any(raw.lower() == metric for raw in self.tree.cells):
            return self.column(metric)
        column = self.column(name)
        if unit != "%":
            raise MetricError(
                f"unsupported unit {unit!r} in metric {metric!r}",
                hint="time/{s,ms,us,ns}, flop/s, byte/s with g or t in front, or <metric>/%",
            )
        total = column.values[0] if column.inclusive else sum_of(column.values)
        share = f"{metric} (inc)" if column.inclusive else metric
        return column.each(share, metric, "%", lambda number: quotient(number, total) * 100.0)

    def utilisation(self) -> Column:
        """The roofline's share of peak: the time flops or bytes need at peak, whichever is longer, over the time.

        Per kernel: frames without a device have none. nan if the profile has neither flops nor bytes.
        """
        tree = self.tree
        if "device_id" not in tree.cells:
            raise MetricNotFound(
                "metric 'util' needs kernels with a device; the profile has none",
                hint="use another metric",
            )
        seconds = self.seconds("time").values
        quantities = {
            name: self.column(name).values
            for name in ("bytes", *(f"flops{width}" for width in FLOPS_WIDTHS))
            if name in tree.cells
        }
        if not quantities:
            return Column("util", "util", "", [NAN] * len(tree), inclusive=False)
        placed = devices_of(tree.cells, len(tree))
        flops = min_time_flops(quantities, placed, tree.devices)
        traffic = min_time_bytes(quantities, placed, tree.devices)
        needed = [larger(a, b) for a, b in zip(flops, traffic, strict=True)]
        shares = quotients(needed, seconds)
        shares = [share if place is not None else NAN for share, place in zip(shares, placed, strict=True)]
        return Column("util", "util", "", shares, inclusive=False)


def larger(a: float, b: float) -> float:
    """The larger of two numbers, the other one if one is nan."""
    return b if a != a or b > a else a


Place = tuple[str | None, str]


def devices_of(cells: Mapping[str, Mapping[int, object]], count: int) -> list[Place | None]:
    """For each of ``count`` frames its device, as (type, index): type None if the file does not say which."""
    typed = "device_type" in cells
    ids, types = cells.get("device_id", {}), cells.get("device_type", {})
    places: list[Place | None] = [None] * count
    for index, identity in ids.items():
        if identity != identity:
            continue  # null in the file
        kind = str(types.get(index)) if typed else None
        places[index] = (_DEVICE_TYPES.get(kind, kind) if kind is not None else None, str(identity))
    return places


def _on_devices(
    placed: Sequence[Place | None], devices: DeviceInfo
) -> Iterator[tuple[str, Mapping[str, object], list[int]]]:
    """(type, record, numbers of the frames) of every device."""
    rows: dict[Place, list[int]] = {}
    for index, place in enumerate(placed):
        if place is not None:
            rows.setdefault(place, []).append(index)
    for kind, group in devices.items():
        for number, device in group.items():
            yield kind, device, [*rows.get((kind, number), []), *rows.get((None, number), [])]


def min_time_flops(
    quantities: Mapping[str, Numbers], placed: Sequence[Place | None], devices: DeviceInfo
) -> list[float]:
    """Seconds that each frame's operations need at its device's peak rates; 0 where the rates are not known."""
    needed = [0.0] * len(placed)
    widths = [width for width in FLOPS_WIDTHS if f"flops{width}" in quantities]
    for kind, device, rows in _on_devices(placed, devices):
        for width in widths:
            peak = specs.device_peak_flops(kind, device, width)
            if peak is None:
                _warn_unknown(kind, device)
                break
            values = quantities[f"flops{width}"]
            for row in rows:
                if is_set(values[row]):
                    needed[row] += values[row] / peak
    return needed


def min_time_bytes(
    quantities: Mapping[str, Numbers], placed: Sequence[Place | None], devices: DeviceInfo
) -> list[float]:
    """Seconds that each frame's bytes need at its device's peak bandwidth; nan where either is not known."""
    needed = [0.0] * len(placed)
    for kind, device, rows in _on_devices(placed, devices):
        peak = specs.device_peak_bps(kind, device)
        values = quantities.get("bytes")
        for row in rows:
            needed[row] = NAN if peak is None or values is None else values[row] / peak
    return needed


def _warn_unknown(kind: str, device: Mapping[str, object]) -> None:
    print(
        f"proton-viewer: no peak FLOP/s known for {printable(kind)} arch {device.get('arch')!r}: "
        "util counts bytes only",
        file=sys.stderr,
    )
