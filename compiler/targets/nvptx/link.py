"""PTX to a cubin in this process, by CUDA's nvJitLink library: for machines that have no ptxas."""

from __future__ import annotations

from ...errors import AssemblerError, TargetError
from ...target import Target


def link(ptx: str, target: Target, options: list[str]) -> tuple[bytes, str]:
    """The cubin of ``ptx`` and the assembler's log; ``options`` are ptxas's.

    Raises:
        AssemblerError: the code was rejected; the message carries the log.
        TargetError: the library is not installed.
    """
    try:
        from cuda.bindings import nvjitlink
    except ImportError as error:
        raise _missing() from error
    passed = [f"-arch=sm_{target.arch}", "-verbose", *(f"-Xptxas={o}" for o in ("-v", *options))]
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
