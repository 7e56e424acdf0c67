"""Bessel functions of any order, on every target, against values of mpmath with forty digits."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.compiler.errors import TypeMismatch

#: Order, argument, and the exact values of jn and yn, rounded to f64.
EXACT = [
    (0, 0.75, 0.8642422751666486, -0.1371727693857724),
    (0, 12.5, 0.1468840547004211, -0.1712143068446693),
    (1, 0.125, 0.062378009134494684, -5.199936112534775),
    (1, 30.25, -0.135377822725874, 0.05221822074062348),
    (2, 1e-160, 1.25e-321, -float("inf")),
    (2, 1.0, 0.11490348493190047, -1.6506826068162543),
    (2, 2.0, 0.35283402861563773, -0.6174081041906827),
    (2, 40.5, 0.05914764007377378, -0.1106279641272613),
    (3, 1e-100, 2.0833333333333334e-302, -5.0929581789406506e300),
    (3, 0.5, 0.002563729994587244, -42.059494304723884),
    (3, 2.9999, 0.30904501910639876, -0.538579430857603),
    (3, 7.25, -0.2192453334015082, 0.21859341974485785),
    (4, -3.5, 0.204405293034632, float("nan")),
    (5, -2.25, -0.012121078633445755, float("nan")),
    (5, -9.5, 0.1613212601996266, float("nan")),
    (7, 7.0, 0.2335835695056961, -0.40537101860676805),
    (7, 100.25, 0.05850541097245844, 0.054248451912221815),
    (9, 0.03125, 1.5297011682534658e-22, -2.3120843296259028e20),
    (12, 11.75, 0.17638105798052084, -0.37444273541159906),
    (12, 12.25, 0.21378329806800994, -0.3034319796449235),
    (16, 1e-10, 7.292903644389935e-179, -2.727907683490465e176),
    (16, 3.0, 2.748824970048593e-11, -736865544.0285709),
    (20, 19.5, 0.13766970611956109, -0.3365037772933551),
    (20, 60.0, 0.10266020557876329, -0.02672140852066467),
    (33, 7e-07, 1.0364772560800266e-250, -9.306286336915807e247),
    (20, 1e-30, 0.0, -float("inf")),
    (0, 0.0, 1.0, -float("inf")),
    (6, 0.0, 0.0, -float("inf")),
    (4, float("inf"), 0.0, 0.0),
    (3, float("nan"), float("nan"), float("nan")),
    (-1, 2.0, float("nan"), float("nan")),
]
#: The error beside 1, or beside the function where it is larger; where the order is above the argument J falls off, and
#: its error is beside the function itself.
ERROR, BESIDE_J = 4e-15, 1e-14
SIZE = 32


def test_orders_of_a_tile(reference, run_on_target):
    n, x, j, y = np.resize(np.array(EXACT), (SIZE, 4)).T
    lines = ["r0 = libdevice.jn(n, x)", "r1 = libdevice.yn(n, x)"]
    function = reference.kernel(lines, {"n": "i32", "x": "f64"}, ["f64", "f64"], SIZE)
    got_j, got_y = np.zeros(SIZE), np.zeros(SIZE)
    run_on_target(function, (1,), [n.astype(np.int32), x.copy(), got_j, got_y])
    small = (np.abs(x) < n) & (x != 0)
    for got, exact, scale in (
        (got_j, j, np.where(small, np.abs(j) * (BESIDE_J / ERROR), 1.0)),
        (got_y, y, np.maximum(np.abs(y), 1.0)),
    ):
        with np.errstate(invalid="ignore"):
            good = (got == exact) | (np.isnan(got) & np.isnan(exact)) | (np.abs(got - exact) <= ERROR * scale)
        assert good.all(), [row for row, fine in zip(zip(n, x, got, exact, strict=True), good, strict=True) if not fine]


def test_one_order_in_f32(reference, run_on_target):
    rows = [row for row in EXACT if row[0] == 2 and row[1] >= 1]
    _, x, j, y = np.resize(np.array(rows), (SIZE, 4)).T
    lines = ["r0 = libdevice.jn(2, x)", "r1 = libdevice.yn(2, x)"]
    function = reference.kernel(lines, {"x": "f32"}, ["f32", "f32"], SIZE)
    got_j, got_y = np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32)
    run_on_target(function, (1,), [x.astype(np.float32), got_j, got_y])
    assert np.array_equal(got_j, j.astype(np.float32)) and np.array_equal(got_y, y.astype(np.float32))


def test_an_order_is_whole(reference):
    with pytest.raises(TypeMismatch, match="the order of libdevice.jn is an integer"):
        reference.kernel(["r0 = libdevice.jn(x, x)"], {"x": "f64"}, ["f64"], SIZE)
