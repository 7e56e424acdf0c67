"""The stages of one variant as lines of text, each with the line of the source that it comes from."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

from ...errors import SignatureError, TargetError
from ...ir.printer import print_function
from ...source.kernel import KernelSource
from .disassemble import disassemble
from .lined import lined_ptx
from .metadata import KernelMetadata
from .pipeline import Build, build, make_tile
from .variant import Variant

_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"(.*)"')
_INSTRUCTION = re.compile(r"\s*(?:\{ *)?@?!?[a-z%]")
#: What only says where code comes from.
_BOOKKEEPING = re.compile(r"\s*\.(loc|file)\s|\$L__(tmp|func_begin|func_end)\d*:|\s*//\s*(begin|end) inline asm")


@dataclass(frozen=True, slots=True)
class ListedLine:
    """One line of a stage; ``source`` is a line number in the kernel's file, None for what comes from no line of it."""

    text: str
    source: int | None


@dataclass(frozen=True)
class Listings:
    """All stages that can be shown, in the order of the pipeline: ``source``, ``tile``, ``gpu``, ``ptx`` and, where a
    disassembler is installed, ``sass``, whose lines come from none. ``metadata`` is that of the compiled kernel."""

    variant: Variant
    metadata: KernelMetadata
    stages: dict[str, tuple[ListedLine, ...]]


def make_listings(variant: Variant) -> Listings:
    """Compile ``variant`` and list its stages.

    The PTX is made a second time with line numbers: it has the same instructions, but where loops are simplified before
    LLVM (products of warp groups) some may stand in another order.

    Raises:
        SignatureError: the target is not a GPU.
        CompilationError: the kernel is wrong.
    """
    if variant.target.kind != "cuda":
        raise SignatureError(f"the target {variant.target} has no PTX", hint="name a GPU, such as cuda:90a")
    from ...gpu import lower_to_gpu, print_gpu  # lazy: a launch from the cache compiles nothing

    source = variant.source
    work = build(variant)
    variant = work.made_as
    tile = make_tile(Build(variant))
    listed = {"source": _source(source), "tile": _located(print_function(tile, locations=True), source)}
    gpu = lower_to_gpu(tile, variant.target, variant.schedule, frozenset(variant.denied))
    listed["gpu"] = _located(print_gpu(gpu, locations=True), source)
    listed["ptx"] = _assembly(lined_ptx(variant, gpu), source)
    cubin = work.artifacts.get("cubin")
    if isinstance(cubin, bytes):
        with suppress(TargetError):  # nobody here can read machine code
            listed["sass"] = tuple(ListedLine(text, None) for text in disassemble(cubin).splitlines())
    return Listings(work.variant, work.metadata(), listed)


def list_stages(variant: Variant) -> dict[str, tuple[ListedLine, ...]]:
    """The stages of :func:`make_listings`; for a CPU ``source``, ``tile`` and ``llvm``, whose lines come from none.

    Raises:
        CompilationError: the kernel is wrong.
    """
    if variant.target.kind == "cuda":
        return make_listings(variant).stages
    source = variant.source
    tile = print_function(make_tile(Build(variant)), locations=True)
    llvm = str(build(variant, stop_after="llvm").artifacts["llvm"])
    return {
        "source": _source(source),
        "tile": _located(tile, source),
        "llvm": tuple(ListedLine(text, None) for text in llvm.splitlines()),
    }


def _source(source: KernelSource) -> tuple[ListedLine, ...]:
    """The kernel's own lines, of a file those of its function."""
    first = source.locate(source.node).line
    count = (source.node.end_lineno or source.node.lineno) - source.node.lineno + 1
    lines = source.lines[first - source.first_line :][:count]
    return tuple(ListedLine(text, first + number) for number, text in enumerate(lines))


def _located(text: str, source: KernelSource) -> tuple[ListedLine, ...]:
    """Lines of IR, whose locations are comments."""
    note = re.compile(r"  // (" + re.escape(source.filename) + r"|[^ ,]*):(\d+):\d+(?:, )?")
    made = []
    for line in text.splitlines():
        found = note.search(line)
        if found is None:
            made.append(ListedLine(line, None))
            continue
        rest = line[found.end() :]
        bare = line[: found.start()] + (f"  // {rest}" if rest else "")
        made.append(ListedLine(bare, int(found[2]) if found[1] == source.filename else None))
    return tuple(made)


def _assembly(text: str, source: KernelSource) -> tuple[ListedLine, ...]:
    """Lines of PTX without what only says where they come from."""
    files = dict(_FILE.findall(text))
    made: list[ListedLine] = []
    current: int | None = None
    for line in text.splitlines():
        place = _LOC.match(line)
        if place is not None:
            own = files.get(place[1], "").endswith(source.filename.rsplit("/", 1)[-1])
            current = int(place[2]) or None if own else None
        if not _BOOKKEEPING.match(line):
            instruction = _INSTRUCTION.match(line) is not None
            made.append(ListedLine(line, current if instruction else None))
    return tuple(made)
