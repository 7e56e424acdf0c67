import deuteron as triton
import deuteron.language as tl


@triton.jit
def softmax_kernel(
    output_ptr,
    input_ptr,
    input_row_stride,
    output_row_stride,
    n_rows,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
):
    # A program normalises TILES tiles of ROWS whole rows; BLOCK_SIZE is a power of two >= n_cols.
    first = tl.program_id(axis=0) * (ROWS * TILES)
    columns = tl.arange(0, BLOCK_SIZE)
    for tile in range(TILES):
        rows = first + tile * ROWS + tl.arange(0, ROWS)
        mask = (rows[:, None] < n_rows) & (columns[None, :] < n_cols)
        source = input_ptr + rows[:, None] * input_row_stride + columns[None, :]
        x = tl.load(source, mask=mask, other=-float("inf")).to(tl.float32)
        numerator = tl.exp(x - tl.max(x, axis=1)[:, None])
        y = numerator / tl.sum(numerator, axis=1)[:, None]
        target = output_ptr + rows[:, None] * output_row_stride + columns[None, :]
        tl.store(target, y, mask=mask)
