"""What users get wrong with block pointers and tensor descriptors, and the message that names the remedy."""

from __future__ import annotations

import re

import pytest

from deuteron.compiler import errors
from deuteron.compiler.frontend import KernelSource, lower

HEAD = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, n, wide, ints, B: tl.constexpr):
    p = tl.make_block_ptr(x, (n, 64), (64, 1), (0, 0), (16, 16), (1, 0))
    q = tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,))
    d = tl.make_tensor_descriptor(x, [n, 64], [64, 1], [16, 16])
"""
SIGNATURE = {"x": "*f32", "n": "i32", "wide": "i64", "ints": "*i32"}


def make(**changed: str) -> str:
    """A call of make_block_ptr with one argument changed."""
    given = {"base": "x", "shape": "(n, 64)", "strides": "(64, 1)", "offsets": "(0, 0)"}
    given |= {"block_shape": "(16, 16)", "order": "(1, 0)"} | changed
    return f"tl.make_block_ptr({', '.join(f'{name}={value}' for name, value in given.items())})"


def describe(**changed: str) -> str:
    """A call of make_tensor_descriptor with one argument changed."""
    given = {"base": "x", "shape": "[n, 64]", "strides": "[64, 1]", "block_shape": "[16, 16]"} | changed
    return f"tl.make_tensor_descriptor({', '.join(f'{name}={value}' for name, value in given.items())})"


#: body, part of the message, part of the hint
CASES = [
    (make(base="n"), "make_block_ptr needs a pointer, got i32", "pass an array"),
    (make(base="x + tl.arange(0, 8)"), "needs one pointer, got tile<8x*f32>", "first element"),
    (make(shape="(n,)"), "shape of make_block_ptr has 1 entries for 2 dimensions", ""),
    (make(strides="(64, 1, 1)"), "strides of make_block_ptr has 3 entries", ""),
    (make(offsets="(0.5, 0)"), "offsets of make_block_ptr must be made of integers, got 0.5", ""),
    (make(offsets="(x, 0)"), "must be made of integers, got *f32", ""),
    (make(offsets="(wide, 0)"), "offsets of make_block_ptr must be int32, got i64", ".to(tl.int32)"),
    (make(offsets="(2147483648, 0)"), "2147483648 is out of range for i32", ""),
    (make(shape="(9223372036854775808, 0)"), "out of range for i64", ""),
    (make(block_shape="(16, n)"), "known at compile time", "tl.constexpr"),
    (make(block_shape="(16, 12)"), "powers of two, got 12", "8 or 16"),
    (make(block_shape="()"), "needs a size for each dimension", ""),
    (make(order="(0, 0)"), "not a permutation of the 2 dimensions", "(1, 0)"),
    (make(order="(0,)"), "not a permutation", ""),
    ("tl.advance(x, (0,))", "advance needs a block pointer, got *f32", "add offsets"),
    ("tl.advance(p, (0,))", "offsets of advance has 1 entries for 2 dimensions", ""),
    ("p.advance((0, wide))", "offsets of advance must be int32", ""),
    ("tl.load(p, mask=n > 0)", "belong to tiles of pointers", "boundary_check="),
    ("tl.load(p, volatile=True)", "belong to tiles of pointers", ""),
    ("tl.store(p, 0.0, mask=n > 0)", "belongs to tiles of pointers", "boundary_check="),
    ("tl.load(p, boundary_check=(2,))", "boundary_check = [2] does not name dimensions", "0, 1"),
    ("tl.load(p, boundary_check=(-1,))", "does not name", ""),
    ("tl.load(p, boundary_check=(0, 0))", "does not name", "at most once"),
    ("tl.load(p, boundary_check=(n,))", "known at compile time", ""),
    ("tl.load(p, padding_option='one')", "unknown padding_option 'one'", '"nan"'),
    (f"tl.load({make(base='ints')}, boundary_check=(0,), padding_option='nan')", "padding 'nan'", "floats"),
    ("tl.load(x, boundary_check=(0,))", "belong to block pointers", "mask="),
    ("tl.store(x, 0.0, boundary_check=(0,))", "belongs to block pointers", "mask="),
    ("tl.store(p, tl.zeros((8, 16), tl.float32))", "does not fit a block of shape [16, 16]", ""),
    ("tl.load(p, cache_modifier='.xx')", "cache", ""),
    ("tl.atomic_add(p, 1.0)", "takes a tensor as 'pointer'", ""),
    ("p + 1", "a block pointer<16x16xf32> cannot be combined", "tl.advance"),
    ("p += n", "cannot be combined", "tl.advance"),
    ("p.offsets", "a block pointer has no attribute 'offsets'", "advance"),
    ("p.with_parts(())", "has no attribute 'with_parts'", ""),
    (describe(shape="[n]"), "shape of make_tensor_descriptor has 1 entries", ""),
    (describe(strides="[64, 2]"), "the last stride must be 1, got 2", "swap"),
    (describe(strides="[1, n]"), "must be 1, got a value of the running program", ""),
    (describe(block_shape="[16, 2]"), "Descriptor block shape must have at least 16 bytes", "4 elements of f32"),
    (describe(block_shape="[16, n]"), "known at compile time", ""),
    (describe(padding_option="'one'"), "padding_option 'one'", '"nan" for floats'),
    (describe(base="ints", padding_option="'nan'"), "padding_option 'nan' for i32", ""),
    (describe(shape="[n, n, n, n, n, 4]", strides="[8, 8, 8, 8, 8, 1]",
              block_shape="[1, 1, 1, 1, 1, 8]"), "has 6 dimensions", "one to 5"),
    ("d.load([0])", "offsets of load has 1 entries for 2 dimensions", ""),
    ("d.load([0, wide])", "must be int32", ".to(tl.int32)"),
    ("d.store([0, 0], tl.zeros((8, 16), tl.float32))", "does not fit a block", ""),
    ("d.gather(tl.arange(0, 16), 0)", "gather of a tensor descriptor needs a descriptor whose block is one row", ""),
    ("d.scatter(0.0, tl.arange(0, 16), 0)", "scatter takes a tensor as 'value'", "tl.full"),
    ("d.atomic_add([0, 0], 1.0)", "atomic_add takes a tensor as 'value'", "tl.full"),
    ("d.lod([0, 0])", "a tensor descriptor has no attribute 'lod'", "load"),
    ("d.base", "has no attribute 'base'", ""),
    ("tl.load(d)", "load needs a pointer", ""),
    ("tl.load_tensor_descriptor(p, [0, 0])", "needs a tensor descriptor, got", "make_tensor_descriptor"),
    ("tl.store_tensor_descriptor(x, [0, 0], 0.0)", "needs a tensor descriptor, got *f32", ""),
    ("tl.tensor_descriptor(x)", "cannot be called", ""),
    ("tl._experimental_make_tensor_descriptor(x, [n], [1], [16])", "has no", "make_tensor_descriptor"),
    ("for i in range(n):\n        p = q",
     "'p' is block pointer<16x16xf32> before the loop and block pointer<16xf32>", ""),
    ("if n > 1:\n        p = q",
     "Mismatched type for p: block pointer<16xf32> on one path, block pointer<16x16xf32>", "structure"),
    ("if n > 1:\n        p = d", "Mismatched type for p: tensordesc<fp32[16, 16]> on one path, block pointer", ""),
    ("while n > 1:\n        d = 1.0", "'d' is tensordesc<fp32[16, 16]> before the loop and 1.0", ""),
    ("if n > 1:\n        p = 1", "Mismatched type for p: 1 on one path, block pointer", ""),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message", "hint"), CASES, ids=[c[0][:60] for c in CASES])
def test_message_and_hint(body: str, message: str, hint: str):
    source = KernelSource.from_text(HEAD + f"    {body}\n", "kernel", "blocks.py")
    with pytest.raises(errors.CompilationError, match=re.escape(message)) as caught:
        lower(source, SIGNATURE, {"B": 64})
    assert hint in (caught.value.hint or "")
    assert caught.value.location is not None


def test_a_const_array_is_not_stored_to():
    for body in ("tl.store(p, 0.0)", "d.store([0, 0], 0.0)"):
        source = KernelSource.from_text(HEAD + f"    {body}\n", "kernel")
        with pytest.raises(errors.TypeMismatch, match="constant pointer"):
            lower(source, SIGNATURE | {"x": "*const f32"}, {"B": 64})
