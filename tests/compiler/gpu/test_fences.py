"""Which slots are released with a proxy fence: those that the copy engine fills and that threads read themselves."""

from __future__ import annotations

import pytest

from deuteron.compiler.gpu.asynchronous import Advance, Deposit, Pipe, Release
from deuteron.compiler.targets import Target

PRODUCT = """
def product(a_ptr, b_ptr, out_ptr, K, N: tl.constexpr):
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    sums = tl.zeros((N, N), tl.float32)
    for k in range(0, K, N):
        a = tl.load(a_ptr + rows * K + (k + columns))
        b = tl.load(b_ptr + (k + rows) * N + columns)
        sums = tl.dot({a}, {b}, sums)
    tl.store(out_ptr + rows * N + columns, sums)
"""
TYPES = {"a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "out_ptr": "*fp32:16", "K": "i32:16"}


def releases(to_gpu, a: str, b: str, target: str) -> list[tuple[str, bool]]:
    """Engine and whether it is fenced, of every release."""
    function = to_gpu(PRODUCT.format(a=a, b=b), TYPES, {"N": 64}, target=target)
    found = [op for op in function.body.walk() if isinstance(op, Release)]
    pipes = [op.pipe.op for op in found]
    assert found and all(isinstance(pipe, Pipe) for pipe in pipes)
    return [(pipe.engine, op.fenced) for pipe, op in zip(pipes, found, strict=True)]


@pytest.mark.parametrize(
    ("a", "b", "target", "expected"),
    [
        ("a", "b", "cuda:90a", ("tma", False)),
        ("a + a", "b", "cuda:90a", ("tma", True)),
        ("a", "b + b + k", "cuda:80", ("cp.async", False)),
        ("a", "tl.trans(b)", "cuda:90a", ("tma", False)),
        ("a", "b", "cuda:120", ("tma", True)),
        ("a", "b", "cuda:80", ("cp.async", False)),
    ],
)
def test_only_what_threads_read_is_fenced(to_gpu, a: str, b: str, target: str, expected: tuple[str, bool]) -> None:
    assert "tma" in Target.parse(target).features or expected[0] == "cp.async"
    assert set(releases(to_gpu, a, b, target)) == {expected}


def test_a_release_behind_a_deposit_leaves_the_fence_to_it(to_gpu) -> None:
    """Threads read the slot of b, and write what they make of it for the tensor cores."""
    function = to_gpu(PRODUCT.format(a="a", b="b + b"), TYPES, {"N": 64}, target="cuda:90a")
    blocks = [block.ops for block in function.body.nest() if any(isinstance(op, Deposit) for op in block.ops)]
    assert len(blocks) == 2  # before the loop and in it
    for ops in blocks:
        (at,) = [i for i, op in enumerate(ops) if isinstance(op, Deposit)]
        release = next(op for op in ops[at:] if isinstance(op, Release))
        assert isinstance(ops[at + 1], Advance) and ops[at + 2] is release
        assert release.pipe.op.engine == "tma" and not release.fenced
    assert set(releases(to_gpu, "a", "b + b", "cuda:90a")) == {("tma", False), ("threads", False)}
