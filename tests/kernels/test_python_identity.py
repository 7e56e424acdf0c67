"""What runs as Python while a kernel is compiled needs no text; what it does is part of the kernel all the same."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler import errors


def scaled(scale):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(x, more=0):
            return scale(function(x)) + more

        return wrapper

    return decorate


def with_its_own(function):
    twice = lambda v: v * 2  # noqa: E731 -- what programs do

    @functools.wraps(function)
    def wrapper(*given, **named):
        return twice(function(*given, **named))

    return wrapper


def with_one_of_exec(function):
    names = {}
    exec("def more(x): return x + 50", names)  # noqa: S102 -- the text above
    more = names["more"]

    @functools.wraps(function)
    def wrapper(x):
        return more(function(x))

    return wrapper


@triton.constexpr_function
@scaled(scale=lambda v: v * 2)
def given_a_lambda(x):
    return x + 1


@triton.constexpr_function
@with_its_own
def around_a_lambda(x):
    return x + 1


@triton.constexpr_function
@with_one_of_exec
def around_exec(x):
    return x


adding = lambda a: lambda b: a + b  # noqa: E731 -- what programs do


@triton.constexpr_function
def calls_a_lambda(x):
    return adding(1)(x)


@triton.constexpr_function
@functools.cache
def kept(x):
    return x + 7


a_lambda = triton.constexpr_function(lambda x: x + 8)


@triton.jit
def kernel(o_ptr, N: tl.constexpr):
    tl.store(o_ptr, given_a_lambda(N))
    tl.store(o_ptr + 1, around_a_lambda(N))
    tl.store(o_ptr + 2, around_exec(N))
    tl.store(o_ptr + 3, calls_a_lambda(N))
    tl.store(o_ptr + 4, kept(N))
    tl.store(o_ptr + 5, a_lambda(N))


def test_functions_without_a_text_of_their_own(launch) -> None:
    assert launch(kernel, (1,), np.zeros(6, np.int32), N=3)[0].tolist() == [8, 8, 53, 4, 10, 11]


def test_keys_of_functions_without_a_text_of_their_own() -> None:
    functions = (given_a_lambda, around_a_lambda, around_exec, calls_a_lambda, kept, a_lambda)
    assert len({function.cache_key for function in functions}) == 6
    assert given_a_lambda.src == "def given_a_lambda(x):\n    return x + 1"
    assert kept.src == "def kept(x):\n    return x + 7"
    with pytest.raises(errors.UnsupportedSyntax, match="<lambda> is not a plain function"):
        _ = a_lambda.src


def test_a_lambda_among_the_lines_of_a_def_is_no_kernel() -> None:
    """The lines that Python has for it are those of the function that it is given to: nothing has changed."""
    made = []

    @(lambda function: made.append(triton.jit(lambda x: x)) or function)
    def decorated(x):
        return x

    with pytest.raises(errors.UnsupportedSyntax, match="is not a plain function"):
        triton.compile(made[0], {"x": "*i32"}, target="cpu")


FUNCTIONS = {"a": lambda x: x + 1}


@triton.constexpr_function
def from_a_table(x):
    return FUNCTIONS["a"](x)


@triton.jit
def tabled(o_ptr):
    tl.store(o_ptr, from_a_table(3))


def test_a_lambda_in_a_table_may_not_change_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    out = np.zeros(1, np.int32)
    tabled[(1,)](out)
    monkeypatch.setitem(FUNCTIONS, "a", lambda x: x + 2)
    with pytest.raises(errors.KernelMismatch, match="Global variable FUNCTIONS has changed"):
        tabled[(1,)](out)


# -- as programs change

PROGRAM = """
import functools
import beside
import deuteron as triton
import deuteron.language as tl

def scaled(scale):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(x, more={N}):
            return scale(function(x)) + more + {N}
        return wrapper
    return decorate

class Rate:
    by = staticmethod(lambda x: x + {N})
    def __init__(self):
        self.n = {N}
    def __call__(self, x):
        return x + {N}
    def get(self):
        return {N}
    @functools.cached_property
    def kept(self):
        return {N}

