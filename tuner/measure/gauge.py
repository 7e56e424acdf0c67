"""From a time and what the compiler says to a :class:`~.measurement.Measurement`: the device's peaks and its waves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from deuteron.profiler import specs
from deuteron.profiler.device_fields import device_fields

from .bounds import bound_of
from .measurement import CodeFacts, Measurement, TimingProtocol
from .statistics import Interval

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import DeviceProperties


@dataclass(frozen=True)
class Peaks:
    """What a device can do at most in a second, None where no paper says it: operations of ``tensor`` cores on numbers
    of the problem's width, operations of all other units (``plain``), ``bytes`` of its memory."""

    tensor: float | None = None
    plain: float | None = None
    bytes: float | None = None

    @staticmethod
    def of(properties: DeviceProperties, bits: int) -> Peaks:
        """Peaks of a device for numbers of so many ``bits``. Other units are taken to work in f32, or f64 for 64 bits;
        nothing is known of CPUs."""
        if properties.kind != "cuda":
            return Peaks()
        fields = device_fields(properties)
        known = specs.device_peaks("CUDA", fields)
        tensor = next((known[name] for name in specs.CLASSES[bits] if name.endswith("tensor") and name in known), None)
        return Peaks(tensor, known.get("fp64" if bits == 64 else "fp32"), specs.device_peak_bps("CUDA", fields))

    def operations(self, code: CodeFacts | None) -> float | None:
        """The peak of the units that ``code`` computes with, by its instructions; None where they are not known."""
        if code is None or code.instructions is None:
            return None
        return self.tensor if code.instructions.tensor else self.plain


@dataclass(frozen=True)
class Gauge:
    """Judges variants of one problem on one device. ``flops`` and ``bytes`` of one launch; ``processors``:
    SMs of a GPU, cores of a CPU, None where not known."""

    flops: float
    bytes: float
    peaks: Peaks
    processors: int | None

    def measurement(
        self,
        time_ns: Interval,
        protocol: TimingProtocol,
        code: CodeFacts | None,
        *,
        sm_mhz: float | None = None,
        replay_ns: Interval | None = None,
    ) -> Measurement:
        """What ``time_ns`` says of a variant with this code; ``replay_ns`` is only kept."""
        seconds = time_ns.median / 1e9
        flop_s, byte_s = self.flops / seconds, self.bytes / seconds
        waves, peak = self._waves(code), self.peaks.operations(code)
        made = Measurement(
            time_ns=time_ns,
            protocol=protocol,
            flop_s=flop_s,
            byte_s=byte_s,
            compute_share=flop_s / peak if peak else None,
            memory_share=byte_s / self.peaks.bytes if self.peaks.bytes else None,
            code=code,
            waves=waves,
            tail=None if waves is None else 1 - waves / math.ceil(waves),
            sm_mhz=sm_mhz,
            replay_ns=replay_ns,
        )
        return replace(made, bound=bound_of(made))

    def _waves(self, code: CodeFacts | None) -> float | None:
        """Programs over those that run at once. On a GPU whose occupancy is not known that is not known either."""
        if code is None or self.processors is None or code.programs < 1:
            return None
        if code.threads is None:
            return code.programs / self.processors
        if code.resident_programs is None:
            return None
        return code.programs / (self.processors * code.resident_programs)
