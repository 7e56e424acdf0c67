"""The launches of a program on a GPU, written down so that other processes, and another compiler, can repeat them.

A launch hook, which library_suite.py uses (``--record FOLDER``); launch_times.py reads what it writes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from deuteron.compiler.ir.types import Scalar
from deuteron.compiler.runtime.launch.hooks import LaunchEvent
from deuteron.compiler.runtime.variant.variant import Variant

#: Bytes of memory that the arrays of a launch may be parts of.
MOST_BYTES = 256 << 20
#: What a schedule has for Triton, too.
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


class RecordedLaunches:
    """Writes the first launch of every variant, with its arguments as they were before, to ``FOLDER/KERNEL-KEY.pt``,
    unless it is there; what has arguments that cannot be repeated is passed over."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._seen: set[str] = set()

    def enter(self, event: LaunchEvent) -> None:
        """Write the launch, under its final name once it is whole."""
        variant = event.kernel.variant if event.kernel else None
        if variant is None or variant.key in self._seen:
            return
        self._seen.add(variant.key)
        path = self._folder / f"{variant.source.name}-{variant.key[:12]}.pt"
        record = None if path.exists() else described(variant, event)
        if record is not None:
            part = path.with_suffix(f".{os.getpid()}")
            torch.save(record, part)
            part.replace(path)

    def exit(self, event: LaunchEvent) -> None:
        """Nothing."""


def described(variant: Variant, event: LaunchEvent) -> dict[str, Any] | None:
    """The launch in types that ``torch.load`` takes from anywhere; None where it has others."""
    arguments, constants = event.arguments(), {name: plain(value) for name, value in variant.constants.items()}
    arrays = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
    storages = {array.untyped_storage().data_ptr(): array.untyped_storage().nbytes() for array in arrays}
    names = [*arguments, *constants]
    known = all(isinstance(value, torch.Tensor | int | float) for value in arguments.values())
    if not known or ... in constants.values() or any("." in name for name in names):
        return None
    if sum(storages.values()) > MOST_BYTES:
        return None
    return {
        "file": variant.source.filename,
        "module": module_of(variant.source.filename, sys.modules),
        "kernel": variant.source.name,
        "grid": list(event.grid),
        "arguments": {n: v.detach() if isinstance(v, torch.Tensor) else v for n, v in arguments.items()},
        "constants": constants,
        "options": {name: getattr(variant.schedule, name) for name in OPTIONS},
        "test": os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0],
    }


def plain(value: object) -> Any:
    """A compile-time value as it is saved, element types as ``{"dtype": "fp16"}``, members of enumerations as their
    numbers; ... for what cannot be."""
    if isinstance(value, Scalar):
        return {"dtype": value.short}
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value if value is None else ...


def module_of(file: str, modules: Mapping[str, Any]) -> str:
    """The name of the module that has this file; empty where there is none."""
    return next((name for name, module in [*modules.items()] if getattr(module, "__file__", None) == file), "")
