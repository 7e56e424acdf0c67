"""Assembly inside kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import TypeMismatch
from ..tile.assembly import EffectfulAssembly, InlineAssembly
from .arithmetic import as_tensor, broadcast_all
from .builtin import builtin
from .promotion import scalar_type
from .shapes import shape_tuple
from .tensor import Operand, emit_all, tensor


@builtin
def inline_asm_elementwise(
    asm: str, constraints: str, args: Sequence[Operand], dtype: object, is_pure: bool, pack: int
) -> Any:
    """``asm``, which is PTX, for the elements of ``args``, which broadcast to one shape: a tensor of ``dtype``,
    a scalar where there are no ``args``.

    ``dtype`` may be a tuple: then the result is one. ``constraints`` are LLVM's for its registers, results first:
    ``"=r,=f,r,l"`` (h, r, l: integers of 16, 32, 64 bits; f, d: floats of 32, 64; n, i: a constant that stands in the
    text), and ``"~{memory}"`` for what else changes. ``$0``, ``$1``, ... in ``asm`` are these registers. Each run takes
    ``pack`` elements, whichever lie in one thread; elements below 32 bits share registers of 32 bits, the first in the
    lowest bits. Without ``is_pure`` it runs though its results are not used, in every thread that holds the elements.

    On GPUs only. Raises TypeMismatch where shapes do not broadcast, and where constraints or references do not fit the
    registers; UnsupportedOp on other targets.
    """
    if not isinstance(asm, str) or not isinstance(constraints, str):
        raise TypeMismatch("the assembly and its constraints are text known at compile time")
    several = isinstance(dtype, tuple | list)
    kinds = [scalar_type(kind) for kind in (dtype if isinstance(dtype, tuple | list) else (dtype,))]
    (count,) = shape_tuple(pack, "pack")
    if count <= 0 or count & (count - 1):
        raise TypeMismatch(f"pack is {count}", hint="it is a power of two")
    if not kinds:
        raise TypeMismatch("inline assembly has results", hint="one that nobody reads costs nothing")
    tiles: list[tensor] = broadcast_all(*map(as_tensor, args))
    kind = InlineAssembly if is_pure else EffectfulAssembly
    names = " ".join(k.code for k in kinds)
    results = emit_all(kind(tuple(x.value for x in tiles), asm, constraints, names, count))
    return results if several else results[0]
