"""Matrix products of warp groups: ``wgmma.mma_async`` (PTX ISA, "Asynchronous warpgroup level matrix instructions")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import UnsupportedOp
from ...gpu.asynchronous import Await, SharedView, Wgmma
from ...gpu.tensorcore import WGMMA_DEPTH_BYTES
from ...ir.core import Value
from ...ir.types import Tile
from ...layout import LinearLayout, MatrixDescriptor, matrix_descriptor
from ...tile.elementwise import Constant
from ..simt.lowering import Lowering, rule
from ..simt.vectors import packed_words
from .machine import RULES
from .mma import PTX_NAMES
from .uniform import uniform_warp_bits

#: Warp bits inside a group.
_GROUP_BITS = 2
#: Words of A that one instruction takes from registers.
_A_WORDS = 4
#: Columns, and steps along K, from which on the steps that add to sums are one instruction in a loop. The assembler
#: takes a quarter less for a tile of 128 x 256 x 64, and products on an H200 run at 1.00 of the speed that they have with
#: an instruction a step, those of 64 x 64 x 128 at 1.02: benchmarks/results/2026-11-27-h200-product-loops/loops.json.
_LOOP_COLUMNS = 64
_LOOP_STEPS = 4


@rule(SharedView, RULES)
def _view(state: Lowering, op: SharedView) -> None:
    state.places[op.result] = state.places[op.x]


@rule(Wgmma, RULES)
def _wgmma(state: Lowering, op: Wgmma) -> None:
    layout = op.acc.type.layout
    if layout is None:
        raise UnsupportedOp("gpu.wgmma needs an accumulator with a layout", location=op.location)
    size = op.a.type.elem.bytes
    step = WGMMA_DEPTH_BYTES // size
    steps = op.a.type.shape[1] // step
    # Sums that begin at zero need no zeros: the first step does not add.
    begins = isinstance(op.acc.op, Constant) and op.acc.op.value == 0
    held = op.columns // 2  # registers of one instruction: 64 rows of 128 threads
    coordinates = layout.register_coordinates()
    b = _Operand(state, op.b, 0, [basis[1] for basis in layout.warp])
    a: _Operand | _Fragments = (
        _Operand(state, op.a, 1, [basis[0] for basis in layout.warp])
        if op.a.type.shared is not None
        else _Fragments(state, op.a, steps)
    )
    looped = isinstance(a, _Operand) and not begins and op.columns >= _LOOP_COLUMNS
    depths = [k * step for k in range(steps)]
    runs = _runs(depths, (a, b)) if looped and isinstance(a, _Operand) else [_Run(k) for k in depths]
    products = []
    for place in range(0, len(coordinates), held):
        row, column = coordinates[place]
        for run in runs:
            inputs = (*a(row, run.depth), *b(column, run.depth))
            products.append(_Product(place, inputs, adds=bool(run.depth) or not begins, run=run))
    acc = [] if begins else state.values[op.acc].force()
    state.define(op.result, _products(state, op, products, len(coordinates), acc, (a, b)))


@rule(Await, RULES)
def _await(state: Lowering, op: Await) -> None:
    word, letter = _word(op.x.type)
    sums = state.values[op.x].force()
    tied = [f"={letter}"] * len(sums) + [str(i) for i in range(len(sums))]
    made = state.text.asm(
        [word] * len(sums),
        _wait(op.pending),
        ",".join(tied) + ",~{memory}",
        [(word, v) for v in sums],
        convergent=True,
    )
    state.define(op.result, made)


def _wait(pending: int) -> str:
    return f"wgmma.wait_group.sync.aligned {pending};"


def _word(type: Tile) -> tuple[str, str]:
    """LLVM type and constraint of a sum."""
    return ("float", "f") if type.is_float else ("i32", "r")


@dataclass(frozen=True)
class _Run:
    """Steps along K: the first one's ``depth``, how many, and how far both descriptors go on from one to the next."""

    depth: int
    steps: int = 1
    strides: tuple[int, ...] = ()


def _runs(depths: Sequence[int], operands: Sequence[_Operand]) -> list[_Run]:
    """The steps in runs as long as the descriptors go on evenly, to the end of a panel of the swizzled tile; step by
    step where a run is too short for a loop."""
    runs: list[_Run] = []
    places = [tuple(operand.distance(k) for operand in operands) for k in depths]
    for number, depth in enumerate(depths):
        strides = tuple(now - before for now, before in zip(places[number], places[number - 1], strict=True))
        if runs and runs[-1].strides in ((), strides):
            runs[-1] = _Run(runs[-1].depth, runs[-1].steps + 1, strides)
        else:
            runs.append(_Run(depth))
    if min(run.steps for run in runs) < _LOOP_STEPS:
        return [_Run(depth) for depth in depths]
    return runs


@dataclass(frozen=True)
class _Product:
    """One instruction: its first sum, its inputs with their LLVM types, whether it adds to the sums, its steps."""

    place: int
    inputs: tuple[tuple[str, str], ...]
    adds: bool
    run: _Run


