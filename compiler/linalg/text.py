"""MLIR as text: names, types, and lines in regions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..ir.core import Value
from ..ir.types import Element, Pointer, Tile

_FLOATS = {"f8e4m3": "f8E4M3FN", "f8e5m2": "f8E5M2"}


def element_text(element: Element) -> str:
    """The type of an element: integers are signless; a pointer is an array of unknown shape."""
    if isinstance(element, Pointer):
        return f"memref<*x{element_text(element.pointee)}>"
    if element.is_float:
        return _FLOATS.get(element.code, element.code)
    return f"i{element.bits}"


def type_text(type: Tile) -> str:
    """The type of a value: a tensor of static shape, or of rank 0 its element."""
    return tensor_text(type.shape, element_text(type.elem)) if type.rank else element_text(type.elem)


def tensor_text(shape: Sequence[int | str], element: str) -> str:
    """``tensor<64x?xf32>``."""
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


def strided_text(shape: Sequence[int | str], element: str, strides: Sequence[int | str], *, begin: bool = False) -> str:
    """``memref<64x?xf32, strided<[?, 1], offset: ?>>``; without the offset if it is at the ``begin``."""
    sizes = "".join(f"{n}x" for n in shape)
    return f"memref<{sizes}{element}, strided<[{', '.join(map(str, strides))}]{'' if begin else ', offset: ?'}>>"


class Writer:
    """Lines of one function, with a name for every value."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[Value, str] = {}
        self._used: dict[str, int] = {}
        self._known: list[dict[str, str]] = [{}]
        self._depth = 1

    def line(self, text: str) -> None:
        """One line at the depth of the region."""
        self.lines.append("  " * self._depth + text)

    def fresh(self, hint: str = "v") -> str:
        """A name that nothing has yet."""
        count = self._used.get(hint, 0)
        self._used[hint] = count + 1
        return f"%{hint}_{count}" if count else f"%{hint}"

    def define(self, text: str, hint: str = "v") -> str:
        """A line that defines a value; its name."""
        name = self.fresh(hint)
        self.line(f"{name} = {text}")
        return name

    def once(self, text: str, hint: str = "v") -> str:
        """The same for what has no effect: defined once in the regions around it."""
        for known in self._known:
            if text in known:
                return known[text]
        self._known[-1][text] = name = self.define(text, hint)
        return name

    def bind(self, value: Value, name: str) -> None:
        """Say what stands for a value of the function."""
        self._names[value] = name

    def name(self, value: Value) -> str:
        """What stands for a value of the function."""
        return self._names[value]

    def index(self, value: Value) -> str:
        """An integer scalar as an index."""
        signed = isinstance(value.type.elem, Pointer) or value.type.elem.is_signed
        cast = "index_cast" if signed else "index_castui"
        return self.once(f"arith.{cast} {self.name(value)} : {type_text(value.type)} to index", "index")

    def constant(self, value: int, type: str = "index") -> str:
        """An integer."""
        return self.once(f"arith.constant {value} : {type}", f"c{value}" if value >= 0 else "c")

    @contextmanager
    def region(self) -> Iterator[None]:
        """Lines inside a region."""
        self._depth += 1
        self._known.append({})
        yield
        self._known.pop()
        self._depth -= 1
