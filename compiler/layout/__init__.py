"""Linear layouts over F2: where the elements of a tile live, and how to move them elsewhere.

Pure integers: no IR, no LLVM, no NumPy. ``LinearLayout`` maps register, lane, warp and block bits to tile
coordinates, ``SharedLayout`` maps shared memory offsets; constructor functions make them, transform functions
follow shape operations, ``plan_conversion`` and ``plan_shared_access`` say how to move data between them.
"""

from .access import SharedAccess, bank_conflicts, plan_shared_access
from .construct import blocked, coalesced, coalesced_vectors, contiguous_registers
from .convert import Conversion, Identity, RegisterPermute, plan_conversion
from .descriptor import MatrixDescriptor, matrix_descriptor, swizzle_of, widest_swizzle
from .f2 import LayoutError, LinearMap, ShiftTerm, shift_terms
from .fragments import (
    dot_operand,
    double_accumulator,
    double_operand,
    mma_accumulator,
    wgmma_accumulator,
    wgmma_warps,
)
from .linear import TOKEN_PATTERN, HardwareIndex, LinearLayout
from .matrix import MatrixAccess, plan_matrix_access, plan_matrix_store, transposing
from .shared import (
    SharedLayout,
    shared_linear,
    shared_swizzled,
    shared_tensor_core,
)
from .shuffle import Exchange, ShuffleRound, WarpShuffle
from .swizzle import SharedMemory
from .transform import (
    broadcast_layout,
    expand_dims_layout,
    join_layout,
    permute_layout,
    remove_register_broadcast,
    reshape_layout,
    share_out,
    slice_layout,
    split_layout,
    splittable_layout,
    unbroadcast_layout,
    unique_registers,
)

__all__ = [
    "TOKEN_PATTERN",
    "Conversion",
    "Exchange",
    "Identity",
    "LayoutError",
    "LinearLayout",
    "LinearMap",
    "MatrixAccess",
    "MatrixDescriptor",
    "HardwareIndex",
    "RegisterPermute",
    "SharedAccess",
    "SharedLayout",
    "SharedMemory",
    "ShiftTerm",
    "ShuffleRound",
    "WarpShuffle",
    "bank_conflicts",
    "blocked",
    "broadcast_layout",
    "coalesced",
    "coalesced_vectors",
    "contiguous_registers",
    "dot_operand",
    "double_accumulator",
    "double_operand",
    "expand_dims_layout",
    "join_layout",
    "mma_accumulator",
    "permute_layout",
    "plan_conversion",
    "matrix_descriptor",
    "plan_matrix_access",
    "plan_matrix_store",
    "plan_shared_access",
    "remove_register_broadcast",
    "reshape_layout",
    "share_out",
    "shared_linear",
    "shared_swizzled",
    "shared_tensor_core",
    "shift_terms",
    "slice_layout",
    "split_layout",
    "splittable_layout",
    "transposing",
    "swizzle_of",
    "unbroadcast_layout",
    "unique_registers",
    "wgmma_accumulator",
    "widest_swizzle",
    "wgmma_warps",
]
