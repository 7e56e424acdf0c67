"""Functions as text, in one generic form that :mod:`.parser` reads back.

::

    func @add(%x: *f32 {divisibility = 16}, %n: i32) num_warps = 4 {
      %0 = program_id {axis = 0} : i32
      %1 = load %p mask=%m {cache = "", eviction = ""} : tile<1024xf32>
      %2, %3 = for %lo %hi %step inits=[%a, %b] {...} : f32, i32 body=(%i: i32, %x: f32, %y: i32) {
        yield values=[%x, %y]
      }
    }

Layouts are long, so each distinct one is named once above the function: ``#0 = <layout>``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .core import Attribute, Block, FieldKind, Function, Op, Value
from .types import Pointer, Scalar, Tile

if TYPE_CHECKING:
    from ..layout import LinearLayout, SharedLayout


def print_function(function: Function, *, locations: bool = False, notes: Mapping[Op, str] | None = None) -> str:
    """The text of ``function``; ``locations`` appends ``// file:line`` to each operation, ``notes`` what they say."""
    return _Printer(locations, notes or {}).function(function)


class _Printer:
    def __init__(self, locations: bool, notes: Mapping[Op, str]) -> None:
        self.locations = locations
        self.notes = notes
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.layouts: dict[LinearLayout | SharedLayout, str] = {}
        self.counter = 0
        self.lines: list[str] = []

    def function(self, fn: Function) -> str:
        params = []
        for p in fn.parameters:
            promise = f" {{divisibility = {p.divisibility}}}" if p.divisibility != 1 else ""
            params.append(f"{self.define(p.value)}: {self.type(p.value.type)}{promise}")
        warps = f" num_warps = {fn.num_warps}" if fn.num_warps is not None else ""
        self.lines.append(f"func @{fn.name}({', '.join(params)}){warps} {{")
        self.ops(fn.body, "  ")
        self.lines.append("}")
        aliases = [f"{name} = {layout}" for layout, name in self.layouts.items()]
        return "\n".join([*aliases, *self.lines]) + "\n"

    def ops(self, block: Block, indent: str) -> None:
        for op in block.ops:
            self.op(op, indent)

    def op(self, op: Op, indent: str) -> None:
        words = [op.mnemonic]
        attributes = []
        for name, kind in op.kinds.items():
            held = getattr(op, name)
            if kind is FieldKind.OPERAND:
                words.append(self.names[held])
            elif kind is FieldKind.OPTIONAL and held is not None:
                words.append(f"{name}={self.names[held]}")
            elif kind is FieldKind.VARIADIC:
                words.append(f"{name}=[{', '.join(self.names[v] for v in held)}]")
            elif kind is FieldKind.ATTRIBUTE:
                attributes.append(f"{name} = {self.attribute(held)}")
        if attributes:
            words.append(f"{{{', '.join(attributes)}}}")
        if op.results:
            words.append(": " + ", ".join(self.type(r.type) for r in op.results))
        head = ", ".join(self.define(r) for r in op.results)
        text = indent + (f"{head} = " if head else "") + " ".join(words)
        located = [str(op.location)] if self.locations and op.location else []
        remarks = [*located, *([self.notes[op]] if op in self.notes else [])]
        note = f"  // {', '.join(remarks)}" if remarks else ""
        regions = [(n, getattr(op, n)) for n, k in op.kinds.items() if k is FieldKind.BLOCK]
        if not regions:
            self.lines.append(text + note)
            return
        for i, (name, block) in enumerate(regions):
            args = ", ".join(f"{self.define(a)}: {self.type(a.type)}" for a in block.args)
            opening = f"{name}=({args}) {{"
            self.lines.append(f"{text} {opening}{note}" if i == 0 else f"{indent}}} {opening}")
            self.ops(block, indent + "  ")
        self.lines.append(indent + "}")

    def define(self, value: Value) -> str:
        """Name a value: by its hint, with a suffix where that is taken, else by a running number."""
        name = value.name
        if not name:
            name, self.counter = str(self.counter), self.counter + 1
        suffix = 0
        while name in self.taken:
            suffix += 1
            name = f"{value.name}_{suffix}"
        self.taken.add(name)
        self.names[value] = f"%{name}"
        return f"%{name}"

    def type(self, type: Tile) -> str:
        place = type.layout or type.shared
        if place is None:
            return str(type)
        alias = self.layouts.setdefault(place, f"#{len(self.layouts)}")
        return f"tile<{'x'.join([*map(str, type.shape), type.elem.code])}, {alias}>"

    def attribute(self, value: Attribute) -> str:
        match value:
            case Tile():
                return self.type(value)
            case Scalar() | Pointer():
                return f"type({value.code})"
            case str():
                escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
                return f'"{escaped}"'
            case tuple():
                return f"[{', '.join(map(str, value))}]"
            case _:
                return repr(value)
