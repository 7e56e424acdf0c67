from __future__ import annotations

import json
import math
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from deuteron.tuner.errors import RecordNotFound, SchemaError
from deuteron.tuner.job import parse_shape, shape_key
from deuteron.tuner.records import (
    ConfigRecord,
    DeviceFingerprint,
    RecordIndex,
    canonical_name,
    lookup,
)


@pytest.mark.parametrize(
    ("spellings", "canonical"),
    [
        (["NVIDIA H100", "NVIDIA_H100_80GB_HBM3", "NVIDIA H100 80GB HBM3", "H100"], "h100"),
        (["NVIDIA H100 PCIe", "NVIDIA_H100_PCIe"], "h100-pcie"),
        (["NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA_A100"], "a100"),
        (["AMD_Instinct_MI308X", "MI308X", "AMD Instinct MI308X"], "mi308x"),
        (["NVIDIA GeForce RTX 2080 Ti", "RTX_2080_Ti"], "rtx-2080-ti"),
        (["NVIDIA GeForce RTX 2080"], "rtx-2080"),
        (["NVIDIA H200", "NVIDIA H200 141GB HBM3e"], "h200"),
        (["NVIDIA"], "nvidia"),
    ],
)
def test_spellings_of_one_gpu_meet(spellings: list[str], canonical: str) -> None:
    assert {canonical_name(name) for name in spellings} == {canonical}


def test_different_boards_stay_apart(h100: DeviceFingerprint) -> None:
    def variant(**change: object) -> DeviceFingerprint:
        return DeviceFingerprint(**{**_fields(h100), **change})  # type: ignore[arg-type]

    assert variant(name="NVIDIA_H100").key == h100.key
    assert variant(memory_bytes=85_900_000_000).key == h100.key  # another driver's reservation
    bare = DeviceFingerprint("cuda", "NVIDIA H100")
    assert h100.matches(bare) and bare.matches(h100)
    different = (
        {"sm_count": 114},
        {"memory_bytes": 42 << 30},
        {"mig": "1g.10gb"},
        {"power_cap_watts": 350.0},
        {"name": "NVIDIA H100 PCIe"},
        {"kind": "cpu"},
    )
    for change in different:
        assert variant(**change).key != h100.key
        assert not variant(**change).matches(h100)


def _fields(device: DeviceFingerprint) -> dict[str, object]:
    return {name: getattr(device, name) for name in DeviceFingerprint.__slots__}


def test_key_is_readable(h100: DeviceFingerprint) -> None:
    assert h100.key == "cuda/h100/cc90/sm132/80gib/700w"


def test_json_round_trip(make_record) -> None:  # type: ignore[no-untyped-def]
    record = make_record({"M": 512, "N": 64}, dims_from_arguments={"M": "x.shape[0]"})
    assert ConfigRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
    data = record.to_json()
    assert ConfigRecord.from_json({**data, "a field of the future": 1}) == record
    with pytest.raises(SchemaError, match="shape_key 'M=1' does not belong"):
        ConfigRecord.from_json({**data, "shape_key": "M=1"})
    del data["verdict"]
    with pytest.raises(SchemaError, match="'verdict' is missing"):
        ConfigRecord.from_json(data)


@settings(derandomize=True, deadline=None)
@given(st.dictionaries(st.sampled_from("MNKBH"), st.integers(1, 10**9), min_size=1))
def test_shape_key_is_canonical_and_readable_back(shape: dict[str, int]) -> None:
    backwards = dict(reversed(list(shape.items())))
    assert shape_key(shape) == shape_key(backwards)
    assert parse_shape(shape_key(shape)) == shape


@pytest.mark.parametrize("text", ["", "M", "M=", "=4", "M=x", "M=-4", "M=4,,N=2", "M=4.5"])
def test_bad_shapes(text: str) -> None:
    with pytest.raises(SchemaError, match="is not a size"):
        parse_shape(text)


HASH = "ab" * 32


