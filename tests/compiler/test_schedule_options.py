"""Every schedule option changes the code of the targets that offer it, and of no other: whoever makes one work, or
stops reading one, has to say so in the table of ``compiler/options.py``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from deuteron.compiler import KernelSource, compile
from deuteron.compiler.errors import DeuteronError, ImpossibleOption, OutOfResources
from deuteron.compiler.language.control import HINTS_WITHOUT_EFFECT
from deuteron.compiler.language.control import range as loop_range
from deuteron.compiler.options import LAUNCH_OPTIONS, SCHEDULE_OPTIONS, Schedule, effective_options
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.targets import Target

TEXT = """
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, K, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        left = tl.load(a + i[:, None] * K + (k + i)[None, :])
        right = tl.load(b + (k + i)[:, None] * BLOCK + i[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * BLOCK + i[None, :], total)


@triton.jit
def stream(a, b, c, K, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.device_assert(K > 0, "K must be positive")
    for k in tl.range(0, K, BLOCK):
        tl.store(c + k + i, tl.load(a + k + i) * tl.load(b + k + i) + 1.0)


@triton.jit
def hinted(a, b, c, K, BLOCK: tl.constexpr, HINT: tl.constexpr = 0):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in tl.range(0, K, BLOCK, num_stages=HINT):
        left = tl.load(a + i[:, None] * K + (k + i)[None, :])
        total = tl.dot(left, tl.load(b + (k + i)[:, None] * BLOCK + i[None, :]), total)
    tl.store(c + i[:, None] * BLOCK + i[None, :], total)


@triton.jit
def rows(a, b, c, K, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.load(a + tl.program_id(0) * K + i, mask=i < K, other=-float("inf"))
    row = tl.exp(row - tl.max(row, axis=0))
    tl.store(c + tl.program_id(0) * K + i, row / tl.sum(row, axis=0), mask=i < K)
"""

#: Values to try besides the default; an option that accepts no other has none.
OTHERS: Mapping[str, tuple[object, ...]] = {
    "num_warps": (1, 8),
    "num_stages": (1, 2, 5),
    "num_ctas": (2,),
    "persistent": (True,),
    "maxnreg": (32,),
    "enable_fp_fusion": (False,),
    "debug": (True,),
    "sanitize_overflow": (False,),
    "launch_cooperative_grid": (True,),
    "launch_pdl": (True,),
}

#: What an option needs beside it to change anything.
BESIDE: Mapping[str, Mapping[str, object]] = {"sanitize_overflow": {"debug": True}}


@dataclass(frozen=True)
class Sample:
    """A kernel and the block size to compile it for."""

    name: str
    pointer: str
    block: int

    def source(self) -> KernelSource:
        return KernelSource.from_text(TEXT, self.name)

    def signature(self) -> dict[str, str]:
        return {"a": f"{self.pointer}:16", "b": f"{self.pointer}:16", "c": "*f32:16", "K": "i32:16"}

    def code(self, target: str, **options: object) -> str:
        """PTX on a GPU, the processor's assembly on the CPU."""
        stage = "asm" if target == "cpu" else "ptx"
        constants = {"BLOCK": self.block}
        made = compile(self.source(), self.signature(), constants, target, stop_after=stage, **options)  # type: ignore[arg-type]
        return str(made.asm[stage])

    def key(self, target: str, **options: object) -> str:
        return make_variant(self.source(), self.signature(), {"BLOCK": self.block}, target, options).key


SAMPLES = (Sample("product", "*f16", 64), Sample("stream", "*f32", 256), Sample("rows", "*f32", 1024))
TARGETS = ("cpu", "cuda:80", "cuda:90a")


def test_every_option_is_tried() -> None:
    assert set(OTHERS) == set(SCHEDULE_OPTIONS) == {field.name for field in fields(Schedule)}
    with pytest.raises(DeuteronError, match="num_ctas = 3"):
        Schedule(num_ctas=3)
    with pytest.raises(OutOfResources, match="threads, Required: 4096, Hardware limit: 1024"):
        SAMPLES[1].code("cuda:90a", num_warps=128)
    with pytest.raises(ImpossibleOption, match="power of 2"):
        Schedule(num_warps=48)


@pytest.fixture(scope="module", params=TARGETS)
def plain(request: pytest.FixtureRequest) -> tuple[str, dict[Sample, str]]:
    """A target and what the samples become on it with the default schedule."""
    return request.param, {sample: sample.code(request.param) for sample in SAMPLES}


@pytest.mark.parametrize("option", [name for name, values in OTHERS.items() if values])
def test_an_option_changes_code_exactly_where_the_table_says(plain: tuple[str, dict[Sample, str]], option: str) -> None:
    target, usual = plain
    offered = option in effective_options(Target.parse(target).kind)
    beside = BESIDE.get(option, {})
    if beside:
        usual = {sample: sample.code(target, **beside) for sample in SAMPLES}
    changed = {
        value: [sample.name for sample in SAMPLES if sample.code(target, **beside, **{option: value}) != usual[sample]]
        for value in OTHERS[option]
    }
    if offered:
        assert all(changed.values()), f"{option} is offered on {target} but changes nothing: {changed}"
    else:
        assert not any(changed.values()), f"{option} changes code on {target}: enter it in the table ({changed})"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("hint", [f.name for f in fields(loop_range) if f.name not in ("arg1", "arg2", "step")])
def test_hints_of_one_loop_change_code_unless_they_are_named_as_idle(target: str, hint: str) -> None:
    stage = "asm" if target == "cpu" else "ptx"
    source = KernelSource.from_text(TEXT.replace("num_stages=HINT", f"{hint}=HINT"), "hinted")
    signature = Sample("hinted", "*f16", 32).signature()
    values = (1, 2, 4) if hint in ("num_stages", "loop_unroll_factor") else (False, True)
    codes = {
        compile(source, signature, {"BLOCK": 32, "HINT": value}, target, stop_after=stage).asm[stage]
        for value in values
    }
    idle = hint in HINTS_WITHOUT_EFFECT or (hint == "num_stages" and target == "cpu")
    assert len(codes) == (1 if idle else len(values))


def test_the_page_for_kernel_authors_says_the_same() -> None:
    page = (Path(__file__).parents[2] / "docs" / "language.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([GPUC, -]+) \|", page.partition("## Schedule options")[2], re.MULTILINE))
    places = {"GPU": "cuda", "CPU": "cpu"}
    said = {name: {places[place] for place in text.split(", ") if place != "-"} for name, text in rows.items()}
    matters = {kind: {*effective_options(kind), *LAUNCH_OPTIONS[kind]} for kind in places.values()}
    assert said == {name: {kind for kind in matters if name in matters[kind]} for name in SCHEDULE_OPTIONS}


def test_options_that_accept_one_value_are_offered_nowhere() -> None:
    single = {name for name, values in OTHERS.items() if not values}
    assert not single & {*effective_options("cpu"), *effective_options("cuda")}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("option", [name for name, values in OTHERS.items() if values])
def test_the_key_of_a_variant_follows_the_table(target: str, option: str) -> None:
    sample = SAMPLES[0]
    kind = Target.parse(target).kind
    offered = option in (*effective_options(kind), *LAUNCH_OPTIONS[kind])
    beside = BESIDE.get(option, {})
    keys = {sample.key(target, **beside), *(sample.key(target, **beside, **{option: v}) for v in OTHERS[option])}
    assert len(keys) == (1 + len(OTHERS[option]) if offered else 1)
