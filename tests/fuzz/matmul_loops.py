"""How random matmul kernels walk over K: the loop around a product, and what it adds up."""

from __future__ import annotations

import numpy as np
from matmul_operands import CHOSEN, MADE, Operands
from product_cases import NAMES

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


class Loop(Operands):
    """The loop of one kernel under construction: it may stand there twice, and have a second product in it."""

    def choose_walk(self) -> None:
        """How the kernel walks over K."""
        self.walk = self.draw.pick(*WALKS)
        if CHOSEN <= self.seed < MADE and self.draw.chance(0.4):
            self.walk = "chosen"
        if self.batches and self.walk == "split":
            self.walk = "blocks"
        self.moves = WALKS.get(self.walk, False) and self.draw.chance(0.5)

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
            case "chosen":  # the same blocks in order, as a loop over the steps of several tiles has them
                again = d.pick(1, 2, 3)
                t("k0, turn = 0 - BK, 0", "for k in range(0, tl.cdiv(K, BK)):")
                t(f"    if turn == {again}:", "        k0, turn = k * BK, 0")
                t("    else:", "        k0, turn = k0 + BK, turn + 1")
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
        row = "(k0 + rk)[:, None]"
        if "k" in self.table:
            t("rt = tl.load(table_k + k0 + rk, mask=k0 + rk < K, other=0)")
            row = "rt[:, None]"
        self.load("b", row, "rb[None, :]", "(k0 + rk)[:, None] < K", "rn[None, :] < N", moves)
        precision = f', input_precision="{self.precision}"' if self.precision else ""
        if self.second:
            t("d = tl.load(d_ptr + (k0 + rk)[:, None] * sd0 + tl.arange(0, BD)[None, :] * sd1)",
              "other = tl.dot(a, d, other)")  # fmt: skip
        out = f", out_dtype=tl.{NAMES[self.acc]}" if self.acc != "f32" else ""
        if self.draw.chance(0.5):
            t(f"acc = tl.dot(a, b, acc{precision}{out})")
        else:
            t(f"acc += tl.dot(a, b{precision}{out})")
        if moves:
            t("a_at += BK * sa1", "b_at += BK * sb0")

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
        self.arguments["e_ptr"] = self.e = d.buffer("f32", self.c_shape()[:-1] + (self.bd,))
        self.strides("e", self.e)
        if self.walk == "split":
            self.e.flat[self.e.start + self.e.index] = 0
        t("other = tl.zeros((BM, BD), tl.float32)")
        self.other_total = np.zeros(self.c_shape()[:-1] + (self.bd,))

    def c_shape(self) -> tuple[int, ...]:
        return (self.batches, self.m, self.n) if self.batches else (self.m, self.n)
