"""A kernel as Inductor describes it, compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deuteron.compat.triton.backends.compiler import GPUTarget
from deuteron.compat.triton.compiler.compiler import ASTSource, compile
from deuteron.compiler import CompiledKernel, JITFunction

#: What Inductor asks of Triton's compiler, and deuteron has no such option for: what it says about it is so already.
_WITHOUT_EFFECT = ("enable_reflect_ftz", "num_consumer_groups", "num_buffers_warp_spec")


def compile_configuration(fn: JITFunction, meta: Mapping[str, Any], options: Mapping[str, Any]) -> CompiledKernel:
    """One kernel as Inductor describes it: ``signature``, ``constants``, promises about arguments in ``configs``, and
    the target as ``device_type`` and ``cc``, the compute capability times ten."""
    kind = meta["device_type"]
    target = GPUTarget(kind, meta["cc"] if kind == "cuda" else 0, 32 if kind == "cuda" else 1)
    source = ASTSource(fn, meta["signature"], meta["constants"], meta["configs"][0])
    known = {name: value for name, value in options.items() if name not in _WITHOUT_EFFECT}
    if meta.get("launch_cooperative_grid"):  # which Inductor makes an option for GPUs only
        known["launch_cooperative_grid"] = True
    return compile(source, target, known)
