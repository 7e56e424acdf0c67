"""Tensor descriptors of the host: what may be one, what a launch makes of it, and what the messages say."""

from __future__ import annotations

import copy
import ctypes
import pickle
from typing import Any

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.errors import LaunchError, SignatureError
from deuteron.compiler.runtime.arrays.arguments import readers
from deuteron.compiler.runtime.arrays.descriptor import spread
from deuteron.compiler.runtime.launch.hooks import LaunchEvent, add_launch_hook, remove_launch_hook
from deuteron.compiler.signature import parse_argument_type
from deuteron.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def double(source, target, scale, n, BLOCK: tl.constexpr = 8):
    for i in range(0, n, source.block_shape[0]):
        target.store([i, 0], source.load([i, 0]) * scale)


def array(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def described(x: Any, *block: int) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(x, list(block))


@pytest.mark.parametrize(
    "text",
    [
        *("tensordesc<fp16[64, 64]>", "tensordesc<bf16[8, 32], nan>", "tensordesc<const i8[16]>"),
        *("tensordesc<fp32[8, 32], tf32>", "tensordesc<fp32[8, 32], nan, tf32>"),
    ],
)
def test_signatures_read_as_they_are_written(text: str):
    assert str(parse_argument_type(text)) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tensordesc<fp16>", "cannot read"),
        ("tensordesc<fp16[63, 64]>", "powers of two"),
        ("tensordesc<i32[4, 4], nan>", "padding_option 'nan'"),
        ("tensordesc<fp12[64, 64]>", "unknown dtype 'fp12'"),
        ("tensordesc<fp16[64, 64], tf32>", "only f32|rounds f16"),
        ("tensordesc<fp16[2, 2, 2, 2, 2, 8]>", "6 dimensions"),
    ],
)
def test_signatures_that_are_wrong(text: str, problem: str):
    with pytest.raises(SignatureError, match=problem.replace("(", r"\(")):
        parse_argument_type(text)


def test_a_launch_passes_address_sizes_and_strides():
    x = array(6, 32, dtype=np.float16)
    key, values = readers[TensorDescriptor](described(x, 2, 16))
    assert key == "tensordesc<fp16[2, 16]>"
    assert values == (x.ctypes.data, 6, 32, 32)
    assert list(spread({"d": described(x, 2, 16), "n": 3})) == ["d", "d.size0", "d.size1", "d.stride0", "n"]
    x.flags.writeable = False
    assert readers[TensorDescriptor](described(x, 2, 16))[0] == "tensordesc<const fp16[2, 16]>"


def test_strides_of_other_arrays():
    class Foreign:
        """As torch tells: strides in elements, from a method."""

        shape, dtype = (4, 8), "float32"

        def stride(self) -> tuple[int, ...]:
            return (16, 1)

    assert described(Foreign(), 2, 4).strides == (16, 1)
    device = triton.get_device("cpu")
    assert described(device.array(array(2, 3, 8)), 1, 1, 8).strides == (24, 8, 1)
    assert described(array(4, 16)[:, :8], 2, 4).strides == (16, 1)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((array(4, 8), [4, 8], [8], [2, 4]), "2 sizes, 1 strides"),
        ((array(4, 8), [4, 8], [8, 1], [2, 4, 4]), "a block of 3"),
        ((array(4, 8), [4, 8], [8, 2], [2, 4]), r"strides \[8, 2\]"),
        ((array(4, 9), [4, 9], [9, 1], [2, 4]), r"strides \[9, 1\]"),
        ((array(4, 8), [4, 8], [8, 1], [3, 4]), "power of 2"),
        ((array(4, 8), [-1, 8], [8, 1], [2, 4]), r"shape \[-1, 8\]"),
        ((array(4, 8), [2**31, 8], [8, 1], [2, 4]), "shape"),
        ((array(4, 8), [4, 8], [8, 1], [2, 4], "one"), "'one'|cannot read"),
        ((array(4, 8, dtype=np.int32), [4, 8], [8, 1], [2, 4], "nan"), "padding_option 'nan'"),
        ((array(4, 8), 4, [8, 1], [2, 4]), "lists of integers, got 4"),
    ],
)
def test_arrays_that_descriptors_cannot_describe(arguments: tuple[Any, ...], problem: str):
    with pytest.raises(LaunchError, match=problem):
        TensorDescriptor(*arguments)


