"""Matrix products of warp groups: ``wgmma.mma_async`` (PTX ISA, "Asynchronous warpgroup level matrix instructions")."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UnsupportedOp
from ...gpu.asynchronous import Await, Settle, SharedView, Wgmma
from ...gpu.layouts.tensorcore import WGMMA_DEPTH_BYTES
from ...hardware import WARPS_PER_GROUP
from ...ir.core import Value
from ...layout import LinearLayout, MatrixDescriptor, matrix_descriptor
from ...tile.elementwise import Constant
from ..simt.lowering import Lowering, rule
from .machine import RULES
from .mma import ACCUMULATORS, PTX_NAMES, define_in_words, elements_of_a_word, in_words
from .uniform import uniform_warp_bits

#: Warp bits inside a group.
_GROUP_BITS = WARPS_PER_GROUP.bit_length() - 1
#: Words of A that one instruction takes from registers.
_A_WORDS = 4


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
    per_word = elements_of_a_word(op.acc)
    held = op.columns // 2  # sums of one instruction: 64 rows of 128 threads
    coordinates = layout.register_coordinates()
    b = _Operand(state, op.b, 0, [basis[1] for basis in layout.warp])
    a: _Operand | _Fragments = (
        _Operand(state, op.a, 1, [basis[0] for basis in layout.warp])
        if op.a.type.shared is not None
        else _Fragments(state, op.a, steps)
    )
    products = []
    for place in range(0, len(coordinates), held):
        row, column = coordinates[place]
        for k in range(steps):
            inputs = (*a(row, k * step), *b(column, k * step))
            products.append(_Product(place // per_word, inputs, adds=bool(k) or not begins))
    acc = [] if begins else in_words(state, op.acc)
    define_in_words(state, op.result, _products(state, op, products, len(coordinates) // per_word, acc, (a, b)))


@rule(Await, RULES)
def _await(state: Lowering, op: Await) -> None:
    word, letter, _ = ACCUMULATORS[op.x.type.scalar]
    sums = in_words(state, op.x)
    tied = [f"={letter}"] * len(sums) + [str(i) for i in range(len(sums))]
    made = state.text.asm(
        [word] * len(sums),
        _wait(op.pending),
        ",".join(tied) + ",~{memory}",
        [(word, v) for v in sums],
        convergent=True,
    )
    define_in_words(state, op.result, made)


@rule(Settle, RULES)
def _settle(state: Lowering, op: Settle) -> None:
    state.text.asm([], _wait(op.pending), "~{memory}", [], convergent=True)


def _wait(pending: int) -> str:
    return f"wgmma.wait_group.sync.aligned {pending};"


@dataclass(frozen=True)
class _Product:
    """One instruction: the first register of its sums, its inputs with their LLVM types, whether it adds to them."""

    place: int
    inputs: tuple[tuple[str, str], ...]
    adds: bool


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
        offset = self.form.offset(outer, k) >> 4
        return [("i64", self.state.text.op(f"add i64 {self.base}, {offset}") if offset else self.base)]


class _Fragments:
    """Operand A in registers."""

    transposed = False

    def __init__(self, state: Lowering, value: Value, steps: int) -> None:
        self.words = in_words(state, value)
        if elements_of_a_word(value) == 1:
            self.words = [state.text.op(f"bitcast float {v} to i32") for v in self.words]
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
    """The ``count`` registers with the sums of all instructions, from the fence to the wait in one piece of assembly:
    LLVM must neither compute an input behind the fence nor read a sum before the wait, and what it takes for a piece
    grows with the accumulators that go through it."""
    elem = op.a.type.elem
    kind, depth = PTX_NAMES[op.a.type.scalar], WGMMA_DEPTH_BYTES // elem.bytes
    word, letter, sum_kind = ACCUMULATORS[op.acc.type.scalar]
    name = f"m64n{op.columns}k{depth}.{sum_kind}.{kind}.{kind}"
    # After scale-d for floats the signs of A and B, then for 16-bit elements what is transposed.
    immediates = ["1", "1"] if op.acc.type.is_float else []
    if elem.bits == 16:
        immediates += [str(int(side.transposed)) for side in operands if isinstance(side, _Operand)]
    passed: dict[tuple[str, str], str] = {}
    lines = ["wgmma.fence.sync.aligned;"]
    for product in products:
        sums = ", ".join(f"${product.place + i}" for i in range(op.columns // 2 // elements_of_a_word(op.acc)))
        *words, right = (passed.setdefault(x, f"${count + len(passed)}") for x in product.inputs)
        left = words[0] if len(words) == 1 else "{" + ", ".join(words) + "}"
        more = ", ".join([str(int(product.adds)), *immediates])
        lines.append(f"wgmma.mma_async.sync.aligned.{name} {{{sums}}}, {left}, {right}, {more};")
    lines += ["wgmma.commit_group.sync.aligned;", *([_wait(0)] if op.waits else [])]
    letters = {"i64": "l", "i32": "r"}
    outputs = [f"={'' if acc else '&'}{letter}"] * count
    constraints = [*outputs, *(letters[t] for t, _ in passed), *(str(i) for i in range(len(acc))), "~{memory}"]
    inputs = [*passed, *((word, v) for v in acc)]
    return state.text.asm([word] * count, "\n".join(lines), ",".join(constraints), inputs, convergent=True)


def _signed(bits: int) -> int:
    """64 bits as LLVM writes an i64."""
    return bits - (1 << 64) if bits >> 63 else bits
