"""Random matmul kernels: every way of walking over K, of loading operands, and of what comes before and after."""

from __future__ import annotations

import numpy as np
from matmul_loops import Loop
from matmul_operands import HALVES
from product_cases import DTYPES, NAMES, ROUNDING, Buffer, Case, Draw, Expected, schedule


class Matmul(Loop):
    """One kernel under construction: C = f(A B), and what may be added to it."""

    def build(self) -> Case:
        d, t = self.draw, self.text
        self.transposed: dict[str, bool] = {}
        self.types()
        self.sizes()
        self.schedule = schedule(d, self.bm * self.bn)
        self.choose_walk()
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
        self.tables()
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
        self.c = d.buffer(self.out if self.walk != "split" else "f32" if self.kind != "i8" else "i32", self.c_shape(),
                          order=self._c_order(), aligned=d.chance(0.8))  # fmt: skip
        if self.walk == "split":
            self.out = self.c.dtype
            self.c.flat[self.c.start + self.c.index] = 0
        self.arguments["c_ptr"] = self.c
        self.strides("c", self.c)
        self.place()
        self.acc = "i32" if self.kind == "i8" else "f16" if self.seed >= HALVES and self.walk != "split" else "f32"
        self.compute()
        grid = self.grid()
        if self.walk == "split":
            self.schedule["persistent"] = self.schedule["persistent"] and d.chance(0.5)
        text = t.kernel(self.arguments, self.constants)
        return Case(self.seed, text, self.arguments, self.constants, grid, self.schedule, self.expected,
                    tags=("matmul", *self.tags))  # fmt: skip

    def _c_order(self) -> list[int]:
        order = [1, 0] if self.draw.chance(0.15) else [0, 1]
        return [0, *(axis + 1 for axis in order)] if self.batches else order

    def grid(self) -> tuple[int, ...]:
        tiles = -(-self.m // self.bm) * -(-self.n // self.bn)
        if self.own_loop:
            return (min(tiles, 2), 1, 1)
        return (tiles, int(self.constants.get("SPLIT", 1)), max(1, self.batches))  # type: ignore[call-overload]

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
        self.look_up()
        t("a_base = a_ptr", f"b_base = {'a_ptr' if self.gram else 'b_ptr'}", "c_base = c_ptr")
        if self.batches:
            wide = d.pick("", ".to(tl.int64)")
            t(f"z = tl.program_id(2){wide}", "a_base += z * saz", "b_base += z * sbz", "c_base += z * scz")

    def compute(self) -> None:
        t = self.text
        t(f"acc = tl.zeros((BM, BN), tl.{NAMES[self.acc]})")
        self.total = np.zeros(self.c_shape())
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
        if self.acc == "f16":
            t("acc = acc.to(tl.float32)")
            self.tags.append("halves")
        self.epilogue()
        self.finish()

    def _rounded(self, values: np.ndarray) -> np.ndarray:
        return values.astype(DTYPES[self.out]).astype(np.float64)

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


def matmul(seed: int, draw: Draw) -> Case:
    """A random matmul kernel."""
    return Matmul(seed, draw).build()
