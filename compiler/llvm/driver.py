"""LLVM through llvmlite: parse text, optimise it for a machine, write assembly or an object, load objects.

llvmlite is imported on first use. LLVM's fatal errors end the process, so code generators emit only what is legal; what
the parser rejects becomes an :class:`InternalCompilerError` that carries the text.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from ..errors import DeuteronError, TargetError
from .lone_lanes import store_lone_lanes

if TYPE_CHECKING:
    from llvmlite.binding import ModuleRef, TargetMachine
    from llvmlite.binding.newpassmanagers import ModulePassManager

_lock = threading.RLock()  # LLVM's global context is not thread safe


class InternalCompilerError(DeuteronError):
    """deuteron generated code that LLVM does not accept: a defect of deuteron, never of the kernel."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What code is generated for: LLVM's triple, processor name and feature string."""

    triple: str
    processor: str
    features: str = ""


@cache
def host_machine() -> Machine:
    """This computer, with all features of its processor."""
    llvm = _llvm()
    features = llvm.get_host_cpu_features()
    wanted = features.flatten()
    if features.get("avx512f"):
        # LLVM prefers 256-bit vectors by default on most AVX-512 processors.
        wanted += ",-prefer-256-bit"
    return Machine(llvm.get_process_triple(), llvm.get_host_cpu_name(), wanted)


@cache
def host_has(feature: str) -> bool:
    """Whether the host's processor has an LLVM feature such as ``avx512f``."""
    return bool(_llvm().get_host_cpu_features().get(feature))


@cache
def data_layout(machine: Machine) -> str:
    """The data layout string of ``machine``."""
    with _lock:
        return str(_target_machine(machine, 2).target_data)


def compile_text(
    text: str,
    machine: Machine,
    emit: Literal["object", "assembly"],
    *,
    speed: int = 2,
    brief: bool = False,
    pairs: bool = False,
) -> bytes:
    """Optimise a module at ``speed`` (0-3) with the machine attached, and generate code.

    ``brief``: only by passes that combine and clean up, each of them once, for one function whose loops hold nothing
    that they do not change (:mod:`.hoist`): a quarter of the time of all passes at speed 1, which combine five times.
    ``pairs``: independent operations on narrow numbers become those on vectors, which GPUs have for two halves; not
    if ``brief``.

    Raises:
        InternalCompilerError: LLVM cannot parse or verify the text.
    """
    llvm = _llvm()
    with _lock:
        module = _parse(text)
        target = _target_machine(machine, speed)
        module.triple = machine.triple
        module.data_layout = str(target.target_data)
        options = llvm.create_pipeline_tuning_options(speed_level=speed)
        options.loop_vectorization = False
        options.slp_vectorization = pairs
        options.loop_unrolling = True
        builder = llvm.create_pass_builder(target, options)
        passes = _brief_passes() if brief else builder.getModulePassManager()
        passes.run(module, builder)
        if "@llvm.masked.store." in text and (mended := store_lone_lanes(str(module))) is not None:
            module = _parse(mended)
        if emit == "object":
            return bytes(target.emit_object(module))
        return str(target.emit_assembly(module)).encode()


def _brief_passes() -> ModulePassManager:
    passes: ModulePassManager = _llvm().create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    return passes


class LoadedObject:
    """An object file linked into this process; its functions live as long as this Python object."""

    def __init__(self, object_code: bytes) -> None:
        llvm = _llvm()
        with _lock:
            holder = llvm.parse_assembly(f'target triple = "{host_machine().triple}"\n')
            # The engine takes ownership of its target machine, so the shared one cannot be used.
            target = llvm.Target.from_triple(host_machine().triple).create_target_machine(jit=True)
            engine = llvm.create_mcjit_compiler(holder, target)
            engine.add_object_file(llvm.ObjectFileRef.from_data(object_code))
            engine.finalize_object()
        self._engine = engine

    def keep(self) -> None:
        """Keep the code until the process ends, for threads that may still run it while Python goes down."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._engine))

    def address(self, name: str) -> int:
        """The address of function ``name``; raises TargetError if the object has none."""
        with _lock:
            address = int(self._engine.get_function_address(name))
        if not address:
            raise TargetError(f"the object file has no function {name!r}", hint="compile it again")
        return address

    def data_address(self, name: str) -> int:
        """The address of global variable ``name``; raises TargetError if the object has none."""
        with _lock:
            address = int(self._engine.get_global_value_address(name))
        if not address:
            raise TargetError(f"the object file has no variable {name!r}", hint="compile it again")
        return address


def _parse(text: str) -> ModuleRef:
    llvm = _llvm()
    try:
        module: ModuleRef = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        numbered = "\n".join(f"{i:5} {line}" for i, line in enumerate(text.split("\n"), 1))
        raise InternalCompilerError(
            f"LLVM rejects generated code: {error}\n{numbered}",
            hint="this is a defect of deuteron; please report it with the kernel",
        ) from error
    return module


@cache
def _target_machine(machine: Machine, speed: int) -> TargetMachine:
    target = _llvm().Target.from_triple(machine.triple)
    made: TargetMachine = target.create_target_machine(
        cpu=machine.processor, features=machine.features, opt=speed, reloc="pic"
    )
    return made


@cache
def _llvm() -> ModuleType:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # Where addresses are computed from each other (StraightLineStrengthReduce, for GPUs alone) LLVM 22 looks whether a
    # flag such as nsw may be wrong for one of them. Ours are facts about threads and memory, whatever a mask says, and
    # with hundreds of addresses to a thread the search took most of the time of a compilation.
    llvm.set_option("deuteron", "-enable-poison-reuse-guard=false")
    # Addresses of shared memory have 32 bits and are computed in one register each, not in two.
    llvm.set_option("deuteron", "-nvptx-short-ptr")
    binding: ModuleType = llvm
    return binding
