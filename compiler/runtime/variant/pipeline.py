"""The whole compiler on one page: tile -> llvm -> object on a CPU, tile -> gpu -> llvm -> ptx -> cubin on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from ... import knobs
from ...errors import (
    AssemblerError,
    CompilationError,
    DeuteronError,
    IRError,
    OutOfResources,
    SignatureError,
    TargetError,
)
from ...garbage import garbage_kept
from ...hardware import threads_of
from ...ir.core import Function
from ...ir.printer import print_function
from ...ir.verify import verify
from ...launch_recipe import Guard, LaunchRecipe
from ...llvm.symbols import symbol_of
from ...options import Schedule
from ...source.kernel import KernelSource
from ...target import ARCHITECTURES, Target
from .metadata import KernelMetadata
from .variant import Variant

if TYPE_CHECKING:
    from ...gpu.work import GpuWork
    from ...targets.ptxas import Ptxas

#: What ptxas says where accumulators of warp groups, which cannot be in local memory, find no registers.
_NO_REGISTERS = "Register allocation failed"

T = TypeVar("T")
Artifact = str | bytes

#: Stages that can be asked for, in order. ``asm`` is the machine code as text: SASS, or the processor's assembly.
STAGES = {
    "cpu": ("tile", "llvm", "object", "asm"),
    "cuda": ("tile", "gpu", "llvm", "ptx", "cubin", "asm"),
}
#: Forms of a kernel that no later stage is made of, and that not every kernel has.
EXPORTS: dict[str, tuple[str, ...]] = {"cpu": ("linalg",), "cuda": ()}


@dataclass
class Build:
    """A compilation under way: what has been made so far and how long each stage took. ``recipe``: how the result is
    launched, None before a stage has said it; then by all threads of the schedule's warps. ``scopes``: what records of
    an instrumented kernel mean. ``made_as``: the variant that was compiled, which may have more warps than the one
    that was asked for; ``num_warps``: those that it runs with, 0 before that is decided; ``broken``: guards that were
    known not to hold, for which nothing was made after the GPU stage. From ``num_slots`` on: what stages have told so
    far, as in :class:`KernelMetadata`."""

    variant: Variant
    made_as: Variant = field(init=False)
    num_warps: int = 0
    recipe: LaunchRecipe | None = None
    broken: tuple[Guard, ...] = ()
    scopes: tuple[tuple[str, ...], ...] = ()
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    num_slots: int | None = None
    shared_bytes: int | None = None
    registers: int | None = None
    spills: int | None = None
    stack_bytes: int | None = None
    stage_ms: dict[str, float] = field(default_factory=dict)
    gpu_steps: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.made_as = self.variant

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time of a ``with`` block to a stage."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            spent = (time.perf_counter_ns() - start) / 1e6
            self.stage_ms[stage] = self.stage_ms.get(stage, 0.0) + spent

    def _recipe(self) -> LaunchRecipe:
        recipe = self.recipe or _plain_recipe(self.variant.schedule)
        if self.variant.records:
            recipe = replace(recipe, scopes=self.scopes, records=self.variant.records)
        return recipe

    def metadata(self) -> KernelMetadata:
        """What is known about the result."""
        schedule = self.variant.schedule
        return KernelMetadata(
            name=self.variant.name,
            target=str(self.variant.target),
            hash=self.variant.key,
            num_warps=schedule.num_warps,
            num_stages=schedule.num_stages,
            num_ctas=schedule.num_ctas,
            recipe=self._recipe(),
            num_slots=self.num_slots,
            maxnreg=schedule.maxnreg,
            registers=self.registers,
            shared_bytes=self.shared_bytes,
            spills=self.spills,
            stack_bytes=self.stack_bytes,
            stage_ms=self.stage_ms,
            gpu_steps=self.gpu_steps,
        )


def _plain_recipe(schedule: Schedule) -> LaunchRecipe:
    """How a kernel is launched of which no stage has said it."""
    return LaunchRecipe(threads_of(schedule.num_warps), cooperative=schedule.launch_cooperative_grid)


def build(
    variant: Variant, stop_after: str | None = None, step: str | None = None, known: Mapping[str, object] | None = None
) -> Build:
    """Compile a variant to machine code, or up to the stage ``stop_after``; ``step``: the stage, which is
    ``tile`` or ``gpu``, is what it is after this pass or step of it; ``known``: numbers and addresses of a launch by
    parameter name, for which no code is made that would not run.

    Machine code for which the assembler keeps much in local memory is made again with twice as many warps, and the
    better one taken. Where it finds no registers for what warp groups sum up, products are done by single warps.

    Raises:
        CompilationError: the kernel is wrong; the message shows the place.
        OutOfResources: it needs more shared memory than the target has.
        AssemblerError: the assembler rejected the generated code.
    """
    check_stage(variant, stop_after, step)
    try:
        work = _build(variant, stop_after, step, known)
    except AssemblerError as error:
        plain = _without_own_instructions(variant.target)
        if plain is None or _NO_REGISTERS not in error.message:
            raise
        work = _build(replace(variant, target=plain), stop_after, step, known)
        work.variant = variant
    return _with_more_warps(work, stop_after, step) or work


def _without_own_instructions(target: Target) -> Target | None:
    """The target whose code runs on the same GPU without the instructions that only it has; None if there is none."""
    arch = target.arch.removesuffix("a")
    return Target(target.kind, arch) if arch != target.arch and arch in ARCHITECTURES else None


def _with_more_warps(work: Build, stop_after: str | None, step: str | None) -> Build | None:
    """What takes the place of ``work``, if twice as many warps hold what it spills."""
    wider = _wider(work)
    if wider is None:
        return None
    from ...gpu.attempts import spills_less  # lazy: hardly any kernel comes here

    try:
        other = _build(wider, stop_after, step)
    except DeuteronError:
        return None  # one that needs more shared memory than there is, such as slots for each warp
    if other.spills is None or not spills_less(other.spills, work.spills or 0):
        return None
    other.variant = work.variant
    for stage, ms in work.stage_ms.items():
        other.stage_ms[stage] = other.stage_ms.get(stage, 0.0) + ms
    return other


def _wider(work: Build) -> Variant | None:
    """The variant with twice as many warps, where the registers of those that there are do not do. Not where programs
    have to be on the SMs all at once, fewer of which there is room for then, or were told how many warps they have."""
    variant = work.variant
    schedule = variant.schedule
    fixed = schedule.maxnreg is not None or schedule.launch_cooperative_grid or variant.records
    if not work.spills or fixed:
        return None
    from ...gpu.attempts import next_warps  # lazy: hardly any kernel comes here
    from ...gpu.legality import traits_of  # lazy: as above

    warps = next_warps(work.num_warps, work.spills)
    if warps is None:
        return None
    wider = replace(variant, schedule=replace(schedule, num_warps=warps))
    function = make_tile(Build(variant))
    return None if traits_of(function).waits or function.num_warps is not None else wider


def _build(
    variant: Variant, stop_after: str | None, step: str | None, known: Mapping[str, object] | None = None
) -> Build:
    work = Build(variant)
    with _assembler(work, stop_after) as assembler:
        # What is made here and kept until the end would count as old, and Python looks through all that is old in a
        # tenth of a second where PyTorch is loaded: longer than most kernels compile.
        with garbage_kept(), _shown_in(variant.source):
            _generate(work, stop_after, step, known or {})
        if "ptx" in work.artifacts and stop_after != "ptx":
            try:
                _assemble(work, assembler)
            except TargetError:
                if stop_after is not None:
                    raise  # else PTX is as far as a machine without an assembler gets
    return work


@contextmanager
def _shown_in(source: KernelSource) -> Iterator[None]:
    """What a back end refuses shows the line of ``source`` where it is, as what the frontend refuses does."""
    try:
        yield
    except CompilationError as error:
        if error.location is not None and error.source_line is None:
            error.place(error.location, source.line(error.location))
        raise


def _generate(work: Build, stop_after: str | None, step: str | None, known: Mapping[str, object]) -> None:
    """All stages that are made in this process."""
    function = make_tile(work, step if stop_after == "tile" else None)
    if stop_after == "tile":
        work.artifacts.setdefault("tile", print_function(function))
    elif stop_after == "linalg":
        from ...linalg import lower_to_linalg  # lazy: only for those who take MLIR elsewhere

        work.artifacts["linalg"] = lower_to_linalg(function)
    elif work.variant.target.kind == "cpu":
        _build_cpu(work, function, stop_after)
    else:
        _build_ptx(work, function, stop_after, step, known)


def _assembler(work: Build, stop_after: str | None) -> AbstractContextManager[Ptxas | None]:
    """What will assemble PTX, if that is wanted: begun first of all, so that it loads while the compiler works."""
    if work.variant.target.kind != "cuda" or stop_after not in (None, "cubin"):
        return nullcontext()
    from ...targets.ptxas import begin_assembling  # lazy: a launch from the cache compiles nothing

    with work.timed("cubin"):
        return begin_assembling(work.variant.target, lines=work.variant.lined)


def check_stage(variant: Variant, stage: str | None, step: str | None = None) -> None:
    """Raise SignatureError unless the variant's target has the stage, and the stage the step."""
    known = STAGES[variant.target.kind] + EXPORTS[variant.target.kind]
    if stage is not None and stage not in known:
        raise SignatureError(
            f"the target {variant.target} has no stage {stage!r}",
            hint=f"stages: {', '.join(known)}",
        )
    if step is None:
        return
    from ...gpu import STEPS  # lazy: a launch from the cache compiles nothing
    from ...tile.passes import PASSES  # lazy: as above

    steps = {"tile": PASSES, "gpu": STEPS}
    if step not in steps.get(stage or "", ()):
        raise SignatureError(
            f"the stage {stage!r} has no step {step!r}",
            hint="; ".join(f"steps of the stage {name}: {', '.join(known)}" for name, known in steps.items()),
        )


