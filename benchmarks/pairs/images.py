"""Neighbours: convolutions as products and as sums, along time and in planes, pooling, resizing."""

from __future__ import annotations

import deuteron as triton
import deuteron.language as tl
from pairs.arrays import Arrays
from pairs.case import Arguments, Case, cdiv


@triton.jit
def conv2d(
    x, w, y, H, W, C, OC, R: tl.constexpr, S: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """NHWC by KRSC, stride 1, padding 1."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    oh = m // W % H
    ow = m % W
    img = m // (W * H)
    acc = tl.zeros((BM, BN), tl.float32)
    k = tl.arange(0, BK)
    blocks = C // BK
    for s in range(R * S * blocks):
        c = s % blocks * BK + k
        rs = s // blocks
        r = rs // S
        q = rs % S
        ih = oh + r - 1
        iw = ow + q - 1
        ok = (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
        xx = tl.load(x + ((img * H + ih) * W + iw)[:, None] * C + c[None, :], mask=ok[:, None], other=0.0)
        ww = tl.load(w + (n[None, :] * R * S + rs) * C + c[:, None], mask=n[None, :] < OC, other=0.0)
        acc = tl.dot(xx, ww, acc)
    tl.store(y + m[:, None] * OC + n[None, :], acc.to(tl.float16), mask=n[None, :] < OC)


@triton.jit
def depthwise2d(x, w, y, H, W, BH: tl.constexpr, BW: tl.constexpr):
    c = tl.program_id(2)
    h = tl.program_id(0) * BH + tl.arange(0, BH)
    ww = tl.program_id(1) * BW + tl.arange(0, BW)
    acc = tl.zeros((BH, BW), tl.float32)
    for r in tl.static_range(3):
        for s in tl.static_range(3):
            ih = h + r - 1
            iw = ww + s - 1
            ok = ((ih >= 0) & (ih < H))[:, None] & ((iw >= 0) & (iw < W))[None, :]
            v = tl.load(x + c * H * W + ih[:, None] * W + iw[None, :], mask=ok, other=0.0)
            acc += v.to(tl.float32) * tl.load(w + c * 9 + r * 3 + s)
    tl.store(
        y + c * H * W + h[:, None] * W + ww[None, :], acc.to(tl.float16), mask=(h[:, None] < H) & (ww[None, :] < W)
    )


@triton.jit
def causal_conv1d(x, w, b, y, T, C, W: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr):
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    t = tl.program_id(1) * BT + tl.arange(0, BT)
    z = tl.program_id(2)
    acc = tl.zeros((BT, BC), tl.float32) + tl.load(b + c)[None, :]
    for i in tl.static_range(W):
        tt = t - (W - 1) + i
        v = tl.load(
            x + z * T * C + tt[:, None] * C + c[None, :], mask=(tt[:, None] >= 0) & (tt[:, None] < T), other=0.0
        )
        acc += v.to(tl.float32) * tl.load(w + c * W + i).to(tl.float32)[None, :]
    acc = acc * tl.sigmoid(acc)
    tl.store(y + z * T * C + t[:, None] * C + c[None, :], acc.to(tl.bfloat16), mask=t[:, None] < T)


@triton.jit
def maxpool(x, o, H, W, B: tl.constexpr):
    z = tl.program_id(1)
    i = tl.program_id(0) * B + tl.arange(0, B)
    OW = W // 2
    oh = i // OW
    ow = i % OW
    ok = oh < H // 2
    best = tl.full((B,), float("-inf"), tl.float32)
    for r in tl.static_range(3):
        for s in tl.static_range(3):
            h = oh * 2 + r - 1
            w = ow * 2 + s - 1
            v = tl.load(
                x + z * H * W + h * W + w, mask=ok & (h >= 0) & (h < H) & (w >= 0) & (w < W), other=float("-inf")
            )
            best = tl.maximum(best, v.to(tl.float32))
    tl.store(o + z * (H // 2) * OW + i, best.to(tl.float16), mask=ok)


@triton.jit
def resize_bilinear(x, o, H, W, OH, OW, sh, sw, B: tl.constexpr):
    z = tl.program_id(1)
    i = tl.program_id(0) * B + tl.arange(0, B)
    ok = i < OH * OW
    fh = (i // OW).to(tl.float32) * sh
    fw = (i % OW).to(tl.float32) * sw
    h0 = fh.to(tl.int32)
    w0 = fw.to(tl.int32)
    h1 = tl.minimum(h0 + 1, H - 1)
    w1 = tl.minimum(w0 + 1, W - 1)
    ah = fh - h0.to(tl.float32)
    aw = fw - w0.to(tl.float32)
    p = x + z * H * W
    v00 = tl.load(p + h0 * W + w0, mask=ok).to(tl.float32)
    v01 = tl.load(p + h0 * W + w1, mask=ok).to(tl.float32)
    v10 = tl.load(p + h1 * W + w0, mask=ok).to(tl.float32)
    v11 = tl.load(p + h1 * W + w1, mask=ok).to(tl.float32)
    y = (v00 * (1 - aw) + v01 * aw) * (1 - ah) + (v10 * (1 - aw) + v11 * aw) * ah
    tl.store(o + z * OH * OW + i, y.to(tl.float16), mask=ok)


def pictures(arrays: Arrays) -> Arguments:
    n, h, w, c, oc = 32, 56, 56, 128, 128
    x, weights = arrays.normal("fp16", n, h, w, c), arrays.normal("fp16", oc, 3, 3, c)
    return {"x": x, "w": weights, "y": arrays.zeros("fp16", n, h, w, oc), "H": h, "W": w, "C": c, "OC": oc}


def channels(arrays: Arrays) -> Arguments:
    c, h, w = 4096, 112, 112
    x, weights = arrays.normal("fp16", c, h, w), arrays.normal("fp32", c, 9)
    return {"x": x, "w": weights, "y": arrays.zeros("fp16", c, h, w), "H": h, "W": w}


def sequences(arrays: Arrays) -> Arguments:
    n, length, c = 8, 4096, 4096
    x, weights, bias = arrays.normal("bf16", n, length, c), arrays.normal("bf16", c, 4), arrays.normal("fp32", c)
    return {"x": x, "w": weights, "b": bias, "y": arrays.zeros("bf16", n, length, c), "T": length, "C": c}


def planes(arrays: Arrays) -> Arguments:
    n, h, w = 2048, 112, 112
    return {"x": arrays.normal("fp16", n, h, w), "o": arrays.zeros("fp16", n, h // 2, w // 2), "H": h, "W": w}


def doubled(arrays: Arrays) -> Arguments:
    n, h, w = 1024, 128, 128
    x, o = arrays.normal("fp16", n, h, w), arrays.zeros("fp16", n, 2 * h, 2 * w)
    return {"x": x, "o": o, "H": h, "W": w, "OH": 2 * h, "OW": 2 * w, "sh": 0.498, "sw": 0.498}


CASES = [
    Case(
        "conv2d",
        conv2d,
        pictures,
        lambda a: (a["x"].shape[0] * a["H"] * a["W"] // a["BM"], cdiv(a["OC"], a["BN"])),
        {"R": 3, "S": 3, "BM": 128, "BN": 128, "BK": 64},
        num_warps=8,
    ),
    Case(
        "depthwise2d",
        depthwise2d,
        channels,
        lambda a: (cdiv(a["H"], a["BH"]), cdiv(a["W"], a["BW"]), a["x"].shape[0]),
        {"BH": 16, "BW": 64},
    ),
    Case(
        "causal_conv1d",
        causal_conv1d,
        sequences,
        lambda a: (a["C"] // a["BC"], cdiv(a["T"], a["BT"]), a["x"].shape[0]),
        {"W": 4, "BT": 32, "BC": 128},
    ),
    Case("maxpool", maxpool, planes, lambda a: (cdiv(a["H"] * a["W"] // 4, a["B"]), a["x"].shape[0]), {"B": 512}),
    Case(
        "resize_bilinear",
        resize_bilinear,
        doubled,
        lambda a: (cdiv(a["OH"] * a["OW"], a["B"]), a["x"].shape[0]),
        {"B": 512},
    ),
]
