"""Where Inductor compiles a kernel and makes its launcher, deuteron does.

Inductor keeps a kernel with its configurations in a ``CachingAutotuner``, which compiles each of them by one method and
gets an object with ``make_launcher``. That method is replaced, and nothing else: choosing configurations, timing them
and calling launchers stay Inductor's.
"""

from __future__ import annotations

import importlib
from typing import Any

from deuteron.compiler import CompiledKernel

from .compilation import compile_configuration
from .helpers import replace_helpers
from .launcher import runner


def switch() -> None:
    """Replace how configurations are compiled, and keep Inductor from compiling in processes that know no deuteron."""
    heuristics: Any = importlib.import_module("torch._inductor.runtime.triton_heuristics")
    settings: Any = importlib.import_module("torch._inductor.config")
    result = compile_result(heuristics.CompileResult)

    def precompile(autotuner: Any, config: Any) -> Any:
        meta = autotuner._create_compile_meta(config)
        kernel = compile_configuration(autotuner.fn, meta, autotuner._create_compile_options(config, meta))
        return result(kernel, config, meta, autotuner.inductor_meta, autotuner.fn)

    heuristics.CachingAutotuner._precompile_config = precompile
    settings.compile_threads = 1
    replace_helpers(importlib.import_module("torch._inductor.runtime.triton_helpers"))


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
