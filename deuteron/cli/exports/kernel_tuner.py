"""Results in the T4 format of Kernel Tuner and the auto-tuning community: one JSON file for each search.

Of a journal every trial is a result, of a bundle the best configuration and the default that it was compared with.
Times are in ms, as Kernel Tuner's are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .format import ExportSource, FolderFormat

if TYPE_CHECKING:
    from deuteron.tuner import ConfigRecord
    from deuteron.tuner.events import TrialFinished

_VERSION = "1.0.0"
#: Readers take seconds where nothing is said.
_METADATA = {"timeunit": "milliseconds"}
_NS_PER_MS = 1e6
#: Statuses of trials -> what T4 says of an invalid configuration, or that it is none.
_INVALIDITY = {
    "ok": "correct",
    "invalid": "constraints",
    "compile_error": "compile",
    "wrong_result": "correctness",
    "crashed": "runtime",
    "timeout": "timeout",
    "failed": "runtime",
}


def t4_files(source: ExportSource) -> dict[str, str]:
    """The text of each file by its name: ``<kernel>,<dtype>,<shape>.json``, of a bundle with the device."""
    found: dict[str, list[dict[str, object]]] = {}
    if source.trials:
        for event in source.trials:
            name = f"{source.kernel},{event.dtype},{_shape_key(event.shape)}.json"
            found.setdefault(name, []).append(_trial_result(event))
    else:
        for record in source.standing():
            device = record.device.key.replace("/", "-")
            name = f"{record.kernel_name},{record.dtype},{record.shape_key},{device}.json"
            found.setdefault(name, []).extend(_record_results(record))
    return {
        name: json.dumps({"results": results, "schema_version": _VERSION, "metadata": _METADATA}, indent=1) + "\n"
        for name, results in found.items()
    }


def _shape_key(shape: Mapping[str, int]) -> str:
    from deuteron.tuner.job import shape_key  # lazy: help starts without the tuner

    return shape_key(shape)


def _trial_result(event: TrialFinished) -> dict[str, object]:
    trial = event.trial
    seconds = {
        "compilation": trial.metrics.get("compile_s"),
        "validation": trial.metrics.get("check_s"),
        "benchmark": trial.metrics.get("measure_s"),
    }
    times = {name: value * 1e3 for name, value in seconds.items() if value is not None}
    time = None if trial.time_ns is None else trial.time_ns.median
    measured = [("phase", trial.phase, "")]
    return _result(trial.config, time, trial.started_at, times, measured, invalidity=_INVALIDITY[trial.status])


def _record_results(record: ConfigRecord) -> Iterable[dict[str, object]]:
    pairs = {json.dumps(dict(record.default_config), sort_keys=True): (record.default_config, record.default_time_ns)}
    pairs[json.dumps(dict(record.config), sort_keys=True)] = (record.config, record.time_ns)
    for config, interval in pairs.values():
        bounds = [(f"time_{end}", getattr(interval, end) / _NS_PER_MS, "ms") for end in ("low", "high")]
        yield _result(config, interval.median, record.created_at, {}, bounds, invalidity="correct")


def _result(
    config: Mapping[str, object],
    time_ns: float | None,
    at: str,
    times: Mapping[str, float],
    measured: Iterable[tuple[str, float | str, str]],
    *,
    invalidity: str,
) -> dict[str, object]:
    ms = [] if time_ns is None else [time_ns / _NS_PER_MS]
    measurements = [("time", value, "ms") for value in ms] + list(measured)
    return {
        "timestamp": at,
        "configuration": dict(config),
        "times": {**times, "runtimes": ms},
        "invalidity": invalidity,
        "correctness": 0 if invalidity == "correctness" else 1,
        "measurements": [{"name": name, "value": value, "unit": unit} for name, value, unit in measurements],
        "objectives": ["time"],
    }


T4 = FolderFormat("t4", "Kernel Tuner's result files; of a journal all trials", t4_files)
