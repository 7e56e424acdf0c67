"""Metrics computed from those in the file: times in other units, rates, shares, and the roofline's ``util``."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import specs
from ..errors import MetricError, MetricNotFound
from ..metrics import FLOPS_WIDTHS
from .columns import is_number_column
from .frames import DeviceInfo

if TYPE_CHECKING:
    import hatchet as ht
    import pandas as pd

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_TIME = re.compile(r"(?P<average>avg_)?(?P<metric>(?:cpu_)?time)/(?P<unit>s|ms|us|ns)")
_RATE = re.compile(r"(?P<prefix>[gt]?)(?P<quantity>byte|flop(?:8|16|32|64)?)/s")
_PREFIX = {"": 1.0, "g": 1e9, "t": 1e12}
_UNIT = re.compile(r"\((s|ms|us|ns)\)")
# Instrumented frames name device types by number.
_DEVICE_TYPES = {"0": "HIP", "1": "CUDA"}


def match_available_metrics(
    metrics: str | Sequence[str], inclusive_metrics: Sequence[str], exclusive_metrics: Sequence[str]
) -> list[str]:
    """The columns of metrics given by name, in any case, with or without unit. Raises MetricNotFound."""
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    columns = []
    for name in names:
        for raw in [*inclusive_metrics, *exclusive_metrics]:
            if name.lower() in (raw.lower(), base_name(raw)):
                columns.append(f"{raw} (inc)" if raw in inclusive_metrics else raw)
                break
        else:
            listed = sorted({base_name(raw) for raw in [*inclusive_metrics, *exclusive_metrics]})
            raise MetricNotFound(
                f"metric {name!r} is not in the profile",
                hint=f"it has {', '.join(listed)}; -l lists them",
            )
    return columns


def base_name(raw: str) -> str:
    """A metric's name without unit, in lower case."""
    return raw.split("(")[0].strip().lower()


class _Deriver:
    """Adds derived columns to one frame."""

    def __init__(
        self,
        gf: ht.GraphFrame,
        inclusive: Sequence[str],
        exclusive: Sequence[str],
        devices: DeviceInfo,
    ) -> None:
        self.gf = gf
        self.inclusive = inclusive
        self.exclusive = exclusive
        self.devices = devices

    def column(self, metric: str) -> str:
        """The column of a raw metric; raises MetricError for text and lists."""
        name = match_available_metrics(metric, self.inclusive, self.exclusive)[0]
        if not is_number_column(self.gf, name):
            kind = "lists" if any(isinstance(v, list) for v in self.gf.dataframe[name]) else "text"
            raise MetricError(
                f"metric {metric!r} holds {kind}, and only numbers can be shown",
                hint="choose another metric",
            )
        return name

    def seconds(self, metric: str) -> pd.Series:
        """A time metric in seconds."""
        name = self.column(metric)
        unit = _UNIT.search(name)
        if unit is None:
            raise MetricError(f"metric {name!r} has no unit of time", hint="name it 'time (ns)', or s, ms, us")
        return self.gf.dataframe[name] * _SECONDS[unit[1]]

    def derive(self, metric: str) -> str:
        """Add one metric's column if it is a derived one; returns the column."""
        frame = self.gf.dataframe
        if metric == "util":
            frame["util"] = self.utilisation()
            return "util"
        if match := _RATE.fullmatch(metric):
            quantity = match["quantity"].replace("byte", "bytes").replace("flop", "flops")
            values = frame[self.column(quantity)] / self.seconds("time") / _PREFIX[match["prefix"]]
        elif match := _TIME.fullmatch(metric):
            values = self.seconds(match["metric"])
            if match["average"]:
                values = values / frame[self.column("count")]
            values = values / _SECONDS[match["unit"]]
        else:
            return self.raw_or_share(metric)
        frame[f"{metric} (inc)"] = values
        return f"{metric} (inc)"

    def raw_or_share(self, metric: str) -> str:
        """A metric of the file, or ``<metric>/%``: its share of ROOT if inclusive, of the sum if not."""
        name, slash, unit = metric.partition("/")
        column = self.column(name)
        if not slash:
            return column
        if unit != "%":
            raise MetricError(
                f"unsupported unit {unit!r} in metric {metric!r}",
                hint="time/{s,ms,us,ns}, flop/s, byte/s with g or t in front, or <metric>/%",
            )
        values = self.gf.dataframe[column]
        inclusive = column.endswith(" (inc)")
        total = values.iloc[0] if inclusive else values.sum()
        share = f"{metric} (inc)" if inclusive else metric
        self.gf.dataframe[share] = values / total * 100.0
        return share

    def utilisation(self) -> pd.Series:
        """The roofline's share of peak: the time flops or bytes need at peak, whichever is longer, over the time.

        Per kernel: frames without a device have none. nan if the profile has neither flops nor bytes.
        """
        import numpy as np

        frame = self.gf.dataframe
        if "device_id" not in frame.columns:
            raise MetricNotFound(
                "metric 'util' needs kernels with a device; the profile has none",
                hint="use another metric",
            )
        seconds = self.seconds("time")
        quantities = {"bytes", *(f"flops{width}" for width in FLOPS_WIDTHS)} & set(frame.columns)
        for quantity in sorted(quantities):
            self.column(quantity)
        flops = get_min_time_flops(frame, self.devices)["min_time"]
        traffic = get_min_time_bytes(frame, self.devices)["min_time"]
        util = np.fmax(flops, traffic) / seconds
        if not quantities:
            util = util * np.nan
        return util.mask(frame["device_id"].isna())


