"""LLVM IR as text, typed values on it, mathematical functions as templates, and LLVM itself through llvmlite."""
