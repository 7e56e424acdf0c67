"""The kernel language, source compatible with Triton: ``import deuteron.language as tl``."""

import builtins
from collections.abc import Sequence

from ..ir.types import (
    BF16,
    F8E4B8,
    F8E4B15,
    F8E4M3,
    F8E5B16,
    F8E5M2,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Pointer,
    Scalar,
    Tile,
)
from . import members
from .arithmetic import add, cast, mul, sub, to_tensor, where
from .assembly import inline_asm_elementwise
from .block_pointers import advance, make_block_ptr
from .builtin import builtin
from .constexpr import const, constexpr
from .control import condition, range, static_range
from .debugging import (
    assume,
    device_assert,
    device_print,
    max_constancy,
    max_contiguous,
    multiple_of,
    static_assert,
    static_print,
)
from .descriptors import (
    load_tensor_descriptor,
    make_tensor_descriptor,
    store_tensor_descriptor,
    tensor_descriptor,
)
from .mapping import map_elementwise
from .maths import (
    PropagateNan,
    abs,
    ceil,
    clamp,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    log,
    log2,
    maximum,
    minimum,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    umulhi,
)
from .memory import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
    debug_barrier,
    load,
    store,
)
from .products import dot
from .random import (
    pair_uniform_to_normal,
    philox,
    rand,
    rand4x,
    randint,
    randint4x,
    randn,
    randn4x,
    uint_to_uniform_float,
)
from .reductions import (
    argmax,
    argmin,
    associative_scan,
    cumprod,
    cumsum,
    histogram,
    max,
    min,
    reduce,
    reduce_or,
    sum,
    xor_sum,
)
from .shapes import (
    arange,
    broadcast,
    broadcast_to,
    cat,
    expand_dims,
    full,
    gather,
    interleave,
    join,
    num_programs,
    permute,
    program_id,
    ravel,
    reshape,
    shape_tuple,
    split,
    squeeze,
    trans,
    unsqueeze,
    view,
    zeros,
    zeros_like,
)
from .sorting import flip, sort, topk
from .standard import cdiv, next_power_of_2, sigmoid, softmax, swizzle2d
from .tensor import tensor

dtype = Scalar
int1, int8, int16, int32, int64 = I1, I8, I16, I32, I64
uint8, uint16, uint32, uint64 = U8, U16, U32, U64
float16, bfloat16, float32, float64 = F16, BF16, F32, F64
float8e4nv, float8e5 = F8E4M3, F8E5M2
float8e4b8, float8e5b16, float8e4b15 = F8E4B8, F8E5B16, F8E4B15


@builtin
def pointer_type(element_ty: Scalar | Pointer, const: bool = False) -> Pointer:
    """The type of pointers to ``element_ty``."""
    return Pointer(element_ty, const)


@builtin
def block_type(element_ty: Scalar | Pointer, shape: Sequence[int]) -> Tile:
    """The type of tiles of ``element_ty`` in ``shape``."""
    return Tile(element_ty, shape_tuple(shape))


#: Tuples of kernels are Python's.
tuple: type = builtins.tuple

members.attach(tensor)

__all__ = [
    "PropagateNan",
    "abs",
    "add",
    "advance",
    "arange",
    "argmax",
    "argmin",
    "associative_scan",
    "assume",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
    "bfloat16",
    "block_type",
    "broadcast",
    "broadcast_to",
    "cast",
    "cat",
    "cdiv",
    "ceil",
    "clamp",
    "condition",
    "const",
    "constexpr",
    "cos",
    "cumprod",
    "cumsum",
    "debug_barrier",
    "device_assert",
    "device_print",
    "div_rn",
    "dot",
    "dtype",
    "erf",
    "exp",
    "exp2",
    "expand_dims",
    "fdiv",
    "flip",
    "float16",
    "float32",
    "float64",
    "float8e4b15",
    "float8e4b8",
    "float8e4nv",
    "float8e5",
    "float8e5b16",
    "floor",
    "fma",
    "full",
    "gather",
    "histogram",
    "inline_asm_elementwise",
    "int1",
    "int16",
    "int32",
    "int64",
    "int8",
    "interleave",
    "join",
    "load",
    "load_tensor_descriptor",
    "log",
    "log2",
    "make_block_ptr",
    "make_tensor_descriptor",
    "map_elementwise",
    "max",
    "max_constancy",
    "max_contiguous",
    "maximum",
    "min",
    "minimum",
    "mul",
    "multiple_of",
    "next_power_of_2",
    "num_programs",
    "pair_uniform_to_normal",
    "permute",
    "philox",
    "pointer_type",
    "program_id",
    "rand",
    "rand4x",
    "randint",
    "randint4x",
    "randn",
    "randn4x",
    "range",
    "ravel",
    "reduce",
    "reduce_or",
    "reshape",
    "rsqrt",
    "sigmoid",
    "sin",
    "softmax",
    "sort",
    "split",
    "sqrt",
    "sqrt_rn",
    "squeeze",
    "static_assert",
    "static_print",
    "static_range",
    "store",
    "store_tensor_descriptor",
    "sub",
    "sum",
    "swizzle2d",
    "tensor",
    "tensor_descriptor",
    "to_tensor",
    "topk",
    "trans",
    "tuple",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "uint_to_uniform_float",
    "umulhi",
    "unsqueeze",
    "view",
    "where",
    "xor_sum",
    "zeros",
    "zeros_like",
]