class Derived(Rate):
    pass

class Wrapped:
    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.n = {N}
    def __call__(self, x):
        return self.__wrapped__(x) + self.n

names = {{}}
exec("def made(x): return x + {N}", names)
made = names["made"]
def outer(n):
    return lambda x: x + n
enclosed = outer({N})
table, listed, pair = {{"a": lambda x: x + {N}}}, [lambda x: x + {N}], (lambda x: x + {N}, 0)
part = functools.partial(lambda a, b: a * b + {N}, 4)
rate, derived = Rate(), Derived()
get = Rate().get
helper = scaled(lambda x: x)(lambda x: x)
wrapped = Wrapped(lambda x: x)
kept = functools.lru_cache(lambda x: x + {N})

@triton.constexpr_function
def early(x, given=lambda x: x + {N}):
    return {CALL}

@triton.jit
def kernel(o_ptr):
    tl.store(o_ptr, early(3))

print(kernel.source.hash, early.cache_key)
"""
CALLS = [
    "table['a'](x)",
    "listed[0](x)",
    "pair[0](x)",
    "given(x)",
    "part(x)",
    "made(x)",
    "enclosed(x)",
    "helper(x)",
    "kept(x)",
    "get()",
    "rate(x)",
    "rate.get()",
    "rate.kept",
    "rate.n",
    "derived.get()",
    "Rate.by(x)",
    "Derived().get()",
    "wrapped(x)",
    "beside.function(x)",
    "beside.TABLE['a']",
]
BESIDE = "function = lambda x: x + {N}\nTABLE = {{'a': {N}}}\n"
KEYS = """
import importlib, sys
for name in sys.argv[1:]:
    sys.path.insert(0, name)
    for module in ("program", "beside"):
        sys.modules.pop(module, None)
    importlib.invalidate_caches()
    importlib.import_module("program")
    sys.path.pop(0)
"""


def keys(folder: Path, n: int, seed: str) -> list[str]:
    """The keys of the kernel that calls each of CALLS, and of the function, in a process of their own."""
    folders = []
    for number, call in enumerate(CALLS):
        made = folder / str(number)
        made.mkdir(parents=True, exist_ok=True)
        (made / "program.py").write_text(PROGRAM.format(N=n, CALL=call))
        (made / "beside.py").write_text(BESIDE.format(N=n))
        folders.append(str(made))
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", KEYS, *folders], capture_output=True, text=True, env=environment, check=True
    )
    return ran.stdout.split("\n")[:-1]


def test_what_runs_is_part_of_the_kernel_in_every_process(tmp_path: Path) -> None:
    first, again, changed = keys(tmp_path / "a", 10, "1"), keys(tmp_path / "b", 10, "2"), keys(tmp_path / "c", 20, "1")
    assert len(first) == len(CALLS)
    assert [call for call, a, b in zip(CALLS, first, again, strict=True) if a != b] == []
    assert [call for call, a, b in zip(CALLS, first, changed, strict=True) if set(a.split()) & set(b.split())] == []


def test_a_decorated_function_that_changes(tmp_path: Path) -> None:
    """What its decorator was given counts, and what is under it."""
    for number, (scale, body) in enumerate([("x", "x"), ("-x", "x"), ("x", "-x"), ("x", "x")]):
        text = PROGRAM.replace(
            "@triton.constexpr_function\n", f"@triton.constexpr_function\n@scaled(lambda x: {scale})\n"
        )
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "program.py").write_text(text.format(N=1, CALL=body))
        (tmp_path / str(number) / "beside.py").write_text(BESIDE.format(N=1))
    ran = subprocess.run(
        [sys.executable, "-c", KEYS, *(str(tmp_path / str(number)) for number in range(4))],
        capture_output=True,
        text=True,
        check=True,
    )
    found = ran.stdout.split("\n")[:-1]
    assert len(set(found)) == 3 and found[0] == found[3]
