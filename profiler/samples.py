"""Where warps of a kernel are, and what they wait for, by source line: samples of program counters on a GPU."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from ctypes import byref, c_void_p
from dataclasses import dataclass

from deuteron.compiler.counting import counted
from deuteron.compiler.runtime.launch.compiled import CompiledKernel
from deuteron.compiler.runtime.variant.lined import lined_cubin

from .errors import CuptiError, UsageError
from .recorder import recorder
from .sources.debug_lines import LineTable, SourceLine, sections
from .sources.driver import load_driver, synchronise_devices
from .sources.locate import load_cupti
from .sources.pc_sampling import PERIODS, PcSampler, PcSamples, attach_anew, cubin_crc

#: Reasons that say of a warp that it went on, or could have.
_NO_STALLS = ("stalled_selected", "stalled_not_selected")
_LEAST_LAUNCHES = 3


@dataclass(frozen=True, slots=True)
class LineSamples:
    """Samples at one line, None where instructions have none. ``stalled``: of them, those at which the scheduler had no
    warp to go on with. ``reasons``: samples by what the warp waited for, most first (CUPTI's names, such as
    ``stalled_long_scoreboard``: for global memory; ``stalled_selected`` is of warps that went on)."""

    line: SourceLine | None
    count: int
    stalled: int
    reasons: dict[str, int]


@dataclass(frozen=True, slots=True)
class KernelSamples:
    """Samples of one kernel by line, most first; ``launches`` were sampled, ``dropped`` samples had no room."""

    kernel: str
    launches: int
    dropped: int
    lines: tuple[LineSamples, ...]

    @property
    def count(self) -> int:
        """Samples of all lines."""
        return sum(line.count for line in self.lines)

    def __str__(self) -> str:
        total = self.count or 1
        text = [f"{self.kernel}: {counted(self.count, 'sample')} of {counted(self.launches, 'launch')}"]
        for line in self.lines:
            place = f"{line.line.file.rpartition('/')[2]}:{line.line.line}" if line.line else "<no line>"
            waits = {name: n for name, n in line.reasons.items() if name not in _NO_STALLS}
            most = ", ".join(f"{name.removeprefix('stalled_')} {n / total:.1%}" for name, n in list(waits.items())[:3])
            text.append(f"{line.count / total:6.1%}  {place:24} {most}".rstrip())
        return "\n".join(text)


def sample_lines(
    kernel: CompiledKernel, grid: tuple[int, ...], *args: object, seconds: float = 0.2, period: int = 10
) -> KernelSamples:
    """Launch a kernel on the current GPU for about ``seconds``, and sample where its warps are.

    ``kernel``: what ``kernel[grid](...)`` or ``kernel.warmup(...)`` returns; ``args`` as its ``run`` takes them. What
    runs is the same variant compiled once more with source lines; its instructions are those of the variant, of which
    some may stand in another order. Arrays change as they do by a launch. ``period``: each SM notes one warp
    every 2^period cycles, 5 to 31.

    Raises:
        UsageError: the kernel is not one for a GPU, came from another process, or ``period`` is none.
        CuptiError: the GPU or the system has no PC sampling for this process; the hint says what would do.
    """
    if period not in PERIODS:
        raise UsageError(f"a period of {period}", hint="5 to 31: cycles as a power of two")
    if kernel.kind != "cuda" or kernel.variant is None:
        why = "it runs on a CPU" if kernel.kind != "cuda" else "its source is elsewhere"
        raise UsageError(
            f"{kernel.name} cannot be sampled: {why}",
            hint="launch the kernel in this process with arrays on a GPU, and sample what the launch returns",
        )
    cupti = load_cupti()
    if recorder.gpu is None:
        attach_anew(cupti)
    image = lined_cubin(kernel.variant)
    lined = CompiledKernel(kernel.metadata, kernel.signature, {"cubin": image}, kernel.variant)
    lined.run(grid, *args)
    synchronise_devices()
    sampler = PcSampler(cupti, _current_context(), period=period)
    launches, found = _sample(sampler, lambda: lined.run(grid, *args), seconds)
    module, table = cubin_crc(cupti, image), LineTable(sections(image)[".debug_line"])
    own = [samples for samples in found if samples.module == module]
    return KernelSamples(kernel.name, launches, sampler.dropped, _by_line(own, table))


def _sample(sampler: PcSampler, launch: Callable[[], None], seconds: float) -> tuple[int, list[PcSamples]]:
    """Number of launches, and all samples of them."""
    launches = 0
    sampler.enable()
    try:
        sampler.start()
        end = time.monotonic() + seconds
        while launches < _LEAST_LAUNCHES or time.monotonic() < end:
            launch()
            launches += 1
            synchronise_devices()
        sampler.stop()
        return launches, sampler.take()
    finally:
        sampler.disable()


def _by_line(found: list[PcSamples], table: LineTable) -> tuple[LineSamples, ...]:
    reasons: dict[SourceLine | None, Counter[str]] = {}
    stalled: Counter[SourceLine | None] = Counter()
    for samples in found:
        line = table.at(samples.offset)
        reasons.setdefault(line, Counter()).update(samples.reasons)
        stalled[line] += samples.stalled
    made = [LineSamples(line, n.total(), stalled[line], dict(n.most_common())) for line, n in reasons.items()]
    return tuple(sorted(made, key=lambda line: -line.count))


def _current_context() -> int:
    driver, context = load_driver(), c_void_p()
    if driver is None or driver.cuCtxGetCurrent(byref(context)) or not context.value:
        raise CuptiError("no CUDA context is current", hint="launch a kernel on the GPU first")
    return context.value