def lowered(variant: Variant) -> Function:
    """The tile IR of a variant's source text, as it is before any pass. Raises CompilationError."""
    from ...frontend import lower  # lazy: a launch from the cache compiles nothing

    types = {name: str(kind) for name, kind in variant.signature.items()}
    return lower(
        variant.source,
        types,
        variant.constants,
        debug=variant.schedule.debug,
        sanitize_overflow=variant.schedule.sanitize_overflow,
        target=variant.target,
        num_warps=variant.schedule.num_warps,
        name=symbol_of(variant.called) or None,
    )


def make_tile(work: Build, wanted: str | None = None) -> Function:
    """Source text to optimised tile IR; what the pass ``wanted`` left becomes the text of the stage."""
    from ...tile.passes import drop_records, number_scopes, optimize  # lazy: a launch from the cache compiles nothing

    variant = work.variant
    with work.timed("frontend"):
        function = lowered(variant)
    with work.timed("tile"):
        if variant.records:
            work.scopes = number_scopes(function, variant.records)
        else:
            drop_records(function)
        check = knobs.verify.get()

        def observe(name: str, made: Function) -> None:
            if check:
                _verify(name, made, verify)
            if name == wanted:
                work.artifacts["tile"] = print_function(made)

        return optimize(function, observe)


