"""Triton's package, with deuteron in its place.

``import deuteron.compat.triton as triton`` in a program, or :func:`install` before others ``import triton``, or
``python -m deuteron.compat.triton SCRIPT [ARGS]`` for programs that stay as they are. Modules have Triton's names and
hold what programs outside Triton use of them; what is missing is an ImportError or AttributeError that names it.

``__version__`` is the version of Triton's language that is implemented: libraries choose by it what they call.
"""

from deuteron import language as language
from deuteron import testing as testing
from deuteron import tools as tools
from deuteron.compat.alias import install as install
from deuteron.compat.triton import backends as backends
from deuteron.compat.triton import compiler as compiler
from deuteron.compat.triton import errors as errors
from deuteron.compat.triton import knobs as knobs
from deuteron.compat.triton import runtime as runtime
from deuteron.compat.triton.compiler import CompilationError, compile
from deuteron.compat.triton.errors import TritonError
from deuteron.compat.triton.runtime import (
    Autotuner,
    Config,
    InterpreterError,
    JITFunction,
    KernelInterface,
    MockTensor,
    OutOfResources,
    TensorWrapper,
    autotune,
    heuristics,
    reinterpret,
)
from deuteron.compat.triton.runtime._async_compile import AsyncCompileMode, FutureKernel
from deuteron.compat.triton.runtime.jit import constexpr_function, jit
from deuteron.compat.triton.version import __version__ as __version__
from deuteron.compiler import aggregate, cdiv, must_use_result, next_power_of_2
from deuteron.tools import set_allocator

__all__ = [
    "AsyncCompileMode",
    "Autotuner",
    "CompilationError",
    "Config",
    "InterpreterError",
    "JITFunction",
    "FutureKernel",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "TritonError",
    "aggregate",
    "autotune",
    "cdiv",
    "compile",
    "constexpr_function",
    "heuristics",
    "jit",
    "language",
    "must_use_result",
    "next_power_of_2",
    "reinterpret",
    "runtime",
    "set_allocator",
    "testing",
    "tools",
]
