"""The steps of the GPU stage: each leaves IR that prints, and that parses back as long as there are no layouts."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest

from deuteron.compiler import KernelSource, compile, knobs
from deuteron.compiler.errors import IRError, SignatureError
from deuteron.compiler.gpu import STEPS, check_of, lower_to_gpu, pipeline
from deuteron.compiler.gpu.ops import ConvertLayout
from deuteron.compiler.gpu.work import GpuWork
from deuteron.compiler.ir import Function, parse_function, print_function, uses, verify
from deuteron.compiler.launch_recipe import Guard
from deuteron.compiler.layout import coalesced
from deuteron.compiler.options import Schedule
from deuteron.compiler.runtime.variant.pipeline import Build, build, make_tile
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.target import Target
from deuteron.tuner.evaluate.worker import status_of

EXAMPLES = Path(__file__).parents[3] / "examples"
POINTERS = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*f16:16")
SIZES = dict.fromkeys(("M", "N", "K", "stride_am", "stride_bk", "stride_cm"), "i32:16")
ONES = dict.fromkeys(("stride_ak", "stride_bn", "stride_cn"), "i32:1")
BLOCKS = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8, "ACTIVATION": ""}
SOURCE = KernelSource.from_file(EXAMPLES / "matmul.py", "matmul_kernel")
#: What steps may leave for others.
FACTS = {known.name for known in fields(GpuWork) if known.default is not MISSING}
TARGETS = ("cuda:80", "cuda:90", "cuda:90a", "cuda:120")


def tile_of(target: str, blocks: dict[str, Any]) -> Function:
    """The product's tile IR."""
    return make_tile(Build(make_variant(SOURCE, {**POINTERS, **SIZES, **ONES}, blocks, target, {})))


def steps(target: str, persistent: bool, num_stages: int = 3) -> list[tuple[str, Function, str]]:
    """Name, function and its text after each step that ran."""
    schedule = Schedule(num_warps=8, num_stages=num_stages, persistent=persistent)
    tile = tile_of(target, BLOCKS)
    seen: list[tuple[str, Function, str]] = []
    lower_to_gpu(
        tile,
        Target.parse(target),
        schedule,
        observe=lambda name, work: seen.append((name, work.function, print_function(work.function))),
    )
    return seen


def with_another(name: str, run: Callable[[GpuWork], None]) -> tuple[pipeline.Step, ...]:
    """The steps, of which that called ``name`` does something else."""
    return tuple(step._replace(run=run) if step.name == name else step for step in pipeline.PIPELINE)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_every_step_leaves_ir_that_prints_and_parses_back(target: str, persistent: bool) -> None:
    seen = steps(target, persistent)
    assert [name for name, _, _ in seen[-len(STEPS) :]] == list(STEPS)
    for name, function, text in seen:
        check_of(name)(function)
        if STEPS.index(name) < STEPS.index("layouts"):
            assert print_function(verify(parse_function(text))) == text, name


def test_what_a_step_needs_an_earlier_one_has_left() -> None:
    left: set[str] = set()
    for step in pipeline.PIPELINE:
        assert left.issuperset(step.needs), step.name
        left.update(step.leaves)
    assert left == FACTS


