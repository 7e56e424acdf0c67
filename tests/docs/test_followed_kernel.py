"""The kernel that docs/life-of-a-kernel.md follows: the lines shown there are lines of what the compiler prints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from deuteron.compiler import KernelSource, compile
from deuteron.compiler.gpu import STEPS

SECTION = (Path(__file__).parents[2] / "docs/life-of-a-kernel.md").read_text().partition("## Ten lines, followed")[2]
SECTION = SECTION.partition("\n## ")[0]
KERNEL = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)[0]
HEADER = "import deuteron as triton\nimport deuteron.language as tl\n\n\n"
#: By the number of the paragraph: the stage, and the step of the GPU stage.
SHOWN: Mapping[int, tuple[str, str | None]] = {
    1: ("tile", None),
    2: ("gpu", "structure"),
    5: ("gpu", "write_back"),
    6: ("gpu", "rings"),
    8: ("gpu", "layouts"),
    9: ("gpu", "barriers"),
    10: ("ptx", None),
}


def printed(stage: str, step: str | None) -> str:
    signature = dict.fromkeys("abc", "*f16:16") | dict.fromkeys("MNK", "i32:16")
    blocks = {"BM": 128, "BN": 256, "BK": 64}
    source = KernelSource.from_text(HEADER + KERNEL, "matmul")
    return str(compile(source, signature, blocks, "cuda:90a", 8, 4, stop_after=stage, step=step).asm[stage])


def paragraphs() -> dict[int, str]:
    parts = re.split(r"^(\d+)\. ", SECTION, flags=re.MULTILINE)[1:]
    return {int(number): text for number, text in zip(parts[::2], parts[1::2], strict=True)}


def test_every_paragraph_with_code_is_compared() -> None:
    assert {number for number, text in paragraphs().items() if "```" in text} == set(SHOWN)


@pytest.mark.parametrize("number", SHOWN)
def test_lines_are_those_of_the_compiler(number: int) -> None:
    """In their order; ``...`` stands for anything."""
    lines = iter(printed(*SHOWN[number]).splitlines())
    (block,) = re.findall(r"```\n(.*?)```", paragraphs()[number], re.DOTALL)
    for wanted in (line.strip() for line in block.strip().splitlines()):
        pattern = ".*".join(map(re.escape, wanted.split("...")))
        assert any(re.search(pattern, line) for line in lines), wanted


def test_every_step_is_named() -> None:
    assert [name for name in re.findall(r"\*\*(\w+)\*\*", SECTION) if name in STEPS] == list(STEPS)
