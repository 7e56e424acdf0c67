"""``compile``: a kernel for a given signature, ahead of time, for any target, with no device needed."""

from __future__ import annotations

from collections.abc import Mapping

from ...language.inline import Inlinable
from ...signature import TypeText
from ...source.kernel import KernelSource
from ..variant.variant import make_variant
from .compiled import CompiledKernel, compile_variant
from .kernel import Kernel
from .runner import Runner


def compile(
    kernel: Inlinable | KernelSource | Runner,
    signature: Mapping[str, TypeText],
    constexprs: Mapping[str, object] | None = None,
    target: str = "cpu",
    num_warps: int = 4,
    num_stages: int = 3,
    *,
    stop_after: str | None = None,
    step: str | None = None,
    **schedule: object,
) -> CompiledKernel:
    """Compile ``kernel`` for argument types and compile-time values; of decorated kernels the kernel itself. The code
    has the name that the ``repr`` of ``jit`` gives it.

    ``signature`` maps run-time parameters to types as in Triton's ahead-of-time compiler: ``*fp32``, ``*bf16:16``
    (address a multiple of 16), ``i32``, ``i32:16``, ``i32:1`` (is 1). A tuple has a tuple of types, or types and values
    under the names of its elements: ``args.0``, ``args.1``. ``constexprs`` maps the rest to values; defaults fill in.
    ``target``: ``cpu`` or ``cuda:90a``, one of :data:`~...target.ARCHITECTURES`. ``schedule``: further options of
    :class:`~...options.Schedule`, which says what each of them does. ``stop_after`` ends the work at a stage such as
    ``ptx``; ``step``: the stage ``tile`` or ``gpu`` as it is after this step of it (``compiler/tile/passes`` and
    ``compiler/gpu/pipeline.py`` list them).

    Raises:
        SignatureError: parameters, types or options that the kernel or the schedule does not have.
        CompilationError: the kernel is wrong; the message shows the place.
        OutOfResources: the variant needs more shared memory than the target has.
        TargetError: the target is unknown.
    """
    options = {"num_warps": num_warps, "num_stages": num_stages, **schedule}
    source = kernel.base_fn if isinstance(kernel, Runner) else kernel
    variant = make_variant(source, signature, constexprs, target, options)
    if isinstance(source, Kernel):
        variant = source.called(variant)
    return compile_variant(variant, stop_after, step)
