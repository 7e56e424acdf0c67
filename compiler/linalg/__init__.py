"""Kernels as MLIR in the dialects linalg, memref, tensor, bufferization, scf, arith and math, as structured front ends
write them: arrays are ``memref<*xT>``, accesses are boxes of arrays, and the place in the grid is six arguments."""

from .lower import lower_to_linalg as lower_to_linalg
