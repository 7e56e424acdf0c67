"""Which slots are released with a proxy fence: those that the copy engine fills and that threads read themselves."""

from __future__ import annotations

import pytest

from deuteron.compiler.gpu.asynchronous import Pipe, Release
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
        ("a", "b + b", "cuda:90a", ("tma", True)),
        ("a", "tl.trans(b)", "cuda:90a", ("tma", False)),
        ("a", "b", "cuda:120", ("tma", True)),
        ("a", "b", "cuda:80", ("cp.async", False)),
    ],
)
def test_only_what_threads_read_is_fenced(to_gpu, a: str, b: str, target: str, expected: tuple[str, bool]) -> None:
    assert "tma" in Target.parse(target).features or expected[0] == "cp.async"
    assert set(releases(to_gpu, a, b, target)) == {expected}
