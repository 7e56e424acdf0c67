"""Programs made up from a seed that enter and leave scopes in every way that there is.

Each draws few kinds of steps, since one generator with a scope in it changes how all others are entered.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """``kind`` is a method of :class:`Runner`; ``body`` is what it does inside."""

    kind: str
    name: str
    body: tuple[Step, ...] = ()


_PLAIN = ("scope", "scope", "scope", "kernel", "kernel")
#: Of these a program has some.
KINDS = (
    *("kept", "metrics", "timed", "decorated", "fails", "by_hand", "out_of_order", "left_twice", "misnamed"),
    *("state", "state_begins", "state_ends", "thread", "copied", "thread_in_copy", "left_by_thread", "left_in_copy"),
    *("stays", "outlives", "gpu_launch", "cpu_launch", "session", "frames", "trace", "metadata", "restart", "phase"),
    *("pause", "pause_in_thread", "generator", "suspended", "tasks", "callback"),
)


def make_program(seed: int, kinds: tuple[str, ...] = (), depth: int = 4) -> tuple[Step, ...]:
    """The steps of a program: of scopes and kernels, and some of ``KINDS``, or these."""
    draw = random.Random(seed)
    chosen = (*_PLAIN, *(kinds or draw.sample(KINDS, draw.randint(1, 6))))

    def steps(depth: int) -> tuple[Step, ...]:
        return tuple(step(depth) for _ in range(draw.randint(1, 4)))

    def step(depth: int) -> Step:
        kind = draw.choice(chosen)
        return Step(kind, draw.choice("ab"), steps(depth - 1) if depth and kind != "kernel" else ())

    return steps(depth)
