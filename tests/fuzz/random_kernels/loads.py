"""Loads: through pointers with and without masks, by block pointers and by tensor descriptors, at the places of each
program and of each turn of a loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .bounds import Known
from .building import Builder
from .kinds import I1, I8, I32, STORED, Array, Kind
from .places import along, listed, offsets, random_mask, random_shape, strides_of
from .statements import Input, Variable, beside

#: Elements that a scalar load chooses from, and turns of a loop that read at places of their own.
SCALARS, TURNS = 256, 64


def load(b: Builder) -> None:
    """A tile from memory."""
    new_load(b, random_shape(b), b.rng.choice(STORED))


def new_load(
    b: Builder, shape: tuple[int, ...], kind: Kind, style: str | None = None, how: str | None = None
) -> Variable:
    """A tile of ``kind``; ``style``: of its elements, ``how``: pointers, mask, box or descriptor."""
    if kind is I1:
        few = new_load(b, shape, I8, "tiny")
        return b.emit(f"{few} != 0", [few], [(shape, I1)], lambda x: Known(x.values != 0))
    loop = b.rng.choice(b.loops) if b.loops and b.chance(0.7) else None
    if not shape:
        return _scalar(b, kind, style, loop or b.pid)
    how = how or b.choose("pointers", "pointers", "pointers", "mask", "mask", "box", "descriptor")
    if how == "descriptor" and not fits_descriptor(shape, kind):
        how = "mask"
    if how in ("pointers", "mask"):
        return _through_pointers(b, shape, kind, style, loop, how == "mask")
    return _box(b, shape, kind, style, loop, how == "descriptor")


def fits_descriptor(shape: tuple[int, ...], kind: Kind) -> bool:
    """Whether a descriptor can have blocks of this shape."""
    return 1 <= len(shape) <= 3 and shape[-1] * kind.bits >= 128 and max(shape) <= 256


def _scalar(b: Builder, kind: Kind, style: str | None, place: Variable) -> Variable:
    x = b.input(kind, SCALARS, style)
    text = f"tl.load({x.name} + ({place} & {TURNS - 1}))"
    return b.emit(text, [place], [((), kind)], lambda at: Known(x.values[at.values & (TURNS - 1)]))


def _through_pointers(
    b: Builder, shape: tuple[int, ...], kind: Kind, style: str | None, loop: Variable | None, masked: bool
) -> Variable:
    strides, step = strides_of(b, shape)
    if b.chance(0.15):
        strides[b.rng.randrange(len(shape))] = b.choose(0, 1, 3)
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
    step = max(step, reach)
    text, places = offsets(b, shape, strides)
    by_program = b.choose(step, step, 0) if b.programs * step < 200_000 else 0
    by_turn = b.choose(0, 1, 8, 16) if loop else 0
    x = b.input(kind, reach + by_program * b.programs + by_turn * TURNS, style)
    address, uses = f"{x.name} + {text}", [b.pid]
    if by_program:
        address += f" + pid * {by_program}"
    if loop:
        address += f" + ({loop} & {TURNS - 1}) * {by_turn}"
        uses.append(loop)

    def read(pid: Known, turn: Known | None = None) -> Array:
        at: Array = places + beside(pid.values.astype(np.int64) * by_program, shape)
        if turn is not None:
            at = at + beside((turn.values.astype(np.int64) & (TURNS - 1)) * by_turn, shape)
        found: Array = x.values[at]
        return found

    if not masked:
        hints = (', eviction_policy="evict_first"', ', cache_modifier=".cg"', ", volatile=True")
        hint = b.choose(*hints) if b.chance(0.15) else ""
        return b.emit(f"tl.load({address}{hint})", uses, [(shape, kind)], lambda *at: Known(read(*at)))
    masks, tiles = ([v for v in b.pool if v.shape == shape and v.kind is wanted] for wanted in (I1, kind))
    if masks and b.chance(0.5):
        return _under_a_mask(b, address, uses, b.rng.choice(masks), b.rng.choice(tiles) if tiles else None, kind, read)
    condition, mask = random_mask(b, shape)
    other = 0 if kind.bits == 8 and kind.is_float else b.choose(0, 1, 5)
    filler: Array = np.array(other).astype(kind.numpy)
    text = f"tl.load({address}, mask={condition}, other={float(other) if kind.is_float else other})"
    return b.emit(text, uses, [(shape, kind)], lambda *at: Known(np.where(mask, read(*at), filler)))


def _under_a_mask(
    b: Builder,
    address: str,
    places: list[Variable],
    mask: Variable,
    other: Variable | None,
    kind: Kind,
    read: Callable[..., Array],
) -> Variable:
    """A load whose mask, and what else there is, were computed."""
    uses = [mask, *([other] if other else []), *places]

    def meaning(chosen: Known, *rest: Known) -> Known:
        found = rest[1:] if other else rest
        filler = rest[0] if other else Known(np.zeros((), kind.numpy))
        error = None if filler.exact else np.where(chosen.values, 0.0, filler.slack)
        return Known(np.where(chosen.values, read(*found), filler.values), error)

    text = f"tl.load({address}, mask={mask}, other={other or (0.0 if kind.is_float else 0)})"
    return b.emit(text, uses, [(mask.shape, kind)], meaning)


@dataclass(frozen=True)
class Step:
    """Where a box begins along a dimension: ``times`` the program, the turn of a loop or nothing, plus ``plus``."""

    by: Variable | None
    times: int
    plus: int

    def __str__(self) -> str:
        moved = f"{self.by} * {self.times}" if self.by else ""
        return f"{moved} + {self.plus}" if moved and self.plus else moved or str(self.plus)

    def at(self, known: dict[str, Known], programs: int) -> Array:
        moved = known[self.by.name].values.astype(np.int64) * self.times if self.by else np.zeros(programs, np.int64)
        return moved + self.plus


def random_step(b: Builder, size: int, loop: Variable | None, negative: bool) -> Step:
    by = b.choose(None, b.pid, loop, None)
    plus = b.choose(0, 0, 1, 16) if by is None and b.chance(0.5) else 0
    return Step(by, b.choose(1, size, 8), plus - (negative and b.chance(0.1)))


def _box(
    b: Builder, shape: tuple[int, ...], kind: Kind, style: str | None, loop: Variable | None, descriptor: bool
) -> Variable:
    sizes = [size * b.choose(1, 1, 2) + b.choose(0, 0, -1, 3) if b.chance(0.7) else size for size in shape]
    sizes = [max(1, size) for size in sizes]
    strides, length = row_major(sizes, kind) if descriptor else strides_of(b, sizes)
    x = b.input(kind, length + 64, style, aligned=True if descriptor else None)
    steps = [random_step(b, size, loop, descriptor) for size in shape]
    uses = [b.pid] + ([loop] if loop else [])

    def read(*places: Known) -> Known:
        known = {variable.name: place for variable, place in zip(uses, places, strict=True)}
        return Known(boxed(x, [step.at(known, b.programs) for step in steps], shape, sizes, strides))

    if descriptor:
        made = declare_descriptor(
            b, x.name, [b.number(size) for size in sizes], [b.number(s) for s in strides[:-1]], shape
        )
        b.tags.add("descriptor")
        return b.emit(f"{made}.load([{', '.join(map(str, steps))}])", [*uses, made], [(shape, kind)], read)
    made = declare_block_pointer(
        b,
        x.name,
        list(map(b.number, sizes)),
        [b.number(s) if s != 1 else "1" for s in strides],
        steps,
        shape,
        strides,
        uses,
    )
    if b.chance(0.3):
        moves = [b.choose(0, 0, size, 1) for size in shape]
        made = b.declare("box", f"tl.advance({made}, {listed(moves)})", [made])
        steps = [Step(step.by, step.times, step.plus + move) for step, move in zip(steps, moves, strict=True)]
    b.tags.add("block pointer")
    text = f'tl.load({made}, boundary_check={listed(range(len(shape)))}, padding_option="zero")'
    return b.emit(text, [*uses, made], [(shape, kind)], read)


def row_major(sizes: list[int], kind: Kind) -> tuple[list[int], int]:
    """Strides that a descriptor can have: of whole multiples of 16 bytes, but for the last one."""
    unit = 128 // kind.bits
    strides, step = [1] * len(sizes), (sizes[-1] + unit - 1) // unit * unit
    for axis in reversed(range(len(sizes) - 1)):
        strides[axis] = step
        step *= sizes[axis]
    return strides, step


def declare_descriptor(
    b: Builder, array: str, sizes: list[str], strides: list[str], shape: tuple[int, ...]
) -> Variable:
    """A tensor descriptor; ``strides``: without the last one, which is 1."""
    bounds, steps = ", ".join(sizes), ", ".join([*strides, "1"])
    return b.declare(
        "descriptor",
        f"tl.make_tensor_descriptor({array}, shape=[{bounds}], strides=[{steps}], block_shape={list(shape)})",
    )


def declare_block_pointer(
    b: Builder,
    array: str,
    sizes: list[str],
    strides: list[str],
    starts: list[Step] | list[str],
    shape: tuple[int, ...],
    order_by: list[int],
    uses: list[Variable],
) -> Variable:
    """A block pointer that begins at ``starts``."""
    order = sorted(range(len(shape)), key=lambda axis: order_by[axis])
    places = f"shape={listed(sizes)}, strides={listed(strides)}, offsets={listed(starts)}"
    text = f"tl.make_block_ptr({array}, {places}, block_shape={listed(shape)}, order={listed(order)})"
    return b.declare("box", text, uses)


def boxed(x: Input, starts: list[Array], shape: tuple[int, ...], sizes: list[int], strides: list[int]) -> Array:
    """A box of an array for each program; zeros where it sticks out."""
    at, inside = places_in_box(starts, shape, sizes, strides)
    return np.where(inside, x.values[np.clip(at, 0, len(x.values) - 1)], np.zeros((), x.values.dtype))


def places_in_box(
    starts: list[Array], shape: tuple[int, ...], sizes: list[int], strides: list[int]
) -> tuple[Array, Array]:
    """The places of a box's elements, and which of them are in the array."""
    programs = len(starts[0])
    at, inside = np.zeros((programs, *shape), np.int64), np.ones((programs, *shape), bool)
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        ticks = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        place = beside(start, shape) + ticks
        at = at + place * strides[axis]
        inside = inside & (place >= 0) & (place < size)
    return at, inside


