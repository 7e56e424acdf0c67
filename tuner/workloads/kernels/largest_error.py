import deuteron as triton
import deuteron.language as tl


@triton.jit
def largest_error(
    got_ptr,
    want_ptr,
    errors_ptr,
    size,
    period,
    relative,
    least,
    EXACT: tl.constexpr,
    REPEATED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # Each program stores the largest error among its blocks in units of what is allowed there, infinity where exactly
    # one of two elements is NaN or infinite. EXACT: integers of one type, which are equal or not. REPEATED: wanted are
    # so many elements again and again.
    largest = tl.zeros((BLOCK,), tl.float64)
    first = tl.program_id(0).to(tl.int64) * BLOCK
    for start in range(first, size, tl.num_programs(0).to(tl.int64) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        got = tl.load(got_ptr + at, mask=at < size, other=0)
        place = at % period if REPEATED else at
        want = tl.load(want_ptr + place, mask=at < size, other=0)
        if EXACT:
            error = tl.where(got == want, 0.0, float("inf")).to(tl.float64)
        else:
            have = got.to(tl.float64)
            true = want.to(tl.float64)
            ratio = tl.abs(have - true) / (tl.abs(true) * relative + least)
            same = (have == true) | ((have != have) & (true != true))
            # NaN is not below infinity.
            error = tl.where(same, 0.0, tl.where(ratio < float("inf"), ratio, float("inf")))
        largest = tl.maximum(largest, error)
    tl.store(errors_ptr + tl.program_id(0), tl.max(largest, axis=0))
