"""Random attention kernels, forward and backward, chains of products, and kernels over rows."""

from __future__ import annotations

import numpy as np
from product_cases import NAMES, ROUNDING, Argument, Case, Draw, Expected, Text, schedule

#: From this seed on queries, keys and values are floats of 8 bits, values mostly stored by columns, as products take
#: them; the result is not.
EIGHT_BITS = 40_000_000


def attention(seed: int, draw: Draw) -> Case:
    """Softmax(Q K^T) V by blocks of keys: causal or not, keys in one loop or in a plain and a masked one."""
    d, t = draw, Text()
    short = seed >= EIGHT_BITS
    kind = d.pick("f8e4m3", "f8e5m2") if short else d.pick("f16", "bf16")
    out = "f16" if short else kind
    head = d.pick(16, 32, 64, 128) if d.large else d.pick(16, 32, 64)
    bm = d.rng.choices([16, 32, 64, 128], [1, 1, 4, 2 if d.large else 0])[0]
    bn = d.rng.choices([16, 32, 64, 128], [2, 3, 4, 2 if d.large else 0])[0]
    if short:  # products of 8 bits add at least 32 terms
        head, bn = max(head, 32), max(bn, 32)
    m, n = (d.rng.randint(1, 5 * size if d.large else 2 * size) for size in (bm, bn))
    if d.large:
        n *= d.pick(1, 3)
    causal, heads = d.chance(0.5), d.pick(1, 2)
    n = max(n, m) if causal else n  # every row sees a key
    scale = 0.25
    arguments: dict[str, Argument] = {}
    arrays = {}
    for name, rows in (("q", m), ("k", n), ("v", n)):
        order = d.pick([0, 1, 2], [0, 1, 2], [1, 0, 2])
        if short and name == "v":
            order = d.pick([0, 2, 1], [0, 2, 1], [0, 1, 2])
        arrays[name] = d.filled(kind, (heads, rows, head), 1, order=order, aligned=d.chance(0.85))
    arrays["o"] = d.buffer(out, (heads, m, head), order=d.pick([0, 1, 2], [1, 0, 2]), aligned=d.chance(0.85))
    for name, made in arrays.items():
        arguments[f"{name}_ptr"] = made
        arguments |= {f"s{name}{axis}": stride for axis, stride in zip("hmd", made.strides, strict=True)}
    lse = d.buffer("f32", (heads, m))
    arguments |= {"lse_ptr": lse, "sl": lse.strides[0], "M": m, "N": n, "scale": scale * 1.4426950408889634}
    t("h = tl.program_id(1)", "rm = tl.program_id(0) * BM + tl.arange(0, BM)", "dims = tl.arange(0, HEAD)")
    t("q = tl.load(q_ptr + h * sqh + rm[:, None] * sqm + dims[None, :] * sqd, mask=rm[:, None] < M, other=0.0)")
    t("peak = tl.full((BM,), -float('inf'), tl.float32)", "total = tl.zeros((BM,), tl.float32)")
    t("acc = tl.zeros((BM, HEAD), tl.float32)")
    t("end = tl.minimum(N, tl.program_id(0) * BM + BM)" if causal else "end = N")
    parts = [("0", "end", True)]
    if d.chance(0.5):
        limit = "tl.minimum(end, tl.program_id(0) * BM)" if causal else "N"
        t(f"plain = {limit} // BN * BN")
        parts = [("0", "plain", False), ("plain", "end", True)]
    trans = d.chance(0.5)
    split = d.chance(0.3)  # the product's accumulator is added by hand
    for low, high, masked in parts:
        stages = f", num_stages={d.rng.randint(1, 4)}" if d.chance(0.3) else ""
        t(f"for start in {'tl.range' if stages else 'range'}({low}, {high}, BN{stages}):")
        t.depth += 1
        t("rn = start + tl.arange(0, BN)")
        mask = ", mask=rn[:, None] < N, other=0.0" if masked else ""
        if trans:
            t(f"k = tl.trans(tl.load(k_ptr + h * skh + rn[:, None] * skm + dims[None, :] * skd{mask}))")
        else:
            across = mask.replace("[:, None]", "[None, :]")
            t(f"k = tl.load(k_ptr + h * skh + rn[None, :] * skm + dims[:, None] * skd{across})")
        t(f"v = tl.load(v_ptr + h * svh + rn[:, None] * svm + dims[None, :] * svd{mask})")
        t("s = tl.dot(q, k) * scale")
        if masked:
            seen = "(rn[None, :] < N)" + (" & (rn[None, :] <= rm[:, None])" if causal else "")
            t(f"s = tl.where({seen}, s, -float('inf'))")
        t("higher = tl.maximum(peak, tl.max(s, 1))", "p = tl.exp2(s - higher[:, None])",
          "shrink = tl.exp2(peak - higher)", "total = total * shrink + tl.sum(p, 1)")  # fmt: skip
        if split:
            t(f"acc = acc * shrink[:, None] + tl.dot(p.to(tl.{NAMES[kind]}), v)")
        else:
            t("acc = acc * shrink[:, None]", f"acc = tl.dot(p.to(tl.{NAMES[kind]}), v, acc)")
        t("peak = higher")
        t.depth -= 1
    t("tl.store(lse_ptr + h * sl + rm, peak + tl.log2(total), mask=rm < M)",
      f"out = (acc / total[:, None]).to(tl.{NAMES[out]})",
      "tl.store(o_ptr + h * soh + rm[:, None] * som + dims[None, :] * sod, out, mask=rm[:, None] < M)")  # fmt: skip
    q, k, v = (arrays[name].values() for name in "qkv")
    scores = q @ k.transpose(0, 2, 1) * scale * 1.4426950408889634
    if causal:
        scores = np.where(np.arange(n)[None, :] <= np.arange(m)[:, None], scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp2(scores - top)
    sums = weights.sum(-1, keepdims=True)
    expected = [
        Expected("o_ptr", weights / sums @ v, ROUNDING[out], ROUNDING[kind] * (1 if short else 4)),
        Expected("lse_ptr", (top + np.log2(sums))[..., 0], 1e-5, 1e-4),
    ]
    constants = {"BM": bm, "BN": bn, "HEAD": head}
    text = t.kernel(arguments, constants)
    tags = ("attention", kind, "causal" * causal, "two loops" * (len(parts) > 1), "trans" * trans)
    return Case(
        seed, text, arguments, constants, (-(-m // bm), heads, 1), schedule(d, bm * (bn + head)), expected, tags=tags
    )


def backward(seed: int, draw: Draw) -> Case:
    """The products of a derivative: operands in both orientations, results as operands, two accumulators.

    For a block of rows of K and V: P = f(K Q^T), DV += P DO, DS = P * g(V DO^T), DK += DS Q; exact in f32.
    """
    d, t = draw, Text()
    kind = d.pick("f16", "bf16")
    head = d.pick(16, 32, 64, 128) if d.large else d.pick(16, 32, 64)
    bm = d.rng.choices([16, 32, 64], [1, 3, 3])[0]
    bn = d.rng.choices([16, 32, 64, 128], [1, 1, 4, 2 if d.large else 0])[0]
    m, n = (d.rng.randint(1, (6 if d.large else 3) * size) for size in (bm, bn))
    arguments: dict[str, Argument] = {}
    arrays = {}
    for name, rows in (("q", m), ("g", m), ("k", n), ("v", n)):
        order = d.pick([0, 1], [0, 1], [0, 1], [1, 0])
        arrays[name] = d.filled(kind, (rows, head), 1, order=order, aligned=d.chance(0.85))
    arrays |= {name: d.buffer("f32", (n, head), aligned=d.chance(0.85)) for name in ("x", "y")}
    for name, made in arrays.items():
        arguments |= {f"{name}_ptr": made, f"s{name}m": made.strides[0], f"s{name}d": made.strides[1]}
    delta = d.filled("f32", (m,), 2)
    arguments |= {"delta_ptr": delta, "M": m, "N": n}
    t("rn = tl.program_id(0) * BN + tl.arange(0, BN)", "dims = tl.arange(0, HEAD)")
    for name in "kv":
        t(f"{name} = tl.load({name}_ptr + rn[:, None] * s{name}m + dims[None, :] * s{name}d, "
          "mask=rn[:, None] < N, other=0.0)")  # fmt: skip
    t("x = tl.zeros((BN, HEAD), tl.float32)", "y = tl.zeros((BN, HEAD), tl.float32)")
    t("for start in range(0, M, BM):")
    t.depth += 1
    t("rm = start + tl.arange(0, BM)")
    turned = {name: d.chance(0.5) for name in "qg"}  # loaded as [HEAD, BM]
    for name, flipped in turned.items():
        if flipped:
            at, mask = f"rm[None, :] * s{name}m + dims[:, None] * s{name}d", "rm[None, :] < M"
        else:
            at, mask = f"rm[:, None] * s{name}m + dims[None, :] * s{name}d", "rm[:, None] < M"
        t(f"{name} = tl.load({name}_ptr + {at}, mask={mask}, other=0.0)")
    t("delta = tl.load(delta_ptr + rm, mask=rm < M, other=0.0)")
    upright = {name: f"tl.trans({name})" if turned[name] else name for name in "qg"}
    lying = {name: name if turned[name] else f"tl.trans({name})" for name in "qg"}
    t(f"s = tl.dot(k, {lying['q']})", "p = tl.where(s > 0, 1.0, -1.0)")
    t(f"y = tl.dot(p.to(tl.{NAMES[kind]}), {upright['g']}, y)")
    t(f"dp = tl.dot(v, {lying['g']})", "ds = p * tl.minimum(tl.maximum(dp - delta[None, :], -4.0), 4.0)")
    t(f"x = tl.dot(ds.to(tl.{NAMES[kind]}), {upright['q']}, x)")
    t.depth -= 1
    for name in "xy":
        t(f"tl.store({name}_ptr + rn[:, None] * s{name}m + dims[None, :] * s{name}d, {name}, mask=rn[:, None] < N)")
    q, g, k, v = (arrays[name].values() for name in "qgkv")
    p = np.where(k @ q.T > 0, 1.0, -1.0)
    ds = p * np.clip(v @ g.T - delta.values(), -4, 4)
    expected = [Expected("x_ptr", ds @ q, 0.0), Expected("y_ptr", p @ g, 0.0)]
    constants = {"BM": bm, "BN": bn, "HEAD": head}
    tags = ("backward", kind, *(f"{name} turned" for name, flipped in turned.items() if flipped))
    text = t.kernel(arguments, constants)
    return Case(
        seed, text, arguments, constants, (-(-n // bn), 1, 1), schedule(d, bn * (bm + 2 * head)), expected, tags=tags
    )


def rows(seed: int, draw: Draw) -> Case:
    """Rows without products, or between two of them: a chain through registers or through memory."""
    return draw.pick(_softmax, _chain)(seed, draw)


def _softmax(seed: int, draw: Draw) -> Case:
    """Row by row, in blocks: the largest element, then what it is compared with."""
    d, t = draw, Text()
    kind = d.pick("f32", "f16", "bf16")
    count, columns, block = d.rng.randint(1, 7), d.rng.randint(1, 700), d.pick(64, 128, 256)
    x = d.filled(kind, (count, columns), 3, aligned=d.chance(0.7))
    y = d.buffer(kind, (count, columns), aligned=d.chance(0.7))
    arguments: dict[str, Argument] = {"x_ptr": x, "y_ptr": y, "sx": x.strides[0], "sy": y.strides[0], "N": columns}
    arguments["R"] = count
    t("for row in range(tl.program_id(0), R, tl.num_programs(0)):")
    t.depth += 1
    t("peak = tl.full((BLOCK,), -float('inf'), tl.float32)")
    for body in ("peak = tl.maximum(peak, x)", None):
        t("for start in range(0, N, BLOCK):")
        t.depth += 1
        t("at = start + tl.arange(0, BLOCK)")
        t("x = tl.load(x_ptr + row * sx + at, mask=at < N, other=-float('inf')).to(tl.float32)")
        t(body or f"tl.store(y_ptr + row * sy + at, (x - top).to(tl.{NAMES[kind]}), mask=at < N)")
        t.depth -= 1
        if body:
            t("top = tl.max(peak, 0)")
    values = x.values()
    expected = [Expected("y_ptr", values - values.max(1, keepdims=True), 0.0)]
    constants = {"BLOCK": block}
    text = t.kernel(arguments, constants)
    return Case(
        seed, text, arguments, constants, (d.rng.randint(1, 3), 1, 1), schedule(d, block), expected, tags=("rows",)
    )


def _chain(seed: int, draw: Draw) -> Case:
    """(A B) C: what a loop has made is an operand of the next, from registers or from where it was stored."""
    d, t = draw, Text()
    kind = d.pick("f16", "bf16")
    bm, bn, bk = d.pick(16, 64, 64, 128 if d.large else 64), d.pick(16, 32, 64), d.pick(16, 32)
    m, k, n = d.rng.randint(1, 2 * bm), d.rng.randint(1, 4 * bk), bn
    p = d.rng.randint(1, 3 * bn)
    memory = d.chance(0.6)
    shapes = {"a": (m, k), "b": (k, n), "c": (n, p)}
    arrays = {name: d.filled(kind, shape, 1, order=d.pick([0, 1], [0, 1], [1, 0]), aligned=d.chance(0.85))
              for name, shape in shapes.items()}  # fmt: skip
    # The product in between is exact: |sum| <= 128 of k <= 128 products.
    arrays["t"] = d.buffer(kind, (m, n), aligned=d.chance(0.85))
    arrays["o"] = d.buffer("f32", (m, p), aligned=d.chance(0.85))
    arguments: dict[str, Argument] = {}
    for name, made in arrays.items():
        arguments |= {f"{name}_ptr": made, f"s{name}0": made.strides[0], f"s{name}1": made.strides[1]}
    arguments |= {"M": m, "K": k, "P": p}
    t("rm = tl.program_id(0) * BM + tl.arange(0, BM)", "rn = tl.arange(0, BN)", "acc = tl.zeros((BM, BN), tl.float32)")
    t("for k0 in range(0, K, BK):")
    t("    rk = k0 + tl.arange(0, BK)", "    inside = (rm[:, None] < M) & (rk[None, :] < K)",
      "    a = tl.load(a_ptr + rm[:, None] * sa0 + rk[None, :] * sa1, mask=inside, other=0.0)",
      "    b = tl.load(b_ptr + rk[:, None] * sb0 + rn[None, :] * sb1, mask=rk[:, None] < K, other=0.0)",
      "    acc = tl.dot(a, b, acc)")  # fmt: skip
    t("t_at = t_ptr + rm[:, None] * st0 + rn[None, :] * st1", f"made = acc.to(tl.{NAMES[kind]})",
      "tl.store(t_at, made, mask=rm[:, None] < M)")  # fmt: skip
    if memory:
        t("tl.debug_barrier()")
    load = "made = tl.load(t_at, mask=rm[:, None] < M, other=0.0)"
    inside = d.chance(0.5)
    if memory and not inside:
        t(load)
    t("for p0 in range(0, P, BN):", "    rp = p0 + tl.arange(0, BN)")
    t.depth += 1
    if memory and inside:
        t(load)
    t("c = tl.load(c_ptr + rn[:, None] * sc0 + rp[None, :] * sc1, mask=rp[None, :] < P, other=0.0)",
      "out = tl.dot(made, c)", "inside = (rm[:, None] < M) & (rp[None, :] < P)",
      "tl.store(o_ptr + rm[:, None] * so0 + rp[None, :] * so1, out, mask=inside)")  # fmt: skip
    t.depth -= 1
    a, b, c = (arrays[name].values() for name in "abc")
    expected = [Expected("t_ptr", a @ b, 0.0), Expected("o_ptr", a @ b @ c, 0.0)]
    constants = {"BM": bm, "BN": bn, "BK": bk}
    text = t.kernel(arguments, constants)
    tags = ("chain", kind, "memory" if memory else "registers")
    return Case(seed, text, arguments, constants, (-(-m // bm), 1, 1), schedule(d, bm * bn), expected, tags=tags)
