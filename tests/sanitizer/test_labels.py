"""Labels of masked-off values against the truth: a stored element depends on them if and only if it changes with what
the interpreter puts there."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler.frontend import lower
from deuteron.compiler.ir import REGISTRY, Effect
from deuteron.compiler.sanitizer import FindingKind, sanitized
from deuteron.compiler.sanitizer.labels import _RULES, MOVES
from deuteron.compiler.targets.interpreter import run

SIZE, VALID = 16, 11


@deuteron.jit
def added(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1)


@deuteron.jit
def chosen(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.where(i < n, tl.load(x + i, mask=i < n), 7))


@deuteron.jit
def chosen_late(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.where(i < n + 2, tl.load(x + i, mask=i < n), 7))


@deuteron.jit
def masked_by_and(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, ((tl.load(x + i, mask=i < n) < 0) & (i < n)).to(tl.int32))


@deuteron.jit
def masked_by_or(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, ((tl.load(x + i, mask=i < n) != 0) | (i >= n)).to(tl.int32))


@deuteron.jit
def times_zero(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) * (i < n).to(tl.int32))


@deuteron.jit
def summed(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y, tl.sum(tl.load(x + i, mask=i < n), axis=0))


@deuteron.jit
def summed_rows(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n).reshape(4, 4)
    tl.store(y + tl.arange(0, 4), tl.sum(v, axis=1))


@deuteron.jit
def scanned(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.cumsum(tl.load(x + i, mask=i < n), axis=0))


@deuteron.jit
def scanned_back(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.cumsum(tl.load(x + i, mask=i < n), axis=0, reverse=True))


@deuteron.jit
def flipped(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.flip(tl.load(x + i, mask=i < n)))


@deuteron.jit
def transposed(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.trans(tl.load(x + i, mask=i < n).reshape(2, 8)).reshape(16))


@deuteron.jit
def split_and_joined(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b = tl.load(x + i, mask=i < n).reshape(8, 2).split()
    tl.store(y + i, tl.join(b, a).reshape(16))


@deuteron.jit
def gathered(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.gather(tl.load(x + i, mask=i < n), (i * 5) % B, 0))


@deuteron.jit
def multiplied_rows(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i, mask=i < n)[:, None] + i[None, :]
    product = tl.dot(a.to(tl.float32), (i[:, None] + i[None, :]).to(tl.float32))
    tl.store(y + i, tl.sum(product, axis=1).to(tl.int32))


@deuteron.jit
def multiplied_columns(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i, mask=i < n)[None, :] + i[:, None]
    product = tl.dot((i[:, None] + i[None, :]).to(tl.float32), a.to(tl.float32))
    tl.store(y + i, tl.sum(product, axis=0).to(tl.int32))


@deuteron.jit
def multiplied_over(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i, mask=i < n)[None, :] + i[:, None]
    product = tl.dot(a.to(tl.float32), (i[:, None] + i[None, :]).to(tl.float32))
    tl.store(y + i, tl.sum(product, axis=0).to(tl.int32))


@deuteron.jit
def counted(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.histogram(tl.load(x + i, mask=i < n), 16))


@deuteron.jit
def counted_masked(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.histogram(tl.load(x + i, mask=i < n), 16, mask=i < n))


@deuteron.jit
def carried(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = i * 0
    for step in range(3):
        v = v * 2 + tl.load(x + i, mask=i < n + step - 2)
    tl.store(y + i, v)


@deuteron.jit
def branched(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    if n > 5:
        w = v + 1
    else:
        w = i
    tl.store(y + i, w, mask=i < n + 1)


@deuteron.jit
def bits(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n).to(tl.float32, bitcast=True)
    tl.store(y + i, v.to(tl.int32, bitcast=True))


KERNELS = [
    added, chosen, chosen_late, masked_by_and, masked_by_or, times_zero, summed, summed_rows, scanned, scanned_back,
    flipped, transposed, split_and_joined, gathered, multiplied_rows, multiplied_columns, multiplied_over, counted,
    counted_masked, carried, branched, bits,
]  # fmt: skip
X = (np.arange(SIZE, dtype=np.int32) * 7) % 13


def changed(kernel: deuteron.JITFunction) -> int:
    """Stored elements that are different with other values in masked-off elements."""
    function = lower(kernel.source, {"x": "*i32", "y": "*i32", "n": "i32"}, {"B": SIZE})
    outputs = []
    for poison in (False, True):
        y = np.full(SIZE, -1, np.int32)
        run(function, (1,), [X.copy(), y, VALID], poison=poison)
        outputs.append(y)
    return int((outputs[0] != outputs[1]).sum())


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_what_is_reported_is_what_depends_on_undefined_values(kernel: deuteron.JITFunction) -> None:
    with sanitized() as report:
        kernel[(1,)](X.copy(), np.zeros(SIZE, np.int32), VALID, B=SIZE)
    assert {f.kind for f in report.findings} <= {FindingKind.MASKED_OFF}
    if kernel is counted:  # which bins change depends on the values; any may
        assert changed(kernel) and sum(f.count for f in report.findings) == SIZE
    else:
        assert sum(f.count for f in report.findings) == changed(kernel)


def test_some_depend_and_some_do_not() -> None:
    numbers = [changed(kernel) for kernel in KERNELS]
    assert numbers.count(0) >= 4 and sum(n > 0 for n in numbers) >= 12


def test_every_operation_without_effects_has_a_rule_for_labels() -> None:
    """Elementwise ones share one; of the others each moves labels, or has its own."""
    sources = {"constant", "arange", "program_id", "num_programs"}  # no operands: nothing to follow
    control = {"inline_assembly"}  # not in the interpreter
    missing = [
        name
        for name, op in REGISTRY.items()
        if op.__module__.startswith("deuteron.compiler.tile.")
        and op.effect is Effect.PURE
        and not op.elementwise
        and op not in MOVES
        and op not in _RULES
        and name not in sources | control
    ]
    assert not missing
