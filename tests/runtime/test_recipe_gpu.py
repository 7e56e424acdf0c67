"""Launch recipes on a real GPU: what the driver passes on and what the hardware copies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import LaunchError
from deuteron.compiler.launch_recipe import LaunchRecipe, TensorMap
from deuteron.compiler.runtime.launch.compiled import CompiledKernel
from deuteron.compiler.runtime.launch.specialize import specialize
from deuteron.compiler.runtime.variant.metadata import KernelMetadata
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.signature import parse_argument_type
from deuteron.compiler.target import Target

HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"

# The first program stores the three trailing parameters, the launched grid's x and the cluster's x.
TELL_GRID = (
    HEADER
    + """
.visible .entry tell_grid(.param .u64 out, .param .u32 x, .param .u32 y, .param .u32 z)
{
    .reg .pred %other;
    .reg .b32 %v;
    .reg .b64 %out;
    mov.u32 %v, %ctaid.x;
    setp.ne.u32 %other, %v, 0;
    @%other ret;
    ld.param.u64 %out, [out];
    ld.param.u32 %v, [x];
    st.global.u32 [%out], %v;
    ld.param.u32 %v, [y];
    st.global.u32 [%out+4], %v;
    ld.param.u32 %v, [z];
    st.global.u32 [%out+8], %v;
    mov.u32 %v, %nctaid.x;
    st.global.u32 [%out+12], %v;
    mov.u32 %v, %cluster_nctaid.x;
    st.global.u32 [%out+16], %v;
    ret;
}
"""
)


def tell_grid(gpu: Any, types: dict[str, str], recipe: LaunchRecipe) -> CompiledKernel:
    """:data:`TELL_GRID` for ``gpu``, whose driver compiles it."""
    metadata = KernelMetadata("tell_grid", gpu.target, "", 1, 1, 1, recipe)
    return CompiledKernel(metadata, {n: parse_argument_type(t) for n, t in types.items()}, {"ptx": TELL_GRID}, None)


@deuteron.jit
def product(a, b, out, M, N, K, stride, BLOCK: tl.constexpr):
    """``out`` (M, N) = ``a`` (M, K) times ``b`` (K, N); rows are ``stride`` elements apart in all of them."""
    left = tl.make_tensor_descriptor(a, (M, K), (stride, 1), (BLOCK, BLOCK))
    right = tl.make_tensor_descriptor(b, (K, N), (stride, 1), (BLOCK, BLOCK))
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        sums = tl.dot(left.load((row, k)), right.load((k, column)), sums)
    rows, columns = row + tl.arange(0, BLOCK)[:, None], column + tl.arange(0, BLOCK)[None, :]
    tl.store(out + rows * stride + columns, sums, mask=(rows < M) & (columns < N))


def tiles(m: int, n: int) -> tuple[int, int]:
    return -(-m // 64), -(-n // 64)


def test_the_product_of_this_file_has_descriptors() -> None:
    """On any machine: the tests below would show nothing about descriptors without them."""
    arrays = [np.zeros((64, 64), np.float16), np.zeros((64, 64), np.float16), np.zeros((64, 64), np.float32)]
    bound, schedule = product.bind((*arrays, 64, 64, 64, 64), {"BLOCK": 64})
    variant = specialize(product, bound, schedule).variant
    made = build(replace(variant, target=Target.parse("cuda:90a")))
    assert [d.base for d in made.recipe.descriptors] == ["a", "b", "out"]


@pytest.fixture
def gpu() -> Any:
    return deuteron.get_device("cuda:0")


@pytest.fixture
def copying_gpu(gpu: Any) -> Any:
    """A GPU with the copy engine and clusters, which :data:`TELL_GRID` and descriptors take."""
    capability = gpu.properties.compute_capability
    if capability < (9, 0):
        pytest.skip(f"needs a GPU of compute capability 9.0 or later (H100 and newer), not {capability}")
    return gpu


@pytest.mark.gpu
@pytest.mark.parametrize(("m", "n", "k", "stride"), [(64, 64, 64, 64), (13, 96, 70, 104), (200, 130, 129, 136)])
def test_the_hardware_copies_what_the_recipe_says(gpu: Any, m: int, n: int, k: int, stride: int) -> None:
    """Elements between the rows are NaN, which a copy beyond an extent would bring into the sums."""
    rng = np.random.default_rng(m)
    left, right = np.full((m, stride), np.nan, np.float16), np.full((k, stride), np.nan, np.float16)
    left[:, :k], right[:, :n] = rng.integers(-3, 4, (m, k)), rng.integers(-3, 4, (k, n))
    out = gpu.array(np.full((m, stride), 7, np.float32))
    product[tiles(m, n)](gpu.array(left), gpu.array(right), out, m, n, k, stride, BLOCK=64)
    expected = np.full((m, stride), 7, np.float32)
    expected[:, :n] = left[:, :k].astype(np.float64) @ right[:, :n].astype(np.float64)
    np.testing.assert_array_equal(out.to_numpy(), expected)


@pytest.mark.gpu
def test_a_stride_that_the_hardware_cannot_take(copying_gpu: Any) -> None:
    box = TensorMap("x", "f32", ("m", "n"), ("stride", 1), (8, 8), 0)
    types = {"x": "*f32", "m": "i32", "n": "i32", "stride": "i32"}
    made = tell_grid(copying_gpu, types, LaunchRecipe(32, descriptors=(box,)))
    with pytest.raises(LaunchError, match="'x' .* its stride stride along axis 0 is 3 elements, 12 bytes"):
        made.run((1,), copying_gpu.empty((64, 64), "f32"), 8, 3, 3)


@pytest.mark.gpu
@pytest.mark.parametrize(("grid", "cluster"), [((5, 2), 1), ((100_000, 3, 2), 1), ((64, 5), 2)])
def test_persistent_grids_and_clusters(copying_gpu: Any, grid: tuple[int, ...], cluster: int) -> None:
    recipe = LaunchRecipe(32, persistent=True, cluster=cluster)
    out = copying_gpu.empty((5,), "i32")
    tell_grid(copying_gpu, {"out": "*i32"}, recipe).run(grid, out)
    asked = (*grid, 1, 1)[:3]
    launched = min(int(np.prod(asked)), copying_gpu.properties.sm_count // cluster * cluster)
    assert out.to_numpy().tolist() == [*asked, launched, cluster]


@pytest.mark.gpu
def test_launches_are_captured_in_a_graph(torch: Any) -> None:
    x = torch.randint(-3, 4, (64, 64), device="cuda").half()
    unit = torch.eye(64, device="cuda", dtype=torch.float16)
    outs = [torch.zeros(64, 64, device="cuda") for _ in range(2)]
    product[(1, 1)](x, unit, outs[0], 64, 64, 64, 64, BLOCK=64)  # loads the kernel
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product[(1, 1)](x, unit, outs[0], 64, 64, 64, 64, BLOCK=64)
        product[(1, 1)](x, x, outs[1], 64, 64, 64, 64, BLOCK=64)  # makes descriptors while it captures
    x += 1
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(outs[0], x.float())
    assert torch.equal(outs[1], (x.double() @ x.double()).float())