def test_programs_for_triton_expect_these_errors():
    with pytest.raises(ValueError, match="Shape element 1 must be a power of 2"):
        TensorDescriptor.from_tensor(array(4, 8), [2, 3])
    with pytest.raises(AssertionError, match="strides must be 16-byte aligned"):
        TensorDescriptor.from_tensor(array(4, 9), [2, 4])


def test_attributes_may_be_set_and_are_checked():
    d = described(array(4, 8), 2, 4)
    d.block_shape = [4, 8]
    assert d.block_shape == [4, 8]
    assert readers[TensorDescriptor](d)[0] == "tensordesc<fp32[4, 8]>"
    with pytest.raises(LaunchError, match="power of 2"):
        d.block_shape = [4, 3]
    assert d.block_shape == [4, 8]
    assert repr(d) == "TensorDescriptor(tensordesc<fp32[4, 8]>, shape=[4, 8], strides=[8, 1])"


def test_blocks_may_be_small():
    """Programs make descriptors before their blocks are known, of 1x1, and some have short rows."""
    x = array(4, 8)
    source, target = described(x, 1, 1), described(np.zeros_like(x), 1, 1)
    source.block_shape = target.block_shape = [2, 2]
    double[(2,)](source, target, 2.0, 4)
    np.testing.assert_array_equal(target.base[:, :2], 2 * x[:, :2])


def test_copies_are_descriptors_of_the_same_kind():
    d = described(array(4, 8), 2, 4)
    for made in (copy.copy(d), pickle.loads(pickle.dumps(d))):
        assert repr(made) == repr(d)
        np.testing.assert_array_equal(made.base, d.base)
    assert copy.copy(d).base is d.base


def test_the_array_must_be_aligned():
    bytes_ = np.zeros(4 * 8 * 4 + 16, np.uint8)
    skewed = bytes_[(-bytes_.ctypes.data) % 16 + 4 :][: 4 * 8 * 4].view(np.float32).reshape(4, 8)
    with pytest.raises(LaunchError, match=r"double: argument 'source'.*not aligned to 16 bytes"):
        double[(1,)](described(skewed, 2, 4), described(array(4, 8), 2, 4), 2.0, 4)


def test_our_own_arrays_may_be_described():
    x = array(4, 8)
    source, target = (triton.get_device("cpu").array(v) for v in (x, np.zeros_like(x)))
    double[(1,)](described(source, 2, 8), described(target, 2, 8), 2.0, 4)
    np.testing.assert_array_equal(target.to_numpy(), 2 * x)


@pytest.mark.parametrize("thing", [3, "x", (ctypes.c_float * 64)(), None])
def test_what_is_no_array_is_refused(thing: object):
    with pytest.raises(LaunchError, match="tensor descriptor of a"):
        described(thing, 2, 4)
    with pytest.raises(LaunchError, match="tensor descriptor of a"):
        TensorDescriptor(thing, [4, 8], [8, 1], [2, 4])


def test_variants_differ_by_block_and_not_by_size():
    kernel = triton.jit(double.fn)
    for rows, block in ((4, (2, 4)), (6, (2, 4)), (8, (4, 8))):
        x = array(rows, 8)
        target = np.zeros_like(x)
        kernel[(1,)](described(x, *block), described(target, *block), 2.0, 2 * rows)
        np.testing.assert_array_equal(target[:, : block[1]], 2 * x[:, : block[1]])
    blocks = sorted(str(k.signature["source"]) for k in kernel.cache.values())
    assert blocks[0] == "tensordesc<fp32[2, 4]>"
    assert set(blocks) == {"tensordesc<fp32[2, 4]>", "tensordesc<fp32[4, 8]>"}


SIGNATURE = {"source": "tensordesc<fp32[2, 4]>", "target": "tensordesc<fp32[2, 4]>", "scale": "fp32", "n": "i32"}


