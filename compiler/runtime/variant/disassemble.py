"""Machine code of a cubin as text (SASS), by NVIDIA's tools where they are installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from ... import knobs
from ...errors import TargetError


def disassemble(cubin: bytes) -> str:
    """The SASS of a cubin.

    Raises:
        TargetError: neither nvdisasm nor cuobjdump is installed, or the tool failed.
    """
    command = _tool()
    with tempfile.TemporaryDirectory(prefix="deuteron-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TargetError(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _tool() -> list[str]:
    for knob, name, options in (
        (knobs.nvdisasm_path, "nvdisasm", ["-c"]),
        (knobs.cuobjdump_path, "cuobjdump", ["-sass"]),
    ):
        path = knob.get() or shutil.which(name) or _default_install(name)
        if path is not None:
            return [str(path), *options]
    raise TargetError(
        "machine code of a GPU cannot be shown: neither nvdisasm nor cuobjdump is installed",
        hint="they come with the CUDA toolkit; DEUTERON_NVDISASM_PATH names one",
    )


def _default_install(name: str) -> Path | None:
    path = Path("/usr/local/cuda/bin") / name
    return path if path.exists() else None