class _Operand:
    """An operand in shared memory: descriptors of its parts."""

    def __init__(self, state: Lowering, value: Value, k_axis: int, warp: list[int]) -> None:
        shared = value.type.shared
        form = matrix_descriptor(shared, k_axis, value.type.elem.bits) if shared is not None else None
        if form is None:
            raise UnsupportedOp("wgmma cannot read this layout of shared memory")
        self.state = state
        self.form: MatrixDescriptor = form
        #: Whether K is not the contiguous axis (imm-trans).
        self.transposed = not form.k_major
        groups = [0] * _GROUP_BITS + [form.offset(outer, 0) for outer in warp[_GROUP_BITS:]]
        first = state.plus(state.places[value], uniform_warp_bits(state, groups))
        self.base = self._descriptor(first)

    def _descriptor(self, offset: str) -> str:
        text = self.state.text
        address = text.op(f"ptrtoint ptr addrspace(3) {self.state.shared(offset)} to i32")
        chunk = text.op(f"and i32 {text.op(f'lshr i32 {address}, 4')}, 16383")
        return text.op(f"or disjoint i64 {text.op(f'zext i32 {chunk} to i64')}, {_signed(self.form.bits)}")

    def __call__(self, outer: int, k: int) -> list[tuple[str, str]]:
        """The operand of the instruction for the part that begins at row ``outer`` and depth ``k``."""
        offset = self.distance(k, outer)
        return [("i64", self.state.text.op(f"add i64 {self.base}, {offset}") if offset else self.base)]

    def distance(self, k: int, outer: int = 0) -> int:
        """What the descriptor of a part has more than the first one's: 16 bytes each."""
        return self.form.offset(outer, k) >> 4


class _Fragments:
    """Operand A in registers."""

    transposed = False

    def __init__(self, state: Lowering, value: Value, steps: int) -> None:
        registers = state.values[value]
        per_word = 4 // value.type.elem.bytes
        if per_word == 1:
            floats = registers.force()
            self.words = [state.text.op(f"bitcast float {v} to i32") for v in floats]
        else:
            starts = range(0, len(registers), per_word)
            self.words = [packed_words(state, value, range(i, i + per_word))[0] for i in starts]
        layout = value.type.layout
        self.steps = steps
        self.depth = value.type.shape[1] // steps
        self.rows = _rows(layout) if layout is not None else 1

    def __call__(self, outer: int, k: int) -> list[tuple[str, str]]:
        """Four words for the 64 rows of the group from ``outer`` on, at depth ``k``."""
        first = _A_WORDS * (outer // self.rows * self.steps + k // self.depth)
        return [("i32", word) for word in self.words[first : first + _A_WORDS]]


def _rows(layout: LinearLayout) -> int:
    """Rows that all warps cover before registers repeat."""
    return 16 << sum(bool(basis[0]) for basis in layout.warp)


def _products(
    state: Lowering,
    op: Wgmma,
    products: list[_Product],
    count: int,
    acc: list[str],
    operands: tuple[_Operand | _Fragments, _Operand],
) -> list[str]:
    """The ``count`` sums of all instructions, from the fence to the wait in one piece of assembly: LLVM must neither
    compute an input behind the fence nor read a sum before the wait, and what it takes for a piece grows with the
    accumulators that go through it."""
    elem = op.a.type.elem
    kind, depth = PTX_NAMES[op.a.type.scalar], WGMMA_DEPTH_BYTES // elem.bytes
    word, letter = _word(op.acc.type)
    name = f"m64n{op.columns}k{depth}.{'f32' if op.acc.type.is_float else 's32'}.{kind}.{kind}"
    # After scale-d for floats the signs of A and B, then for 16-bit elements what is transposed.
    immediates = ["1", "1"] if op.acc.type.is_float else []
    if elem.bits == 16:
        immediates += [str(int(side.transposed)) for side in operands if isinstance(side, _Operand)]
    passed: dict[tuple[str, str], str] = {}
    lines = ["wgmma.fence.sync.aligned;"]
    for number, product in enumerate(products):
        sums = ", ".join(f"${product.place + i}" for i in range(op.columns // 2))
        *words, right = (passed.setdefault(x, f"${count + len(passed)}") for x in product.inputs)
        left = words[0] if len(words) == 1 else "{" + ", ".join(words) + "}"
        start = f"wgmma.mma_async.sync.aligned.{name} {{{sums}}}"
        end = ", ".join([str(int(product.adds)), *immediates]) + ";"
        if product.run.steps == 1:
            lines.append(f"{start}, {left}, {right}, {end}")
        else:
            lines += _loop(number, product.run, (left, right), f"{start}, A, B, {end}")
    lines += ["wgmma.commit_group.sync.aligned;", *([_wait(0)] if op.waits else [])]
    letters = {"i64": "l", "i32": "r"}
    outputs = [f"={'' if acc else '&'}{letter}"] * count
    constraints = [*outputs, *(letters[t] for t, _ in passed), *(str(i) for i in range(len(acc))), "~{memory}"]
    inputs = [*passed, *((word, v) for v in acc)]
    return state.text.asm([word] * count, "\n".join(lines), ",".join(constraints), inputs, convergent=True)


def _loop(number: int, run: _Run, first: tuple[str, str], product: str) -> list[str]:
    """The ``product`` of the descriptors A and B in a loop over a run, as the piece of assembly's part ``number``."""
    label = f"LAB_STEP_${{:uid}}_{number}"
    return [
        "{",
        ".reg .b64 A, B;",
        ".reg .b32 LEFT;",
        ".reg .pred MORE;",
        *(f"mov.b64 {name}, {operand};" for name, operand in zip("AB", first, strict=True)),
        f"mov.b32 LEFT, {run.steps};",
        f"{label}:",
        '.pragma "nounroll";',
        product,
        *(f"add.s64 {name}, {name}, {stride};" for name, stride in zip("AB", run.strides, strict=True)),
        "add.s32 LEFT, LEFT, -1;",
        "setp.ne.s32 MORE, LEFT, 0;",
        f"@MORE bra {label};",
        "}",
    ]


def _signed(bits: int) -> int:
    """64 bits as LLVM writes an i64."""
    return bits - (1 << 64) if bits >> 63 else bits