def test_exact_then_nearest_then_toolchain_then_default(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    now = {"deuteron": "2"}
    records = [
        make_record({"M": 512, "N": 512}, toolchain=now, config={"BLOCK": 1}),
        make_record({"M": 4096, "N": 4096}, toolchain=now, config={"BLOCK": 2}),
        make_record({"M": 1000, "N": 1000}, toolchain={"deuteron": "1"}, config={"BLOCK": 3}),
        make_record({"M": 8, "N": 8}, dtype="f16", toolchain={"deuteron": "1"}, config={"BLOCK": 4}),
    ]
    index = RecordIndex(records)

    def find(m: int, n: int, dtype: str = "f32", strict: bool = False):  # type: ignore[no-untyped-def]
        return lookup(index, HASH, h100, {"M": m, "N": n}, dtype, strict=strict, toolchain=now)

    assert (find(512, 512).match, find(512, 512).config) == ("exact", {"BLOCK": 1})
    near = find(1000, 1000)
    assert (near.match, near.config) == ("nearest_shape", {"BLOCK": 1})
    assert "nearest shape is M=512,N=512" in near.reason
    assert find(3000, 3000).config == {"BLOCK": 2}
    stale = find(8, 16, "f16")
    assert (stale.match, stale.config) == ("other_toolchain", {"BLOCK": 4})
    assert "deuteron 1" in stale.reason and "not verified" in stale.reason
    none = find(8, 8, "bf16")
    assert (none.match, none.config, none.record) == ("default", {}, None)
    assert "other devices or dtypes" in none.reason
    with pytest.raises(RecordNotFound, match="no configuration for M=1000,N=1000 f32"):
        find(1000, 1000, strict=True)
    assert find(512, 512, strict=True).match == "exact"


def test_default_says_that_the_kernel_is_unknown(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    answer = lookup([make_record({"n": 4})], "cd" * 32, h100, {"n": 4}, "f32")
    assert answer.match == "default" and "source may have changed" in answer.reason


def test_alias_of_the_device_is_found(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    bare = DeviceFingerprint("cuda", "NVIDIA_H100")
    answer = lookup([make_record({"n": 4}, device=bare)], HASH, h100, {"n": 4}, "f32")
    assert answer.match == "exact"


def test_the_newer_of_two_records_counts(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    old = make_record({"n": 4}, created_at="2026-01-01T00:00:00+00:00", config={"BLOCK": 1})
    new = make_record({"n": 4}, created_at="2026-02-01T00:00:00+00:00", config={"BLOCK": 2})
    for order in ([old, new], [new, old]):
        assert lookup(order, HASH, h100, {"n": 4}, "f32").config == {"BLOCK": 2}


def test_other_dims_are_never_near(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    assert lookup([make_record({"n": 4})], HASH, h100, {"m": 4}, "f32").match == "default"


def test_nearest_agrees_with_brute_force_for_few_and_many(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    rng = random.Random(3)
    for count in (5, 300):
        shapes = [{"M": rng.randint(1, 5000), "N": rng.randint(1, 5000)} for _ in range(count)]
        index = RecordIndex(make_record(shape) for shape in shapes)
        for _ in range(50):
            wanted = {"M": rng.randint(1, 5000), "N": rng.randint(1, 5000)}
            answer = lookup(index, HASH, h100, wanted, "f32")
            assert answer.record is not None

            def distance(shape: dict[str, int], wanted: dict[str, int] = wanted) -> float:
                return math.dist([math.log2(shape[d]) for d in "MN"], [math.log2(wanted[d]) for d in "MN"])

            assert distance(dict(answer.record.shape)) == pytest.approx(min(map(distance, shapes)))


def test_ties_are_broken_by_the_key(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    two = [make_record({"n": 64}), make_record({"n": 16})]
    for order in (two, two[::-1]):
        answer = lookup(order, HASH, h100, {"n": 32}, "f32")
        assert answer.record is not None and answer.record.shape == {"n": 16}


def test_a_hundred_thousand_records_answer_quickly(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    base = make_record({"M": 1, "N": 1})
    index = RecordIndex()
    for m in range(400):
        for n in range(250):
            record = replace(base, shape={"M": m, "N": n}, shape_key="")
            index.add(record)
    lookup(index, HASH, h100, {"M": 1000, "N": 1000}, "f32")
    began = time.perf_counter()
    for i in range(100):
        assert lookup(index, HASH, h100, {"M": i, "N": i}, "f32").match == "exact"
    assert (time.perf_counter() - began) / 100 < 0.001
    began = time.perf_counter()
    for i in range(20):
        assert lookup(index, HASH, h100, {"M": 1000 + i, "N": 99}, "f32").match == "nearest_shape"
    assert (time.perf_counter() - began) / 20 < 0.02
