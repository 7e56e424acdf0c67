"""Bessel functions and inverses of the error function, on every target, against values of mpmath with forty digits, and
numbers beside f64 tensors."""

from __future__ import annotations

import numpy as np
import pytest

#: Function -> pairs of an argument and the exact value, rounded to f64.
EXACT = {
    "j0": [
        (0.0, 1.0),
        (0.125, 0.9960975630419852),
        (-0.75, 0.8642422751666486),
        (2.5, -0.048383776468198),
        (-5.375, -0.049849969319793234),
        (7.5, 0.2663396578803784),
        (7.999999999, 0.17165080737219027),
        (8.0, 0.1716508071375539),
        (8.000000001, 0.17165080690291754),
        (9.25, -0.14741426284123627),
        (-31.5, 0.10823892671147262),
        (1000.25, 0.022846535354858314),
        (1000000000000000.0, 6.156638646885021e-09),
        (float("inf"), 0.0),
    ],
    "j1": [
        (0.0, 0.0),
        (0.125, 0.062378009134494684),
        (-0.75, -0.34924360217486217),
        (2.5, 0.49709410246427405),
        (-5.375, 0.3458102556641231),
        (7.5, 0.1352484275797055),
        (7.999999999, 0.23463634671159334),
        (8.0, 0.23463634685391463),
        (8.000000001, 0.2346363469962359),
        (9.25, 0.20914665047012113),
        (-31.5, 0.09044569145442247),
        (1000.25, 0.010711720806184072),
        (1000000000000000.0, 2.4468665123771328e-08),
        (float("inf"), 0.0),
    ],
    "y0": [
        (0.125, -1.3896806251438405),
        (0.75, -0.1371727693857724),
        (2.5, 0.4980703596152319),
        (5.375, -0.3398076736245628),
        (7.5, 0.11731328614820863),
        (7.999999999, 0.22352148922950574),
        (8.0, 0.22352148938756622),
        (8.000000001, 0.2235214895456267),
        (9.25, 0.21678127961896876),
        (31.5, -0.09215174743370735),
        (1000.25, 0.010700299059596676),
        (1000000000000000.0, 2.4468665123771324e-08),
        (1e-300, -439.8351636227653),
        (0.0, -float("inf")),
        (-1.0, float("nan")),
        (float("inf"), 0.0),
    ],
    "y1": [
        (0.125, -5.199936112534775),
        (0.75, -1.0375945507692854),
        (2.5, 0.1459181379667858),
        (5.375, 0.018694282109211244),
        (7.5, -0.25912851048611624),
        (7.999999999, -0.15806046197452656),
        (8.0, -0.1580604617312475),
        (8.000000001, -0.15806046148796843),
        (9.25, 0.15931077634755317),
        (31.5, -0.109714899705293),
        (1000.25, -0.022841189398253216),
        (1000000000000000.0, -6.15663864688501e-09),
        (1e-200, -6.366197723675814e199),
        (0.0, -float("inf")),
        (-1.0, float("nan")),
        (float("inf"), 0.0),
    ],
    "cyl_bessel_i0": [
        (0.0, 1.0),
        (0.125, 1.0039100663533544),
        (-0.75, 1.1456467780440014),
        (2.5, 3.289839144050123),
        (-5.375, 38.13931194273935),
        (7.5, 268.16131151518937),
        (7.999999999, 427.56411532193164),
        (8.0, 427.5641157218048),
        (8.000000001, 427.56411612167796),
        (9.25, 1384.499867020362),
        (-31.5, 3418083498821.0757),
        (1e-10, 1.0),
        (85.0, 3.563477630408124e35),
        (700.0, 1.5295933476718737e302),
        (713.5, 1.1051012081178279e308),
        (float("inf"), float("inf")),
        (-float("inf"), float("inf")),
    ],
    "cyl_bessel_i1": [
        (0.0, 0.0),
        (0.125, 0.06262214981123483),
        (-0.75, -0.4019924615809222),
        (2.5, 2.5167162452886984),
        (-5.375, -34.37913555427929),
        (7.5, 249.58436542268814),
        (7.999999999, 399.8731364049801),
        (8.0, 399.8731367825601),
        (8.000000001, 399.8731371601401),
        (9.25, 1307.371808634242),
        (-31.5, -3363383210948.709),
        (1e-10, 5e-11),
        (85.0, 3.542453606440377e35),
        (700.0, 1.5285003902339006e302),
        (713.5, 1.1043265136795952e308),
        (float("inf"), float("inf")),
        (-float("inf"), -float("inf")),
    ],
    "erfinv": [
        (0.0, 0.0),
        (1e-300, 8.86226925452758e-301),
        (1e-09, 8.86226925452758e-10),
        (0.0625, 0.05544594877278202),
        (-0.25, -0.2253120550121781),
        (0.4999999, 0.4769361649459939),
        (0.5, 0.4769362762044699),
        (-0.5000001, -0.47693638746295763),
        (0.75, 0.8134198475976185),
        (0.96875, 1.523019401996956),
        (-0.9999, -2.75106390571208),
        (0.9999999999999991, 5.686128441310391),
        (-0.9999999403953552, -3.832506856900711),
        (1.0, float("inf")),
        (-1.0, -float("inf")),
        (1.5, float("nan")),
    ],
    "erfcinv": [
        (1.0, 0.0),
        (0.9375, 0.05544594877278202),
        (1.25, -0.2253120550121781),
        (0.5, 0.4769362762044699),
        (1.5, -0.4769362762044699),
        (0.4999, 0.4770475405909757),
        (1.75, -0.8134198475976185),
        (0.03125, 1.523019401996956),
        (1.96875, -1.523019401996956),
        (1e-05, 3.123413274340875),
        (1e-20, 6.601580622355143),
        (1e-150, 18.490448550008626),
        (1e-307, 26.514955020853616),
        (0.0, float("inf")),
        (2.0, -float("inf")),
        (2.5, float("nan")),
        (-1.0, float("nan")),
    ],
    "normcdfinv": [
        (0.5, 0.0),
        (0.46875, -0.0784124127331122),
        (0.625, 0.31863936396437514),
        (0.25, -0.6744897501960817),
        (0.75, 0.6744897501960817),
        (0.2499, -0.67480447011061),
        (0.875, 1.150349380376008),
        (0.015625, -2.1538746940614564),
        (0.984375, 2.1538746940614564),
        (1e-05, -4.264890793922825),
        (1e-20, -9.262340089798407),
        (1e-150, -26.122961190593983),
        (1e-307, -37.479332564321574),
        (0.0, -float("inf")),
        (1.0, float("inf")),
        (2.0, float("nan")),
    ],
}

