"""How far tiles may go on a kind of device: what registers, vectors and shared memory leave room for.

The figures are those of the built-in spaces (:mod:`~..workloads.builtin`), where they were measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from deuteron.compiler.hardware import MOST_REGISTERS

from .inferred_space import FoundConstraint
from .roles import FoundRole
from .subject import Subject
from .tiles import Tiles, TileSize

#: 255 registers a thread: a f32 accumulator may take about half of them, a row about a quarter.
ACCUMULATED, HELD = 128 * 32, 64 * 32
#: Elements of a product, of operands that it reads again, and of a row on a CPU: what its caches hold.
CPU_PRODUCT, CPU_OPERANDS, CPU_ROW = 1 << 14, 1 << 16, 1 << 17
#: Warps of a program: of products, whose tiles warps share, and of others.
PRODUCT_WARPS, MOST_WARPS = 8, 32
#: Rows of one instruction of tensor cores, and bytes of its depth (PTX ISA, "Matrix shape" of mma).
DOT_SIZE, DOT_DEPTH_BYTES = 16, 32


@dataclass(frozen=True)
class TileLimits:
    """The constraints of a kernel's tiles on a kind of device."""

    subject: Subject
    tiles: Tiles
    roles: Mapping[str, FoundRole]
    searched: frozenset[str]
    shared_bytes: int

    @property
    def on_gpu(self) -> bool:
        """Whether there are warps and shared memory."""
        return self.subject.kind != "cpu"

    @property
    def held(self) -> tuple[TileSize, ...]:
        """The tiles whose elements must be in registers at once: results of products, else the largest."""
        return self.tiles.products or self.tiles.largest

    def most_elements(self) -> int:
        """Elements of one such tile, at most."""
        if not self.on_gpu:
            return CPU_PRODUCT if self.tiles.products else CPU_ROW
        return ACCUMULATED * PRODUCT_WARPS if self.tiles.products else HELD * MOST_WARPS

    def largest(self, name: str) -> int:
        """The largest power of two for a parameter that leaves room for the others at the values that were read."""
        here = int(str(self.tiles.values[name]))
        most = 1 << 16
        for tile in self.held:
            if name in tile.names:
                most = min(most, self.most_elements() * here // tile.elements)
        for a, b, width in self.tiles.operands:
            if name in (*a.names, *b.names):
                walked = sum(tile.elements for tile in (a, b) if name in tile.names)
                room = self.shared_bytes // width if self.on_gpu else 2 * CPU_OPERANDS
                most = min(most, room * here // walked)
        return 1 << max(1, most).bit_length() - 1

    def constraints(self) -> Iterator[FoundConstraint]:
        """What is true of every configuration that is worth compiling."""
        yield from self._of_sizes()
        yield from self._of_registers()
        yield from self._of_operands()
        yield from self._of_rings()

    def _of_sizes(self) -> Iterator[FoundConstraint]:
        for name, found in self.roles.items():
            size = self.bound(found)
            if name in self.searched and found.role == "tile" and size is not None:
                text = f"{name} <= max({self.least(found)}, next_power_of_2({size}))"
                yield FoundConstraint(text, f"{name} walks over {size}: of a larger tile masks throw most away")

    def _of_registers(self) -> Iterator[FoundConstraint]:
        products = bool(self.tiles.products)
        for tile in self.held:
            if not self.on_gpu:
                if set(tile.names) & self.searched:
                    yield FoundConstraint(
                        f"{tile} <= {self.most_elements()}", "more elements than a core's caches hold of one tile"
                    )
                continue
            if "num_warps" not in self.searched:
                continue
            most = ACCUMULATED if products else HELD
            share = "half" if products else "a quarter"
            yield FoundConstraint(
                f"{tile} <= {most} * num_warps",
                f"a tile of {tile} elements may take {share} of a thread's {MOST_REGISTERS} registers",
            )
            yield FoundConstraint(
                f"{tile} >= 32 * num_warps or num_warps == 1",
                "with fewer elements than threads some repeat others' work",
            )

    def _of_operands(self) -> Iterator[FoundConstraint]:
        for a, b, width in self.tiles.operands:
            if not {*a.names, *b.names} & self.searched:
                continue
            if self.on_gpu:
                text = f"({a} + {b}) * {self._width(width)} <= shared_bytes"
                yield FoundConstraint(text, "both operands of a product pass through shared memory")
            else:
                text = f"{a} + {b} <= {CPU_OPERANDS}"
                yield FoundConstraint(text, "operands of a product are read again from caches")

    def _of_rings(self) -> Iterator[FoundConstraint]:
        if not self.on_gpu or "num_stages" not in self.searched:
            return
        # Loops one after the other use the same rings, or those that the one before has no more use for.
        rings = [loads for loads in self.tiles.fetched if any(set(tile.names) & self.searched for tile, _ in loads)]
        for loads in rings:
            slot = " + ".join(f"{tile} * {self._width(width)}" for tile, width in loads)
            yield FoundConstraint(
                f"num_stages * ({slot}) <= shared_bytes",
                "rings get as many slots as fit: more stages are the same code",
            )
        if not rings:
            return
        for name, found in self.roles.items():
            size = self.bound(found)
            if name in self.searched and "K" in found.influence.dot and size is not None:
                text = f"num_stages <= max(2, cdiv({size}, {name}))"
                yield FoundConstraint(text, "a ring needs no more slots than the loop has iterations")

    def least(self, found: FoundRole) -> int:
        """The least size that is worth a try."""
        if found.influence.dot:
            width = min((width for loads in self.tiles.fetched for _, width in loads), default=2)
            return max(DOT_SIZE, DOT_DEPTH_BYTES // width) if found.influence.dot == {"K"} else DOT_SIZE
        alone = all(
            set(tile.names) <= {found.name} and tile.factor == 1 for tile in self.held if found.name in tile.names
        )
        return 64 if found.role == "tile" and alone else 1

    def bound(self, found: FoundRole) -> str | None:
        """The size that a parameter walks over or covers, as an expression over dims; None where it is not known."""
        sizes = {self.subject.sizes[name] for name in found.influence.bounds if name in self.subject.sizes}
        return sizes.pop() if len(sizes) == 1 else None

    def _width(self, width: int) -> str:
        return "element_bytes" if self.subject.facts.get("element_bytes") == width else str(width)
