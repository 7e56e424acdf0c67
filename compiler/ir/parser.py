"""Reads the text that :mod:`.printer` writes. Nothing is evaluated: attributes are literals of a fixed grammar."""

from __future__ import annotations

import re

from ..errors import IRError, TypeMismatch
from .core import REGISTRY, Attribute, Block, FieldKind, Function, Op, Value
from .types import Tile, parse_element, parse_type

_TOKEN = re.compile(
    r"""\s*(?:(?P<comment>//[^\n]*)
    |(?P<value>%[\w.]+)
    |(?P<symbol>@[\w.$]+)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<type>tile<[^>]*>|type\([^)]*\)|\*(?:const\ )?[\w* ]*\w)
    |(?P<number>-?(?:inf|nan)\b|-?\d+(?:\.\d*)?(?:e[+-]?\d+)?)
    |(?P<word>[A-Za-z_][\w.]*)
    |(?P<punct>[{}()\[\]=,:]))""",
    re.VERBOSE,
)
_ALIAS = re.compile(r"^(#\d+) = (.+)$", re.MULTILINE)


def parse_function(text: str) -> Function:
    """The function that ``text`` prints.

    Raises:
        IRError: with the line of the text and what was expected there.
    """
    return _Parser(text).function()


class _Parser:
    def __init__(self, text: str) -> None:
        self.aliases = {m[1]: m[2].strip() for m in _ALIAS.finditer(text)}
        self.text = _ALIAS.sub("", text)
        self.tokens = self._scan()
        self.at = 0
        self.values: dict[str, Value] = {}

    def _scan(self) -> list[tuple[str, str, int]]:
        tokens, position, end = [], 0, len(self.text.rstrip())
        while position < end:
            if not (m := _TOKEN.match(self.text, position)):
                position += len(self.text[position:]) - len(self.text[position:].lstrip())
                line = self.text.count("\n", 0, position) + 1
                raise IRError(f"IR line {line}: cannot read {self.text[position : position + 20]!r}")
            if m.lastgroup and m.lastgroup != "comment":
                tokens.append((m.lastgroup, m[m.lastgroup], m.start(m.lastgroup)))
            position = m.end()
        return tokens

    # Token helpers -------------------------------------------------------------------------------------------

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def kind(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else "end of text"

    def line(self) -> str:
        where = self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)
        return f"IR line {self.text.count(chr(10), 0, where) + 1}"

    def error(self, expected: str) -> IRError:
        return IRError(f"{self.line()}: expected {expected}, got {self.peek() or 'end of text'!r}")

    def take(self, kind: str) -> str:
        if self.kind() != kind:
            raise self.error(f"a {kind}")
        self.at += 1
        return self.tokens[self.at - 1][1]

    def expect(self, text: str) -> None:
        if self.peek() != text:
            raise self.error(repr(text))
        self.at += 1

    def accept(self, text: str) -> bool:
        if self.peek() == text:
            self.at += 1
            return True
        return False

    # Grammar -------------------------------------------------------------------------------------------------

    def function(self) -> Function:
        self.expect("func")
        fn = Function(self.take("symbol")[1:])
        self.expect("(")
        while not self.accept(")"):
            name = self.take("value")
            self.expect(":")
            type = self.type()
            divisibility = 1
            if self.accept("{"):
                self.expect("divisibility")
                self.expect("=")
                divisibility = int(self.take("number"))
                self.expect("}")
            self.values[name] = fn.add_parameter(name[1:], type, divisibility)
            self.accept(",")
        if self.accept("num_warps"):
            self.expect("=")
            fn.num_warps = int(self.take("number"))
        self.expect("{")
        self.block(fn.body)
        if self.at != len(self.tokens):
            raise self.error("the end")
        return fn

    def block(self, block: Block) -> None:
        while not self.accept("}"):
            block.ops.append(self.op())

    def op(self) -> Op:
        names = []
        while self.kind() == "value":
            names.append(self.take("value"))
            self.accept(",")
        if names:
            self.expect("=")
        mnemonic = self.take("word")
        if mnemonic not in REGISTRY:
            self.at -= 1
            raise self.error("an operation")
        cls = REGISTRY[mnemonic]
        fields = self.operands(cls)
        types: list[Tile] = []
        if self.accept(":"):
            types.append(self.type())
            while self.accept(","):
                types.append(self.type())
        for name, kind in cls.kinds.items():
            if kind is FieldKind.BLOCK:
                fields[name] = self.region(name)
        return self.build(cls, fields, names, types)

    def operands(self, cls: type[Op]) -> dict[str, object]:
        fields: dict[str, object] = {}
        for name, kind in cls.kinds.items():
            match kind:
                case FieldKind.OPERAND:
                    fields[name] = self.value()
                case FieldKind.OPTIONAL:
                    fields[name] = None
                    if self.peek() == name:
                        self.at += 1
                        self.expect("=")
                        fields[name] = self.value()
                case FieldKind.VARIADIC:
                    self.expect(name)
                    self.expect("=")
                    self.expect("[")
                    held = []
                    while not self.accept("]"):
                        held.append(self.value())
                        self.accept(",")
                    fields[name] = tuple(held)
                case _:
                    pass
        if self.accept("{"):
            while not self.accept("}"):
                name = self.take("word")
                if cls.kinds.get(name) is not FieldKind.ATTRIBUTE:
                    self.at -= 1
                    raise self.error(f"an attribute of {cls.mnemonic}")
                self.expect("=")
                fields[name] = self.attribute(cls.hints[name])
                self.accept(",")
        return fields

    def region(self, name: str) -> Block:
        self.expect(name)
        self.expect("=")
        self.expect("(")
        block = Block()
        while not self.accept(")"):
            arg = self.take("value")
            self.expect(":")
            self.values[arg] = block.add_argument(self.type(), _hint(arg))
            self.accept(",")
        self.expect("{")
        self.block(block)
        return block

    def build(self, cls: type[Op], fields: dict[str, object], names: list[str], types: list[Tile]) -> Op:
        try:
            op = cls(**fields)
        except TypeMismatch as error:
            self.at -= 1
            raise IRError(f"{self.line()}: {error.message}", hint=error.hint) from error
        except TypeError as error:
            raise self.error(f"all fields of {cls.mnemonic} ({error})") from error
        inferred = [r.type for r in op.results]
        if [t.with_layout(None) for t in inferred] != [t.with_layout(None) for t in types]:
            raise self.error(
                f"{cls.mnemonic} with types {', '.join(map(str, inferred))}"
                f" instead of {', '.join(map(str, types))} before this"
            )
        if len(names) != len(op.results):
            raise self.error(f"{len(op.results)} result names before {cls.mnemonic}")
        for name, result, written in zip(names, op.results, types, strict=True):
            self.values[name] = result
            result.type = written
            result.name = _hint(name)
        return op

    def value(self) -> Value:
        name = self.take("value")
        if name not in self.values:
            self.at -= 1
            raise self.error("a value that is defined before")
        return self.values[name]

    def type(self) -> Tile:
        text = self.take("word") if self.kind() == "word" else self.take("type")
        head, comma, alias = text.removesuffix(">").rpartition(", ")
        if comma and alias in self.aliases:
            text = f"{head}, {self.aliases[alias]}>"
        try:
            return parse_type(text)
        except (IRError, TypeMismatch) as error:
            self.at -= 1
            raise IRError(f"{self.line()}: {error.message}", hint=error.hint) from error

    def attribute(self, hint: object) -> Attribute:
        if hint is Tile:
            return self.type()
        kind, text = self.kind(), self.peek()
        self.at += 1
        match kind:
            case "string":
                return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else str(m[1]), text[1:-1])
            case "number":
                is_float = any(c in text for c in ".en") or hint is float
                return float(text) if is_float else int(text)
            case "type" if text.startswith("type("):
                return parse_element(text[5:-1])
            case "word" if text in ("True", "False", "None"):
                return {"True": True, "False": False, "None": None}[text]
            case "punct" if text == "[":
                items = []
                while not self.accept("]"):
                    items.append(int(self.take("number")))
                    self.accept(",")
                return tuple(items)
        self.at -= 1
        raise self.error("an attribute value")


def _hint(name: str) -> str:
    """The name to keep of ``%name``: running numbers are given anew by the printer."""
    return "" if name[1:].isdigit() else name[1:]
