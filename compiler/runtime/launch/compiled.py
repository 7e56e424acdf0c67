"""Compiled kernels: what ``compile`` returns and launches run."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ... import knobs
from ...errors import LaunchError, TargetError
from ...folders import make_folder
from ...language.constexpr import unwrap
from ...launch_recipe import PROGRAMS, Guard, LaunchRecipe
from ...signature import ArgumentType, scattered
from ...whole_file import write_whole
from ..arrays.descriptor import spread
from ..device import Device
from ..devices import default_device, get_device
from ..variant.metadata import KernelMetadata
from ..variant.obtain import PERSISTENT, obtain, obtain_fitting, obtain_if_fitting
from ..variant.pipeline import STAGES, Artifact, produce
from ..variant.variant import Variant
from .forms import LaunchForms
from .grid import Grid, grid_of
from .guards import Guards, variant_without
from .hooks import LaunchEvent, VariantLoad, VariantReady, VariantUnload, described, installed, launch_with_hooks
from .lines import note_loaded
from .loaded import Loaded
from .loading import load
from .passed import read_arguments, shown
from .recording import run_observed
from .stand_in import run_on_host, standing

#: Triton's names of stages: deuteron's own IR stands where Triton has MLIR.
_TRITON_STAGES = {"ttir": "tile", "ttgir": "gpu", "llir": "llvm", "sass": "asm"}

#: Letters of a kernel's name that names of files begin with at most, as Triton has it: kernels may be called anything.
_LONGEST_FILE_NAME = 150


class Stages(Mapping[str, Artifact]):
    """The stages of a compiled kernel by name; what is not at hand is made from the source when asked for.
    Triton's names of stages work, too."""

    def __init__(self, kind: str, ready: dict[str, Artifact], variant: Variant | None) -> None:
        self._names = STAGES[kind]
        self._ready = ready
        self._variant = variant

    def __getitem__(self, stage: str) -> Artifact:
        stage = _TRITON_STAGES.get(stage, stage)
        if stage not in self._ready:
            if stage not in self._names:
                raise KeyError(f"{stage!r} is not one of {', '.join(self._names)}")
            if self._variant is None:
                raise TargetError(
                    f"the stage {stage!r} of a kernel that came from another process is not at hand",
                    hint="compile it again here",
                )
            self._ready[stage] = produce(self._variant, stage)
        return self._ready[stage]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class CompiledKernel:
    """Machine code of one variant. Picklable: another process can run it, though not ask for stages it lacks.

    ``asm`` maps stage names (``tile gpu llvm ptx cubin asm`` on a GPU, ``tile llvm object asm`` on a CPU) to text or
    bytes.
    """

    def __init__(
        self,
        metadata: KernelMetadata,
        signature: Mapping[str, ArgumentType],
        artifacts: dict[str, Artifact],
        variant: Variant | None,
    ) -> None:
        self.metadata = metadata
        self.name = metadata.name
        self.target = metadata.target
        self.signature = dict(signature)
        self.variant = variant
        self.launch_metadata: Callable[..., Mapping[str, object]] | None = None
        guards = metadata.recipe.guards
        self._guards = Guards(guards, list(signature)) if guards else None
        self._others: dict[tuple[Guard, ...], CompiledKernel] = {}
        self._forms = LaunchForms()
        self._artifacts = artifacts
        self._loaded: dict[str, Loaded] = {}
        self._owner = 0  # the process that loaded it
        self._lock = threading.Lock()

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.target.partition(":")[0]

    @property
    def asm(self) -> Stages:
        """Stage names to text or bytes; a stage that is not at hand is compiled when asked for.

        Raises KeyError for a name that is no stage of this target, TargetError where the kernel came from another
        process without the stage.
        """
        return Stages(self.kind, self._artifacts, self.variant)

    @property
    def hash(self) -> str:
        """The key under which the disk cache keeps this variant."""
        return self.metadata.hash

    @property
    def shared(self) -> int:
        """Shared memory of a block in bytes (Triton's ``metadata.shared``)."""
        return self.metadata.shared

    @property
    def n_regs(self) -> int:
        """Registers of a thread; 0 where no assembler has told."""
        return self.metadata.registers or 0

    @property
    def n_spills(self) -> int:
        """Bytes of a thread's registers that are spilled; 0 where no assembler has told."""
        return self.metadata.spills or 0

    def code(self) -> bytes:
        """What a device loads: an object file, or a cubin; where no assembler is installed PTX, which drivers
        assemble."""
        try:
            code = self.asm["object" if self.kind == "cpu" else "cubin"]
        except TargetError:
            if self.kind == "cpu":
                raise
            code = self.asm["ptx"]
        return code if isinstance(code, bytes) else code.encode() + b"\0"

    def loaded(self, device: Device) -> Loaded:
        """The kernel in a device's memory, loaded once.

        Raises:
            OutOfResources: the device has less shared memory, or fewer threads, than the kernel needs.
            DeviceError: the device cannot run code for this target.
        """
        found = self._loaded.get(device.name)
        if found is None:
            with self._lock:
                found = self._loaded.get(device.name) or self._load(device)
                self._loaded[device.name] = found
        return found

    def _init_handles(self) -> None:
        """Load the kernel on the device that launches without arrays go to, or the first one that runs it. Triton's
        name: programs call it before they ask for registers. Raises as :meth:`loaded`."""
        self.loaded(self._home())

    @property
    def module(self) -> int | None:
        """The driver's handle of the module on the device that it was loaded onto first, as Triton has it; None before
        that, and once the kernel has let go of it."""
        return next((held.module for held in self._loaded.values()), None)

    @property
    def function(self) -> int | None:
        """The handle of the kernel in :attr:`module`."""
        return next((held.function for held in self._loaded.values()), None)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        """Let go of what is loaded, and tell so; a launch loads it again. The code itself stays where it is, for CUDA
        graphs and for the launches that have it. Processes that were forked tell nothing, nor does one that ends:
        ``ending`` is kept here since names of modules may mean nothing then."""
        loaded: dict[str, Loaded] = getattr(self, "_loaded", {})
        if not loaded or ending():
            return
        self._loaded = {}
        if self._owner != os.getpid():
            return
        for held in loaded.values():
            installed.tell(VariantUnload(self.metadata, held.device, held.module, held.function))

    def _load(self, device: Device) -> Loaded:
        installed.tell(VariantLoad(self.metadata, device, done=False))
        made = load(self, device)
        self._owner = os.getpid()
        if self.variant is not None and self.variant.lined:
            note_loaded(self.code())
        installed.tell(VariantLoad(self.metadata, device, done=True))
        return made

    def run(
        self,
        grid: Grid,
        *args: object,
        device: Device | str | None = None,
        stream: int | None = None,
    ) -> None:
        """Launch with the arguments that are not compile-time values, in signature order, tuples leaf by leaf; or with
        those of all parameters, as Triton has it, or of all but the constexpr ones, as Triton had it before 3.3. Where
        they break a guard, a variant without it is compiled, once, and runs instead.

        Raises:
            LaunchError: grid or arguments do not fit; the message names the argument.
        """
        known = self._forms.find(args) if device is None else None
        where, values = known or self._read(args, device)
        shape = grid_of(grid)
        if 0 in shape:
            return
        if standing.value is not None and self.variant is not None:
            run_on_host(standing.value, self.variant, shape, spread(self._bound(args)))
            return
        fitting = self if self._guards is None else self._fitting(self._guards, where, shape, values)
        kernel = fitting.loaded(where)
        recipe = fitting.metadata.recipe
        if not installed.hooks and not recipe.scopes:
            kernel.launch(shape, values, stream)
            return
        event = LaunchEvent(
            self.name,
            where,
            kernel.stream(stream),
            shape,
            fitting._metadata(shape, self._bound(args)),
            fitting,
            lambda: spread(self._bound(args)),
        )
        launch_with_hooks(event, lambda: run_observed(kernel, recipe, event, values, stream))

    def fitting(self, known: Mapping[str, object]) -> CompiledKernel:
        """This kernel, or the variant without the guards that arguments break, as far as they are ``known``: numbers
        and addresses by parameter name.

        Raises:
            LaunchError: another variant is needed, and there is no source to compile it from.
        """
        kernel = self
        while broken := kernel.metadata.recipe.broken_by(known):
            kernel = kernel._without(broken)
        return kernel

    def _fitting(
        self, guards: Guards, device: Device, grid: tuple[int, int, int], values: tuple[Any, ...]
    ) -> CompiledKernel:
        seen = guards.seen(values, grid, device.properties)
        if guards.holds(seen):
            return self
        known: dict[str, object] = dict(zip(self.signature, values, strict=True))
        if guards.about_programs and self.variant is not None:  # else this code does, if more slowly
            known[PROGRAMS] = seen[-1]
        return self.fitting(known)

    def _without(self, broken: tuple[Guard, ...]) -> CompiledKernel:
        found = self._others.get(broken)
        if found is None:
            found = compile_variant(variant_without(self.name, self.variant, broken))
            found.launch_metadata = self.launch_metadata
            self._others[broken] = found
        return found

    __iter__ = None  # a grid is no index: Python would count up for ever

    def __getitem__(self, grid: Grid) -> Callable[..., None]:
        return lambda *args, **options: self.run(grid, *args, **options)

    def _metadata(self, grid: tuple[int, int, int], bound: Mapping[str, object]) -> Callable[[], dict[str, object]]:
        describe_launch = self.launch_metadata
        if describe_launch is None:
            return dict
        constants = self.variant.constants if self.variant else {}
        return lambda: described(self.name, describe_launch, grid, self.metadata, {**bound, **constants})

    def _parameters(self, count: int) -> list[str]:
        """The parameters that ``count`` arguments are for: those that the machine code takes, all, or all but the
        constexpr ones."""
        names = shown(self.signature)
        if count == len(names) or self.variant is None:
            return names
        declared = self.variant.source.arguments
        for parameters in (declared, [argument for argument in declared if not argument.constexpr]):
            if count == len(parameters):
                return [argument.name for argument in parameters]
        return names

    def _of_run_time(self, args: tuple[object, ...]) -> tuple[object, ...]:
        """Of the arguments of all parameters, or of all but the constexpr ones, those that the machine code takes; any
        other number of them as it is.
        Raises LaunchError for a number or text that is not what the kernel was compiled for."""
        names, parameters = shown(self.signature), self._parameters(len(args))
        if self.variant is None or parameters == names or len(args) != len(parameters):
            return args
        flat = scattered(dict(zip(parameters, args, strict=True)))
        for name, wanted in self.variant.constants.items():
            given = unwrap(flat.get(name, wanted))
            if isinstance(given, int | float | str) and given == given and given != wanted:  # not a NaN
                raise LaunchError(
                    f"{self.name}: argument {name!r} is {given!r}, the kernel was compiled for {wanted!r}"
                )
        return tuple(flat[name] for name in names) if flat.keys() >= set(names) else args

    def _bound(self, args: tuple[object, ...]) -> dict[str, object]:
        """The arguments that the machine code takes, by parameter name."""
        return dict(zip(shown(self.signature), self._of_run_time(args), strict=True))

    def _read(self, args: tuple[object, ...], device: Device | str | None) -> tuple[Device, tuple[Any, ...]]:
        """The device to run on and the machine values of the arguments."""
        given = get_device(device) if isinstance(device, str) else device
        where, values = read_arguments(self.name, self.signature, self._of_run_time(args), given)
        if where is not None and given is None:
            self._forms.learn(args, self._parameters(len(args)), self.signature, where)
        return where or self._home(), values

    def _home(self) -> Device:
        """Where a launch without arrays runs: the default device, or the first one of the kernel's kind."""
        device = default_device()
        return device if device.properties.kind == self.kind else get_device(self.kind)

    def __getstate__(self) -> dict[str, object]:
        return {
            "metadata": self.metadata,
            "signature": self.signature,
            "artifacts": {k: v for k, v in self._artifacts.items() if k in PERSISTENT},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state, variant=None)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"<CompiledKernel {self.name} for {self.target}>"


