"""Launch recipes on a real GPU, with hand-written kernels: what the driver passes on and what the hardware copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deuteron
from deuteron.compiler.errors import LaunchError
from deuteron.compiler.launch_recipe import LaunchRecipe, TensorMap
from deuteron.compiler.runtime.launch.compiled import CompiledKernel
from deuteron.compiler.runtime.variant.metadata import KernelMetadata
from deuteron.compiler.signature import parse_argument_type

HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"

# One warp copies a box of 8 rows of 8 f32 at (row, column) through shared memory to `out`.
COPY_BOX = (
    HEADER
    + """
.visible .entry copy_box(.param .u64 x, .param .u64 out, .param .u32 m, .param .u32 n, .param .u32 stride,
                         .param .u32 row, .param .u32 column, .param .align 64 .b8 box[128])
{
    .reg .pred %first, %done;
    .reg .b32 %thread, %row, %column, %bar, %tile, %from;
    .reg .b64 %out, %map, %state, %offset, %value;
    .shared .align 128 .b8 tile[256];
    .shared .align 8 .b64 bar;
    mov.u32 %thread, %tid.x;
    ld.param.u32 %row, [row];
    ld.param.u32 %column, [column];
    ld.param.u64 %out, [out];
    mov.u32 %bar, bar;
    mov.u32 %tile, tile;
    setp.eq.u32 %first, %thread, 0;
    @!%first bra READY;
    mbarrier.init.shared::cta.b64 [%bar], 1;
    fence.proxy.async.shared::cta;
    mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%bar], 256;
    mov.b64 %map, box;
    cvta.param.u64 %map, %map;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [%tile], [%map, {%column, %row}], [%bar];
READY:
    bar.sync 0;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], 0;
    @!%done bra WAIT;
    shl.b32 %from, %thread, 3;
    cvt.u64.u32 %offset, %from;
    add.u64 %out, %out, %offset;
    add.u32 %from, %from, %tile;
    ld.shared.b64 %value, [%from];
    st.global.b64 [%out], %value;
    ret;
}
"""
)

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


def kernel(name: str, ptx: str, types: dict[str, str], recipe: LaunchRecipe) -> CompiledKernel:
    metadata = KernelMetadata(name, "cuda:90", "", 1, 1, 1, recipe)
    return CompiledKernel(metadata, {n: parse_argument_type(t) for n, t in types.items()}, {"ptx": ptx}, None)


def copy_box(padding: str = "zero") -> CompiledKernel:
    types = {"x": "*f32", "out": "*f32", **dict.fromkeys(("m", "n", "stride", "row", "column"), "i32")}
    box = TensorMap("x", "f32", ("m", "n"), ("stride", 1), (8, 8), 0, padding)
    return kernel("copy_box", COPY_BOX, types, LaunchRecipe(32, descriptors=(box,)))


@pytest.mark.parametrize(("name", "text"), [("copy_box", COPY_BOX), ("tell_grid", TELL_GRID)])
def test_the_kernels_of_this_file_assemble(name: str, text: str) -> None:
    """On any machine with an assembler."""
    from deuteron.compiler.options import Schedule
    from deuteron.compiler.target import Target
    from deuteron.compiler.targets import nvptx

    if nvptx.find_ptxas() is None:
        pytest.skip("no ptxas here")
    assert nvptx.assemble(text, Target.parse("cuda:90a"), Schedule()).image


@pytest.fixture
def gpu() -> Any:
    device = deuteron.get_device("cuda:0")
    if (device.properties.compute_capability or (0, 0))[0] != 9:
        pytest.skip("the kernels of this file are for compute capability 9")
    return device


@pytest.mark.gpu
@pytest.mark.parametrize(("m", "n", "stride"), [(64, 40, 40), (13, 11, 12), (3, 100, 104)])
@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_the_hardware_copies_what_the_recipe_says(gpu: Any, m: int, n: int, stride: int, padding: str) -> None:
    host = np.random.default_rng(m).standard_normal((m, stride)).astype(np.float32)
    x, out = gpu.array(host), gpu.empty((8, 8), "f32")
    made = copy_box(padding)
    for row, column in ((0, 0), (2, 5), (m - 3, n - 2), (-2, -1)):
        made.run((1,), x, out, m, n, stride, row, column)
        expected = np.full((8, 8), 0 if padding == "zero" else np.nan, np.float32)
        for i in range(8):
            for j in range(8):
                if 0 <= row + i < m and 0 <= column + j < n:
                    expected[i, j] = host[row + i, column + j]
        np.testing.assert_array_equal(out.to_numpy(), expected)


@pytest.mark.gpu
def test_a_stride_that_the_hardware_cannot_take(gpu: Any) -> None:
    x, out = gpu.empty((64, 64), "f32"), gpu.empty((8, 8), "f32")
    with pytest.raises(LaunchError, match="'x' .* its stride stride along axis 0 is 3 elements, 12 bytes"):
        copy_box().run((1,), x, out, 8, 3, 3, 0, 0)


@pytest.mark.gpu
@pytest.mark.parametrize(("grid", "cluster"), [((5, 2), 1), ((100_000, 3, 2), 1), ((64, 5), 2)])
def test_persistent_grids_and_clusters(gpu: Any, grid: tuple[int, ...], cluster: int) -> None:
    recipe = LaunchRecipe(32, persistent=True, cluster=cluster)
    out = gpu.empty((5,), "i32")
    kernel("tell_grid", TELL_GRID, {"out": "*i32"}, recipe).run(grid, out)
    asked = (*grid, 1, 1)[:3]
    launched = min(int(np.prod(asked)), gpu.properties.sm_count // cluster * cluster)
    assert out.to_numpy().tolist() == [*asked, launched, cluster]


@pytest.mark.gpu
def test_launches_are_captured_in_a_graph(gpu: Any) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    x = torch.arange(4096, device="cuda", dtype=torch.float32).reshape(64, 64)
    outs = [torch.zeros(8, 8, device="cuda") for _ in range(2)]
    made = copy_box()
    made.run((1,), x, outs[0], 64, 64, 64, 0, 0)  # loads the kernel
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i, out in enumerate(outs):
            made.run((1,), x, out, 64, 64, 64, 8 * i, 4)
    x += 1
    graph.replay()
    torch.cuda.synchronize()
    for i, out in enumerate(outs):
        assert torch.equal(out, x[8 * i : 8 * i + 8, 4:12])
