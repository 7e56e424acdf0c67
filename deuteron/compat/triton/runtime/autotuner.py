"""``@autotune`` and ``@heuristics``; classes that extend :class:`Autotuner` find Triton's attributes in it."""

from deuteron.compat.triton import knobs as knobs
from deuteron.compat.triton.runtime.cache import get_cache_invalidating_env_vars, get_cache_manager, triton_key
from deuteron.compat.triton.runtime.driver import driver
from deuteron.compat.triton.runtime.errors import AutotunerError, OutOfResources, PTXASError
from deuteron.compat.triton.runtime.jit import JITFunction, KernelInterface
from deuteron.compiler import Autotuner, Config, Heuristics, autotune, heuristics

__all__ = [
    "Autotuner",
    "AutotunerError",
    "Config",
    "Heuristics",
    "JITFunction",
    "KernelInterface",
    "OutOfResources",
    "PTXASError",
    "autotune",
    "driver",
    "get_cache_invalidating_env_vars",
    "get_cache_manager",
    "heuristics",
    "triton_key",
]
