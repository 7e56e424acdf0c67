"""Variants that a pool compiles while the program goes on: a launch waits for the one that it needs, for no other."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .compiled import CompiledKernel


class PendingKernel:
    """A variant that is being compiled; :meth:`result` waits for it."""

    def __init__(self, forget: Callable[[PendingKernel], object]) -> None:
        self._made: Future[CompiledKernel] = Future()
        self._forget = forget

    def begin(self, executor: Executor, compile: Callable[[], CompiledKernel]) -> None:
        """Have ``executor`` compile; raises what it raises where it takes nothing any more."""

        def work() -> None:
            try:
                self._made.set_result(compile())
            except BaseException as error:  # whoever asks for the result gets it
                self._made.set_exception(error)

        try:
            task = executor.submit(work)
        except RuntimeError as error:
            self._made.set_exception(error)
            self._forget(self)
            raise
        task.add_done_callback(lambda done: self._made.cancel() if done.cancelled() else None)

    def result(self) -> CompiledKernel:
        """The compiled variant; raises what compiling it raised, and the next launch tries again."""
        try:
            return self._made.result()
        except BaseException:
            self._forget(self)
            raise


class AsyncCompileMode:
    """Inside a ``with`` block ``kernel.warmup(...)`` hands the work to ``executor`` and returns at once, a
    :class:`PendingKernel` unless the variant is at hand. The end of the block waits for all of them, and raises the
    first error unless ``ignore_errors``.

    The executor is one of threads: kernels belong to the process.
    """

    def __init__(self, executor: Executor, *, ignore_errors: bool = False) -> None:
        self.executor, self.ignore_errors = executor, ignore_errors
        self._pending: list[PendingKernel] = []
        self._token: Token[AsyncCompileMode | None] | None = None

    def begin(self, forget: Callable[[PendingKernel], object]) -> PendingKernel:
        """A variant that the end of the block waits for; it is not being compiled yet."""
        made = PendingKernel(forget)
        self._pending.append(made)
        return made

    def __enter__(self) -> AsyncCompileMode:
        self._token = active_mode.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            active_mode.reset(self._token)
        first: Exception | None = None
        for pending in self._pending:
            try:
                pending.result()
            except Exception as found:
                first = first or found
        self._pending.clear()
        if first is not None and error is None and not self.ignore_errors:
            raise first


#: The block that this thread is in.
active_mode: ContextVar[AsyncCompileMode | None] = ContextVar("active_mode", default=None)
