"""What the documents show is true: Python blocks run, links lead somewhere, nothing names this machine."""

from __future__ import annotations

import builtins
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def test_the_first_kernel_of_the_readme_runs(tmp_path: Path):
    text = (ROOT / "README.md").read_text()
    block = re.search(r"```python\n(import numpy.*?)```", text, re.DOTALL)
    assert block
    script = tmp_path / "kernel.py"
    script.write_text(block[1])
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_files(page: Path):
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_architecture_names_files_that_exist():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = "compiler|profiler|tuner|server|migrations|deuteron|tests|docs|benchmarks"
    for name in re.findall(rf"`((?:{rooms})/[\w/.]+)`", text):
        assert (ROOT / name).exists(), f"ARCHITECTURE.md names {name}"


def test_error_message_of_the_language_page_is_what_the_compiler_says():
    from deuteron.compiler.errors import CompilationError
    from deuteron.compiler.frontend import KernelSource, lower

    text = (
        "import deuteron as triton\nimport deuteron.language as tl\n\n"
        "@triton.jit\ndef k(x):\n    offs = tl.arange(0, 100)\n"
    )
    with pytest.raises(CompilationError) as caught:
        lower(KernelSource.from_text(text, "k", "add.py"), {"x": "*f32"}, {})
    assert str(caught.value) in (ROOT / "docs/language.md").read_text()


#: What code on the page has beside names of the language: keywords, what calls and types are made of, parts of names.
WORDS = re.findall(
    r"\w+",
    """and arch backend cas debug desc deuteron double for fp16 if in int ll or return round_f32_to_tf32 tensordesc tl
    triton uint ull warp_size while xchg xor""",
)


def test_every_name_of_the_language_page_exists():
    import deuteron
    import deuteron.language as tl
    from deuteron.profiler import language as scopes

    text = (ROOT / "docs/language.md").read_text()
    table = text[text.index("## What exists") : text.index("## Semantics")]
    rows = [r.split("|") for r in table.splitlines() if r.startswith("| ") and "---" not in r]
    holders = (tl, tl.tensor, tl.extra.libdevice, scopes, deuteron, builtins, dict)
    parameters = {
        name
        for function in map(vars(tl).get, tl.__all__)
        if inspect.isfunction(function)
        for name in inspect.signature(function).parameters
    }
    unknown = {
        name
        for row in rows[1:]
        for code in re.findall(r"`([^`]+)`", row[2])
        for name in re.findall(r"(?<![.=\w\"])[a-z]\w+(?![\w=(\"]*\")", code)
        if not any(hasattr(holder, name) or hasattr(holder, f"{name}_rn") for holder in holders)
        and not (name in parameters or name in WORDS or name in code.partition("(")[2] or code.startswith("x"))
    }
    assert not unknown
