"""Tensor descriptors as arguments of kernels."""

from deuteron.compiler.runtime.arrays.descriptor import TensorDescriptor as TensorDescriptor

__all__ = ["TensorDescriptor"]
