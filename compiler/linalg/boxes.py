"""Loads and stores of boxes: a view of the array, of which the part inside the array is copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.core import Op, Value
from ..ir.types import Pointer, Scalar
from ..tile import elementwise as e
from ..tile.blocks import BlockLoad, BlockStore
from ..tile.memory import Load, Store
from ..tile.passes.numbers import known_number
from .elements import number_text, unsupported
from .text import Writer, element_text, strided_text, tensor_text


@dataclass(frozen=True)
class BoxView:
    """A box as a view of its array. ``strides``: as its type says them. ``lows`` and ``counts``: the part of it that is
    inside; without ``lows`` all of it is."""

    name: str
    type: str
    shape: tuple[int, ...]
    strides: tuple[int | str, ...]
    element: str
    lows: tuple[str, ...] | None
    counts: tuple[str, ...]

    @property
    def bounds(self) -> str:
        """``[lows][counts][steps]`` as slices are written."""
        steps = ", ".join("1" for _ in self.shape)
        return f"[{', '.join(self.lows or ())}] [{', '.join(self.counts)}] [{steps}]"

    @property
    def sizes(self) -> list[str]:
        """Of the part that is inside, as types say them."""
        return [count if count.isdigit() else "?" for count in self.counts]

    @property
    def part(self) -> str:
        """The type of the part that is inside."""
        return strided_text(self.sizes, self.element, self.strides)


def load_box(out: Writer, op: BlockLoad, other: float | bool | None) -> str:
    """Write a load; ``other`` is what elements outside are where that is neither zero nor NaN. Returns the tensor."""
    view = _view(out, op, op.shape)
    elem = op.result.type.elem
    if not isinstance(elem, Scalar):
        raise unsupported(op, "an array of addresses")
    place = f"memref<{''.join(f'{n}x' for n in view.shape)}{view.element}>"
    alloc = out.define(f"memref.alloc() : {place}", "alloc")
    if view.lows is None:
        out.line(f'"memref.copy"({view.name}, {alloc}) : ({view.type}, {place}) -> ()')
    else:
        pad = float("nan") if op.padding == "nan" else 0 if other is None else other
        if elem.is_float:
            pad = float(pad)
        padding = out.once(f"arith.constant {number_text(pad, elem)} : {view.element}", "pad")
        out.line(f"linalg.fill ins({padding} : {view.element}) outs({alloc} : {place})")
        strides = [_product(view.shape[d + 1 :]) for d in range(len(view.shape))]
        inside = strided_text(view.sizes, view.element, strides, begin=set(view.lows) == {"0"})
        source = out.define(f"memref.subview {view.name}{view.bounds} : {view.type} to {view.part}", "inside")
        target = out.define(f"memref.subview {alloc}{view.bounds} : {place} to {inside}", "inside")
        out.line(f'"memref.copy"({source}, {target}) : ({view.part}, {inside}) -> ()')
    tensor = tensor_text(view.shape, view.element)
    return out.define(f"bufferization.to_tensor {alloc} restrict writable : {place} to {tensor}", op.result.name or "x")


def store_box(out: Writer, op: BlockStore) -> None:
    """Write a store."""
    view = _view(out, op, op.value.type.shape)
    value, target, part = out.name(op.value), view.name, view.type
    tensor = tensor_text(view.shape, view.element)
    if view.lows is not None:
        unknown = tensor_text(view.sizes, view.element)
        value = out.define(f"tensor.extract_slice {value}{view.bounds} : {tensor} to {unknown}", "part")
        target = out.define(f"memref.subview {view.name}{view.bounds} : {view.type} to {view.part}", "inside")
        tensor, part = unknown, view.part
    out.line(f"bufferization.materialize_in_destination {value} in writable {target} : ({tensor}, {part}) -> ()")


def load_element(out: Writer, op: Load) -> str:
    """Write the load of a single element."""
    place, element = _element(out, op)
    zero = out.constant(0)
    if op.mask is None:
        return out.define(f"memref.load {place}[{zero}] : {_ONE.format(element)}", op.result.name or "x")
    other = out.name(op.other) if op.other is not None else None
    if other is None:
        elem = op.result.type.elem
        number = number_text(0.0 if op.result.type.is_float else 0, elem)
        other = out.once(f"arith.constant {number} : {element}", "cst")
    name = out.fresh(op.result.name or "x")
    out.line(f"{name} = scf.if {out.name(op.mask)} -> ({element}) {{")
    with out.region():
        found = out.define(f"memref.load {place}[{zero}] : {_ONE.format(element)}", "x")
        out.line(f"scf.yield {found} : {element}")
    out.line("} else {")
    out.line(f"  scf.yield {other} : {element}")
    out.line("}")
    return name


def store_element(out: Writer, op: Store) -> None:
    """Write the store of a single element."""
    place, element = _element(out, op)
    zero = out.constant(0)
    store = f"memref.store {out.name(op.value)}, {place}[{zero}] : {_ONE.format(element)}"
    if op.mask is None:
        out.line(store)
        return
    out.line(f"scf.if {out.name(op.mask)} {{")
    out.line(f"  {store}")
    out.line("}")


_ONE = "memref<1x{}, strided<[1], offset: ?>>"


def _element(out: Writer, op: Load | Store) -> tuple[str, str]:
    """A view of one element, and the type of that."""
    array, begin = _array(out, op, op.pointer)
    pointee = op.pointer.type.elem
    element = element_text(pointee.pointee) if isinstance(pointee, Pointer) else ""
    return out.define(
        f"memref.reinterpret_cast {array} to offset: [{begin or out.constant(0)}], sizes: [1], strides: [1] : "
        f"memref<*x{element}> to {_ONE.format(element)}",
        "box",
    ), element


def _view(out: Writer, op: BlockLoad | BlockStore, shape: tuple[int, ...]) -> BoxView:
    if not shape:
        raise unsupported(op, "a single element")
    array, begin = _array(out, op, op.base)
    thin = len(op.sizes) - len(shape)
    offset = begin
    for at, stride in zip(op.offsets, op.strides, strict=True):
        if known_number(at) == 0:
            continue
        step = _product_of(out, out.index(at), stride)
        offset = step if offset is None else out.once(f"arith.addi {offset}, {step} : index", "offset")
    strides = [known_number(stride) for stride in op.strides[thin:]]
    shown = tuple("?" if known is None else known for known in strides)
    given = [out.index(stride) if k is None else str(k) for k, stride in zip(strides, op.strides[thin:], strict=True)]
    pointee = op.base.type.elem
    element = element_text(pointee.pointee) if isinstance(pointee, Pointer) else ""
    kind = strided_text(shape, element, shown)
    name = out.define(
        f"memref.reinterpret_cast {array} to offset: [{offset or out.constant(0)}], "
        f"sizes: [{', '.join(map(str, shape))}], "
        f"strides: [{', '.join(given)}] : memref<*x{element}> to {kind}",
        "box",
    )
    if not any(op.checked):
        return BoxView(name, kind, shape, shown, element, None, tuple(map(str, shape)))
    lows, counts = zip(*(_inside(out, op, thin + d, n) for d, n in enumerate(shape)), strict=True)
    for d in range(thin):
        if op.checked[d]:
            counts = (_if_inside(out, op, d, counts[0]), *counts[1:])
    return BoxView(name, kind, shape, shown, element, lows, counts)


def _array(out: Writer, op: Op, base: Value) -> tuple[str, str | None]:
    """The argument that an address is in, and how many elements behind its beginning, None for 0."""
    if base.op is None:
        return out.name(base), None
    if not isinstance(base.op, e.AddPtr):
        raise unsupported(op, "its array is no argument of the kernel")
    array, begin = _array(out, op, base.op.pointer)
    step = out.index(base.op.offset)
    return array, step if begin is None else out.once(f"arith.addi {begin}, {step} : index", "offset")


def _product_of(out: Writer, index: str, stride: Value) -> str:
    if known_number(stride) == 1:
        return index
    return out.once(f"arith.muli {index}, {out.index(stride)} : index", "step")


def _inside(out: Writer, op: BlockLoad | BlockStore, d: int, n: int) -> tuple[str, str]:
    """Where the part of dimension ``d`` that is inside the array begins in the box, and how many elements it has."""
    if not op.checked[d]:
        return "0", str(n)
    begin = known_number(op.offsets[d])
    most, zero = out.constant(n), out.constant(0)
    if begin == 0:
        count = out.once(f"arith.minsi {out.index(op.sizes[d])}, {most} : index", "count")
        return "0", out.once(f"arith.maxsi {count}, {zero} : index", "count")
    at = out.index(op.offsets[d])
    low = out.once(f"arith.subi {zero}, {at} : index", "before")
    low = out.once(f"arith.maxsi {low}, {zero} : index", "low")
    low = out.once(f"arith.minsi {low}, {most} : index", "low")
    high = out.once(f"arith.subi {out.index(op.sizes[d])}, {at} : index", "left")
    high = out.once(f"arith.minsi {high}, {most} : index", "high")
    high = out.once(f"arith.maxsi {high}, {low} : index", "high")
    return low, out.once(f"arith.subi {high}, {low} : index", "count")


def _if_inside(out: Writer, op: BlockLoad | BlockStore, d: int, count: str) -> str:
    """``count`` where the box's one index of dimension ``d`` is inside the array, else nothing."""
    at, zero = out.index(op.offsets[d]), out.constant(0)
    if count.isdigit():
        count = out.constant(int(count))
    size = out.once(f"arith.maxsi {out.index(op.sizes[d])}, {zero} : index", "size")
    # As unsigned numbers, what is negative is above every size.
    inside = out.once(f"arith.cmpi ult, {at}, {size} : index", "inside")
    return out.once(f"arith.select {inside}, {count}, {zero} : index", "count")


def _product(numbers: Sequence[int]) -> int:
    made = 1
    for number in numbers:
        made *= number
    return made
