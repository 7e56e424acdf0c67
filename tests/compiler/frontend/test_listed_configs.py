"""Configurations read off a decorator against what Python makes of the same text."""

from __future__ import annotations

import pytest

from deuteron.compiler import KernelSource
from deuteron.compiler.source.assume import literal_configs
from deuteron.compiler.source.configs import listed_configs

KERNEL = "\n@triton.autotune({}, key=[])\n@triton.jit\ndef k(x, B: tl.constexpr):\n    pass\n"
HEAD = "import deuteron as triton\nimport deuteron.language as tl\n"


class Config(dict):  # type: ignore[type-arg]
    """What a configuration holds, made by Python itself."""

    def __init__(self, values: dict[str, object], num_warps: int | None = None, num_stages: int | None = None) -> None:
        options = {"num_warps": num_warps, "num_stages": num_stages}
        super().__init__({**values, **{n: v for n, v in options.items() if v is not None}})


class Triton:
    """The one name that the texts use."""

    Config = Config


@pytest.mark.parametrize(
    ("before", "configs"),
    [
        ("", "[triton.Config({'B': 64}, num_warps=2), triton.Config({}, num_stages=3)]"),
        ("", "configs=[triton.Config({'B': b}, num_warps=w) for b in [16, 2 ** 5] for w in (1, 2) if b * w > 16]"),
        ("SIZES = (16, 32)\n", "[triton.Config({'B': b * 2}) for b in SIZES] + [triton.Config({'B': 1})]"),
        ("def made():\n    'All.'\n    few = [1, 2]\n    return [triton.Config({'B': b}) for b in few]\n", "made()"),
        ("PAIRS = [(16, 1), (32, 2)]\n", "[triton.Config({'B': b, **{'C': w}}, w) for b, w in PAIRS]"),
        ("", "[triton.Config({'B': 1 << i, 'E': i % 2 == 0 and True}) for i in range(4, 9, 2)]"),
        ("", "[*[triton.Config({'B': 16})], triton.Config({'B': -1 if 2 > 3 else +5}, num_stages=4)]"),
        ("ALL = [triton.Config({'B': 8})]\nMORE = ALL + ALL\n", "list(MORE)"),
    ],
)
def test_as_python_reads_them(before: str, configs: str) -> None:
    scope: dict[str, object] = {"triton": Triton}
    exec(before, scope)  # noqa: S102 -- the texts above
    wanted = eval(configs.removeprefix("configs="), scope)  # noqa: S307 -- the texts above
    found = listed_configs(KernelSource.from_text(HEAD + before + KERNEL.format(configs), "k"))
    assert found.unread is None
    assert [dict(config) for config in found.configs] == wanted


@pytest.mark.parametrize(
    ("before", "configs", "why"),
    [
        ("import os\n", "[triton.Config({'B': len(os.environ)})]", "len"),
        ("def made(n):\n    return []\n", "made(3)", "made"),
        ("LOOP = LOOP\n", "LOOP", "LOOP"),
        ("", "[triton.Config({'B': a}) for a in range(10 ** 9)]", "too long"),
        ("", "[triton.Config({'B': 1})] * 10 ** 9", "arithmetic of lists"),
        (
            "A = [triton.Config({'B': 1})]\n" + "".join(f"A{i + 1} = A{i or ''} + A{i or ''}\n" for i in range(40)),
            "A40",
            "",
        ),
        ("A = list(range(9000))\nB = [" + "*A, " * 20_000 + "]\n", "[triton.Config({'B': B})]", "too long"),
        ("", "[triton.Config({'B': b'a' * 10 ** 9})]", "b'a'"),
        ("", "[triton.Config({'B': [x for x in range(10 ** 30)]})]", "too long"),
        ("def made():\n    return made()\n", "made()", "recursion"),
        ("".join(f"A{i} = A{i + 1}\n" for i in range(2000)) + "A2000 = []\n", "A0", "recursion"),
        ("", "3", "no list"),
        ("", "[1, 2]", "no Config"),
    ],
)
def test_what_is_not_known_is_said(before: str, configs: str, why: str) -> None:
    found = listed_configs(KernelSource.from_text(HEAD + before + KERNEL.format(configs), "k"))
    assert found.configs == ()
    assert found.unread is not None and why in found.unread


@pytest.mark.parametrize("values", ["{[1]: 2}", "[1, 2]", "{1, 2}", "3", "{1: 2}, kwargs={[1]: 2}"])
def test_literals_that_are_no_configuration_are_passed_over(values: str) -> None:
    text = KERNEL.format(f"[triton.Config({values}, num_warps=4), triton.Config({{'B': 16}})]")
    assert list(literal_configs(KernelSource.from_text(HEAD + text, "k")))[-1] == {"B": 16}


def test_the_known_part_of_a_sum_is_read() -> None:
    text = KERNEL.format("[triton.Config({'B': 16})] + unknown()")
    found = listed_configs(KernelSource.from_text(HEAD + text, "k"))
    assert [dict(config) for config in found.configs] == [{"B": 16}]
    assert found.unread is not None and "unknown" in found.unread
