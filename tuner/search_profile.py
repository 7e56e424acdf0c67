"""The profile of a search: a tree of shape, phase and configuration, written as ``.hatchet``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from deuteron.profiler.device_fields import device_fields
from deuteron.profiler.profiles import Profile

from .job import shape_key
from .measure.bounds import explain
from .measure.measurement import Measurement
from .space import Configuration
from .trial import Trial
from .workloads import Problem

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import DeviceProperties

FILE_NAME = "search.hatchet"
NS_PER_S = 1e9

# Host times of a trial, in its metrics, and the frames that they become.
_HOST_STEPS = {"compile_s": "compile", "check_s": "check", "measure_s": "measure"}


def config_label(config: Configuration) -> str:
    """A configuration as people read it: ``BLOCK=128 num_warps=4``."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def measured_metrics(measurement: Measurement) -> dict[str, str | float | int]:
    """A measurement as properties of a frame: how the time was taken, what bounds it and why, shares of the device's
    peaks, waves, and the figures of its code. What is not known is left out."""
    code = measurement.code
    known: dict[str, str | float | int | None] = {
        "protocol": measurement.protocol.text,
        "bound": measurement.bound,
        "explanation": explain(measurement),
        "compute_share": measurement.compute_share,
        "memory_share": measurement.memory_share,
        "waves": measurement.waves,
        "tail": measurement.tail,
        "replay_ns": None if measurement.replay_ns is None else measurement.replay_ns.median,
    }
    if code is not None:
        figures = (
            "programs",
            "registers",
            "spill_bytes",
            "shared_bytes",
            "slots",
            "occupancy",
            "limiter",
            "code_bytes",
        )
        known |= {name: getattr(code, name) for name in figures}
    return {f"{name} (pty)": value for name, value in known.items() if value is not None}


class SearchProfile:
    """Collects trials as frames ``kernel / shape dtype / phase / configuration``.

    A configuration's frame has the time of one launch (count 1), its FLOPs and bytes, so rates such as ``flop/s`` come
    out right, and what else is known of it (:func:`measured_metrics`); below it are frames for what the host did
    (compile, check, measure) with ``cpu_time (ns)``. What it did between trials has frames beside the phases.
    """

    def __init__(self, properties: DeviceProperties) -> None:
        self._profile: Profile = Profile()
        self._kind = "CUDA" if properties.kind == "cuda" else "CPU"
        self._profile.device(self._kind, 0, **device_fields(properties))

    def add(self, problem: Problem, trial: Trial) -> None:
        """Add one trial; a duplicate of earlier code, and a failure, count as metrics without a time."""
        path = [
            problem.spec.kernel.name,
            f"{shape_key(problem.dims)} {problem.dtype}",
            trial.phase,
            config_label(trial.config),
        ]
        if trial.time_ns is not None and "duplicate_of" not in trial.metrics:
            node = self._profile.node(path)
            self._profile.add_launches(
                node,
                count=1,
                time_ns=round(trial.time_ns.median),
                device_type=self._kind,
                device_id=0,
            )
            self._profile.add_to(node, {"flops": float(problem.flops), "bytes": int(problem.bytes)})
            if trial.measurement is not None:
                self._profile.add_to(node, measured_metrics(trial.measurement))
        else:
            self._profile.add(path, {f"{trial.status} (pty)": 1})
        for metric, frame in _HOST_STEPS.items():
            seconds = trial.metrics.get(metric)
            if seconds:
                spent = {"cpu_time (ns)(exc)": round(seconds * NS_PER_S)}
                self._profile.add([*path, frame], spent)

    def add_steps(self, problem: Problem, seconds: Mapping[str, float]) -> None:
        """Add host seconds between trials, by what they were spent on, as frames below ``between trials``."""
        shape = f"{shape_key(problem.dims)} {problem.dtype}"
        for step, spent in seconds.items():
            path = [problem.spec.kernel.name, shape, "between trials", step]
            self._profile.add(path, {"cpu_time (ns)(exc)": round(spent * NS_PER_S)})

    def write(self, folder: Path, name: str) -> str:
        """Write the file ``name``, whole or not at all; its sha256."""
        path = folder / name
        self._profile.write(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()
