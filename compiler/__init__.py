"""The compiler: kernels in the Triton language to tile IR, PTX and native code, and the runtime that launches them.

Names are imported when they are first used, so that ``import deuteron`` loads neither NumPy nor LLVM.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .errors import CompilationError as CompilationError
    from .errors import DeuteronError as DeuteronError
    from .errors import DeviceError as DeviceError
    from .errors import LaunchError as LaunchError
    from .errors import OutOfResources as OutOfResources
    from .language import cdiv as cdiv
    from .language import next_power_of_2 as next_power_of_2
    from .language.aggregate import aggregate as aggregate
    from .language.inline import must_use_result as must_use_result
    from .options import SCHEDULE_OPTIONS as SCHEDULE_OPTIONS
    from .options import Schedule as Schedule
    from .runtime.arrays.reinterpret import reinterpret as reinterpret
    from .runtime.device import Device as Device
    from .runtime.device import DeviceProperties as DeviceProperties
    from .runtime.devices import get_device as get_device
    from .runtime.devices import list_devices as list_devices
    from .runtime.launch.compile import compile as compile
    from .runtime.launch.compiled import CompiledKernel as CompiledKernel
    from .runtime.launch.hooks import LaunchEvent as LaunchEvent
    from .runtime.launch.hooks import LaunchHook as LaunchHook
    from .runtime.launch.hooks import add_launch_hook as add_launch_hook
    from .runtime.launch.hooks import remove_launch_hook as remove_launch_hook
    from .runtime.launch.jit import JITFunction as JITFunction
    from .runtime.launch.jit import jit as jit
    from .runtime.tuning.autotuner import Autotuner as Autotuner
    from .runtime.tuning.autotuner import autotune as autotune
    from .runtime.tuning.benchmark import do_bench as do_bench
    from .runtime.tuning.config import Config as Config
    from .runtime.tuning.heuristics import Heuristics as Heuristics
    from .runtime.tuning.heuristics import heuristics as heuristics
    from .runtime.variant.metadata import KernelMetadata as KernelMetadata
    from .source.arguments import Argument as Argument
    from .source.compile_time import constexpr_function as constexpr_function
    from .source.kernel import KernelSource as KernelSource
    from .target import Target as Target

_HOMES = {
    "errors": "CompilationError DeuteronError DeviceError LaunchError OutOfResources",
    "source.arguments": "Argument",
    "source.compile_time": "constexpr_function",
    "source.kernel": "KernelSource",
    "language": "cdiv next_power_of_2",
    "language.aggregate": "aggregate",
    "language.inline": "must_use_result",
    "options": "SCHEDULE_OPTIONS Schedule",
    "runtime.arrays.reinterpret": "reinterpret",
    "runtime.tuning.autotuner": "Autotuner autotune",
    "runtime.tuning.benchmark": "do_bench",
    "runtime.launch.compile": "compile",
    "runtime.launch.compiled": "CompiledKernel",
    "runtime.tuning.config": "Config",
    "runtime.device": "Device DeviceProperties",
    "runtime.devices": "get_device list_devices",
    "runtime.tuning.heuristics": "Heuristics heuristics",
    "runtime.launch.hooks": "LaunchEvent LaunchHook add_launch_hook remove_launch_hook",
    "runtime.launch.jit": "JITFunction jit",
    "runtime.variant.metadata": "KernelMetadata",
    "target": "Target",
}
_WHERE = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_WHERE)


if not TYPE_CHECKING:  # to checkers a name is what is imported above, and others are errors

    def __getattr__(name: str) -> object:
        home = _WHERE.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{home}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