def compile_variant(variant: Variant, stop_after: str | None = None, step: str | None = None) -> CompiledKernel:
    """The compiled variant, from the disk cache if it has it. Raises what :func:`pipeline.build` raises."""
    begin = time.perf_counter_ns()
    metadata, artifacts = obtain(variant, stop_after, step)
    return _told_of(variant, metadata, artifacts, begin)


def compile_fitting(variant: Variant, known: Mapping[str, object]) -> CompiledKernel:
    """What ``compile_variant(variant).fitting(known)`` gives, without the code of those whose guards do not hold."""
    begin = time.perf_counter_ns()
    fitting, metadata, artifacts = obtain_fitting(variant, known)
    return _told_of(fitting, metadata, artifacts, begin)


def compile_if_fitting(variant: Variant, known: Mapping[str, object]) -> CompiledKernel | LaunchRecipe:
    """The compiled variant; only how it would be launched where that says that guards do not hold of what is
    ``known``, and no code is at hand."""
    begin = time.perf_counter_ns()
    recipe, found = obtain_if_fitting(variant, known)
    return recipe if found is None else _told_of(variant, *found, begin)


def _told_of(variant: Variant, metadata: KernelMetadata, artifacts: dict[str, Artifact], begin: int) -> CompiledKernel:
    made = CompiledKernel(metadata, variant.signature, artifacts, variant)
    if knobs.kernel_dump.get() and not metadata.cached:
        _dump(made)
    if installed.listeners:
        installed.tell(VariantReady(variant, metadata, time.perf_counter_ns() - begin))
    return made


def _dump(kernel: CompiledKernel) -> None:
    name = re.sub(r"[^\w.+-]", "_", kernel.name)[:_LONGEST_FILE_NAME]
    folder = knobs.dump_dir.get() / f"{name}-{kernel.hash[:16]}"
    make_folder(folder)
    for stage in kernel.asm:
        try:
            content = kernel.asm[stage]
        except TargetError:
            continue  # no assembler or disassembler here
        write_whole(folder / f"{name}.{stage}", content)
