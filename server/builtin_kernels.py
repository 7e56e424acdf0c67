"""Kernel hashes of the built-in workloads, so that their names can be looked up."""

from __future__ import annotations

from functools import cache

from deuteron.compiler import KernelSource
from deuteron.tuner import BUILTINS, builtin_workload


@cache
def builtin_kernel_hash(name: str) -> str | None:
    """The kernel hash of a built-in workload, None when there is no such workload."""
    if name not in BUILTINS:
        return None
    kernel = builtin_workload(name).kernel
    return KernelSource.from_text(kernel.source, kernel.name, kernel.filename).hash
