"""Launching, tuning, devices and the cache."""

from deuteron.compat.triton.runtime import _async_compile as _async_compile
from deuteron.compat.triton.runtime import cache as cache
from deuteron.compat.triton.runtime import errors as errors
from deuteron.compat.triton.runtime.autotuner import Autotuner, Config, Heuristics, autotune, heuristics
from deuteron.compat.triton.runtime.cache import RedisRemoteCacheBackend, RemoteCacheBackend
from deuteron.compat.triton.runtime.driver import driver
from deuteron.compat.triton.runtime.errors import InterpreterError, OutOfResources
from deuteron.compat.triton.runtime.jit import JITFunction, KernelInterface, MockTensor, TensorWrapper, reinterpret

__all__ = [
    "Autotuner",
    "Config",
    "Heuristics",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "RedisRemoteCacheBackend",
    "RemoteCacheBackend",
    "TensorWrapper",
    "autotune",
    "driver",
    "heuristics",
    "reinterpret",
]
