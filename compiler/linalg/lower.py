"""Tile IR to MLIR, operation by operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ..ir.core import Block, Function, Op, Value
from ..ir.types import Scalar, Tile
from ..tile import elementwise as e
from ..tile.blocks import BlockLoad, BlockStore
from ..tile.control import For, If, Yield
from ..tile.matmul import Dot
from ..tile.memory import GridWait, LaunchDependents, Load, Store
from ..tile.passes.access import structure_accesses
from ..tile.passes.dce import dce
from ..tile.program import NumPrograms, ProgramId
from ..tile.reduction import Reduce
from ..tile.shape import Arange, Broadcast, ExpandDims, Permute, Splat
from .boxes import load_box, load_element, store_box, store_element
from .elements import element_operation, number_text, unsupported
from .text import Writer, element_text, tensor_text, type_text

#: Mnemonic of a combining operation -> its neutral element, of floats (None: they have no such operation) and of
#: integers.
_NEUTRAL: Mapping[str, tuple[float | None, Callable[[Scalar], int]]] = {
    "add": (0.0, lambda elem: 0),
    "mul": (1.0, lambda elem: 1),
    "max": (-math.inf, lambda elem: -(1 << (elem.bits - 1)) if elem.is_signed else 0),
    "min": (math.inf, lambda elem: (1 << (elem.bits - 1)) - 1 if elem.is_signed else -1),
    "and": (None, lambda elem: -1),
    "or": (None, lambda elem: 0),
    "xor": (None, lambda elem: 0),
}
_GRID = ("num_x", "num_y", "num_z", "x", "y", "z")


def lower_to_linalg(function: Function) -> str:
    """A module with the kernel as a function: the arguments, then six i32, the numbers of programs along the axes of
    the grid and the place of this program. What accesses rely on is said in comments.

    Raises:
        UnsupportedOp: an access is no box of an array, or an operation has no counterpart; the message shows the place.
    """
    function = function.clone()
    others: dict[Op, int | float | bool] = {}
    guards = structure_accesses(function, lambda access: bool(access.pointer.type.rank), others=others)
    function = dce(function)
    out = Writer()
    parameters = []
    for parameter in function.parameters:
        name = out.fresh(parameter.value.name or "arg")
        out.bind(parameter.value, name)
        parameters.append(f"{name}: {type_text(parameter.value.type)}")
    grid = [out.fresh(name) for name in _GRID]
    parameters += [f"{name}: i32" for name in grid]
    _Lowering(out, grid, others).block(function.body)
    out.line("func.return")
    notes = [f"  // relies on: {guard}" for guard in guards]
    head = f"  func.func @{function.name}({', '.join(parameters)}) {{"
    return "\n".join(["module {", *notes, head, *("  " + line for line in out.lines), "  }", "}", ""])


class _Lowering:
    """Writes the operations of one function."""

    def __init__(self, out: Writer, grid: list[str], others: dict[Op, int | float | bool]) -> None:
        self.out = out
        self.grid = grid
        self.others = others

    def block(self, block: Block) -> None:
        """Every operation but the terminator."""
        for op in block.ops:
            if not isinstance(op, Yield):
                self.op(op)

    def op(self, op: Op) -> None:
        """One operation."""
        out = self.out
        match op:
            case ProgramId():
                out.bind(op.result, self.grid[3 + op.axis])
            case NumPrograms():
                out.bind(op.result, self.grid[op.axis])
            case e.Constant():
                self._constant(op)
            case Splat() | Broadcast() | ExpandDims() | e.AddPtr() if _are_addresses(op.result):
                pass  # who reads or writes by them is refused, at its place
            case Arange() | Broadcast():
                self._generic(op)
            case Splat():
                self._bind(op, self._filled(op.result.type, out.name(op.x)))
            case ExpandDims():
                self._expand(op)
            case Permute():
                empty = self._empty(op.result.type)
                self._bind(
                    op,
                    f"linalg.transpose ins({self._typed(op.x)}) outs({empty}) permutation = {list(op.order)}",
                )
            case Reduce():
                self._reduce(op)
            case Dot():
                self._bind(
                    op,
                    f"linalg.matmul ins({self._typed(op.a, op.b)}) outs({self._typed(op.acc)}) "
                    f"-> {type_text(op.result.type)}",
                )
            case For():
                self._for(op)
            case If():
                self._if(op)
            case BlockLoad():
                out.bind(op.result, load_box(out, op, self.others.get(op)))
            case BlockStore():
                store_box(out, op)
            case Load() if not op.result.type.rank and not op.result.type.is_pointer:
                out.bind(op.result, load_element(out, op))
            case Store() if not op.value.type.rank:
                store_element(out, op)
            case Load() | Store():
                raise unsupported(op, "its addresses are no box of an array, linear in the tile's coordinates")
            case _ if any(map(_are_addresses, op.operands)):
                raise unsupported(op, "its operands are addresses")
            case GridWait() | LaunchDependents():
                pass  # of launches, which other compilers' functions know nothing of
            case _ if op.elementwise and op.result.type.rank:
                self._generic(op)
            case _ if op.elementwise:
                if not isinstance(op, e.AddPtr):  # addresses are read where a box begins
                    out.bind(op.result, element_operation(out, op, [out.name(v) for v in op.operands]))
            case _:
                raise unsupported(op)

    def _bind(self, op: Op, text: str) -> None:
        self.out.bind(op.result, self.out.define(text, op.result.name or "v"))

    def _typed(self, *values: Value) -> str:
        return f"{', '.join(map(self.out.name, values))} : {', '.join(type_text(v.type) for v in values)}"

    def _empty(self, type: Tile) -> str:
        """A tensor to be written, with its type."""
        name = self.out.define(f"tensor.empty() : {type_text(type)}", "empty")
        return f"{name} : {type_text(type)}"

    def _filled(self, type: Tile, scalar: str) -> str:
        return f"linalg.fill ins({scalar} : {element_text(type.elem)}) outs({self._empty(type)}) -> {type_text(type)}"

    def _constant(self, op: e.Constant) -> None:
        type = op.type
        scalar = self.out.once(f"arith.constant {number_text(op.value, type.elem)} : {element_text(type.elem)}", "cst")
        if type.rank:
            self._bind(op, self._filled(type, scalar))
        else:
            self.out.bind(op.result, scalar)

    def _expand(self, op: ExpandDims) -> None:
        shape, rank = op.result.type.shape, op.x.type.rank
        groups = [[d] for d in range(rank + 1)]
        groups[max(op.axis - 1, 0) : max(op.axis - 1, 0) + 2] = [[max(op.axis - 1, 0), max(op.axis - 1, 0) + 1]]
        self._bind(
            op,
            f"tensor.expand_shape {self.out.name(op.x)} {groups} output_shape {list(shape)} : "
            f"{type_text(op.x.type)} into {type_text(op.result.type)}",
        )

    def _generic(self, op: Op) -> None:
        """An operation on every element."""
        out, type = self.out, op.result.type
        dims = [f"d{d}" for d in range(type.rank)]
        maps = [_map(dims, _read(dims, v.type.shape, type.shape)) for v in op.operands]
        maps.append(_map(dims, dims))
        parallel = ", ".join(['"parallel"'] * type.rank)
        empty = self._empty(type)
        inputs = f" ins({self._typed(*op.operands)})" if op.operands else ""
        name = out.fresh(op.result.name or "v")
        out.line(
            f"{name} = linalg.generic {{indexing_maps = [{', '.join(maps)}], "
            f"iterator_types = [{parallel}]}}{inputs} outs({empty}) {{"
        )
        elements = [out.fresh("in") for _ in op.operands]
        args = [f"{n}: {element_text(v.type.elem)}" for n, v in zip(elements, op.operands, strict=True)]
        args.append(f"{out.fresh('out')}: {element_text(type.elem)}")
        out.line(f"^bb0({', '.join(args)}):")
        with out.region():
            result = self._element(op, elements)
            out.line(f"linalg.yield {result} : {element_text(type.elem)}")
        out.line(f"}} -> {type_text(type)}")
        out.bind(op.result, name)

    def _element(self, op: Op, elements: list[str]) -> str:
        if isinstance(op, Broadcast):
            return elements[0]
        if not isinstance(op, Arange):
            return element_operation(self.out, op, elements)
        place = self.out.define("linalg.index 0 : index", "place")
        number = self.out.define(f"arith.index_cast {place} : index to i32")
        return (
            self.out.define(f"arith.addi {number}, {self.out.constant(op.start, 'i32')} : i32") if op.start else number
        )

    def _reduce(self, op: Reduce) -> None:
        """One operand whose combination is a single operation with a neutral element."""
        out = self.out
        body = op.combine.ops
        plain = len(op.inputs) == 1 and len(body) == 2 and set(body[0].operands) == set(op.combine.args)
        if not plain or body[0].mnemonic not in _NEUTRAL:
            raise unsupported(op, "only sums, products, extrema and bitwise combinations of one tile are")
        source, elem = op.inputs[0], op.inputs[0].type.elem
        of_floats, of_integers = _NEUTRAL[body[0].mnemonic]
        if not isinstance(elem, Scalar) or (elem.is_float and of_floats is None):
            raise unsupported(op)
        neutral = of_floats if elem.is_float and of_floats is not None else of_integers(elem)
        text = element_text(elem)
        start = out.once(f"arith.constant {number_text(neutral, elem)} : {text}", "neutral")
        kept = op.result.type.shape
        result = tensor_text(kept, text)
        empty = out.define(f"tensor.empty() : {result}", "empty")
        init = out.define(f"linalg.fill ins({start} : {text}) outs({empty} : {result}) -> {result}", "init")
        name = out.fresh(op.result.name or "v")
        names = [out.fresh("in"), out.fresh("acc")]
        out.line(
            f"{name} = linalg.reduce ins({self._typed(source)}) outs({init} : {result}) dimensions = [{op.axis}] "
            f"({names[0]}: {text}, {names[1]}: {text}) {{"
        )
        with out.region():
            out.line(f"linalg.yield {element_operation(out, body[0], names)} : {text}")
        out.line("}")
        if not kept:
            name = out.define(f"tensor.extract {name}[] : {result}", op.result.name or "v")
        out.bind(op.result, name)

    def _for(self, op: For) -> None:
        out, kind = self.out, type_text(op.lower.type)
        step = op.step.op
        if isinstance(step, e.Constant) and step.value <= 0:
            raise unsupported(op, "it counts down")
        index, *carried = op.body.args
        names = [out.fresh(index.name or "i"), *(out.fresh(v.name or "v") for v in carried)]
        inits = [out.name(v) for v in op.inits]
        types = [type_text(v.type) for v in carried]
        args = ", ".join(f"{n} = {i}" for n, i in zip(names[1:], inits, strict=True))
        iter_args = f" iter_args({args}) -> ({', '.join(types)})" if carried else ""
        results = self._results(op)
        bounds = f"{out.name(op.lower)} to {out.name(op.upper)} step {out.name(op.step)}"
        out.line(f"{results}scf.for {names[0]} = {bounds}{iter_args} : {kind} {{")
        for value, name in zip(op.body.args, names, strict=True):
            out.bind(value, name)
        self._region(op.body)
        out.line("}")

    def _if(self, op: If) -> None:
        types = [type_text(v.type) for v in op.results]
        returned = f" -> ({', '.join(types)})" if types else ""
        results = self._results(op)
        self.out.line(f"{results}scf.if {self.out.name(op.condition)}{returned} {{")
        self._region(op.then)
        self.out.line("} else {")
        self._region(op.otherwise)
        self.out.line("}")

    def _results(self, op: Op) -> str:
        names = [self.out.fresh(v.name or "v") for v in op.results]
        for value, name in zip(op.results, names, strict=True):
            self.out.bind(value, name)
        return f"{', '.join(names)} = " if names else ""

    def _region(self, block: Block) -> None:
        with self.out.region():
            self.block(block)
            end = block.terminator
            if end is not None and end.operands:
                self.out.line(f"scf.yield {self._typed(*end.operands)}")


def _read(dims: list[str], shape: tuple[int, ...], whole: tuple[int, ...]) -> list[str]:
    """Where an operand of ``shape`` is read: dimensions of size 1 are repeated."""
    return ["0" if n == 1 and m != 1 else d for d, n, m in zip(dims, shape, whole, strict=True)]


def _map(dims: list[str], results: list[str]) -> str:
    return f"affine_map<({', '.join(dims)}) -> ({', '.join(results)})>"


def _are_addresses(value: Value) -> bool:
    return value.type.is_pointer and bool(value.type.rank)
