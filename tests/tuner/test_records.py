from __future__ import annotations

import gc
import json
import math
import random
import time
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from deuteron.compiler.targets import Target
from deuteron.tuner.codec import decode
from deuteron.tuner.errors import RecordNotFound, SchemaError, ShapeMismatch
from deuteron.tuner.job import parse_shape, shape_key
from deuteron.tuner.records import (
    ConfigRecord,
    DeviceFingerprint,
    RecordIndex,
    canonical_name,
    current_toolchain,
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


@pytest.mark.parametrize("text", ["", "M", "M=", "=4", "M=x", "M=-4", "M=4,,N=2", "M=4.5", "M=\u0664"])
def test_bad_shapes(text: str) -> None:
    with pytest.raises(SchemaError, match="is not a size"):
        parse_shape(text)


def test_a_shape_names_each_dim_once() -> None:
    with pytest.raises(SchemaError, match="has M twice"):
        parse_shape("M=4,N=2,M=8")


HASH = "ab" * 32


def test_exact_then_nearest_then_default(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    now = {"deuteron": "2"}
    records = [
        make_record({"M": 512, "N": 512}, toolchain=now, config={"BLOCK": 1}),
        make_record({"M": 4096, "N": 4096}, toolchain=now, config={"BLOCK": 2}),
        make_record({"M": 1000, "N": 1000}, toolchain={"deuteron": "1", "host": "a"}, config={"BLOCK": 3}),
        make_record({"M": 8, "N": 8}, dtype="f16", toolchain={"deuteron": "1"}, config={"BLOCK": 4}),
    ]
    index = RecordIndex(records)

    def find(m: int, n: int, dtype: str = "f32", strict: bool = False):  # type: ignore[no-untyped-def]
        return lookup(index, HASH, h100, {"M": m, "N": n}, dtype, strict=strict, toolchain=now)

    assert (find(512, 512).match, find(512, 512).config) == ("exact", {"BLOCK": 1})
    assert find(512, 512).toolchain_differences == ()
    near = find(512, 300)
    assert (near.match, near.config) == ("nearest_shape", {"BLOCK": 1})
    assert near.reason == f"M=512,N=300 was not tuned on {h100.key}; the nearest shape is M=512,N=512"
    assert find(3000, 3000).config == {"BLOCK": 2}
    stale = find(1000, 1000)
    assert (stale.match, stale.config) == ("other_toolchain", {"BLOCK": 3})
    assert stale.reason == (
        f"tuned for M=1000,N=1000 on {h100.key}; measured with another toolchain, not verified with this one: "
        "deuteron 1, here 2; host a, here not named"
    )
    assert [d.to_json() for d in stale.toolchain_differences] == [
        {"name": "deuteron", "recorded": "1", "current": "2"},
        {"name": "host", "recorded": "a", "current": None},
    ]
    assert stale.to_json()["toolchain_differences"][0]["recorded"] == "1"
    assert find(1001, 1001).config == {"BLOCK": 3}  # near and of another toolchain, rather than far and of this one
    both = find(8, 16, "f16")
    assert (both.match, both.config) == ("other_toolchain", {"BLOCK": 4})
    assert "the nearest shape is M=8,N=8" in both.reason and "another toolchain" in both.reason
    none = find(8, 8, "bf16")
    assert (none.match, none.config, none.record) == ("default", {}, None)
    assert none.toolchain_differences is None and none.to_json()["toolchain_differences"] is None
    assert none.reason == f"nothing for bf16 on {h100.key}: the kernel was tuned for {h100.key} (f16, f32)"
    with pytest.raises(
        RecordNotFound, match="no configuration for M=1000,N=1000 f32 on .*: tuned for .* deuteron 1, here"
    ):
        find(1000, 1000, strict=True)
    with pytest.raises(RecordNotFound, match="only other shapes were tuned"):
        find(1001, 1001, strict=True)
    assert find(512, 512, strict=True).match == "exact"


def test_a_record_of_an_older_version_answers_as_another_toolchain(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    """Records that name neither compiler nor assembler load, and are used with a word of warning."""
    device = SimpleNamespace(target="cuda:90a", properties=SimpleNamespace(driver="580.95"))
    now = current_toolchain(device)
    old = {name: now[name] for name in ("deuteron", "llvmlite", "target", "driver")}
    record = ConfigRecord.from_json(make_record({"n": 4}, toolchain=old).to_json())
    answer = lookup([record], HASH, h100, {"n": 4}, "f32", toolchain=now)
    assert (answer.match, answer.record) == ("other_toolchain", record)
    assert "compiler not named, here " in answer.reason
    assert {d.name for d in answer.toolchain_differences} == {
        "compiler",
        "assembler",
        "assembler_options",
        "f32_default",
    }
    assert all(d.recorded is None for d in answer.toolchain_differences)


def test_a_changed_compiler_makes_another_toolchain(make_record, h100, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Records and the variant cache take the toolchain from one place."""
    from deuteron.compiler.runtime.variant import toolchain as definition

    device = SimpleNamespace(target="cpu", properties=SimpleNamespace(driver=None))
    assert current_toolchain(device) == definition.toolchain(Target.parse("cpu"))
    record = make_record({"n": 4}, toolchain=current_toolchain(device))
    monkeypatch.setattr(definition, "compiler_digest", lambda: "changed")
    answer = lookup([record], HASH, h100, {"n": 4}, "f32", toolchain=current_toolchain(device))
    assert answer.match == "other_toolchain"
    assert [d.name for d in answer.toolchain_differences] == ["compiler"]


def test_without_a_toolchain_the_answer_says_that_none_was_compared(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    answer = lookup([make_record({"n": 4})], HASH, h100, {"n": 4}, "f32")
    assert (answer.match, answer.toolchain_differences) == ("exact", None)
    assert answer.reason.endswith("toolchains were not compared, since none was given")


def test_records_of_another_device_are_named(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    index = RecordIndex([make_record({"n": 4})])
    other = DeviceFingerprint("cuda", "NVIDIA A100-SXM4-80GB", sm_count=108)
    answer = lookup(index, HASH, other, {"n": 4}, "f32")
    assert answer.match == "default"
    assert answer.reason == f"nothing for f32 on {other.key}: the kernel was tuned for {h100.key} (f32)"
    for number in range(4):
        index.add_place(HASH, f"z{number}", "f16")
    assert lookup(index, HASH, other, {"n": 4}, "f32").reason.endswith("z0 (f16), z1 (f16) and 2 more")


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


def test_the_newer_of_two_records_counts_for_near_shapes_too(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    """Of whichever toolchains they are, as those of another version or where no toolchain is given."""
    records = [
        make_record(device=h100, shape={"M": 8}, toolchain={"compiler": name}, created_at=day, config={"B": block})
        for name, day, block in (("a", "2026-01-01", 1), ("b", "2026-03-01", 2), ("c", "2026-02-01", 3))
    ]
    for shape in ({"M": 8}, {"M": 9}):
        for toolchain in (None, {"compiler": "another"}):
            answer = lookup(records, records[0].kernel_hash, h100, shape, records[0].dtype, toolchain=toolchain)
            assert answer.config == {"B": 2}


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"M": 4}, "the shape M=4 lacks 'N'"),
        ({"M": 4, "N": 4, "K": 4}, "the shape K=4,M=4,N=4 has the unknown dim 'K'"),
        ({"m": 4, "n": 4}, "lacks 'M'"),
        ({}, r"the shape \(empty\) lacks 'M'"),
    ],
)
def test_a_shape_over_other_dims_is_refused(make_record, h100, shape: dict[str, int], message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ShapeMismatch, match=message) as refused:
        lookup([make_record({"M": 4, "N": 4})], HASH, h100, shape, "f32")
    assert refused.value.hint == "dims of kernel: M, N"


def test_other_dims_are_never_near(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    """One kernel tuned over two sets of dims: each shape meets its own."""
    index = RecordIndex(
        [make_record({"n": 4}, config={"BLOCK": 1}), make_record({"m": 4, "k": 1}, config={"BLOCK": 2})]
    )
    assert lookup(index, HASH, h100, {"n": 8}, "f32").config == {"BLOCK": 1}
    assert lookup(index, HASH, h100, {"m": 8, "k": 4}, "f32").config == {"BLOCK": 2}


def test_nearest_agrees_with_brute_force_for_few_and_many(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    rng = random.Random(3)
    for count in (5, 300):
        shapes = [{"M": rng.randint(1, 5000), "N": rng.randint(1, 5000)} for _ in range(count)]
        index = RecordIndex(make_record(shape) for shape in shapes)
        for _ in range(50):
            wanted = {"M": rng.randint(1, 5000), "N": rng.randint(1, 5000)}
            answer = lookup(index, HASH, h100, wanted, "f32")

            def distance(shape: dict[str, int], wanted: dict[str, int] = wanted) -> float:
                return math.dist([math.log2(shape[d]) for d in "MN"], [math.log2(wanted[d]) for d in "MN"])

            least = min(map(distance, shapes))
            assert answer.match == ("nearest_shape" if least <= 3 else "default")
            assert answer.record is None or distance(dict(answer.record.shape)) == pytest.approx(least)


def test_far_shapes_are_not_near(make_record, h100) -> None:  # type: ignore[no-untyped-def]
    """8 times in one size, or 4.3 times in two: farther away the kernel's default is the answer, and says why."""
    index = RecordIndex([make_record({"M": 512, "N": 512})])
    for shape in ({"M": 4096, "N": 512}, {"M": 512, "N": 64}, {"M": 2200, "N": 2200}):
        assert lookup(index, HASH, h100, shape, "f32").match == "nearest_shape"
    for shape in ({"M": 4097, "N": 512}, {"M": 512, "N": 63}, {"M": 2300, "N": 2300}, {"M": 4096, "N": 8192}):
        answer = lookup(index, HASH, h100, shape, "f32")
        assert (answer.match, answer.record, answer.config) == ("default", None, {})
        assert answer.reason.startswith(f"no record near enough: M={shape['M']},N={shape['N']} was not tuned on ")
        assert "the nearest shape, M=512,N=512, is farther" in answer.reason


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


def test_the_key_of_a_device_rounds_its_memory_whatever_a_file_says_of_it() -> None:
    for size, rounded in {1: 4, 6 << 30: 8, 10 << 30: 8, 141 << 30: 140, 1 << 1400: 1 << 1370}.items():
        assert DeviceFingerprint(kind="cuda", name="GPU", memory_bytes=size).memory_gib == rounded


def test_records_are_nothing_for_the_collector(make_record) -> None:
    """A service keeps a hundred thousand, and looking through them kept every request waiting for 0.3 s."""
    read = decode(json.dumps(make_record({"M": 64, "N": 64}).to_json()), ConfigRecord, "record")
    assert not any(map(gc.is_tracked, (read, read.device, read.time_ns, read.shape, read.config)))