def test_compiled_ahead_of_time():
    compiled = triton.compile(double, SIGNATURE, {"BLOCK": 8})
    x = array(4, 4)
    for kernel in (compiled, pickle.loads(pickle.dumps(compiled))):
        target = np.zeros_like(x)
        kernel[(1,)](described(x, 2, 4), described(target, 2, 4), 3.0, 4)
        np.testing.assert_array_equal(target, 3 * x)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ((0, array(4, 4)), "'source' is a numpy.ndarray.*compiled for tensordesc<fp32"),
        ((0, described(array(4, 4), 4, 4)), r"'source' is a tensordesc<fp32\[4, 4\]>"),
        ((1, described(array(4, 8, dtype=np.float16), 2, 8)), r"'target' is a tensordesc<fp16\[2, 8\]>"),
        ((2, described(array(4, 4), 2, 4)), r"'scale' is a tensordesc<fp32\[2, 4\]>.*compiled for f32"),
        ((4, 1), r"argument 'BLOCK' is 1, the kernel was compiled for 8"),
    ],
)
def test_arguments_that_do_not_fit_a_compiled_kernel(change: tuple[int, Any], problem: str):
    compiled = triton.compile(double, SIGNATURE, {"BLOCK": 8})
    arguments: list[Any] = [described(array(4, 4), 2, 4), described(array(4, 4), 2, 4), 3.0, 4]
    arguments[change[0] : change[0] + 1] = [change[1]]
    with pytest.raises(LaunchError, match=problem):
        compiled.run((1,), *arguments)


def test_descriptors_on_a_gpu_are_flat_parameters():
    compiled = triton.compile(double, SIGNATURE, {"BLOCK": 8}, target="cuda:90a", stop_after="ptx")
    assert list(compiled.signature)[:4] == ["source", "source.size0", "source.size1", "source.stride0"]
    entry = str(compiled.asm["ptx"]).partition(".entry double(")[2].partition(")")[0]
    kinds = [line.split()[1] for line in entry.strip().splitlines()]
    assert [kind.lstrip(".") for kind in kinds][:4] == ["u64", "u32", "u32", "u64"]


def test_an_autotuner_may_set_the_block():
    def set_blocks(nargs: dict[str, Any]) -> None:
        for name in ("source", "target"):
            nargs[name].block_shape = [nargs["BLOCK"], 8]

    configs = [triton.Config({"BLOCK": b}, pre_hook=set_blocks) for b in (2, 8)]
    tuned = triton.autotune(configs, key=["n"])(triton.jit(double.fn))
    x, target = array(10, 8), np.zeros((10, 8), np.float32)
    given = described(x, 1, 8), described(target, 1, 8)
    tuned[(1,)](*given, 2.0, 10)
    np.testing.assert_array_equal(target, 2 * x)
    assert given[0].block_shape == [tuned.best_config.kwargs["BLOCK"], 8]


class Recorder:
    """Keeps what a launch says of itself."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def enter(self, event: LaunchEvent) -> None:
        self.seen.append(event.metadata()["source"])

    def exit(self, event: LaunchEvent) -> None:
        pass


@pytest.mark.parametrize("interpreted", [False, True])
def test_hooks_see_the_descriptor(interpreted: bool):
    recorder, source = Recorder(), described(array(4, 8), 2, 4)
    kernel = triton.jit(double.fn, launch_metadata=lambda grid, metadata, args: {"source": args["source"]})
    kernel.add_pre_run_hook(lambda *args, **options: recorder.seen.append(args[0]))
    add_launch_hook(recorder)
    try:
        with knobs.interpret.scope(interpreted):
            compiled = kernel[(1,)](source, described(array(4, 8), 2, 4), 2.0, 4)
        if compiled is not None:
            compiled.run((1,), source, described(array(4, 8), 2, 4), 2.0, 4)
    finally:
        remove_launch_hook(recorder)
    assert recorder.seen == [source] * (2 if interpreted else 3)


def test_a_read_only_array_is_not_stored_to():
    x, target = array(4, 8), array(4, 8)
    target.flags.writeable = False
    with pytest.raises(triton.CompilationError, match="const"):
        double[(1,)](described(x, 2, 4), described(target, 2, 4), 2.0, 4)


def test_set_allocator_is_accepted():
    assert triton.set_allocator(lambda size, alignment, stream: None) is None
