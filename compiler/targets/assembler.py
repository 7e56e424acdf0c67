"""Which assembler turns PTX into machine code. Apart from the code that runs it, because the keys of cached variants
name it and a launch from the cache needs nothing else of the compiler."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from .. import knobs
from ..errors import TargetError


def find_ptxas() -> Path:
    """The ptxas to use: the knob's, the nvidia-cuda-nvcc wheel's, or the one on PATH.

    Raises:
        TargetError: there is none.
    """
    chosen = knobs.ptxas_path.get()
    if chosen is not None:
        if not chosen.is_file():
            raise TargetError(f"there is no ptxas at {chosen}", hint="set DEUTERON_PTXAS_PATH")
        return chosen
    found = _installed_ptxas()
    if found is None:
        raise TargetError("ptxas was not found", hint="pip install nvidia-cuda-nvcc, or put ptxas on PATH")
    return found


def has_ptxas() -> bool:
    """Whether ptxas assembles, chosen or found; else nvJitLink does, in this process."""
    return knobs.ptxas_path.get() is not None or _installed_ptxas() is not None


@cache
def _installed_ptxas() -> Path | None:
    for entry in map(Path, sys.path):
        wheel = entry / "nvidia"
        if wheel.is_dir() and (found := sorted(wheel.glob("**/bin/ptxas"))):
            return found[-1]
    on_path = shutil.which("ptxas")
    return Path(on_path) if on_path else None


def assembler_options() -> list[str]:
    """The options that the knobs add."""
    options = knobs.ptxas_options.get().split()
    return ["-O0", *options] if knobs.disable_ptxas_opt.get() else options


def assembler_identity() -> str:
    """Which assembler PTX is assembled with: ``ptxas 13.0.88 compiler.36424714_0``, ``nvJitLink 13.0``, or
    ``absent``."""
    if not has_ptxas():
        return _linker_identity()
    try:
        return ptxas_identity(find_ptxas())
    except TargetError:
        return "absent"


#: PTX, times ten, by the first release of the CUDA toolkit that reads it (PTX ISA, release notes).
_PTX_OF_RELEASES = {
    (11, 4): 74, (11, 5): 75, (11, 6): 76, (11, 7): 77, (11, 8): 78, (12, 0): 80, (12, 1): 81, (12, 2): 82,
    (12, 3): 83, (12, 4): 84, (12, 5): 85, (12, 7): 86, (12, 8): 87, (12, 9): 88, (13, 0): 90, (13, 1): 91,
}  # fmt: skip


def newest_ptx() -> int:
    """The newest PTX, times ten, that the assembler is known to read; 0 where there is none, or one that does not say
    its release."""
    said = re.match(r"(?:ptxas|nvJitLink) (\d+)\.(\d+)", assembler_identity())
    release = (int(said[1]), int(said[2])) if said else (0, 0)
    return max((version for first, version in _PTX_OF_RELEASES.items() if first <= release), default=0)


def ptxas_identity(path: Path) -> str:
    """Which assembler the ptxas at ``path`` is, as :func:`assembler_identity` says it."""
    status = path.stat()
    return _ptxas_identity(path, status.st_size, status.st_mtime_ns)


@cache
def _ptxas_identity(path: Path, size: int, mtime_ns: int) -> str:
    """Version and build as ptxas tells them; of a program that does not, a digest. ``size`` and ``mtime_ns`` make a
    replaced file another one."""
    try:
        said = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    release, build = re.search(r"\bV([\d.]+)", said), re.search(r"\bcompiler\.\w+", said)
    if release is None or build is None:
        return f"ptxas sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:32]}"
    return f"ptxas {release[1]} {build[0]}"


@cache
def _linker_identity() -> str:
    """``nvJitLink 13.0``, or ``absent``."""
    try:
        from cuda.bindings import nvjitlink

        return "nvJitLink " + ".".join(map(str, nvjitlink.version()))
    except Exception:  # the loader raises its own types where the library is missing
        return "absent"
