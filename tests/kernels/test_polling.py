"""``tl.atomic_poll``: who waits goes on once memory has what it waits for, or when its time is over."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import CompilationError


@triton.jit
def wait_for_one(flag, out, expected, SEM: tl.constexpr, SCOPE: tl.constexpr):
    tl.store(out, tl.atomic_poll(flag, expected, sem=SEM, scope=SCOPE))


@triton.jit
def hand_over(flags, payload, out, N: tl.constexpr):
    """Program 0 hands its numbers to program 1, in whatever order both run where they can wait for each other."""
    i = tl.arange(0, N)
    if tl.program_id(0) == 0:
        tl.store(payload + i, i * i)
        tl.atomic_xchg(flags + i, i + 1, sem="release")
    else:
        found = (flags + i).atomic_poll(i + 1)
        tl.store(out + i, tl.where(found, tl.load(payload + i), -1))


@triton.jit
def wait_a_while(flags, out, N: tl.constexpr, timeout):
    i = tl.arange(0, N)
    tl.store(out + i, tl.atomic_poll(flags + i, 1, timeout_ns=timeout))


@pytest.mark.parametrize("sem", ["acquire", "relaxed", None])
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.uint32, np.int64])
def test_what_is_there_is_waited_for_no_longer(launch, dtype, sem) -> None:
    flag, out = launch(wait_for_one, (1,), np.full(1, 7, dtype), np.zeros(1, np.int32), 7, SEM=sem, SCOPE="sys")[:2]
    assert (flag[0], out[0]) == (7, 1)


@triton.jit
def wait_for_known(flag, out, EXPECTED: tl.constexpr):
    tl.store(out, tl.atomic_poll(flag, EXPECTED))


@pytest.mark.parametrize(("dtype", "expected"), [(np.uint32, -1), (np.uint16, -1), (np.int16, 70000)])
def test_what_is_waited_for_has_the_type_of_memory(launch, dtype, expected) -> None:
    """A number that memory never equals as it is written would be waited for without end."""
    flag = np.array([expected], np.int64).astype(dtype)
    assert launch(wait_for_known, (1,), flag, np.zeros(1, np.int32), EXPECTED=expected)[1][0] == 1


def test_one_program_waits_for_another(launch) -> None:
    zeros = np.zeros(64, np.int32)
    flags, _, out = launch(hand_over, (2,), zeros, zeros, zeros, N=64)
    assert flags.tolist() == list(range(1, 65)) and out.tolist() == [i * i for i in range(64)]


def test_the_first_program_waits_for_the_second() -> None:
    """Of a cooperative grid on the CPU both run at the same time."""
    flags, payload, out = (np.zeros(64, np.int32) for _ in range(3))

    @triton.jit
    def taken_over(flags, payload, out, N: tl.constexpr):
        i = tl.arange(0, N)
        if tl.program_id(0) == 1:
            tl.store(payload + i, i * i)
            tl.atomic_xchg(flags + i, i + 1, sem="release")
        else:
            tl.atomic_poll(flags + i, i + 1)
            tl.store(out + i, tl.load(payload + i))

    taken_over[(2,)](flags, payload, out, N=64, launch_cooperative_grid=True)
    assert out.tolist() == [i * i for i in range(64)]


@pytest.mark.parametrize("launch", ["ptx", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("timeout", [0, 2000])
def test_what_does_not_come_is_false(launch, timeout) -> None:
    flags = np.array([1, 0, 1, 2], np.int32)
    out = launch(wait_a_while, (1,), flags, np.full(4, 9, np.int32), N=4, timeout=timeout)[1]
    assert out.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("dtype", "sem", "said"),
    [(np.float32, "acquire", "integers of 16, 32 or 64 bits"), (np.int32, "release", "acquire or relaxed")],
)
def test_what_cannot_be_waited_for(dtype, sem, said) -> None:
    with pytest.raises(CompilationError, match=said):
        wait_for_one[(1,)](np.zeros(1, dtype), np.zeros(1, np.int32), 0, SEM=sem, SCOPE="gpu")
