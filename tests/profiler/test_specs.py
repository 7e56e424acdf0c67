"""Peaks from the record of a device: products whose makers publish theirs."""

from __future__ import annotations

import re

import pytest

from deuteron.profiler import specs

# (type, arch, multiprocessors, clock in kHz): peaks in TFLOP/s by width, from the products' data sheets.
PRODUCTS = {
    "V100 SXM2": (("CUDA", "70", 80, 1_530_000), {16: 125, 32: 15.7, 64: 7.8}),
    "T4": (("CUDA", "75", 40, 1_590_000), {8: 130, 16: 65, 32: 8.1, 64: 0.254}),
    "A100": (("CUDA", "80", 108, 1_410_000), {8: 624, 16: 312, 32: 156, 64: 19.5}),
    "A10": (("CUDA", "86", 72, 1_695_000), {8: 250, 16: 125, 32: 62.5}),
    "Orin": (("CUDA", "87", 16, 1_300_000), {8: 85, 16: 42.5, 32: 5.3}),
    "L40S": (("CUDA", "89", 142, 2_520_000), {8: 733, 16: 366, 32: 183}),
    "RTX 4090": (("CUDA", "89", 128, 2_520_000), {8: 660.6, 16: 330.3}),
    "H100 PCIe": (("CUDA", "90", 114, 1_755_000), {8: 1513, 16: 756, 32: 378, 64: 51.2}),
    "H100 SXM": (("CUDA", "90", 132, 1_980_000), {8: 1979, 16: 989.5, 32: 494.7, 64: 66.9}),
    "B200": (("CUDA", "100", 148, 1_850_000), {8: 4500, 16: 2250, 32: 1120}),
    "B300": (("CUDA", "103", 148, 1_920_000), {8: 4656, 64: 1.14}),
    "Thor": (("CUDA", "110", 20, 1_575_000), {8: 517, 16: 258, 32: 8.06}),
    "RTX PRO 6000": (("CUDA", "120", 188, 2_617_000), {8: 1008, 16: 504, 32: 252, 64: 1.97}),
    "RTX 5090": (("CUDA", "120", 170, 2_407_000), {8: 838, 16: 419, 64: 1.637}),
    "MI250X, one die": (("HIP", "gfx90a", 110, 1_700_000), {8: 191.5, 16: 191.5, 32: 47.9, 64: 47.9}),
    "MI300X": (("HIP", "gfx942", 304, 2_100_000), {8: 2614.9, 16: 1307.4, 32: 653.7, 64: 163.4}),
    "MI355X": (("HIP", "gfx950", 256, 2_400_000), {8: 5033, 16: 2517, 32: 157.3, 64: 78.6}),
}


@pytest.mark.parametrize("product", PRODUCTS)
def test_products_have_their_published_peaks(product: str) -> None:
    (kind, arch, count, clock), published = PRODUCTS[product]
    for width, teraflops in published.items():
        assert specs.max_flops(kind, arch, width, count, clock) == pytest.approx(teraflops * 1e12, rel=0.02), width
    record = {"arch": arch, "num_sms": count, "clock_rate": clock}
    peaks = specs.device_peaks(kind, record)
    fastest = {width: max(peaks.get(name, 0) for name in names) for width, names in specs.CLASSES.items()}
    # The first class of a width that a device has is its fastest.
    assert {width: peak or None for width, peak in fastest.items()} == pytest.approx(
        {width: specs.device_peak_flops(kind, record, width) for width in specs.CLASSES}
    )


def test_every_architecture_names_its_source_and_known_classes() -> None:
    known = {name for names in specs.CLASSES.values() for name in names}
    for arch in ("70", "72", "75", "80", "86", "87", "89", "90", "100", "101", "103", "110", "120", "121"):
        found = specs.rates("CUDA", arch)
        assert found is not None and found.source.startswith("NVIDIA ") and found.per_clock.keys() <= known
    for arch in ("gfx90a", "gfx942", "gfx950"):
        found = specs.rates("HIP", arch)
        assert found is not None and found.source.startswith("AMD ") and found.per_clock.keys() <= known


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        ("CUDA", {"arch": "61", "num_sms": 30, "clock_rate": 1_600_000}),
        ("HIP", {"arch": "gfx906", "num_sms": 60, "clock_rate": 1_600_000}),
        ("CPU", {"arch": "90", "num_sms": 30, "clock_rate": 1_600_000}),
        ("CUDA", {"arch": "90", "clock_rate": 1_600_000}),
        ("CUDA", {"arch": "90", "num_sms": "132", "clock_rate": 1_600_000}),
        ("CUDA", {"arch": "90", "num_sms": 132, "clock_rate": 10**400}),
        ("CUDA", {"arch": "90", "num_sms": 132, "clock_rate": float("nan")}),
        ("CUDA", {"arch": "90", "num_sms": True, "clock_rate": 1}),
        ("CUDA", {"arch": ["90"], "num_sms": 132, "clock_rate": 0}),
        ("CUDA", {}),
    ],
)
def test_what_is_not_known_is_not_guessed(kind: str, record: dict) -> None:
    assert specs.device_peaks(kind, record) == {}
    assert all(specs.device_peak_flops(kind, record, width) is None for width in (8, 16, 32, 64))
    assert specs.device_peak_bps(kind, record) is None


def test_bandwidth() -> None:
    h200 = {"arch": "90", "bus_width": 6144, "memory_clock_rate": 3_201_000}
    assert specs.device_peak_bps("CUDA", h200) == pytest.approx(4.917e12, rel=1e-3)
    assert specs.max_bps("HIP", "gfx942", 8192, 1_300_000) == 5.3e12
    assert specs.max_bps("HIP", "gfx906", 4096, 1_000_000) is None


#: Classes whose rates follow from the rest of a paper, or from figures in other units: no number of the text is theirs.
UNSAID = {
    ("70", "int8"), ("75", "fp64"), ("86", "fp64"), ("87", "fp16 tensor"), ("89", "fp16 tensor"), ("89", "fp64"),
    ("100", "tf32 tensor"), ("100", "fp32"), ("100", "fp64"), ("110", "fp16 tensor"), ("120", "fp64"),
}  # fmt: skip


@pytest.mark.parametrize(
    "arch", ["70", "75", "80", "86", "87", "89", "100", "110", "120", "gfx90a", "gfx942", "gfx950"]
)
def test_rates_are_what_their_sources_say(arch: str) -> None:
    """Within what a figure is rounded to, and the clock, which is rounded as well."""
    found = specs.rates("HIP" if arch.startswith("gfx") else "CUDA", arch)
    assert found is not None
    said = re.search(r"(\d+) (?:SMs|CUs), ([\d.]+) GHz, (.*)", found.source)
    assert said is not None
    figures = [
        (float(text) * scale, 10.0 ** -len(text.partition(".")[2]) * scale / 2)
        for run, prefix in re.findall(r"([\d. /]+) ([TP])(?:FL)?OP/s", said[3])
        for text in run.split(" / ")
        for scale in [{"T": 1e12, "P": 1e15}[prefix]]
    ]
    for name, rate in found.per_clock.items():
        peak = rate * int(said[1]) * float(said[2]) * 1e9
        near = any(abs(peak - figure) <= rounding + 0.004 * figure for figure, rounding in figures)
        assert near or (arch, name) in UNSAID, name
