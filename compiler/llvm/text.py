"""LLVM IR as text: fresh names, exact constants, declarations made once, code that may be inserted later.

Text is built much faster than llvmlite's own IR objects (a 430 KB kernel in half a millisecond), and LLVM parses it
in a few milliseconds. Values are plain strings (``%v7``, ``42``, ``true``); the caller knows their types.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

#: One operand: its LLVM type and its value.
Operand = tuple[str, str]


def float_constant(value: float, type: str) -> str:
    """``value`` rounded to ``type`` (half, bfloat, float, double) and written exactly."""
    match type:
        case "half":
            return f"0xH{_half_bits(value):04X}"
        case "bfloat":
            return f"0xR{_bfloat_bits(value):04X}"
        case "float":
            # LLVM writes a float constant as the double of the same value.
            return f"0x{struct.unpack('<Q', struct.pack('<d', _round_to_float(value)))[0]:016X}"
        case _:
            return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _round_to_float(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _half_bits(value: float) -> int:
    try:
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    except OverflowError:
        return 0x7C00 if value > 0 else 0xFC00


def _bfloat_bits(value: float) -> int:
    if math.isnan(value):
        return 0x7FC0
    bits = int(struct.unpack("<I", struct.pack("<f", _round_to_float(value)))[0])
    return min((bits + 0x7FFF + (bits >> 16 & 1)) >> 16, 0xFF80 if bits >> 31 else 0x7F80)


def quoted(text: str) -> str:
    """``text`` as the inside of an LLVM string, such as an inline assembly template."""
    return text.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A")


def bytes_constant(data: bytes) -> str:
    """An LLVM byte array constant, ``c"..."``."""
    return 'c"' + "".join(f"\\{b:02X}" for b in data) + '"'


class ModuleText:
    """A module under construction: globals, declarations, attribute groups and metadata, each made once."""

    def __init__(self, triple: str, data_layout: str = "") -> None:
        self.head = [f'target triple = "{triple}"']
        if data_layout:
            self.head.append(f'target datalayout = "{data_layout}"')
        self.structs: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.declarations: dict[str, str] = {}
        self.functions: list[FunctionText] = []
        self.tail: list[str] = []
        self._strings: dict[bytes, str] = {}

    def declare(self, name: str, returns: str, parameters: Sequence[str]) -> None:
        """Declare function ``name`` unless that was done before."""
        if name not in self.declarations:
            arguments = ", ".join(parameters)
            self.declarations[name] = f"declare {returns} @{name}({arguments})"

    def struct(self, members: Sequence[str]) -> str:
        """The type of what has several parts; a long one has a name, as it is written once for each of its parts."""
        written = "{" + ", ".join(members) + "}"
        return written if len(members) <= 4 else self.structs.setdefault(written, f"%struct{len(self.structs)}")

    def string(self, text: str) -> str:
        """The name of a constant global that holds ``text`` with a terminating zero."""
        data = text.encode() + b"\0"
        if data not in self._strings:
            name = f"@.str{len(self._strings)}"
            self._strings[data] = name
            self.globals[name] = f"{name} = private unnamed_addr constant [{len(data)} x i8] {bytes_constant(data)}"
        return self._strings[data]

    def __str__(self) -> str:
        return self.written(list)

    def written(self, arrange: Callable[[list[str]], list[str]]) -> str:
        """The module, with the lines of each function as ``arrange`` returns them."""
        structs = [f"{name} = type {written}" for written, name in self.structs.items()]
        lines = [*self.head, *structs, *self.globals.values(), *self.declarations.values()]
        for function in self.functions:
            lines.extend(arrange(list(function.lines())))
        lines.extend(self.tail)
        lines.append("")
        return "\n".join(lines)


class FunctionText:
    """One function body as a sequence of chunks, any of which may still grow.

    Code is appended to ``current``. A caller that keeps a chunk may later add instructions there with :meth:`at`:
    so a value can be computed where it is defined, but only once somebody needs it.
    """

    def __init__(self, module: ModuleText, header: str) -> None:
        self.module = module
        self.header = header
        self.current: list[str] = []
        #: What follows each instruction: where it comes from, if that is wanted (:mod:`.lines`).
        self.after = ""
        self._chunks: list[list[str]] = [self.current]
        self._counter = 0
        module.functions.append(self)

    def chunk(self) -> list[str]:
        """Start a new chunk at the end, make it the current one and return it."""
        self.current = []
        self._chunks.append(self.current)
        return self.current

    @contextmanager
    def at(self, chunk: list[str]) -> Iterator[None]:
        """Append to ``chunk`` for a while."""
        outer, self.current = self.current, chunk
        try:
            yield
        finally:
            self.current = outer

    def lines(self) -> Iterable[str]:
        """The definition line by line: header, chunks in order, closing brace."""
        yield f"{self.header} {{"
        for chunk in self._chunks:
            yield from chunk
        yield "}"

    # Instructions --------------------------------------------------------------------------------------------

    def fresh(self, hint: str = "v") -> str:
        """A name that no other value or block of this function has, without its ``%``."""
        self._counter += 1
        return f"{hint}{self._counter}"

    def op(self, text: str) -> str:
        """Append ``%new = text`` and return the new name."""
        self._counter += 1
        name = f"%v{self._counter}"
        self.current.append(f"  {name} = {text}{self.after}")
        return name

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.current.append(f"  {text}{self.after}")

    def label(self, name: str) -> None:
        """Begin the block ``name``; the block before must have ended in a branch."""
        self.current.append(f"{name}:")

    def call(self, returns: str, name: str, operands: Sequence[Operand], flags: str = "") -> str:
        """Call ``@name``, declaring it on first use; returns "" for void functions."""
        self.module.declare(name, returns, [t for t, _ in operands])
        arguments = ", ".join(f"{t} {v}" for t, v in operands)
        text = f"call {flags + ' ' if flags else ''}{returns} @{name}({arguments})"
        if returns == "void":
            self.do(text)
            return ""
        return self.op(text)

    def asm(
        self,
        returns: Sequence[str],
        template: str,
        constraints: str,
        operands: Sequence[Operand],
        *,
        effects: bool = True,
        convergent: bool = False,
    ) -> list[str]:
        """Inline assembly with any number of results.

        ``effects``: it must run exactly where it is written, even if its results are unused; without them it is what
        its operands make it, wherever it runs. ``convergent``: all threads of a warp must reach it together.
        """
        arguments = ", ".join(f"{t} {v}" for t, v in operands)
        kind = "sideeffect " if effects else ""
        made = "void" if not returns else returns[0] if len(returns) == 1 else self.module.struct(returns)
        text = f'call {made} asm {kind}"{quoted(template)}", "{constraints}"({arguments})'
        if convergent:
            text += " convergent"
        elif not effects:
            text += " nounwind willreturn memory(none)"
        if not returns:
            self.do(text)
            return []
        result = self.op(text)
        if len(returns) == 1:
            return [result]
        return [self.op(f"extractvalue {made} {result}, {i}") for i in range(len(returns))]
