"""From the trials of a final to the record that is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .errors import JobError
from .measure.statistics import Interval, Verdict, verdict
from .records import ConfigRecord, DeviceFingerprint
from .records.reach import Reach
from .records.record import record_id
from .trial import Trial
from .workloads import Problem


@dataclass(frozen=True)
class Decision:
    """What a final decides. ``stored``: the trial whose configuration is kept, and ``speedup`` its speed-up over the
    default, exactly 1 for the default itself. ``verdict`` is about the best challenger, and ``challenger`` is its
    speed-up, also where it was not good enough; AMBIGUOUS and None where there was none. Intervals hold for all
    challengers together (:func:`~.measure.statistics.familywise`)."""

    stored: Trial
    speedup: Interval
    verdict: Verdict
    challenger: Interval | None


def choose(final: Sequence[Trial]) -> Decision:
    """What the trials of a final say, the default first. A challenger is taken only if the final calls it FASTER; of
    several the one with the best ratio. So what is stored is never known to be slower than the default, nor merely
    lucky.

    Raises :class:`JobError` when the final is empty or the default in it has no time.
    """
    if not final or final[0].time_ns is None:
        raise JobError("the final has no measurement of the default configuration")
    default, challengers = final[0], final[1:]
    unchanged = Interval(1.0, 1.0, 1.0, final[0].time_ns.samples)
    if not challengers:
        return Decision(default, unchanged, "AMBIGUOUS", None)
    faster = [trial for trial in challengers if verdict(_ratio(trial)) == "FASTER"]
    best = min(faster or challengers, key=lambda trial: trial.metrics["ratio"])
    speedup = _ratio(best).inverse()
    if faster:
        return Decision(best, speedup, "FASTER", speedup)
    return Decision(default, unchanged, verdict(_ratio(best)), speedup)


def decide(
    problem: Problem,
    final: Sequence[Trial],
    device: DeviceFingerprint,
    toolchain: Mapping[str, str],
    reach: Reach,
) -> ConfigRecord:
    """The record of one shape; ``default_config`` is what the final compared with: the default configuration, or where
    that does not work on the device the first one that did. ``trials`` is left at 0 for the caller. The id follows from
    the winning trial, so a job that is resumed after its last trial gives the same record again. ``reach``: of what is
    stored."""
    decision = choose(final)
    winner = decision.stored
    base = final[0]
    if winner.time_ns is None or base.time_ns is None:
        raise JobError("the final has no measurement of the chosen configuration")
    spec = problem.spec
    return ConfigRecord(
        id=record_id(winner.id, device, toolchain),
        kernel_name=spec.kernel.name,
        kernel_hash=problem.source.hash,
        device=device,
        shape=dict(problem.dims),
        dtype=problem.dtype,
        toolchain=dict(toolchain),
        config=dict(winner.config),
        default_config=dict(base.config),
        time_ns=winner.time_ns,
        default_time_ns=base.time_ns,
        speedup=decision.speedup,
        verdict=decision.verdict,
        challenger=decision.challenger,
        trials=0,
        checked=winner.reference is not None,
        dims_from_arguments=dict(spec.dims_from_arguments),
        dtype_argument=spec.dtype_argument,
        created_at=winner.started_at,
        reach=reach,
    )


def _ratio(trial: Trial) -> Interval:
    """The paired ratio to the default that a race or final trial carries."""
    metrics = trial.metrics
    return Interval(metrics["ratio"], metrics["ratio_low"], metrics["ratio_high"], int(metrics["ratio_pairs"]))
