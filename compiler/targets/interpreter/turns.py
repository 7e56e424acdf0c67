"""Programs that take turns, so that they may wait for each other.

Each has a thread, and one of them runs at a time: the others stand still until it ends or is about to look at memory
that other programs change, which is when it gives the turn to the next one. So a run is the same every time, and memory
needs no locks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ..together import check_together, too_few_threads

#: What a program calls before it looks at memory that others change.
Turn = Callable[[], None]


def run_in_turns(total: int, run: Callable[[int, Turn], None]) -> None:
    """``run(number, turn)`` for programs 0..total-1, which begin in this order; they call ``turn`` to let others run.

    Raises LaunchError for more programs than there may be threads, and what the first failing program raised; the
    others are given up then, wherever they stand.
    """
    check_together(total, "the interpreter")
    _Turns(total, run).run()


class _GivenUp(BaseException):
    """Ends a program whose launch has failed."""


class _Turns:
    def __init__(self, total: int, run: Callable[[int, Turn], None]) -> None:
        self._run = run
        self._gates = [threading.Semaphore(0) for _ in range(total)]
        self._waiting = deque(range(total))  # only who has the turn touches it
        self._ended = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        """All programs; returns when the last one has ended."""
        self._start()
        try:
            self._hand_on()
            self._ended.wait()
        except BaseException as error:  # Ctrl-C: who has the turn goes on to the next one's, which is given up
            self._failure = error
            self._ended.wait()
        if self._failure is not None:
            raise self._failure

    def _start(self) -> None:
        for number in range(len(self._gates)):
            try:
                threading.Thread(target=self._program, args=(number,), daemon=True, name="deuteron-program").start()
            except RuntimeError as error:  # what Python raises where the system has no more
                self._failure = too_few_threads(len(self._gates), number)
                self._failure.__cause__ = error
                self._waiting = deque(range(number))
                return

    def _program(self, number: int) -> None:
        self._gates[number].acquire()
        try:
            if self._failure is None:
                self._run(number, lambda: self._turn(number))
        except _GivenUp:
            pass
        except BaseException as error:  # noqa: BLE001 - handed to the thread that launched
            self._failure = self._failure or error
        finally:
            self._hand_on()

    def _turn(self, number: int) -> None:
        if self._waiting:
            self._waiting.append(number)
            self._hand_on()
            self._gates[number].acquire()
        if self._failure is not None:
            raise _GivenUp

    def _hand_on(self) -> None:
        """The next program's turn, if one is left."""
        if self._waiting:
            self._gates[self._waiting.popleft()].release()
        else:
            self._ended.set()
