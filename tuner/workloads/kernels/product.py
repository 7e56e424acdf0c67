import deuteron as triton
import deuteron.language as tl


@triton.jit
def product(
    a_ptr,
    b_ptr,
    c_ptr,
    rows,
    columns,
    depth,
    first_row,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # Rows of c = a @ b from first_row on, in float64: a is (rows, depth), b (depth, columns), all in C order.
    m = first_row + tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float64)
    for start in range(0, depth, BLOCK_K):
        across = start + tl.arange(0, BLOCK_K)[None, :]
        down = start + tl.arange(0, BLOCK_K)[:, None]
        a = tl.load(a_ptr + m.to(tl.int64) * depth + across, mask=(m < rows) & (across < depth), other=0.0)
        b = tl.load(b_ptr + down.to(tl.int64) * columns + n, mask=(down < depth) & (n < columns), other=0.0)
        sums = tl.dot(a, b, sums)
    tl.store(c_ptr + m.to(tl.int64) * columns + n, sums, mask=(m < rows) & (n < columns))