def test_steps_need_and_leave_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else, whichever way a kernel takes; each fact is of use on one of these ways."""
    log: list[tuple[str, str]] = []

    class Watched(GpuWork):
        def __post_init__(self) -> None:
            super().__post_init__()
            log.clear()

        def __getattribute__(self, name: str) -> object:
            log.append(("needs", name))
            return super().__getattribute__(name)

        def __setattr__(self, name: str, value: object) -> None:
            log.append(("leaves", name))
            super().__setattr__(name, value)

    found = {step.name: (set[str](), set[str]()) for step in pipeline.PIPELINE}

    def observe(name: str, work: GpuWork) -> None:
        needs, leaves = found[name]
        own: set[str] = set()  # what a step has set it may read
        for kind, fact in log:
            if kind == "leaves":
                own.add(fact)
            elif fact not in own:
                needs.add(fact)
        leaves |= own
        log.clear()

    monkeypatch.setattr(pipeline, "GpuWork", Watched)
    add = KernelSource.from_file(EXAMPLES / "vector_add.py", "add_kernel")
    arrays = {**dict.fromkeys(("x_ptr", "y_ptr", "output_ptr"), "*f32:16"), "n_elements": "i32"}
    plain = make_tile(Build(make_variant(add, arrays, {"BLOCK_SIZE": 1024}, "cuda:90a", {})))
    small = {**BLOCKS, "BLOCK_SIZE_N": 128}
    for tile in (plain, tile_of("cuda:90a", BLOCKS), tile_of("cuda:90a", small)):
        for target, persistent in itertools.product(("cuda:80", "cuda:90a"), (None, True)):
            lower_to_gpu(tile, Target.parse(target), Schedule(num_warps=8, persistent=persistent), observe=observe)
    for step in pipeline.PIPELINE:
        needs, leaves = found[step.name]
        assert (needs & FACTS, leaves & FACTS) == (set(step.needs), set(step.leaves)), step.name


def test_what_the_steps_decide_is_in_the_text() -> None:
    texts = {name: text for name, _, text in steps("cuda:90a", persistent=True)}
    decided = {
        "structure": "block_load",
        "persistent": "gpu.grid_size",
        "write_back": "gpu.put",
        "rings": "gpu.roles",
        "layouts": "gpu.wgmma",
    }
    for name, word in decided.items():
        at = STEPS.index(name)
        assert [word in texts[step] for step in STEPS[: at + 1]] == [False] * at + [True], word
    assert "gpu.receive" in texts["rings"] and "gpu.receive" not in texts["write_back"]
    plain = {name: text.count("  barrier\n") for name, _, text in steps("cuda:80", persistent=False, num_stages=1)}
    assert plain["barriers"] > plain["allocate"]


def test_a_step_that_breaks_layouts_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the knob alone: ``debug``, which was needed, compiles asserts in and so another kernel."""

    def spoil(work: GpuWork) -> None:
        readers = uses(work.function)
        value = next(v for v, found in readers.items() if v.type.rank == 2 and all(op.elementwise for op in found))
        value.type = value.type.with_layout(coalesced(value.type.shape, 8, order=(0, 1)))

    monkeypatch.setattr(pipeline, "PIPELINE", with_another("agree", spoil))
    with (
        knobs.verify.scope(True),
        pytest.raises(IRError, match="pass agree broke matmul_kernel: .*do not fit"),
    ):
        compiled("agree", target="cuda:80")


