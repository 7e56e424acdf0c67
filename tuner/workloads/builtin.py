"""The built-in workloads: vector_add, softmax, layer_norm, matmul."""

from __future__ import annotations

from ..space import Parameter, Space
from .own_kernels import own_kernel
from .spec import Tensor, WorkloadSpec

FLOATS = ("f32", "f16", "bf16")


def _fitting(least: int) -> tuple[str, ...]:
    """The space of a matmul must not offer tiles far larger than the matrix: they compute what the masks throw away."""
    return tuple(f"BLOCK_{dim} <= max({least}, next_power_of_2({dim}))" for dim in "MNK")


def vector_add() -> WorkloadSpec:
    """output = x + y over n elements: pure bandwidth."""
    return WorkloadSpec(
        name="vector_add",
        kernel=own_kernel("vector_add.py", "vector_add_kernel"),
        dims=("n",),
        dtypes=FLOATS,
        tensors=(
            Tensor("x_ptr", ("n",)),
            Tensor("y_ptr", ("n",)),
            Tensor("output_ptr", ("n",), role="output"),
        ),
        scalars={"n_elements": "n"},
        constexprs={},
        grid=("cdiv(n, BLOCK_SIZE)",),
        flops="n",
        bytes="3 * n * element_bytes",
        spaces={
            "cpu": Space((Parameter("BLOCK_SIZE", tuple(2**i for i in range(8, 17))),)),
            "cuda": Space(
                (
                    Parameter("BLOCK_SIZE", tuple(2**i for i in range(7, 14))),
                    Parameter("num_warps", (1, 2, 4, 8)),
                ),
                ("BLOCK_SIZE >= 32 * num_warps", "BLOCK_SIZE <= 1024 * num_warps"),
            ),
        },
        defaults={"cpu": {"BLOCK_SIZE": 1024}, "cuda": {"BLOCK_SIZE": 1024, "num_warps": 4}},
        reference="vector_add",
        shapes=({"n": 1 << 20}, {"n": 1 << 24}),
    )


def softmax() -> WorkloadSpec:
    """Softmax of each row of an M x N matrix; a row lives in one program."""
    tiles = (
        Parameter("ROWS", (1, 2, 4, 8, 16)),
        Parameter("TILES", (1, 2, 4, 8, 16)),
    )
    return WorkloadSpec(
        name="softmax",
        kernel=own_kernel("softmax.py", "softmax_kernel"),
        dims=("M", "N"),
        dtypes=FLOATS,
        tensors=(
            Tensor("output_ptr", ("M", "N"), role="output"),
            Tensor("input_ptr", ("M", "N")),
        ),
        scalars={
            "input_row_stride": "N",
            "output_row_stride": "N",
            "n_rows": "M",
            "n_cols": "N",
        },
        constexprs={"BLOCK_SIZE": "next_power_of_2(N)"},
        grid=("cdiv(M, ROWS * TILES)",),
        flops="5 * M * N",
        bytes="2 * M * N * element_bytes",
        spaces={
            "cpu": Space(tiles, ("ROWS * next_power_of_2(N) <= 2**17", "ROWS * TILES <= M")),
            "cuda": Space(
                (*tiles, Parameter("num_warps", (1, 2, 4, 8, 16))),
                (
                    "ROWS * TILES * sm_count <= M or ROWS * TILES == 1",
                    "ROWS * next_power_of_2(N) <= 2048 * num_warps",
                    "ROWS * next_power_of_2(N) >= 32 * num_warps or num_warps == 1",
                ),
            ),
        },
        defaults={"cpu": {"ROWS": 1, "TILES": 1}, "cuda": {"ROWS": 1, "TILES": 1, "num_warps": 4}},
        reference="softmax",
        shapes=({"M": 4096, "N": 1024}, {"M": 1823, "N": 781}),
    )


def layer_norm() -> WorkloadSpec:
    """Layer norm forward of each row of an M x N matrix, with mean and rstd kept for a backward pass."""
    blocks = Parameter("BLOCK_SIZE", tuple(2**i for i in range(7, 14)))
    fits = "BLOCK_SIZE <= max(128, next_power_of_2(N))"
    return WorkloadSpec(
        name="layer_norm",
        kernel=own_kernel("layer_norm.py", "layer_norm_kernel"),
        dims=("M", "N"),
        dtypes=FLOATS,
        tensors=(
            Tensor("x_ptr", ("M", "N")),
            Tensor("y_ptr", ("M", "N"), role="output"),
            Tensor("weight_ptr", ("N",)),
            Tensor("bias_ptr", ("N",)),
            Tensor("mean_ptr", ("M",), dtype="f32", role="output"),
            Tensor("rstd_ptr", ("M",), dtype="f32", role="output"),
        ),
        scalars={"row_stride": "N", "n_cols": "N", "eps": "1e-5"},
        constexprs={},
        grid=("M",),
        flops="8 * M * N",
        bytes="(2 * M * N + 2 * N) * element_bytes + 8 * M",
        spaces={
            "cpu": Space((blocks,), (fits,)),
            "cuda": Space(
                (blocks, Parameter("num_warps", (1, 2, 4, 8, 16))),
                (fits, "BLOCK_SIZE >= 32 * num_warps", "BLOCK_SIZE <= 1024 * num_warps"),
            ),
        },
        defaults={"cpu": {"BLOCK_SIZE": 1024}, "cuda": {"BLOCK_SIZE": 1024, "num_warps": 4}},
        reference="layer_norm",
        shapes=({"M": 4096, "N": 1024}, {"M": 1151, "N": 8192}),
    )


