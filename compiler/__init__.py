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
    from .frontend.source import Argument as Argument
    from .frontend.source import KernelSource as KernelSource
    from .language import cdiv as cdiv
    from .language import next_power_of_2 as next_power_of_2
    from .language.inline import constexpr_function as constexpr_function
    from .options import SCHEDULE_OPTIONS as SCHEDULE_OPTIONS
    from .options import Schedule as Schedule
    from .runtime.autotuner import Autotuner as Autotuner
    from .runtime.autotuner import autotune as autotune
    from .runtime.benchmark import do_bench as do_bench
    from .runtime.compile import compile as compile
    from .runtime.compiled import CompiledKernel as CompiledKernel
    from .runtime.config import Config as Config
    from .runtime.devices import Device as Device
    from .runtime.devices import DeviceProperties as DeviceProperties
    from .runtime.devices import get_device as get_device
    from .runtime.devices import list_devices as list_devices
    from .runtime.heuristics import Heuristics as Heuristics
    from .runtime.heuristics import heuristics as heuristics
    from .runtime.hooks import LaunchEvent as LaunchEvent
    from .runtime.hooks import LaunchHook as LaunchHook
    from .runtime.hooks import add_launch_hook as add_launch_hook
    from .runtime.hooks import remove_launch_hook as remove_launch_hook
    from .runtime.jit import JITFunction as JITFunction
    from .runtime.jit import jit as jit
    from .runtime.metadata import KernelMetadata as KernelMetadata
    from .targets.target import Target as Target

_HOMES = {
    "errors": "CompilationError DeuteronError DeviceError LaunchError OutOfResources",
    "frontend.source": "Argument KernelSource",
    "language": "cdiv next_power_of_2",
    "language.inline": "constexpr_function",
    "options": "SCHEDULE_OPTIONS Schedule",
    "runtime.autotuner": "Autotuner autotune",
    "runtime.benchmark": "do_bench",
    "runtime.compile": "compile",
    "runtime.compiled": "CompiledKernel",
    "runtime.config": "Config",
    "runtime.devices": "Device DeviceProperties get_device list_devices",
    "runtime.heuristics": "Heuristics heuristics",
    "runtime.hooks": "LaunchEvent LaunchHook add_launch_hook remove_launch_hook",
    "runtime.jit": "JITFunction jit",
    "runtime.metadata": "KernelMetadata",
    "targets.target": "Target",
}
_WHERE = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> object:
    home = _WHERE.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