def load_gathered(b: Builder) -> None:
    """Elements at places that the kernel computes."""
    index = b.pick(lambda v: bool(v.shape) and v.kind.name in ("i16", "i32", "i64"))
    kind, length = b.rng.choice(STORED), b.choose(64, 128, 1024)
    x, whole = b.input(kind, length), index.kind.numpy
    made = [(index.shape, index.kind)]
    place = b.emit(f"{index} & {length - 1}", [index], made, lambda v: Known(v.values & whole(length - 1)))
    if b.chance(0.5):
        b.emit(f"tl.load({x.name} + {place})", [place], [(index.shape, kind)], lambda v: Known(x.values[v.values]))
        return
    mask = b.emit(f"({place} % 3) != 1", [place], [(index.shape, I1)], lambda v: Known(v.values % 3 != 1))
    text = f"tl.load({x.name} + {place}, mask={mask}, other={0.0 if kind.is_float else 0})"
    zero: Array = np.zeros((), kind.numpy)
    b.emit(text, [place, mask], [(index.shape, kind)], lambda v, m: Known(np.where(m.values, x.values[v.values], zero)))


def counted(b: Builder, shape: tuple[int, ...], kind: Kind) -> Variable:
    """Consecutive numbers along an axis."""
    axis = b.rng.choice([a for a, size in enumerate(shape) if size > 1])
    times, plus = b.choose(1, 3, -2, 7), b.choose(0, 5, -3)
    ticks = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))]) * times + plus
    values: Array = np.broadcast_to(ticks, (b.programs, *shape)).astype(kind.numpy)
    text = f"(tl.arange(0, {shape[axis]}) * {times} + {plus}){along(axis, len(shape))}"
    text = f"tl.broadcast_to({text}, {list(shape)}).to({kind.spelled})"
    return b.emit(text, [], [(shape, kind)], lambda: Known(values))


def places_along(b: Builder, shape: tuple[int, ...], axis: int) -> Variable:
    """The place of each element along an axis."""
    ticks = np.arange(shape[axis], dtype=np.int32).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    values: Array = np.broadcast_to(ticks, (b.programs, *shape))
    text = f"tl.broadcast_to(tl.arange(0, {shape[axis]}){along(axis, len(shape))}, {list(shape)})"
    return b.emit(text, [], [(shape, I32)], lambda: Known(values))
