"""Kernels, and what decorates them."""

from deuteron.compat.triton.runtime.driver import get_device_key
from deuteron.compiler import JITFunction, constexpr_function, jit, reinterpret
from deuteron.compiler.language.inline import ConstexprFunction
from deuteron.compiler.language.inline import Inlinable as JITCallable
from deuteron.compiler.runtime.arrays.placeholder import PlaceholderArray as MockTensor
from deuteron.compiler.runtime.arrays.reinterpret import Reinterpreted as TensorWrapper
from deuteron.compiler.runtime.launch.description import DeclaredParameter as KernelParam
from deuteron.compiler.runtime.launch.interface import KernelInterface

__all__ = [
    "ConstexprFunction",
    "JITCallable",
    "JITFunction",
    "KernelInterface",
    "KernelParam",
    "MockTensor",
    "TensorWrapper",
    "constexpr_function",
    "get_device_key",
    "jit",
    "reinterpret",
]