#: Units in the last place of f64 of functions without zeros, or with an exact one.
UNITS = {"cyl_bessel_i0": 5, "cyl_bessel_i1": 5, "erfinv": 2, "erfcinv": 2, "normcdfinv": 3}
#: The error of the others beside 1, or beside the function where it is larger.
ABSOLUTE = 2e-15
SIZE = 32
#: Functions that are also tried in f32.
IN_F32 = ("j0", "y1", "cyl_bessel_i1", "erfinv")


def wrong(got, exact, error):
    """The elements that are further from ``exact`` than ``error``; infinities and NaN have to be the same."""
    with np.errstate(invalid="ignore", over="ignore"):
        same = (got == exact.astype(got.dtype)) | (np.isnan(got) & np.isnan(exact))
        return ~(same | (np.abs(got.astype(np.float64) - exact) <= error))


@pytest.mark.parametrize("name", EXACT)
def test_values(reference, run_on_target, name):
    pairs = EXACT[name]
    short = [(x, y) for x, y in pairs if x == float(np.float32(x)) or x != x]
    (x, exact), (x32, exact32) = (np.resize(np.array(held), (SIZE, 2)).T for held in (pairs, short))
    # f32 is computed in f64, and to compile both takes its time.
    lines = [f"r0 = libdevice.{name}(x)", f"r1 = libdevice.{name}(s)" if name in IN_F32 else "r1 = s"]
    function = reference.kernel(lines, {"x": "f64", "s": "f32"}, ["f64", "f32"], SIZE)
    got, got32 = np.zeros(SIZE), np.zeros(SIZE, np.float32)
    run_on_target(function, (1,), [x.copy(), x32.astype(np.float32), got, got32])
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.abs(exact)
        error = np.spacing(size) * UNITS[name] if name in UNITS else ABSOLUTE * np.maximum(size, 1)
        error32 = 0.51 * np.spacing(np.abs(exact32.astype(np.float32)))
    bad, bad32 = wrong(got, exact, error), wrong(got32, exact32, error32) & (name in IN_F32)
    assert not bad.any(), list(zip(x[bad], got[bad], exact[bad], strict=True))
    assert not bad32.any(), list(zip(x32[bad32], got32[bad32], exact32[bad32], strict=True))


def test_the_upper_half_of_a_reciprocal(reference, run_on_target):
    x = np.resize(np.array([3.0, -0.1, 1e300, 2.0, float("inf"), 0.0]), SIZE)
    function = reference.kernel(["r0 = libdevice.rcp64h(x)"], {"x": "f64"}, ["f64"], SIZE)
    got = np.zeros(SIZE)
    run_on_target(function, (1,), [x, got])
    with np.errstate(divide="ignore"):
        wanted = (1 / x).view(np.uint64) >> np.uint64(32) << np.uint64(32)
    assert np.array_equal(got.view(np.uint64), wanted)


def test_numbers_beside_f64_and_f16_keep_their_precision(reference, run_on_target):
    x = np.linspace(0.5, 3, SIZE)
    case = reference.Case(x=("f64", x), h=("f16", x.astype(np.float16)))
    case.expect("tl.div_rn(0.1, x)", 0.1 / x, "f64")
    case.expect("tl.fdiv(x, 0.1, ieee_rounding=True)", x / 0.1, "f64")
    case.expect("tl.div_rn(h, 3.0)", x.astype(np.float16) / np.float16(3), "f16")
    assert not case.run(run_on_target)
    got = np.zeros(SIZE)
    run_on_target(reference.kernel(["r0 = libdevice.atan2(0.1, x)"], {"x": "f64"}, ["f64"], SIZE), (1,), [x, got])
    assert not wrong(got, np.arctan2(0.1, x), 1e-15).any()
