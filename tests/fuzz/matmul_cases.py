"""Random matmul kernels: every way of walking over K, of loading operands, and of what comes before and after."""

from __future__ import annotations

import numpy as np
from product_cases import NAMES, ROUNDING, Argument, Buffer, Case, Draw, Expected, Text, schedule

#: How a kernel walks over K. The second entry: whether blocks come in order, so that pointers may be moved along.
WALKS = {
    "blocks": True,
    "offsets": True,
    "stages": True,
    "while": True,
    "bounds": False,
    "nested": False,
    "pairs": False,
    "backwards": False,
    "branch": False,
    "split": False,
    "wide": False,
}


class Matmul:
    """One kernel under construction: C = f(A B), and what may be added to it."""

    def __init__(self, seed: int, draw: Draw) -> None:
        self.seed, self.draw = seed, draw
        self.text = Text()
        self.arguments: dict[str, Argument] = {}
        self.constants: dict[str, object] = {}
        self.expected: list[Expected] = []
        self.tags: list[str] = []

    # Sizes and types -------------------------------------------------------------------------------------------

    def types(self) -> None:
        d = self.draw
        self.kind = d.rng.choices(["f16", "bf16", "f32", "f8e4m3", "f8e5m2", "i8"], [5, 5, 3, 2, 1, 2])[0]
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
        made = d.filled(dtype, shape, spread, order=order, aligned=d.chance(0.8))
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

    # Text ------------------------------------------------------------------------------------------------------

    def build(self) -> Case:
        d, t = self.draw, self.text
        self.transposed: dict[str, bool] = {}
        self.types()
        self.sizes()
        self.schedule = schedule(d, self.bm * self.bn)
        self.walk = d.pick(*WALKS)
        if self.batches and self.walk == "split":
            self.walk = "blocks"
        self.moves = WALKS[self.walk] and d.chance(0.5)
        self.wraps = not self.even and d.chance(0.25)
        self.own_loop = self.walk != "split" and not self.batches and d.chance(0.12)
        self.a = self.operand("a", self.stored_a, self.m, self.k)
        self.gram = not self.batches and self.stored_a == self.stored_b and d.chance(0.05)
        if self.gram:
            self.n = self.m
            self.even = self.even and self.m % self.bn == 0
            self.b = Buffer(self.a.dtype, self.a.flat, self.a.start, self.a.index.T, self.a.strides[::-1])
            self.strides("b", self.b)
        else:
            self.b = self.operand("b", self.stored_b, self.k, self.n)
        self.constants |= {"BM": self.bm, "BN": self.bn, "BK": self.bk}
        self.arguments |= {"M": self.m, "N": self.n, "K": self.k}
        plain = self.even_k and self.exact and self.walk not in ("pairs", "nested")
        self.second = plain and self.kind != "i8" and d.chance(0.15)
        self.after = d.rng.choices(["", "outside", "twice", "between", "again"], [12, 1, 2, 2, 2])[0]
        if (self.walk == "split" and self.after in ("outside", "again")) or (not self.k and self.after == "outside"):
            self.after = ""
        self.tags += [self.walk, "moved" if self.moves else "computed", *(["wrap"] if self.wraps else [])]
        self.tags += [tag for tag in (self.after, "second" * self.second, "own" * self.own_loop) if tag]
        self.operand_forms()
        self.c = d.buffer(self.out if self.walk != "split" else "f32" if self.kind != "i8" else "i32", self._c_shape(),
                          order=self._c_order(), aligned=d.chance(0.8))  # fmt: skip
        if self.walk == "split":
            self.out = self.c.dtype
            self.c.flat[self.c.start + self.c.index] = 0
        self.arguments["c_ptr"] = self.c
        self.strides("c", self.c)
        self.place()
        self.acc = "i32" if self.kind == "i8" else "f32"
        self.compute()
        grid = self.grid()
        if self.walk == "split":
            self.schedule["persistent"] = self.schedule["persistent"] and d.chance(0.5)
        text = t.kernel(self.arguments, self.constants)
        return Case(self.seed, text, self.arguments, self.constants, grid, self.schedule, self.expected,
                    tags=("matmul", *self.tags))  # fmt: skip

    def _c_shape(self) -> tuple[int, ...]:
        return (self.batches, self.m, self.n) if self.batches else (self.m, self.n)

    def _c_order(self) -> list[int]:
        order = [1, 0] if self.draw.chance(0.15) else [0, 1]
        return [0, *(axis + 1 for axis in order)] if self.batches else order

    def grid(self) -> tuple[int, ...]:
        tiles = -(-self.m // self.bm) * -(-self.n // self.bn)
        if self.own_loop:
            return (min(tiles, 2), 1, 1)
        return (tiles, int(self.constants.get("SPLIT", 1)), max(1, self.batches))  # type: ignore[call-overload]

    def operand_forms(self) -> None:
        """What happens to each operand between its load and the product."""
        d = self.draw
        forms = ["", "", "", "", "neg", "twice", "where", "vector"]
        self.forms = {"a": d.pick(*forms), "b": d.pick(*forms)}
        if d.chance(0.05):
            self.forms["a"] = "computed"
        if self.kind == "i8" or self.kind.startswith("f8"):
            self.forms = {side: form if form in ("", "computed") else "" for side, form in self.forms.items()}
        if "vector" in self.forms.values():
            self.arguments["v_ptr"] = self.v = d.filled(self.kind, (self.k,), 1)
        self.views = {side: d.chance(0.2) for side in "ab"}
        self.others = {side: d.pick(", other=0.0", ", other=0.0", ", other=0") for side in "ab"}
        if self.forms["b"] != "computed" and d.chance(0.05):
            self.others["a"] = ", other=1"  # times a zero of B
        self.tags += [f"{side}:{form}" for side, form in self.forms.items() if form]

    def place(self) -> None:
        d, t = self.draw, self.text
        if self.own_loop:
            t("for tile in range(tl.program_id(0), tl.cdiv(M, BM) * tl.cdiv(N, BN), tl.num_programs(0)):")
            t.depth += 1
            t("pid = tile")
        else:
            t("pid = tl.program_id(0)")
        if d.chance(0.4):
            t("pid_m = pid // tl.cdiv(N, BN)", "pid_n = pid % tl.cdiv(N, BN)")
        elif d.chance(0.5):
            t("pid_n = pid // tl.cdiv(M, BM)", "pid_m = pid % tl.cdiv(M, BM)")
        else:
            t("width = 2 * tl.cdiv(N, BN)", "group = pid // width", "rows = min(tl.cdiv(M, BM) - group * 2, 2)",
              "pid_m = group * 2 + (pid % width) % rows", "pid_n = (pid % width) // rows")  # fmt: skip
        t("rm = pid_m * BM + tl.arange(0, BM)", "rn = pid_n * BN + tl.arange(0, BN)", "rk = tl.arange(0, BK)")
        if self.wraps:
            t("ra = rm % M", "rb = rn % N")
        else:
            t("ra = rm", "rb = rn")
        t("a_base = a_ptr", f"b_base = {'a_ptr' if self.gram else 'b_ptr'}", "c_base = c_ptr")
        if self.batches:
            wide = d.pick("", ".to(tl.int64)")
            t(f"z = tl.program_id(2){wide}", "a_base += z * saz", "b_base += z * sbz", "c_base += z * scz")

    def compute(self) -> None:
        t = self.text
        t(f"acc = tl.zeros((BM, BN), tl.{NAMES[self.acc]})")
        self.total = np.zeros(self._c_shape())
        if self.second:
            self.prepare_second()
        self.loop()
        match self.after:
            case "outside":
                t("k0 = 0")
                self.step(moves=False)
                self.reference([0])
            case "twice":
                self.loop()
            case "between":
                self.store("between")
                self.loop()
            case "again":
                self.store("again")
                t("tl.debug_barrier()")
                t("back = tl.load(c_at, mask=c_mask, other=0)", f"acc += back.to(tl.{NAMES[self.acc]})")
                self.total = self.total + self._rounded(self.total)
        self.epilogue()
        self.finish()

    def _rounded(self, values: np.ndarray) -> np.ndarray:
        from product_cases import DTYPES

        return values.astype(DTYPES[self.out]).astype(np.float64)

    # The loop over K -------------------------------------------------------------------------------------------

    def loop(self) -> None:
        d, t = self.draw, self.text
        count = -(-self.k // self.bk)
        blocks = list(range(count))
        depth = t.depth
        if self.moves:
            t("a_at = a_base + ra[:, None] * sa0 + rk[None, :] * sa1")
            t("b_at = b_base + rk[:, None] * sb0 + rb[None, :] * sb1")
        match self.walk:
            case "blocks":
                t("for k in range(0, tl.cdiv(K, BK)):", "    k0 = k * BK")
            case "offsets":
                t("for k0 in range(0, K, BK):")
            case "stages":
                t(f"for k in tl.range(0, tl.cdiv(K, BK), num_stages={d.rng.randint(1, 5)}):", "    k0 = k * BK")
            case "while":
                t("k0 = 0", "while k0 < K:")
            case "bounds":
                if "low" not in self.arguments:
                    self.low, self.high = d.rng.randint(0, count), d.rng.randint(0, count)
                    self.arguments["low"] = self.low
                    if d.chance(0.5):
                        self.arguments["high"] = self.high
                        t("end = high")
                    else:
                        held = d.buffer("i32", (1,))
                        held.flat[0] = self.high
                        self.arguments["high_ptr"] = held
                        t("end = tl.load(high_ptr)")
                blocks = blocks[self.low : self.high]
                t("for k in range(low, end):", "    k0 = k * BK")
            case "nested":
                self.constants.setdefault("INNER", d.pick(1, 2, 3))
                self.even_k = False
                t("for o in range(0, tl.cdiv(K, BK * INNER)):", "    for i in range(0, INNER):",
                  "        k0 = (o * INNER + i) * BK")  # fmt: skip
                t.depth += 1
            case "pairs":
                self.even_k = False
                t("for k in range(0, tl.cdiv(K, BK), 2):", "    k0 = k * BK")
            case "backwards":
                t("for k in range(tl.cdiv(K, BK) - 1, -1, -1):", "    k0 = k * BK")
            case "branch":
                self.arguments.setdefault("flag", d.pick(0, 2, 2))
                blocks = blocks if self.arguments["flag"] else []
                t("if flag > 0:", "    for k in range(0, tl.cdiv(K, BK)):", "        k0 = k * BK")
                t.depth += 1
            case "split":
                self.constants.setdefault("SPLIT", d.pick(1, 2, 3))
                t("for k in range(tl.program_id(1), tl.cdiv(K, BK), SPLIT):", "    k0 = k * BK")
            case "wide":
                t("for k in range(tl.full((), 0, tl.int64), tl.cdiv(K, BK)):", "    k0 = k * BK")
        t.depth += 1
        self.step(self.moves)
        if self.walk == "pairs":
            t("k0 = (k + 1) * BK")
            self.step(moves=False)
        if self.walk == "while":
            t("k0 += BK")
        t.depth = depth
        self.reference(blocks)

    def step(self, moves: bool) -> None:
        """Load, prepare, multiply."""
        t = self.text
        self.load("a", "ra[:, None]", "(k0 + rk)[None, :]", "rm[:, None] < M", "(k0 + rk)[None, :] < K", moves)
        self.load("b", "(k0 + rk)[:, None]", "rb[None, :]", "(k0 + rk)[:, None] < K", "rn[None, :] < N", moves)
        precision = f', input_precision="{self.precision}"' if self.precision else ""
        if self.second:
            t("d = tl.load(d_ptr + (k0 + rk)[:, None] * sd0 + tl.arange(0, BD)[None, :] * sd1)",
              "other = tl.dot(a, d, other)")  # fmt: skip
        out = ", out_dtype=tl.int32" if self.kind == "i8" else ""
        if self.draw.chance(0.5):
            t(f"acc = tl.dot(a, b, acc{precision}{out})")
        else:
            t(f"acc += tl.dot(a, b{precision}{out})")
        if moves:
            t("a_at += BK * sa1", "b_at += BK * sb0")

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
            case "vector":
                t(
                    f"v{side} = tl.load(v_ptr + k0 + {along}, mask=k0 + {along} < K, other=0.0)",
                    f"{side} = {side} * v{side}",
                )

    # The reference ---------------------------------------------------------------------------------------------

    def side(self, side: str) -> np.ndarray:
        """An operand as the product sees it, [.., M, K] or [.., K, N], in f64."""
        values = getattr(self, side).values()
        along = np.arange(self.k).reshape((1, -1) if side == "a" else (-1, 1))
        match self.forms[side]:
            case "computed":
                rows = np.arange(self.m)[:, None]
                values = np.broadcast_to(np.fmod(rows + 2 * along, 5) - 2.0, values.shape)
            case "neg":
                values = -values
            case "twice":
                values = values * 2
            case "where":
                values = np.where(along % self.bk % 3 == 0, values, 0)
            case "vector":
                values = values * self.v.values().reshape(along.shape)
        return values

    def reference(self, blocks: list[int]) -> None:
        a, b = self.side("a"), self.side("b")
        wanted = np.isin(np.arange(self.k) // self.bk, blocks)
        self.total = self.total + (a * wanted) @ b
        if self.second:
            self.other_total = self.other_total + (a * wanted) @ self.d.values()

    def prepare_second(self) -> None:
        """A second product with the same A in the same loop, stored by the programs of the first column."""
        d, t = self.draw, self.text
        self.bd = d.pick(16, 32, 64)
        self.constants["BD"] = self.bd
        self.arguments["d_ptr"] = self.d = d.filled(self.kind, (self.k, self.bd), 2, order=d.pick([0, 1], [1, 0]))
        self.strides("d", self.d)
        self.arguments["e_ptr"] = self.e = d.buffer("f32", self._c_shape()[:-1] + (self.bd,))
        self.strides("e", self.e)
        if self.walk == "split":
            self.e.flat[self.e.start + self.e.index] = 0
        t("other = tl.zeros((BM, BD), tl.float32)")
        self.other_total = np.zeros(self._c_shape()[:-1] + (self.bd,))

    # What comes after ------------------------------------------------------------------------------------------

    def epilogue(self) -> None:
        d, t = self.draw, self.text
        self.loose = 0.0
        if self.walk == "split" or self.kind == "i8":
            return
        if d.chance(0.2):
            self.arguments["bias_ptr"] = bias = d.filled("f32", (self.n,))
            t("acc += tl.load(bias_ptr + rn, mask=rn < N, other=0.0)[None, :]")
            self.total = self.total + bias.values()
            self.tags.append("bias")
        if d.chance(0.15):
            self.arguments["scale_ptr"] = scale = d.filled("f32", (self.m,))
            t("acc *= tl.load(scale_ptr + rm, mask=rm < M, other=0.0)[:, None]")
            self.total = self.total * scale.values()[:, None]
            self.tags.append("scale")
        if d.chance(0.15):
            self.arguments["r_ptr"] = residual = d.filled(self.out, (self.m, self.n), aligned=d.chance(0.7))
            self.strides("r", residual)
            t("r = tl.load(r_ptr + rm[:, None] * sr0 + rn[None, :] * sr1, mask=(rm[:, None] < M) & (rn[None, :] < N), "
              "other=0.0)", "acc += r.to(tl.float32)")  # fmt: skip
            self.total = self.total + residual.values()
            self.tags.append("residual")
        if self.after in ("", "outside", "twice") and not self.batches and d.chance(0.08):
            # C is read before it is written.
            self.c.flat[self.c.start + self.c.index] = d.numbers.integers(-3, 4, self.c.index.shape)
            t("acc += tl.load(c_ptr + rm[:, None] * sc0 + rn[None, :] * sc1, "
              "mask=(rm[:, None] < M) & (rn[None, :] < N), other=0.0).to(tl.float32)")  # fmt: skip
            self.total = self.total + self.c.values()
            self.tags.append("in place")
        if d.chance(0.15):
            t("acc = tl.where(acc > 0, acc, acc * 0.5)")
            self.total = np.where(self.total > 0, self.total, self.total * 0.5)
        elif d.chance(0.1):
            t("acc = acc * tl.sigmoid(acc * 0.125)")
            self.total = self.total / (1 + np.exp(-self.total * 0.125))
            self.loose = 1e-5
        if d.chance(0.1):
            self.arguments["sum_ptr"] = sums = d.buffer("f32", (-(-self.n // self.bn), self.m))
            if not self.batches:
                self.row_sums(sums)
            else:
                del self.arguments["sum_ptr"]

    def row_sums(self, sums: Buffer) -> None:
        self.arguments["ss"] = sums.strides[0]
        self.text("part = tl.sum(tl.where(rn[None, :] < N, acc, 0.0), 1)",
                  "tl.store(sum_ptr + pid_n * ss + rm, part, mask=rm < M)")  # fmt: skip
        parts = [self.total[:, i : i + self.bn].sum(1) for i in range(0, self.n, self.bn)]
        scale = float(np.abs(self.total).sum(1).max(initial=1))
        self.expected.append(Expected("sum_ptr", np.stack(parts), 0.0, 1e-5 * scale))
        self.tags.append("sums")

    def store(self, name: str) -> None:
        """The accumulator to C, or to another array in the same form."""
        t = self.text
        t("c_at = c_base + rm[:, None] * sc0 + rn[None, :] * sc1", "c_mask = (rm[:, None] < M) & (rn[None, :] < N)")
        value = f"acc.to(tl.{NAMES[self.out]})"
        if name == "between":
            self.arguments["between_ptr"] = other = Buffer(
                self.c.dtype,
                self.draw.poisoned(self.c.dtype, len(self.c.flat)),
                self.c.start,
                self.c.index,
                self.c.strides,
            )
            if self.walk == "split":
                other.flat[other.start + other.index] = 0
            t("b_out = between_ptr" + (" + z * scz" if self.batches else ""))
            at = "b_out + rm[:, None] * sc0 + rn[None, :] * sc1"
            t(
                f"tl.atomic_add({at}, acc, mask=c_mask)"
                if self.walk == "split"
                else f"tl.store({at}, {value}, mask=c_mask)"
            )
            self.expect("between_ptr", self.total)
        elif self.walk == "split":
            t("tl.atomic_add(c_at, acc, mask=c_mask)")
        else:
            even = self.even and self.draw.chance(0.7)
            t(f"tl.store(c_at, {value}{'' if even else ', mask=c_mask'})")

    def expect(self, name: str, values: np.ndarray) -> None:
        loose = getattr(self, "loose", 0.0) if self.exact else 2e-5
        reach = float(np.abs(values).max(initial=0)) if not self.exact else 0
        self.expected.append(Expected(name, values.copy(), ROUNDING[self.out] + loose, loose + reach * 1e-5))

    def finish(self) -> None:
        self.store("")
        self.expect("c_ptr", self.total)
        if self.second:
            at = "e_ptr + rm[:, None] * se0 + tl.arange(0, BD)[None, :] * se1"
            if self.batches:
                at += " + z * sez"
            store = "tl.atomic_add" if self.walk == "split" else "tl.store"
            self.text("if pid_n == 0:", f"    {store}({at}, other, mask=rm[:, None] < M)")
            self.expected.append(Expected("e_ptr", self.other_total, 0.0))


def _flipped(text: str) -> str:
    """An index expression for the transposed tile."""
    return text.replace("[:, None]", "[\0]").replace("[None, :]", "[:, None]").replace("[\0]", "[None, :]")


def matmul(seed: int, draw: Draw) -> Case:
    """A random matmul kernel."""
    return Matmul(seed, draw).build()
