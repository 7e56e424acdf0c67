"""Deuteron: a compiler, profiler, tuner and configuration service for kernels in the Triton language.

``import deuteron as triton`` and ``import deuteron.language as tl`` run kernels as they are written for Triton. Names
load when they are first used: importing this package loads no other.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deuteron import compiler as compiler
    from deuteron import errors as errors
    from deuteron import language as language
    from deuteron import profiler as profiler
    from deuteron import testing as testing
    from deuteron import tools as tools
    from deuteron import tuner as tuner
    from deuteron.compiler import CompilationError as CompilationError
    from deuteron.compiler import CompiledKernel as CompiledKernel
    from deuteron.compiler import Config as Config
    from deuteron.compiler import DeuteronError as DeuteronError
    from deuteron.compiler import JITFunction as JITFunction
    from deuteron.compiler import KernelSource as KernelSource
    from deuteron.compiler import LaunchError as LaunchError
    from deuteron.compiler import OutOfResources as OutOfResources
    from deuteron.compiler import aggregate as aggregate
    from deuteron.compiler import autotune as autotune
    from deuteron.compiler import cdiv as cdiv
    from deuteron.compiler import compile as compile
    from deuteron.compiler import constexpr_function as constexpr_function
    from deuteron.compiler import get_device as get_device
    from deuteron.compiler import heuristics as heuristics
    from deuteron.compiler import jit as jit
    from deuteron.compiler import list_devices as list_devices
    from deuteron.compiler import must_use_result as must_use_result
    from deuteron.compiler import next_power_of_2 as next_power_of_2
    from deuteron.compiler import reinterpret as reinterpret
    from deuteron.compiler.version import __version__ as __version__
    from deuteron.tools import set_allocator as set_allocator
    from deuteron.tuner import Workload as Workload
    from deuteron.tuner import tuned as tuned

_BESIDE, _CHECKOUT = Path(__file__).parent, Path(__file__).parents[1]
if not (_BESIDE / "compiler").exists() and (_CHECKOUT / "compiler").is_dir():
    # In the folder of a checkout, Python finds this package before the one that is installed: its rooms are there, too.
    __path__.append(str(_CHECKOUT))

_FROM_COMPILER = (
    "CompilationError CompiledKernel Config DeuteronError JITFunction KernelSource LaunchError OutOfResources "
    "aggregate autotune cdiv compile constexpr_function get_device heuristics jit list_devices must_use_result "
    "next_power_of_2 reinterpret"
)
_WHERE = dict.fromkeys(_FROM_COMPILER.split(), "deuteron.compiler")
_WHERE |= {
    "tuned": "deuteron.tuner",
    "Workload": "deuteron.tuner",
    "set_allocator": "deuteron.tools",
    "__version__": "deuteron.compiler.version",
}
_MODULES = ("cli", "compiler", "errors", "language", "profiler", "server", "testing", "tools", "tuner")

__all__ = ["errors", "language", "profiler", "testing", "tools", "tuner", *sorted(_WHERE)]


if not TYPE_CHECKING:  # to checkers a name is what is imported above, and others are errors

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"deuteron.{name}")
        home = _WHERE.get(name)
        if home is None:
            raise AttributeError(f"module 'deuteron' has no attribute {name!r}")
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE, *_MODULES})
