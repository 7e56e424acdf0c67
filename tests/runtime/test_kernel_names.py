"""The name that ``repr`` of ``jit`` gives a specialisation: that of its code, of its metadata and of its launches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.errors import ArgumentMismatch
from deuteron.compiler.runtime.variant.specialization import specialization_text


class Names:
    """A ``repr`` that counts how often it is asked."""

    def __init__(self, pattern: str = "fill_{BLOCK}") -> None:
        self.pattern = pattern
        self.asked = 0

    def __call__(self, specialization: Any) -> str:
        self.asked += 1
        return self.pattern.format(**specialization.constants)


def named(name: Any, **options: Any) -> deuteron.JITFunction:
    @deuteron.jit(repr=name, **options)
    def fill(x, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), 1.0)

    return fill


def test_code_metadata_and_launches_have_the_name(watch_launches: Any) -> None:
    seen: list[str] = []
    fill = named(Names(), launch_metadata=lambda grid, kernel, arguments: seen.append(kernel.name) or {})
    x = np.zeros(8, np.float32)
    with watch_launches() as events:
        made = fill[(1,)](x, BLOCK=8)
        with knobs.interpret.scope(True):
            named(Names())[(1,)](x, BLOCK=8)
    assert events[0].metadata() == {} and seen == ["fill_8"]
    assert [event.name for event in events] == ["fill_8", "fill_8"]
    assert made.name == made.metadata.name == "fill_8" and "@fill_8(" in made.asm["llvm"]
    code = deuteron.compile(fill, {"x": "*fp32"}, {"BLOCK": 128}, target="cuda:90a")
    assert code.name == code.metadata.name == "fill_128"
    assert re.findall(r"\.entry (\w+)", code.asm["ptx"]) == ["fill_128"]


def test_a_name_is_asked_for_once_for_each_variant() -> None:
    names = Names()
    fill = named(names)
    x = np.zeros(16, np.float32)
    made = fill[(1,)](x, BLOCK=8)
    assert fill[(1,)](x, BLOCK=8) is made and names.asked == 1
    asked = [names.asked]
    launch = fill.bound((1,), x, BLOCK=8)
    asked.append(names.asked)
    assert all(launch() is made for _ in range(3)) and asked == [1, 1]
    assert fill.bound((1,), x, BLOCK=16)().name == "fill_16" and names.asked == 2


def test_variants_of_other_names_are_other_entries_of_the_cache(private_cache: Path) -> None:
    x = np.zeros(8, np.float32)
    plain, first, again, other = (
        named(name)[(1,)](x, BLOCK=8) for name in (None, Names("first"), Names("first"), Names("other"))
    )
    assert [made.metadata.cached for made in (plain, first, again, other)] == [False, False, True, False]
    assert first.hash == again.hash and len({plain.hash, first.hash, other.hash}) == 3
    assert [made.name for made in (plain, first, again, other)] == ["fill", "first", "first", "other"]
    own = named(Names("fill"))[(1,)](x, BLOCK=8)  # a repr that says the kernel's own name
    assert own.metadata.cached and own.hash == plain.hash


def test_what_another_process_preloads_is_found_under_its_name() -> None:
    fill, x = named(Names()), np.zeros(8, np.float32)
    text = specialization_text(fill[(1,)](x, BLOCK=8).variant)
    later = named(Names())
    made = later.preload(text)
    assert made.name == "fill_8" and later[(1,)](x, BLOCK=8) is made


@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        ("fill<8, f32>", "fill_u003c8_u002c_u0020f32_u003e"),
        ("8 in a row", "_8_u0020in_u0020a_u0020row"),
        ("up/../down", "up_u002f_u002e_u002e_u002fdown"),
        ('"\n\0', "_u0022_u000a_u0000"),
        ("_", "_u005f"),
        ("fill" * 500, "fill" * 225),
    ],
)
def test_any_text_may_be_a_name(name: str, symbol: str, tmp_path: Path) -> None:
    fill, x = named(lambda specialization: name), np.zeros(8, np.float32)
    with knobs.kernel_dump.scope(True), knobs.dump_dir.scope(tmp_path / "dump"), knobs.always_compile.scope(True):
        made = fill[(1,)](x, BLOCK=8)
    assert x.all() and made.name == name
    (folder,) = (tmp_path / "dump").iterdir()
    assert {file.suffix for file in folder.iterdir()} >= {".tile", ".object"}
    code = deuteron.compile(fill, {"x": "*fp32"}, {"BLOCK": 128}, target="cuda:90a")
    assert re.findall(r"\.entry (\w+)", code.asm["ptx"]) == [symbol] and code.asm["cubin"]


def test_a_kernel_may_be_called_by_an_underscore() -> None:
    """As one that is never asked for by name; PTX refuses it."""

    @deuteron.jit
    def _(x, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), 1.0)

    code = deuteron.compile(_, {"x": "*fp32"}, {"BLOCK": 128}, target="cuda:80")
    assert code.name == "_" and ".entry _u005f(" in code.asm["ptx"] and code.asm["cubin"]


@pytest.mark.parametrize("name", [None, 5, ""])
def test_what_is_no_name_is_refused(name: object) -> None:
    with pytest.raises(ArgumentMismatch, match=f"fill: its repr returned {name!r}"):
        named(lambda specialization: name)[(1,)](np.zeros(8, np.float32), BLOCK=8)
