"""Counters and histograms in Prometheus' text format, written by hand: it is one page of text."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """What this process has counted since it started. Safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._seconds: dict[str, list[float]] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to the counter ``deuteron_<name>_total``."""
        key = (name, tuple(sorted(labels.items())))
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + amount

    def observe(self, route: str, seconds: float) -> None:
        """Record how long a request to ``route`` (a template, not an address) took."""
        with self._lock:
            cells = self._seconds.setdefault(route, [0.0] * (len(_BUCKETS_S) + 2))
            for index, bound in enumerate(_BUCKETS_S):
                if seconds <= bound:
                    cells[index] += 1
            cells[-2] += 1
            cells[-1] += seconds

    def render(self, gauges: Iterable[tuple[str, Mapping[str, str], float]] = ()) -> str:
        """Everything as text. ``gauges`` are (name, labels, value) read at this moment."""
        lines: list[str] = []
        with self._lock:
            counts = sorted(self._counts.items())
            seconds = {route: list(cells) for route, cells in sorted(self._seconds.items())}
        _render_family(
            lines,
            "counter",
            [(f"deuteron_{n}_total", dict(labels), v) for (n, labels), v in counts],
        )
        _render_family(lines, "gauge", [(f"deuteron_{n}", labels, v) for n, labels, v in gauges])
        if seconds:
            lines.append("# TYPE deuteron_request_seconds histogram")
        for route, cells in seconds.items():
            for bound, cell in zip((*map(str, _BUCKETS_S), "+Inf"), cells, strict=False):
                lines.append(_line("deuteron_request_seconds_bucket", {"route": route, "le": bound}, cell))
            lines.append(_line("deuteron_request_seconds_count", {"route": route}, cells[-2]))
            lines.append(_line("deuteron_request_seconds_sum", {"route": route}, cells[-1]))
        return "\n".join(lines) + "\n"


def _render_family(lines: list[str], kind: str, samples: list[tuple[str, Mapping[str, str], float]]) -> None:
    announced: str | None = None
    for name, labels, value in samples:
        if name != announced:
            lines.append(f"# TYPE {name} {kind}")
            announced = name
        lines.append(_line(name, labels, value))


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _number(value: float) -> str:
    """With all its digits: a counter that is rounded stands still between two readings."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
