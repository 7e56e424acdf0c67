"""Programs that ``import triton``, with deuteron in its place.

``python -m deuteron.compat.triton SCRIPT [ARGS]`` runs a program; :func:`install` does the same from inside one (a
conftest, a notebook). Only the names that exist in deuteron are there: a program that uses more of Triton gets an
ImportError or AttributeError that names what is missing.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

from deuteron.compiler.errors import DeuteronError

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import Device

#: Triton's module -> ours. The root is deuteron itself: ``triton.jit`` is ``deuteron.jit``.
ALIASES = {
    "triton": "deuteron",
    "triton.compiler": "deuteron.compiler",
    "triton.compiler.compiler": "deuteron.compiler",
    "triton.language": "deuteron.language",
    "triton.language.core": "deuteron.language.core",
    "triton.language.math": "deuteron.language.math",
    "triton.language.random": "deuteron.language.random",
    "triton.language.standard": "deuteron.language.standard",
    "triton.language.extra": "deuteron.language.extra",
    "triton.language.extra.libdevice": "deuteron.language.extra.libdevice",
    "triton.language.extra.cuda": "deuteron.language.extra.cuda",
    "triton.language.extra.cuda.libdevice": "deuteron.language.extra.cuda.libdevice",
    "triton.profiler": "deuteron.profiler",
    "triton.profiler.viewer": "deuteron.profiler.viewer",
    "triton.testing": "deuteron.testing",
    "triton.tools": "deuteron.tools",
    "triton.tools.tensor_descriptor": "deuteron.tools.tensor_descriptor",
}


def install() -> None:
    """Make ``import triton`` give deuteron in this process.

    Raises:
        DeuteronError: Triton itself is imported already.
    """
    present = sys.modules.get("triton")
    if present is not None and present.__name__ != "deuteron":
        raise DeuteronError("triton is imported already", hint="call deuteron.compat.triton.install() before that")
    for name, ours in ALIASES.items():
        sys.modules[name] = importlib.import_module(ours)
    vars(sys.modules["deuteron.compiler"])["compiler"] = sys.modules["deuteron.compiler"]
    for name, module in _made_modules().items():
        sys.modules[name] = module
        parent, _, attribute = name.rpartition(".")
        vars(sys.modules[parent])[attribute] = module


def _made_modules() -> dict[str, ModuleType]:
    """Triton's modules that have no counterpart here, parents first, with the names that programs and PyTorch's own
    packages import from them."""
    from deuteron import compiler  # lazy: the alias is installed before the compiler is used
    from deuteron.compiler.runtime.launch.runner import Runner  # lazy: as above

    def made(name: str, names: str = "", **more: object) -> tuple[str, ModuleType]:
        module = ModuleType(name, f"The part of {name} that programs outside Triton use.")
        vars(module).update({n: getattr(compiler, n) for n in names.split()}, **more)
        return name, module

    tuning = "Autotuner Config Heuristics OutOfResources autotune heuristics"
    active = SimpleNamespace(active=ActiveDriver())
    return dict(
        (
            made("triton.runtime", f"JITFunction reinterpret {tuning}", driver=active, KernelInterface=Runner),
            made("triton.runtime.autotuner", tuning),
            made("triton.runtime.cache", triton_key=triton_key),
            made("triton.runtime.errors", "OutOfResources"),
            made("triton.runtime.jit", "JITFunction jit reinterpret", KernelInterface=Runner),
            made("triton.backends", backends={}),
            made("triton.backends.compiler", GPUTarget=GPUTarget),
        )
    )


def triton_key() -> str:
    """What compiled code depends on besides the kernel, as a text."""
    from deuteron.compiler import Target  # lazy: the alias is installed before the compiler is used
    from deuteron.compiler.runtime.variant.toolchain import toolchain  # lazy: as above

    return ", ".join(f"{name} {version}" for name, version in toolchain(Target.parse("cpu")).items())


@dataclass(frozen=True, slots=True)
class GPUTarget:
    """What Triton calls a target: backend, compute capability times ten, threads per warp."""

    backend: str
    arch: int
    warp_size: int


class ActiveDriver:
    """``triton.runtime.driver.active``."""

    @property
    def utils(self) -> ActiveDriver:
        return self

    def get_current_device(self) -> int:
        """Ordinal of the current GPU."""
        return 0

    def get_current_target(self) -> GPUTarget:
        """The target of the current GPU; a CPU counts as backend "cpu"."""
        from deuteron.compiler.targets import Target  # lazy: the alias is installed before the compiler is used

        target = Target.parse(_device().target)
        return GPUTarget(target.kind, target.capability, 32 if target.kind == "cuda" else 1)

    def get_active_torch_device(self) -> object:
        """The torch device that kernels of this process run on."""
        torch = importlib.import_module("torch")
        return torch.device(_device().name)

    def get_device_properties(self, index: int) -> dict[str, int]:
        """The entries that tuning heuristics read, in Triton's units (bytes, kHz, bits)."""
        found = _device().properties
        return {
            "multiprocessor_count": found.sm_count or 0,
            "max_shared_mem": found.shared_bytes_per_block or 0,
            "max_num_regs": 65536,
            "warpSize": 32,
            "sm_clock_rate": found.clock_khz or 0,
            "mem_clock_rate": found.memory_clock_khz or 0,
            "mem_bus_width": found.memory_bus_bits or 0,
        }


def _device() -> Device:
    from deuteron.compiler import get_device  # lazy: the alias is installed before the compiler is used

    try:
        return get_device("cuda:0")
    except DeuteronError:
        return get_device("cpu")


def main(arguments: list[str]) -> int:
    """Run ``SCRIPT [ARGS]`` as __main__ with deuteron under Triton's name."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m deuteron.compat.triton SCRIPT [ARGS]")
        return 0 if arguments else 2
    script = Path(arguments[0])
    if not script.is_file():
        print(f"error: there is no file {script}", file=sys.stderr)
        return 2
    install()
    sys.argv = arguments
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
