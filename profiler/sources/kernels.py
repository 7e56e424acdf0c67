"""Kernels that the profiler itself runs on GPUs."""

# mypy: ignore-errors

from deuteron.compiler import jit
from deuteron.compiler import language as tl


@jit
def tell_metric(value, count, header, ring, reserved, last, FLOAT: tl.constexpr, BLOCK: tl.constexpr):
    """Copy ``count`` elements at ``value`` to the ring, whose size is a power of two and ``last`` one less, as words of
    64 bits behind ``header``, in the next place that nobody has ``reserved``. One block; nothing for a ``count`` of 0.
    """
    if count > 0:
        begin = tl.atomic_add(reserved, (count + 1).to(tl.int64), sem="relaxed")
        for first in range(0, count, BLOCK):
            at = first + tl.arange(0, BLOCK)
            element = tl.load(value + at, mask=at < count)
            word = element.to(tl.float64).to(tl.int64, bitcast=True) if FLOAT else element.to(tl.int64)
            tl.store(ring + ((begin + 1 + at) & last), word, mask=at < count)
        tl.debug_barrier()
        tl.atomic_xchg(ring + (begin & last), header, sem="release", scope="sys")