def derive_metrics(
    gf: ht.GraphFrame,
    metrics: Sequence[str],
    inclusive_metrics: Sequence[str],
    exclusive_metrics: Sequence[str],
    device_info: DeviceInfo,
) -> list[str]:
    """Add the columns that ``metrics`` need and return the columns to show.

    Accepts ``[avg_][cpu_]time/{s,ms,us,ns}``, ``[g|t]flop[8|16|32|64]/s``, ``[g|t]byte/s``, ``util``, ``<metric>/%``
    and every metric of the file, in any case. Raises MetricNotFound, MetricError.
    """
    deriver = _Deriver(gf, inclusive_metrics, exclusive_metrics, device_info)
    columns = []
    for metric in metrics:
        column = deriver.derive(metric.strip().lower())
        columns.append(column)
        known = gf.inc_metrics if column.endswith("(inc)") else gf.exc_metrics
        # Raw exclusive columns stay out of exc_metrics: those are summed over subtrees.
        if column.endswith("(inc)") and column not in known:
            known.append(column)
    return columns


def get_min_time_flops(df: pd.DataFrame, device_info: DeviceInfo) -> pd.DataFrame:
    """Seconds that each frame's operations need at its device's peak rates (column ``min_time``)."""
    import pandas as pd

    needed = pd.DataFrame(0.0, index=df.index, columns=["min_time"])
    widths = [width for width in FLOPS_WIDTHS if f"flops{width}" in df.columns]
    for kind, index, device in _devices(device_info):
        rows = _rows_of(df, kind, index)
        for width in widths:
            peak = specs.device_peak_flops(kind, device, width)
            if peak is None:
                _warn_unknown(kind, device)
                break
            needed.loc[rows, "min_time"] += df.loc[rows, f"flops{width}"].fillna(0) / peak
    return needed


def get_min_time_bytes(df: pd.DataFrame, device_info: DeviceInfo) -> pd.DataFrame:
    """Seconds that each frame's bytes need at its device's peak bandwidth (column ``min_time``, nan without bytes)."""
    import pandas as pd

    needed = pd.DataFrame(0.0, index=df.index, columns=["min_time"])
    for kind, index, device in _devices(device_info):
        rows = _rows_of(df, kind, index)
        peak = specs.device_peak_bps(kind, device)
        if peak is None or "bytes" not in df.columns:
            needed.loc[rows, "min_time"] = float("nan")
        else:
            needed.loc[rows, "min_time"] += df.loc[rows, "bytes"] / peak
    return needed


def _devices(device_info: DeviceInfo) -> list[tuple[str, str, dict[str, object]]]:
    return [(kind, index, device) for kind, group in device_info.items() for index, device in group.items()]


def _rows_of(df: pd.DataFrame, kind: str, index: str) -> pd.Series:
    rows = df["device_id"] == index
    if "device_type" in df.columns:
        # Without this, kernels of CPU 0 would be held against the peaks of GPU 0.
        rows &= df["device_type"].map(lambda given: _DEVICE_TYPES.get(str(given), given)) == kind
    return rows


def _warn_unknown(kind: str, device: dict[str, object]) -> None:
    print(
        f"proton-viewer: no peak FLOP/s known for {kind} arch {device.get('arch')!r}: util counts bytes only",
        file=sys.stderr,
    )
