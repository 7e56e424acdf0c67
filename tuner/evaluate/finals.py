"""The processes of one problem's finals, beside the one that screens."""

from __future__ import annotations

from msgspec.structs import replace

from .measuring import MeasuringProcess
from .messages import Prepare
from .processes import Processes


class FinalProcesses:
    """For each final, which its seed names, a process that has not seen the problem: neither screened it nor was in
    another of its finals.

    A final is wanted until its process may begin, prepared beside what is measured, and taken when its race begins. All
    processes are given back together, when no final of this problem can get them any more.
    """

    def __init__(self, processes: Processes, prepare: Prepare) -> None:
        self._processes, self._prepare = processes, prepare
        self._wanted: list[int] = []
        self._prepared: dict[int, MeasuringProcess] = {}
        self._taken: list[MeasuringProcess] = []

    def want(self, seed: int) -> None:
        """A final of ``seed`` will follow; said twice, it is one."""
        if seed not in (*self._prepared, *self._wanted):
            self._wanted.append(seed)

    def prepare_wanted(self) -> None:
        """Begin to prepare those that are wanted."""
        for seed in self._wanted:
            self._prepared[seed] = self._new(seed)
            self._prepared[seed].begin_preparing()
        self._wanted.clear()

    def take(self, seed: int) -> MeasuringProcess:
        """The process that was prepared for the final of ``seed``, once; else another one."""
        process = self._prepared.pop(seed, None) or self._new(seed)
        self._taken.append(process)
        return process

    def give_back(self) -> None:
        """Leave them to the finals of other problems, first those that were never taken."""
        for process in (*self._prepared.values(), *self._taken):
            self._processes.give_back_final(process)
        self._prepared.clear()
        self._taken.clear()

    def _new(self, seed: int) -> MeasuringProcess:
        return self._processes.take_final(replace(self._prepare, seed=seed), limited=False)
