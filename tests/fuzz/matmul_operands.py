"""What random matmul kernels multiply: types, sizes and arrays, and how a block of an operand is loaded and changed."""

from __future__ import annotations

import numpy as np
from product_cases import NAMES, Argument, Buffer, Draw, Expected, Text

#: From this seed on blocks have fewer rows than tensor cores take.
FEW_ROWS = 10_000_000
#: From this seed on tables say which rows of an operand are read, and blocks have as many rows as before again.
GATHERED = 20_000_000
#: From this seed on a branch in the loop may say where it reads.
CHOSEN = 30_000_000
#: From this seed on threads make most operands of what they load, in blocks for warp groups, most from rings.
MADE = 50_000_000
#: From this seed on products are of f16, and summed up in it.
HALVES = 60_000_000


class Operands:
    """The two operands of one kernel under construction, and what every part of it uses."""

    def __init__(self, seed: int, draw: Draw) -> None:
        self.seed, self.draw = seed, draw
        self.text = Text()
        self.arguments: dict[str, Argument] = {}
        self.constants: dict[str, object] = {}
        self.expected: list[Expected] = []
        self.tags: list[str] = []

    def types(self) -> None:
        d = self.draw
        self.kind = d.rng.choices(["f16", "bf16", "f32", "f8e4m3", "f8e5m2", "i8"], [5, 5, 3, 2, 1, 2])[0]
        if self.seed >= HALVES:
            self.kind = "f16"
        self.stored_a = self.stored_b = self.kind
        if self.kind in ("f16", "bf16") and d.chance(0.25):
            # What is stored is cast before the product.
            other = d.pick("i8", "f8e4m3", "f8e5m2", "f32")
            self.stored_a = d.pick(other, self.kind)
            self.stored_b = d.pick(other, self.kind) if self.stored_a == other else other
            self.tags.append(f"cast-{other}")
        self.precision = d.pick("tf32", "tf32", "tf32x3", "ieee") if self.kind == "f32" else ""
        self.exact = self.precision in ("", "tf32")
        self.out = "i32" if self.kind == "i8" else d.pick("f32", "f16", "bf16")
        if not self.exact:
            self.out = "f32"
        self.tags += [self.kind, self.precision] if self.precision else [self.kind]

    def sizes(self) -> None:
        d = self.draw
        large = d.large
        self.bm = d.rng.choices([16, 32, 64, 128, 256], [2, 2, 8, 4, 1] if large else [2, 3, 10, 2, 0])[0]
        self.bn = d.rng.choices([16, 32, 64, 128, 256], [2, 3, 5, 5, 2] if large else [4, 5, 5, 1, 0])[0]
        self.bk = d.rng.choices([16, 32, 64, 128], [2, 5, 5, 2] if large else [3, 6, 3, 0])[0]
        if self.kind in ("i8", "f8e4m3", "f8e5m2"):
            self.bk = max(32, self.bk)
        if self.precision in ("ieee", "tf32x3") and not large:
            self.bm, self.bn, self.bk = min(64, self.bm), min(32, self.bn), 16
        if FEW_ROWS <= self.seed < GATHERED:
            self.bm, self.bn, self.bk = (
                d.pick(1, 2, 4, 8),
                d.pick(self.bn, self.bn, 2, 8),
                d.pick(self.bk, self.bk, 4, 8),
            )
        if self.seed >= MADE:
            self.bm, self.bk = max(64, self.bm), max(32, self.bk)
        blocks = d.rng.randint(1, 9 if large else 5)
        self.k = self.bk * blocks
        self.even_k = d.chance(0.4)
        if not self.even_k:
            self.k += d.pick(1, 3, 8, 16, self.bk // 2) - self.bk
            self.k = max(1, self.k)
        if d.chance(0.03):
            self.k = 0
        tiles_m, tiles_n = (
            (d.rng.randint(1, 6), d.rng.randint(1, 6)) if large else d.pick((1, 1), (1, 2), (2, 1), (3, 1))
        )
        self.even = d.chance(0.3)
        self.m, self.n = self.bm * tiles_m, self.bn * tiles_n
        if not self.even:
            self.m = max(1, self.m - d.pick(0, 1, 5, 8, self.bm // 2, self.bm - 1))
            self.n = max(1, self.n - d.pick(0, 1, 3, 8, self.bn // 2, self.bn - 1))
        self.batches = d.pick(2, 3) if d.chance(0.15) else 0

    def operand(self, name: str, dtype: str, rows: int, columns: int) -> Buffer:
        """An operand with strides ``s{name}0`` and ``s{name}1``, and ``s{name}z`` from batch to batch."""
        d = self.draw
        spread = 0 if not self.exact else 2 if dtype.startswith("f8") else 3
        order = [0, 1] if d.chance(0.6) else [1, 0]
        self.transposed[name] = order == [1, 0]
        shape = (rows, columns)
        if self.batches:
            order, shape = [0, *(axis + 1 for axis in order)], (self.batches, rows, columns)
        made = d.filled(dtype, shape, spread, order=order, aligned=d.chance(0.8 if self.seed < MADE else 0.97))
        if self.batches and d.chance(0.2):
            made = made.repeated()
        self.arguments[f"{name}_ptr"] = made
        self.strides(name, made)
        return made

    def strides(self, name: str, made: Buffer) -> None:
        *batch, first, second = made.strides
        if batch:
            self.arguments[f"s{name}z"] = batch[0]
        self.arguments |= {f"s{name}0": first, f"s{name}1": second}

    def tables(self) -> None:
        """Which rows of A, columns of B and rows of B are read: by the program's place, or by tables in memory."""
        d = self.draw
        self.table: dict[str, Buffer] = {}
        if self.seed < GATHERED or (self.seed >= CHOSEN and (self.seed >= MADE or d.chance(0.5))):
            return
        wanted = d.pick("a", "a", "b", "ab", "k", "ak")
        for side, size in (("a", self.m), ("b", self.n), ("k", self.k)):
            if side in wanted and size and (side != "k" or not self.moves):
                self.table[side] = self.arguments[f"table_{side}"] = made = d.buffer("i32", (size,))
                made.flat[made.start + made.index] = d.numbers.integers(0, size, size)
        self.tags += [f"table-{side}" for side in self.table]

    def look_up(self) -> None:
        """The rows of A and the columns of B that the program reads."""
        for side, place, size in (("a", "rm", "M"), ("b", "rn", "N")):
            if side in self.table:
                mask = "" if self.wraps or self.even else f", mask={place} < {size}, other=0"
                self.text(f"r{side} = tl.load(table_{side} + r{side}{mask})")

    def operand_forms(self) -> None:
        """What happens to each operand between its load and the product."""
        d = self.draw
        made = self.seed >= MADE
        forms = ["", "neg", "twice", "where", "vector"]
        forms = [*forms, "rows"] if made else ["", "", "", *forms]
        self.forms = {"a": d.pick(*forms), "b": d.pick(*forms)}
        if d.chance(0.05):
            self.forms["a"] = "computed"
        if self.kind == "i8" or self.kind.startswith("f8"):
            other = "bits" if made and self.kind == "i8" else ""
            self.forms = {side: form if form in ("", "computed") else other for side, form in self.forms.items()}
        if "vector" in self.forms.values():
            self.arguments["v_ptr"] = self.v = d.filled(self.kind, (self.k,), 1)
        self.scales = {
            side: d.filled(self.kind, (size,), 1)
            for side, size in (("a", self.m), ("b", self.n))
            if self.forms[side] == "rows"
        }
        self.arguments |= {f"w{side}_ptr": scale for side, scale in self.scales.items()}
        self.views = {side: d.chance(0.2) for side in "ab"}
        self.others = {side: d.pick(", other=0.0", ", other=0.0", ", other=0") for side in "ab"}
        if self.forms["b"] != "computed" and d.chance(0.05):
            self.others["a"] = ", other=1"  # times a zero of B
        self.tags += [f"{side}:{form}" for side, form in self.forms.items() if form]

    def load(self, side: str, first: str, second: str, mask0: str, mask1: str, moves: bool) -> None:
        t, kind = self.text, getattr(self, f"stored_{side}")
        if self.forms[side] == "computed":
            t(f"{side} = tl.where({mask1}, ({first} + 2 * {second}) % 5 - 2, 0).to(tl.{NAMES[self.kind]})")
            return
        masks = [mask0, mask1]
        if self.wraps or self.even:
            masks.remove(mask0 if side == "a" else mask1)
        if self.even_k:
            masks.remove(mask1 if side == "a" else mask0)
        mask = f", mask={' & '.join(f'({m})' for m in masks)}{self.others[side]}" if masks else ""
        if moves:
            t(f"{side} = tl.load({side}_at{mask})")
        elif self.views[side]:
            # The tile of the transposed matrix, transposed.
            first, second, mask = (_flipped(text) for text in (first, second, mask))
            t(f"{side} = tl.trans(tl.load({side}_base + {second} * s{side}1 + {first} * s{side}0{mask}))")
        else:
            t(f"{side} = tl.load({side}_base + {first} * s{side}0 + {second} * s{side}1{mask})")
        if kind != self.kind:
            t(f"{side} = {side}.to(tl.{NAMES[self.kind]})")
        along = "rk[None, :]" if side == "a" else "rk[:, None]"
        match self.forms[side]:
            case "neg":
                t(f"{side} = -{side}")
            case "twice":
                t(f"{side} = {side} * 2")
            case "where":
                t(f"{side} = tl.where({along} % 3 == 0, {side}, 0.0)")
            case "rows":
                row, size, spread = ("rm", "M", "[:, None]") if side == "a" else ("rn", "N", "[None, :]")
                t(f"{side} = {side} * tl.load(w{side}_ptr + {row}, mask={row} < {size}, other=0.0){spread}")
            case "bits":
                t(f"{side} = (({side} & (3 << 1)) >> 1).to(tl.int8)")
            case "vector":
                t(
                    f"v{side} = tl.load(v_ptr + k0 + {along}, mask=k0 + {along} < K, other=0.0)",
                    f"{side} = {side} * v{side}",
                )

    def side(self, side: str) -> np.ndarray:
        """An operand as the product sees it, [.., M, K] or [.., K, N], in f64."""
        values = getattr(self, side).values()
        if side in self.table:
            rows = self.table[side].values().astype(int)
            values = values[..., rows, :] if side == "a" else values[..., rows]
        if side == "b" and "k" in self.table:
            values = values[..., self.table["k"].values().astype(int), :]
        along = np.arange(self.k).reshape((1, -1) if side == "a" else (-1, 1))
        match self.forms[side]:
            case "computed":
                rows = (self.table["a"].values() if "a" in self.table else np.arange(self.m))[:, None]
                values = np.broadcast_to(np.fmod(rows + 2 * along, 5) - 2.0, values.shape)
            case "neg":
                values = -values
            case "twice":
                values = values * 2
            case "where":
                values = np.where(along % self.bk % 3 == 0, values, 0)
            case "rows":
                values = values * self.scales[side].values().reshape((-1, 1) if side == "a" else (1, -1))
            case "bits":
                values = (values.astype(int) & 6) >> 1
            case "vector":
                values = values * self.v.values().reshape(along.shape)
        return values


def _flipped(text: str) -> str:
    """An index expression for the transposed tile."""
    return text.replace("[:, None]", "[\0]").replace("[None, :]", "[:, None]").replace("[\0]", "[None, :]")