def _verify(step: str, made: Function, check: Callable[[Function], object]) -> None:
    """Raise IRError naming the step that left wrong IR."""
    try:
        check(made)
    except DeuteronError as error:
        raise IRError(f"the pass {step} broke {made.name}: {error.message}") from error


def _build_cpu(work: Build, function: Function, stop_after: str | None) -> None:
    from ...targets import cpu  # lazy: loads LLVM
    from ...tile.passes import expand_blocks  # lazy: a launch from the cache compiles nothing

    with work.timed("llvm"):
        program = cpu.lower_to_llvm(expand_blocks(function), work.variant.schedule)
    work.artifacts["llvm"] = program.llvm
    if stop_after == "llvm":
        return
    if stop_after == "asm":
        work.artifacts["asm"] = cpu.emit_assembly(program)
        return
    with work.timed("object"):
        work.artifacts["object"] = cpu.emit_object(program)


def _build_ptx(
    work: Build, function: Function, stop_after: str | None, step: str | None, known: Mapping[str, object]
) -> None:
    from ...gpu import STEPS, check_of, lower_to_gpu, print_gpu  # lazy: a launch from the cache compiles nothing
    from ...llvm.lines import SourceLines  # lazy: as above
    from ...targets import nvptx  # lazy: loads LLVM

    variant = work.variant
    wanted = (step or STEPS[-1]) if stop_after == "gpu" else None
    check = knobs.verify.get()
    last = time.perf_counter_ns()

    def observe(name: str, now: GpuWork) -> None:
        nonlocal last
        spent = (time.perf_counter_ns() - last) / 1e6
        work.gpu_steps[name] = work.gpu_steps.get(name, 0.0) + spent
        if check:
            _verify(name, now.function, check_of(name))
        if name == wanted:
            work.artifacts["gpu"] = print_gpu(now.function, now.recipe)
        last = time.perf_counter_ns()

    with work.timed("gpu"):
        gpu = lower_to_gpu(function, variant.target, variant.schedule, frozenset(variant.denied), observe)
    work.num_slots = gpu.num_slots
    work.num_warps = gpu.warps
    work.recipe = gpu.recipe
    work.broken = gpu.recipe.broken_by(known)
    if stop_after == "gpu" or work.broken:
        return
    with work.timed("llvm"):
        lines = SourceLines.of(variant.source) if variant.lined else None
        program = nvptx.lower_to_llvm(gpu, variant.target, variant.schedule, lines)
    work.artifacts["llvm"] = program.llvm
    work.shared_bytes = program.shared_bytes
    if program.shared_bytes > variant.target.shared_bytes:
        raise OutOfResources("shared memory", program.shared_bytes, variant.target.shared_bytes)
    if stop_after == "llvm":
        return
    with work.timed("ptx"):
        work.artifacts["ptx"] = nvptx.emit_ptx(program, variant.target)


def _assemble(work: Build, assembler: Ptxas | None) -> None:
    from ...targets import nvptx  # lazy: loads LLVM

    with work.timed("cubin"):
        variant = work.variant
        ptx = str(work.artifacts["ptx"])
        cubin = nvptx.assemble(ptx, variant.target, variant.schedule, assembler, lines=variant.lined)
    work.artifacts["cubin"] = cubin.image
    work.registers, work.spills, work.stack_bytes = cubin.registers, cubin.spill_bytes, cubin.stack_bytes


def produce(variant: Variant, stage: str) -> Artifact:
    """One stage as text or bytes, made from the source again."""
    if stage == "asm" and variant.target.kind == "cuda":
        from .disassemble import disassemble  # lazy: only for those who look at SASS

        cubin = build(variant).artifacts["cubin"]
        return disassemble(bytes(cubin)) if isinstance(cubin, bytes) else cubin
    if variant.target.kind == "cuda" and stage in ("gpu", "llvm", "ptx"):
        variant = build(variant).made_as
    return build(variant, stop_after=stage).artifacts[stage]
