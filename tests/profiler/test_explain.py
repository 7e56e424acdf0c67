"""The page about a kernel: lines that belong together, occupancy, instructions, and what a person sees in Chromium."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from example_variants import CASES, EXAMPLES, each_case, example_variant

from deuteron.cli import main
from deuteron.compiler import KernelSource
from deuteron.compiler.errors import SignatureError
from deuteron.compiler.runtime.variant.listings import Listings, list_stages, make_listings
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.source.assume import assume
from deuteron.profiler.explain import explain_page, instruction_mix, static_profile
from deuteron.profiler.explain.instructions import kind_of


def listed(file: str, kernel: str, target: str, dtype: str) -> Listings:
    return make_listings(example_variant(file, kernel, target, dtype))


def opcodes(lines: list[str]) -> list[str]:
    found = (re.match(r"\s*(?:\{ )?(?:@!?%p\d+ )?([a-z][\w.:]*)", line) for line in lines)
    return [match[1] for match in found if match]


@each_case
def test_lines_of_all_stages_come_from_the_kernel(case: tuple[str, str, str, str]) -> None:
    made = listed(*case)
    file = (EXAMPLES / case[0]).read_text().splitlines()
    assert [line.text for line in made.stages["source"]] == [file[x.source - 1] for x in made.stages["source"]]
    own = {line.source for line in made.stages["source"]}
    assert made.stages["source"][0].text.startswith(f"def {case[1]}(")
    for stage in ("tile", "gpu", "ptx"):
        lines = made.stages[stage]
        known = [line.source for line in lines if line.source is not None]
        assert set(known) <= (own if case[0] == "softmax.py" else set(range(1, len(file) + 1)))  # matmul has a helper
        assert len(known) > len(lines) // 3, stage
        assert not any(".loc" in line.text or case[0] in line.text for line in lines)


@each_case
def test_line_numbers_change_no_instruction(case: tuple[str, str, str, str]) -> None:
    made = listed(*case)
    plain = build(made.variant, stop_after="ptx").artifacts["ptx"]
    assert isinstance(plain, str)
    expected = opcodes(plain.splitlines())
    found = opcodes([line.text for line in made.stages["ptx"]])
    assert Counter(found) == Counter(expected)
    if "wgmma.mma_async" not in plain:
        assert found == expected


def test_instructions_stand_beside_their_lines() -> None:
    made = listed("softmax.py", "softmax_kernel", "cuda:90a", "f32")
    source = {line.source: line.text for line in made.stages["source"]}
    from_line: dict[str, set[str]] = {}
    for line in made.stages["ptx"]:
        if line.source in source:
            from_line.setdefault(source[line.source].strip().partition(" = ")[0], set()).update(opcodes([line.text]))
    assert any(opcode.startswith("ex2") for opcode in from_line["numerator"])
    assert any(opcode.startswith("rcp") for opcode in from_line["softmax_output"])  # of the sum, which all share
    stores = next(found for text, found in from_line.items() if text.startswith("tl.store("))
    assert any(opcode.startswith("st.global") for opcode in stores)
    assert any(opcode.startswith("shfl") for opcode in from_line["denominator"])


def test_only_gpus_are_listed() -> None:
    with pytest.raises(SignatureError, match="cpu has no PTX"):
        listed("softmax.py", "softmax_kernel", "cpu", "f32")


# ---- static profile --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("ld.global.v4.b32", "global memory"),
        ("st.shared.b32", "shared memory"),
        ("ld.param.b64", "parameters"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "shared memory"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "tensor cores"),
        ("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", "tensor cores"),
        ("wgmma.fence.sync.aligned", "synchronisation"),
        ("cp.async.cg.shared.global", "copies to shared memory"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.tile", "copies to shared memory"),
        ("bar.sync", "synchronisation"),
        ("atom.global.add.f32", "atomics"),
        ("shfl.sync.bfly.b32", "between threads"),
        ("ex2.approx.ftz.f32", "special functions"),
        ("cvt.rn.f16.f32", "conversions"),
        ("fma.rn.f32", "floating point"),
        ("max.f32", "floating point"),
        ("add.s32", "integers and predicates"),
        ("setp.lt.s32", "integers and predicates"),
        ("bra.uni", "branches"),
        ("mov.b32", "moves"),
        ("st.local.b32", "local memory"),
    ],
)
def test_kinds_of_instructions(opcode: str, kind: str) -> None:
    assert kind_of(opcode) == kind


@each_case
def test_every_instruction_is_counted(case: tuple[str, str, str, str]) -> None:
    lines = [line.text for line in listed(*case).stages["ptx"]]
    mix = instruction_mix(lines)
    assert sum(mix.values()) == len(opcodes(lines))
    tensor = sum("mma.sync" in line or "wgmma.mma_async" in line for line in lines)
    assert mix.get("tensor cores", 0) == tensor


def test_the_profile_is_that_of_the_compiled_kernel() -> None:
    made = listed(*CASES[1])
    facts = static_profile(made)
    assert facts["shared memory of a CTA"] == f"{made.metadata.shared_bytes} bytes"
    assert facts["threads of a CTA"] == str(made.metadata.num_threads)
    if made.metadata.registers is None:
        assert "no assembler" in facts["registers of a thread"]
        assert "occupancy" not in facts
    else:
        assert facts["registers of a thread"] == str(made.metadata.registers)
        # 160 threads of 58 registers: 2,048 a warp, 8 warps a quarter of the SM, 32 of its 64.
        assert (made.metadata.num_threads, made.metadata.registers) == (160, 58)
        assert facts["occupancy"] == "47% (6 CTAs, 30 of 64 warps of an SM)"
        assert facts["limited by"] == "registers"


def test_stages_of_a_kernel_for_a_processor() -> None:
    source = KernelSource.from_file(EXAMPLES / "softmax.py", "softmax_kernel")
    found = assume(source, signature={}, constexprs={}, schedule={}, dtype="f32")
    variant = make_variant(source, found.signature, found.constexprs, "cpu", found.schedule)
    stages = list_stages(variant)
    assert list(stages) == ["source", "tile", "llvm"]
    exponential = next(line.source for line in stages["source"] if "exp(" in line.text)
    assert any("exp " in line.text for line in stages["tile"] if line.source == exponential)
    assert "\n".join(line.text for line in stages["llvm"]) == str(
        build(variant, stop_after="llvm").artifacts["llvm"]
    ).rstrip("\n")
    assert all(line.source is None for line in stages["llvm"])


# ---- the page --------------------------------------------------------------------------------------------------


def test_the_page_needs_nothing_else_and_runs_no_text_of_the_kernel(tmp_path: Path) -> None:
    path = tmp_path / "evil.py"
    path.write_text(
        "import deuteron\nimport deuteron.language as tl\n\n\n@deuteron.jit\ndef k(x):\n"
        "    # </script><script>alert(1)</script>\n    tl.store(x, 1.0)\n"
    )
    source = KernelSource.from_file(path, "k")
    page = explain_page(make_listings(make_variant(source, {"x": "*f32"}, {}, "cuda:80", {})))
    assert "alert(1)</script>" not in page
    assert page.count("<script") == 2
    assert "http" not in page.replace('http-equiv="Content-Security-Policy"', "")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert any("alert(1)" in text for text, _ in data["stages"][0]["lines"])


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explain", f"{EXAMPLES}/softmax.py:softmax_kernel", "--target", "cuda:80"]) == 0
    told = capsys.readouterr().err
    assert "wrote softmax_kernel.html" in told
    assert re.search(r"limited by +\w", told)
    assert Path("softmax_kernel.html").stat().st_size < 3_000_000
    for arguments, words in (
        (["--target", "cpu"], "has no PTX"),
        (["--target", "cuda:10"], "unknown target"),
        (["-o", "nowhere/page.html"], "cannot write nowhere/page.html"),
    ):
        assert main(["explain", f"{EXAMPLES}/softmax.py:softmax_kernel", *arguments]) == 2
        assert words in capsys.readouterr().err
    assert main(["explain", "missing.py:k"]) == 2


def test_a_click_shows_what_a_line_became(open_file: Callable[[Path], Any], tmp_path: Path) -> None:
    made = listed(*CASES[0])
    path = tmp_path / "page.html"
    path.write_text(explain_page(made))
    chromium = open_file(path)
    line = next(x.source for x in made.stages["source"] if "tl.exp(" in x.text)
    chromium.find_element("css selector", f'#stage-source div[data-line="{line}"]').click()
    for stage, word in (("tile", "exp"), ("gpu", "exp"), ("ptx", "ex2")):
        marked = chromium.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map((row) => row.textContent)", f"#stage-{stage} .on"
        )
        assert any(word in text for text in marked), (stage, marked)
        assert len(marked) == sum(x.source == line for x in made.stages[stage])
        visible = "const row = document.querySelector(arguments[0]), box = row.parentElement.getBoundingClientRect(),"
        visible += " at = row.getBoundingClientRect(); return at.top >= box.top - 1 && at.bottom <= box.bottom + 1"
        assert chromium.execute_script(visible, f"#stage-{stage} .on")
    assert chromium.execute_script("return location.hash") == f"#L{line}"
    from selenium.webdriver.common.keys import Keys

    chromium.find_element("css selector", "#stage-source .code").send_keys(Keys.ARROW_DOWN)
    assert chromium.execute_script("return document.querySelector('#stage-source .on').dataset.line") == str(line + 1)
    chromium.find_element("css selector", "#panes button").click()
    assert not chromium.find_element("id", "stage-source").is_displayed()
