"""Kernels that a pool compiles while the program goes on."""

from deuteron.compiler.runtime.launch.pending import AsyncCompileMode, active_mode
from deuteron.compiler.runtime.launch.pending import PendingKernel as FutureKernel

__all__ = ["AsyncCompileMode", "FutureKernel", "active_mode"]
