"""NVIDIA's assembler, as programs ask for it."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from deuteron.compiler.errors import TargetError
from deuteron.compiler.targets.assembler import find_ptxas


@dataclass(frozen=True)
class NvidiaTool:
    """A program of the CUDA toolkit: where it is, and its version as it says it, such as ``13.0``."""

    path: str
    version: str


def get_ptxas(arch: int | None = None) -> NvidiaTool:
    """The assembler that kernels are assembled with, which is the same for every architecture.

    Raises:
        TargetError: there is none, or it does not say its version.
    """
    path = find_ptxas()
    release = re.search(r"release ([\d.]+),", version_text(path))
    if release is None:
        raise TargetError(f"{path} does not say its version", hint="set DEUTERON_PTXAS_PATH to a ptxas")
    return NvidiaTool(str(path), release[1])


def version_text(path: Path) -> str:
    """What a tool prints when asked for its version."""
    return subprocess.run([str(path), "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
