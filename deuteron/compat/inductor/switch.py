"""Where Inductor compiles a kernel and makes its launcher, deuteron does.

Inductor keeps a kernel with its configurations in a ``CachingAutotuner``, which compiles each of them by one method and
gets an object with ``make_launcher``. That method is replaced. Where Inductor would hand the text of a kernel to its
worker processes, while it still writes the next ones, compilation begins in threads. Choosing configurations, timing
them and calling launchers stay Inductor's.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from deuteron.compiler import CompiledKernel

from .compilation import compile_configuration
from .helpers import replace_helpers
from .launcher import runner

#: Configurations that are compiled at once: beyond this Python itself is what they wait for.
THREADS = 8


def switch() -> None:
    """Replace how configurations are compiled, and keep Inductor from compiling in processes that know no deuteron."""
    heuristics: Any = importlib.import_module("torch._inductor.runtime.triton_heuristics")
    settings: Any = importlib.import_module("torch._inductor.config")
    codegen: Any = importlib.import_module("torch._inductor.codegen.triton")
    loader: Any = importlib.import_module("torch._inductor.async_compile")
    if isinstance(getattr(codegen, "async_compile", None), EarlyCompile):
        return  # done before: kernels under way are to be found by those who want them
    result = compile_result(heuristics.CompileResult)
    compilations = Compilations()

    def precompile(autotuner: Any, config: Any) -> Any:
        meta, kernel = compilations.take(autotuner, config)
        return result(kernel, config, meta, autotuner.inductor_meta, autotuner.fn)

    heuristics.CachingAutotuner._precompile_config = precompile
    settings.compile_threads = 1
    load = getattr(loader, "_load_triton_kernel_from_source", None)
    if load is not None and hasattr(codegen, "async_compile"):
        codegen.async_compile = EarlyCompile(lambda name, text: compilations.begin(load(name, text)))
    replace_helpers(importlib.import_module("torch._inductor.runtime.triton_helpers"))


class EarlyCompile:
    """What the part of Inductor that writes kernels takes for its processes: told of a kernel, it begins to compile."""

    def __init__(self, begin: Callable[[str, str], None]) -> None:
        self._begin = begin

    def use_process_pool(self) -> bool:
        """Yes: kernels are to be handed over as soon as they are written."""
        return True

    def triton(self, name: str, text: str, *_: object, **__: object) -> None:
        """The kernel ``name`` of this text will be wanted."""
        self._begin(name, text)


class Compilations:
    """Kernels under way, by what they are compiled from. The first of an autotuner's configurations that is asked for
    begins all of them, so that one is assembled while the next one is compiled."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="deuteron-inductor")
        self._begun: dict[str, Future[CompiledKernel]] = {}

    def begin(self, autotuner: Any) -> None:
        """Compile all of an autotuner's configurations, but for those that are under way."""
        for config in autotuner.configs or ():
            key, meta, options = self._described(autotuner, config)
            if key not in self._begun:
                self._begun[key] = self._threads.submit(compile_configuration, autotuner.fn, meta, options)

    def take(self, autotuner: Any, config: Any) -> tuple[Any, CompiledKernel]:
        """What Inductor says of a configuration, and its kernel; raises as :func:`compile_configuration` does."""
        key, meta, options = self._described(autotuner, config)
        if key not in self._begun:
            self.begin(autotuner)
        begun = self._begun.pop(key, None)
        return meta, compile_configuration(autotuner.fn, meta, options) if begun is None else begun.result()

    def _described(self, autotuner: Any, config: Any) -> tuple[str, Any, Any]:
        """What tells a compilation from others, and what Inductor says of it: its metadata and its options."""
        meta = autotuner._create_compile_meta(config)
        options = autotuner._create_compile_options(config, meta)
        return f"{autotuner.fn.source.hash} {meta!r} {options!r}", meta, options


def compile_result(base: type[Any]) -> type[Any]:
    """The class of compiled configurations, which extends Inductor's: that class knows the text of a launcher."""

    class DeuteronCompileResult(base):  # type: ignore[misc]  # PyTorch is no dependency
        """A compiled kernel with its configuration."""

        def __init__(self, kernel: CompiledKernel, config: Any, meta: Any, inductor_meta: Any, fn: Any) -> None:
            super().__init__(kernel, config, meta, inductor_meta)
            self._fn = fn

        def make_launcher(self) -> Any:
            """A function of the kernel's arguments and ``stream`` that computes the grid and launches."""
            parameters = self._fn.params
            constant = [parameter.num for parameter in parameters if parameter.is_constexpr]
            call, given, _ = self._get_arg_lists(self._fn.arg_names, constant)
            texts = dict(zip(self._fn.arg_names, call, strict=True))
            run_time = [texts[name] for name in self.kernel.signature]
            launcher = self._gen_launcher_code(
                {"runner": runner(self.kernel, self.compile_meta)},
                given,
                ["grid_0", "grid_1", "grid_2", "stream", *run_time],
            )
            launcher.config = self.config
            launcher.n_regs, launcher.n_spills = self.kernel.n_regs, self.kernel.n_spills
            launcher.shared, launcher.cache_hash = self.kernel.shared, self.kernel.hash
            launcher.store_cubin = False
            return launcher

    return DeuteronCompileResult