def matmul() -> WorkloadSpec:
    """C = A @ B, row major, f32 accumulation; f32 inputs are multiplied in IEEE precision."""
    return WorkloadSpec(
        name="matmul",
        kernel=own_kernel("matmul.py", "matmul_kernel"),
        dims=("M", "N", "K"),
        dtypes=FLOATS,
        tensors=(
            Tensor("a_ptr", ("M", "K")),
            Tensor("b_ptr", ("K", "N")),
            Tensor("c_ptr", ("M", "N"), role="output"),
        ),
        scalars={
            "M": "M",
            "N": "N",
            "K": "K",
            "stride_am": "K",
            "stride_ak": "1",
            "stride_bk": "N",
            "stride_bn": "1",
            "stride_cm": "N",
            "stride_cn": "1",
        },
        constexprs={"PRECISION": "'ieee'"},
        grid=("cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)",),
        flops="2 * M * N * K",
        bytes="(M * K + K * N + M * N) * element_bytes",
        spaces={
            "cpu": Space(
                (
                    Parameter("BLOCK_M", (16, 32, 64, 128)),
                    Parameter("BLOCK_N", (16, 32, 64, 128, 256)),
                    Parameter("BLOCK_K", (16, 32, 64, 128, 256)),
                    Parameter("GROUP_M", (1, 8)),
                ),
                (*_fitting(16), "BLOCK_M * BLOCK_N <= 2**14", "(BLOCK_M + BLOCK_N) * BLOCK_K <= 2**16"),
            ),
            "cuda": Space(
                (
                    Parameter("BLOCK_M", (16, 32, 64, 128, 256)),
                    Parameter("BLOCK_N", (16, 32, 64, 128, 256)),
                    Parameter("BLOCK_K", (32, 64, 128)),
                    Parameter("GROUP_M", (1, 4, 8, 16)),
                    Parameter("num_warps", (4, 8)),
                    Parameter("num_stages", (2, 3, 4, 5, 6)),
                    Parameter("persistent", (False, True)),
                ),
                (
                    *_fitting(64),  # rows of one wgmma instruction
                    # Small tiles are for small matrices: large ones would be read again and again.
                    "BLOCK_M >= min(64, next_power_of_2(M))",
                    "BLOCK_N >= min(64, next_power_of_2(N))",
                    # Groups as tall as the matrix are one and the same.
                    "GROUP_M == 8 or min(GROUP_M, 8) < cdiv(M, BLOCK_M)",
                    # 255 registers a thread: the f32 accumulator may take about half of them.
                    "BLOCK_M * BLOCK_N <= 128 * 32 * num_warps",
                    "BLOCK_M * BLOCK_N >= 4 * 32 * num_warps",
                    # The ring has a slot of both operands for each stage, and there are no more slots than iterations.
                    # The result passes through the ring when that is idle, as it never is in a persistent program:
                    # there it has memory of its own, to be written from while the next tile is computed. Two groups
                    # of warps write 64 rows of their own, for which f32, whose IEEE products are multiply-adds,
                    # changes its layout through more memory.
                    "num_stages * (BLOCK_M + BLOCK_N) * BLOCK_K * element_bytes"
                    " + persistent * (element_bytes == 4 and num_warps == 8 and BLOCK_M >= 128)"
                    " * min(65536, BLOCK_M * BLOCK_N * element_bytes)"
                    " + persistent * min(32768, BLOCK_M * BLOCK_N * element_bytes) <= shared_bytes",
                    "num_stages <= max(2, cdiv(K, BLOCK_K))",
                    # Staying pays where there are more tiles than SMs.
                    "not persistent or cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N) > sm_count",
                ),
            ),
        },
        defaults={
            "cpu": {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8},
            "cuda": {
                "BLOCK_M": 128,
                "BLOCK_N": 128,
                "BLOCK_K": 64,
                "GROUP_M": 8,
                "num_warps": 8,
                "num_stages": 3,
                "persistent": False,
            },
        },
        reference="matmul",
        shapes=({"M": 512, "N": 512, "K": 512}, {"M": 1024, "N": 1024, "K": 1024}),
    )
