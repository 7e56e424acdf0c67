"""Points and ceilings of a roofline: what kernels reached, and what their devices could."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from ... import specs
from ...metrics import FLOPS_WIDTHS
from ..derive import devices_of
from ..frames import FrameTree, Number
from ..view import View

_SECONDS = {"time (ns)": 1e-9, "time (us)": 1e-6, "time (ms)": 1e-3, "time (s)": 1.0}


class RooflinePoint(TypedDict):
    """One kernel: operations per byte and per second, and the peak for the widest part of its operations."""

    name: str
    intensity: float
    flops: float
    peak: float | None


class RooflineDevice(TypedDict):
    """A device with its ceilings (operations per second by class, bytes per second) and the kernels that ran on it."""

    name: str
    source: str
    bandwidth: float
    ceilings: list[dict[str, object]]
    points: list[RooflinePoint]


class Roofline(TypedDict):
    """The devices that have points; ``missing`` says what is lacking if there are none."""

    devices: list[RooflineDevice]
    missing: str


def roofline(view: View) -> Roofline:
    """The kernels of a view (of two, the first one's) that have operations, bytes, a time and a known device."""
    tree = view.tree
    quantities = {f"flops{width}": width for width in FLOPS_WIDTHS if f"flops{width}" in tree.cells}
    if "flops" in tree.cells:
        quantities["flops"] = 0
    if not quantities or "bytes" not in tree.cells:
        lacking = "bytes" if quantities else "flops" if "bytes" in tree.cells else "flops and no bytes"
        return {"devices": [], "missing": f"No roofline: the profile has no {lacking}."}
    kernels = _kernels(view, quantities)
    devices = []
    for kind, group in tree.devices.items():
        for index, record in group.items():
            device = _device(kind, index, record)
            points = [_point(name, sums, kind, record) for (name, at), sums in kernels.items() if at == (kind, index)]
            if device and points:
                devices.append(RooflineDevice(**{**device, "points": points}))  # type: ignore[typeddict-item]
    missing = "" if devices else "No roofline: no kernel has flops, bytes and a time on a device whose peaks are known."
    return {"devices": devices, "missing": missing}


Kernels = dict[tuple[str, tuple[str | None, str]], dict[str, float]]


def _kernels(view: View, quantities: Mapping[str, int]) -> Kernels:
    """Sums by name and device, of frames that have all three."""
    tree = view.tree
    times = next((name for name in _SECONDS if name in tree.cells), None)
    if times is None:
        return {}
    placed = devices_of(tree.cells, len(tree))
    found: Kernels = {}
    for index, origin in enumerate(view.origin):
        place = placed[origin] if origin >= 0 else None
        if place is None:
            continue
        seconds, moved = _positive(tree, times, origin), _positive(tree, "bytes", origin)
        flops = {name: _positive(tree, name, origin) for name in quantities}
        if not seconds or not moved or not any(flops.values()):
            continue
        sums = found.setdefault((view.names[index], place), {})
        for name, value in {**flops, "bytes": moved, "seconds": seconds * _SECONDS[times]}.items():
            sums[name] = sums.get(name, 0.0) + value
    return found


def _positive(tree: FrameTree, metric: str, index: int) -> float:
    value = tree.cells[metric].get(index)
    return float(value) if isinstance(value, int | float) and 0 < value < 1e300 else 0.0


def _point(name: str, sums: Mapping[str, float], kind: str, record: Mapping[str, object]) -> RooflinePoint:
    widths = {width: sums.get(f"flops{width}", 0.0) for width in FLOPS_WIDTHS}
    most = max(widths, key=lambda width: widths[width])
    # Where widths are given, a plain "flops" is their sum once more.
    operations: Number = sum(widths.values()) or sums.get("flops", 0.0)
    peak = specs.device_peak_flops(kind, record, most) if widths[most] else None
    return {
        "name": name,
        "intensity": operations / sums["bytes"],
        "flops": operations / sums["seconds"],
        "peak": peak,
    }


def _device(kind: str, index: str, record: Mapping[str, object]) -> dict[str, object] | None:
    peaks, bandwidth = specs.device_peaks(kind, record), specs.device_peak_bps(kind, record)
    known = specs.rates(kind, str(record.get("arch")))
    if not peaks or not bandwidth or known is None:
        return None
    return {
        "name": f"{kind} {index}: {record.get('num_sms')} multiprocessors of arch {record.get('arch')}",
        "source": f"Ceilings: rates of {known.source}",
        "bandwidth": bandwidth,
        "ceilings": [{"name": name, "flops": peak} for name, peak in peaks.items()],
    }