def test_a_layout_that_is_lost_is_no_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was one, of "layouts": the steps ran again with a slot less, as often as there were slots."""
    runs = []

    def lose(work: GpuWork) -> None:
        pipeline.lay_out(work)
        runs.append(work.limits)
        for op in work.function.walk():
            if isinstance(op, ConvertLayout):
                op.x.type = op.x.type.with_layout(None)

    monkeypatch.setattr(pipeline, "PIPELINE", with_another("layouts", lose))
    with pytest.raises(IRError, match="has no layout$") as caught:
        steps("cuda:80", persistent=False)
    assert len(runs) == 1 and status_of(caught.value) == "failed"


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a"])
def test_operands_that_are_computed_from_rings_are_right(target: str) -> None:
    text = (EXAMPLES / "matmul.py").read_text()
    computed = text.replace("tl.dot(a, b,", "tl.dot(a * b_scale, b,").replace(
        "    for k in", "    b_scale = tl.full((BLOCK_SIZE_M, BLOCK_SIZE_K), 2, tl.float16)\n    for k in", 1
    )
    assert computed.count("b_scale") == 2
    source = KernelSource.from_text(computed, "matmul_kernel", "computed.py")
    variant = make_variant(
        source, {**POINTERS, **SIZES, **ONES}, {**BLOCKS, "BLOCK_SIZE_N": 128}, target, {"num_warps": 8}
    )
    with knobs.verify.scope(True):
        made = build(variant, "gpu", "rings")
        assert "gpu.slot" in str(made.artifacts["gpu"])
        build(variant, "ptx")


def test_shorter_rings_are_seen_again() -> None:
    """Sixteen slots do not fit; what was seen last is what is used."""
    names = [name for name, _, _ in steps("cuda:90a", persistent=False, num_stages=16)]
    assert names.count("rings") > names.count("barriers") == 1


def compiled(step: str | None, stage: str = "gpu", target: str = "cuda:90a") -> str:
    made = compile(SOURCE, {**POINTERS, **SIZES, **ONES}, BLOCKS, target, 8, 4, stop_after=stage, step=step)
    return str(made.asm[stage])


def test_places_in_shared_memory_are_comments() -> None:
    assert "// at" not in compiled("layouts")
    for text in (compiled("allocate"), compiled(None)):
        rings = re.findall(r"gpu\.ring .*// at (\d+), (\d+) bytes$", text, re.MULTILINE)
        assert rings == [("0", str(4 * 128 * 64 * 2)), (str(4 * 128 * 64 * 2), str(4 * 64 * 256 * 2))]
        assert re.search(r"^// 384 threads, \d+ bytes of shared memory, persistent$", text, re.MULTILINE)
        assert "// guard K >= 1" in text
    assert compiled(None) == compiled("barriers")


def test_what_a_launch_checks_is_shown_by_the_step_that_asks_for_it() -> None:
    assert "// guard N >= 0\n" in compiled("structure") and "// guard M >= 128\n" not in compiled("structure")
    rings = compiled("rings")
    assert "// guard M >= 128\n" in rings and "// descriptor 0: " in rings


def test_rows_that_may_end_inside_a_chunk_are_copied_under_a_guard() -> None:
    """Eight f16 are the 16 bytes that the copy engine writes at once."""
    guard = Guard("N", "multiple", 8)
    variant = make_variant(SOURCE, {**POINTERS, **SIZES, **ONES, "N": "i32"}, BLOCKS, "cuda:90a", {})
    hopeful, denied = build(variant).recipe, build(replace(variant, denied=(guard,))).recipe
    assert guard in hopeful.guards and guard not in denied.guards
    assert [d.base for d in hopeful.descriptors] == ["a_ptr", "b_ptr", "c_ptr"]
    assert "c_ptr" not in [d.base for d in denied.descriptors]


def test_boxes_that_a_short_array_would_not_fill_are_brought_by_threads() -> None:
    """Rows of ``a`` stay the same while the loop runs; those of ``b`` go on, and may end anywhere."""
    guard = Guard("M", "least", 128)
    variant = make_variant(SOURCE, {**POINTERS, **SIZES, **ONES}, BLOCKS, "cuda:90a", {})
    hopeful, denied = build(variant).recipe, build(replace(variant, denied=(guard,))).recipe
    assert [g for g in hopeful.guards if g.kind == "least" and g.value > 1] == [guard] and guard not in denied.guards
    one = make_variant(SOURCE, {**POINTERS, **SIZES, **ONES, "M": "i32:1"}, BLOCKS, "cuda:90a", {})
    assert [d.base for d in hopeful.descriptors] == ["a_ptr", "b_ptr", "c_ptr"]
    for recipe in (denied, build(one).recipe):
        assert "a_ptr" not in [d.base for d in recipe.descriptors] and recipe.threads == 256  # nobody who only copies


@pytest.mark.parametrize(("rows", "brought"), [(64, True), (65, True), (63, False)])
def test_boxes_are_filled_by_arrays_of_a_known_length(to_gpu, rows: int, brought: bool) -> None:
    text = """
def product(a, b, c, K, M: tl.constexpr):
    m, n, k = tl.program_id(0) * 64 + tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :], tl.arange(0, 64)
    total = tl.zeros((64, 64), tl.float32)
    for start in range(0, K, 64):
        left = tl.load(a + m * K + start + k[None, :], mask=(m < M) & (start + k[None, :] < K), other=0.0)
        total = tl.dot(left, tl.load(b + (start + k[:, None]) * 64 + n), total)
    tl.store(c + m * 64 + n, total)
"""
    types = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "K": "i32:16"}
    recipe = to_gpu(text, types, {"M": rows}).recipe
    assert ("a" in [made.base for made in recipe.descriptors]) == brought
    assert not any(guard.kind == "least" and guard.value > 1 for guard in recipe.guards)


def test_unknown_steps_are_named() -> None:
    with pytest.raises(SignatureError, match="has no step 'ring'") as caught:
        compiled("ring")
    assert "structure, persistent, streams" in str(caught.value.hint)
    with pytest.raises(SignatureError, match="stage 'llvm' has no step 'rings'"):
        compiled("rings", "llvm")


def test_what_changes_a_function_does_not_return_it() -> None:
    """So nobody has to know which of two functions is the changed one."""
    for path in Path(pipeline.__file__).parent.rglob("*.py"):
        for made in ast.walk(ast.parse(path.read_text())):
            if isinstance(made, ast.FunctionDef) and made.returns is not None:
                takes = {ast.unparse(given.annotation) for given in made.args.args if given.annotation is not None}
                assert ast.unparse(made.returns) != "Function" or "Function" not in takes, f"{path.name}: {made.name}"


def test_a_function_without_warps_is_an_error_of_ours() -> None:
    with pytest.raises(IRError, match="no number of warps"):
        _ = Function("f").warps
    assert Function("f", num_warps=4).warps == 4
