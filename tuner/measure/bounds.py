"""What bounds a measured variant: a rule of a few thresholds, and the same in words.

The roofline comes first (S. Williams, A. Waterman and D. Patterson, Roofline: an insightful visual performance model,
Communications of the ACM 52, 2009): who runs at a peak is bound by it, whatever the code looks like. Else what is wrong
with the code or the launch is named, in the order in which mending it is worth most.
"""

from __future__ import annotations

from .measurement import Bound, CodeFacts, Measurement

#: A variant at this part of a peak is bound by it: what kernels reach of either is rarely more than nine tenths.
AT_PEAK = 0.7
#: Idle parts of the device's time, and parts of its warps, that are worth naming.
IDLE = 0.1
FEW_WARPS = 0.3


def bound_of(measurement: Measurement) -> Bound | None:
    """What bounds a variant; None where what is known does not tell.

    ``measurement.bound`` is not looked at.
    """
    memory, compute = measurement.memory_share or 0.0, measurement.compute_share or 0.0
    if max(memory, compute) >= AT_PEAK:
        return "memory" if memory >= compute else "compute"
    code = measurement.code
    if code is not None and code.spill_bytes:
        return "spills"
    if measurement.waves is not None and measurement.tail is not None and measurement.tail >= IDLE:
        return "parallelism" if measurement.waves < 1 else "tail"
    few = None if code is None else _few_warps(code)
    if few is not None:
        return few
    return None if measurement.roofline_share is None else "latency"


def _few_warps(code: CodeFacts) -> Bound | None:
    """What leaves an SM with few warps, where that matters: rings hide latency without them."""
    if code.occupancy is None or code.occupancy >= FEW_WARPS or code.slots:
        return None
    match code.limiter:
        case "registers":
            return "registers"
        case "shared memory":
            return "shared memory"
        case "threads" | "blocks":
            return "threads"
        case _:
            return None


def explain(measurement: Measurement) -> str | None:
    """What bounds a variant, in words, with the figures that say so; None where nothing of it is known."""
    parts = [*_bound_text(measurement), *_share_texts(measurement)]
    return "; ".join(parts) or None


def _bound_text(measurement: Measurement) -> list[str]:
    code = measurement.code
    match measurement.bound:
        case "memory":
            return ["bound by memory"]
        case "compute":
            return ["bound by arithmetic"]
        case "spills" if code is not None:
            return [f"spills {code.spill_bytes} bytes of registers"]
        case "parallelism" if code is not None and measurement.waves is not None:
            return [f"{code.programs} programs fill {measurement.waves:.0%} of the device"]
        case "tail" if measurement.waves is not None and measurement.tail is not None:
            return [f"{measurement.waves:.2f} waves leave {measurement.tail:.0%} of the device's time idle"]
        case "registers" | "shared memory" | "threads" as limiter if code is not None:
            return [f"{limiter} leave {code.resident_warps} of {code.most_warps} warps a multiprocessor{_needs(code)}"]
        case "latency":
            return ["waits: far from any peak, and no limit of the code explains it"]
        case _:
            return []


def _needs(code: CodeFacts) -> str:
    """What a thread or a program takes of what is scarce."""
    if code.limiter == "registers":
        return f" ({code.registers} registers a thread)"
    if code.limiter == "shared memory":
        return f" ({(code.shared_bytes or 0) / 1024:.0f} KiB a program)"
    return ""


def _share_texts(measurement: Measurement) -> list[str]:
    shares = ((measurement.memory_share, "memory bandwidth"), (measurement.compute_share, "arithmetic"))
    return [f"{share:.0%} of the peak {what}" for share, what in shares if share is not None]
