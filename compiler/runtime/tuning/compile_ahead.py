"""Work done by threads ahead of when its results are needed: compiling the candidates of a search.

Threads suffice: of the 80 to 150 ms that a matmul for a GPU takes, 10 to 15 are spent in Python and 25 to 60 in LLVM,
which runs beside Python but takes one module at a time. The rest is the assembler's, as parallel as there are cores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from time import perf_counter
from typing import TypeVar

from ...cores import usable_cores

K = TypeVar("K")

#: More threads would wait for LLVM and for the interpreter's lock, except those whose assembler takes long.
_MOST_THREADS = 16
#: When this part of the tasks has ended, the others are waited for only as long again.
_QUORUM = 0.75


def waves(
    tasks: Mapping[K, Callable[[], object]], *, overlap: bool
) -> Generator[dict[K, Exception | None], None, None]:
    """Run ``tasks`` in threads; yield those that have ended, in their order, each with the error that it raised.

    With ``overlap`` a few that take much longer than most do not hold up the rest: they come in a later wave and run on
    while the caller works with the first. Without it there is one wave. Closing the generator drops tasks that have not
    begun and waits for the others.
    """
    pool = ThreadPoolExecutor(max(min(len(tasks), usable_cores(), _MOST_THREADS), 1), "compile")
    try:
        futures = {key: pool.submit(_error_of, task) for key, task in tasks.items()}
        waiting = set(futures.values())
        while waiting:
            ended = _ended(waiting) if overlap else wait(waiting).done
            waiting -= ended
            yield {key: future.result() for key, future in futures.items() if future in ended}
    finally:
        pool.shutdown(cancel_futures=True)


def _error_of(task: Callable[[], object]) -> Exception | None:
    try:
        task()
    except Exception as error:  # the caller decides what it means
        return error
    return None


def _ended(waiting: set[Future[Exception | None]]) -> set[Future[Exception | None]]:
    """Wait for most, and then for the others as long as that took."""
    begin = perf_counter()
    quorum = math.ceil(_QUORUM * len(waiting))
    ended: set[Future[Exception | None]] = set()
    for future in as_completed(waiting):
        ended.add(future)
        if len(ended) == quorum:
            break
    return ended | wait(waiting - ended, timeout=perf_counter() - begin).done
