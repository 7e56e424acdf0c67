"""PTX to a cubin, and what the assembler reports about the kernel."""

from __future__ import annotations

import re

from ...errors import AssemblerError, TargetError
from ...hardware import MOST_REGISTERS, REGISTER_FILE
from ...options import Schedule
from ...target import Target
from ..assembler import assembler_options, has_ptxas
from ..ptxas import Ptxas
from .cubin import Cubin
from .loads_together import REGISTER_STEP, with_loads_together


def assemble(ptx: str, target: Target, schedule: Schedule, begun: Ptxas | None = None, *, lines: bool = False) -> Cubin:
    """Assemble ``ptx`` for ``target``, by ptxas (``begun`` if that waits) or, where there is none, in this process by
    nvJitLink. With ``lines``, for which ``begun`` was begun, too, the cubin has a table of the source lines that
    ``ptx`` names.

    Code that spills with fewer registers than a thread may have is assembled once more with all registers of an SM for
    one CTA, and the better one kept: aiming at a higher occupancy, ptxas for sm_80 may stop at 32 registers where 255
    hardly spill. So is code whose loops wait for one load before they begin the next (:mod:`.loads_together`).

    Raises:
        AssemblerError: the assembler rejected the code; the message carries its log.
        OutOfResources: the kernel needs more of a hardware resource than the target has.
        TargetError: there is no assembler.
    """
    made = _assemble(ptx, target, begun, lines)
    if schedule.maxnreg is not None or (made.registers or 0) >= _most_registers(ptx):
        return made
    if not made.spill_bytes:
        return with_loads_together(made, ptx, target, lambda text: _assemble(text, target, None, lines))
    alone = _OCCUPANCY.sub(r"\g<1>\n.minnctapersm 1", ptx, count=1)
    if alone == ptx:
        return made
    roomy = _assemble(alone, target, None, lines)
    return roomy if (roomy.spill_bytes or 0) < made.spill_bytes else made


_OCCUPANCY = re.compile(r"^(\.reqntid (\d+).*)(\n\.minnctapersm \d+)?$", re.MULTILINE)


def _most_registers(ptx: str) -> int:
    """Registers that a thread has where its CTA has all of an SM."""
    threads = _OCCUPANCY.search(ptx)
    if threads is None:
        return MOST_REGISTERS
    return min(MOST_REGISTERS, REGISTER_FILE // int(threads[2]) // REGISTER_STEP * REGISTER_STEP)


def _assemble(ptx: str, target: Target, begun: Ptxas | None, lines: bool) -> Cubin:
    if begun is not None:
        image, log = begun.assemble(ptx)
    elif has_ptxas():
        with Ptxas(target, lines=lines) as started:
            image, log = started.assemble(ptx)
    else:
        image, log = _link(ptx, target, assembler_options(), lines)
    return Cubin(
        image,
        registers=_figure(r"Used (\d+) registers", log),
        spill_bytes=_sum(r"(\d+) bytes spill (?:stores|loads)", log),
        stack_bytes=_figure(r"(\d+) bytes stack frame", log),
        shared_bytes=_figure(r"Used \d+ registers.*?(\d+) bytes smem", log) or 0,
        log=log,
    )


def _link(ptx: str, target: Target, options: list[str], lines: bool) -> tuple[bytes, str]:
    """The cubin of ``ptx`` and the assembler's log, by CUDA's nvJitLink library; ``options`` are ptxas's.

    Raises:
        AssemblerError: the code was rejected; the message carries the log.
        TargetError: the library is not installed.
    """
    try:
        from cuda.bindings import nvjitlink
    except ImportError as error:
        raise _missing() from error
    passed = [f"-arch=sm_{target.arch}", "-verbose", *(f"-Xptxas={o}" for o in ("-v", *options))]
    if lines:
        passed.append("-lineinfo")
    try:
        handle = nvjitlink.create(len(passed), passed)
    except Exception as error:  # the loader raises its own types where the library is missing
        raise _missing() from error
    code = ptx.encode()
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, code, len(code), "kernel")
        nvjitlink.complete(handle)
        image = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, image)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
    except nvjitlink.nvJitLinkError as error:
        said = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, said)
        raise AssemblerError(f"nvJitLink cannot assemble the kernel for {target}:\n{_text(said) or error}") from error
    finally:
        nvjitlink.destroy(handle)
    return bytes(image), _text(log)


def _text(data: bytearray) -> str:
    return bytes(data).rstrip(b"\0").decode(errors="replace").strip()


def _missing() -> TargetError:
    return TargetError(
        "neither ptxas nor nvJitLink was found",
        hint="pip install nvidia-cuda-nvcc or nvidia-nvjitlink, or put ptxas on PATH",
    )


def _figure(pattern: str, log: str) -> int | None:
    found = re.search(pattern, log)
    return int(found[1]) if found else None


def _sum(pattern: str, log: str) -> int | None:
    found = re.findall(pattern, log)
    return sum(map(int, found)) if found else None
