"""What lookups answer from predictors, and predictors in bundles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from deuteron.tuner.errors import BundleError, RecordNotFound, SchemaError
from deuteron.tuner.prediction import Accuracy, CrossValidation
from deuteron.tuner.records import Answer, DeviceFingerprint, Predictor, RecordIndex, lookup, read_bundle, write_bundle
from deuteron.tuner.records.lookup import FARTHEST

Maker = Callable[..., Predictor]
CHAIN = {"deuteron": "0.1.0"}
OTHER = {"deuteron": "0.2.0"}


def ask(index: RecordIndex, one: Predictor, m: int, n: int = 64, **options: object) -> Answer:
    device = options.pop("device", one.device)
    chain = options.pop("toolchain", CHAIN)
    return lookup(index, one.kernel_hash, device, {"M": m, "N": n}, "f32", toolchain=chain, **options)  # type: ignore[arg-type]


def record_of(make_record, one: Predictor, m: int, **more: object):  # type: ignore[no-untyped-def]
    return make_record({"M": m, "N": 64}, kernel_hash=one.kernel_hash, device=one.device, toolchain=CHAIN, **more)


def test_exact_then_predicted_then_nearest_then_default(predictor: Maker, make_record) -> None:  # type: ignore[no-untyped-def]
    one = predictor()
    tuned = record_of(make_record, one, 64)
    both = RecordIndex([tuned], [one])
    assert ask(both, one, 64).match == "exact"
    found = ask(both, one, 128)
    assert (found.match, found.config, found.record) == ("predicted", {"BLOCK": 64, "w": 4}, None)
    assert found.toolchain_differences == () and found.expected_loss == pytest.approx(1 / 0.97 - 1)
    assert found.reason == (
        "M=128,N=64 was not tuned on cuda/h200/cc90/sm132/144gib; predicted from 40 trials of 2 shapes: 3.1% slower "
        "than the best measured is expected, 25% was the most of 12 shapes that were left out"
    )
    assert ask(both, one, 20).config == {"BLOCK": 16, "w": 4}
    nothing_legal = ask(both, one, 10)
    assert (nothing_legal.match, nothing_legal.record, nothing_legal.expected_loss) == ("nearest_shape", tuned, None)
    alone = ask(RecordIndex([], [one]), one, 10)
    assert alone.match == "default" and "M=10,N=64 was not tuned on" in alone.reason
    assert "none is both legal there and known to be right" in alone.reason
    assert ask(RecordIndex([tuned]), one, 128).match == "nearest_shape"
    with pytest.raises(RecordNotFound):
        ask(both, one, 128, strict=True)


def test_only_as_far_as_records_answer(predictor: Maker) -> None:
    one = predictor()
    index = RecordIndex([], [one])
    assert ask(index, one, 1024 * 8).match == "predicted"
    beyond = ask(index, one, 1024 * 8 + 1)
    assert beyond.match == "default" and "farther than 8 times in one size" in beyond.reason
    assert one.distance({"M": 1024 * 8, "N": 64}) == pytest.approx(FARTHEST)


@pytest.mark.parametrize("default", [None, Accuracy(0.98, 0.9, 0.9)])
def test_used_only_where_it_did_better(predictor: Maker, default: Accuracy | None) -> None:
    better = Accuracy(0.97, 0.9, 0.9)
    nearest = Accuracy(0.97 if default is None else 0.5, 0.4, 0.3)
    one = predictor(accuracy=CrossValidation(12, better, nearest, default))
    found = ask(RecordIndex([], [one]), one, 128)
    assert found.match == "default" and "no better than the nearest shape or the default at shapes" in found.reason


def test_another_toolchain_is_said(predictor: Maker, make_record) -> None:  # type: ignore[no-untyped-def]
    one = predictor()
    found = ask(RecordIndex([], [one]), one, 128, toolchain=OTHER)
    assert found.match == "other_toolchain" and found.expected_loss is not None and found.config
    assert [(d.name, d.recorded, d.current) for d in found.toolchain_differences or ()] == [
        ("deuteron", "0.1.0", "0.2.0")
    ]
    assert "predicted from 40 trials" in found.reason and "another toolchain, not verified" in found.reason
    unasked = ask(RecordIndex([], [one]), one, 128, toolchain=None)
    assert unasked.match == "predicted" and unasked.toolchain_differences is None
    assert "toolchains were not compared" in unasked.reason


def test_a_near_shape_of_this_toolchain_comes_before_a_prediction_of_another(predictor: Maker, make_record) -> None:  # type: ignore[no-untyped-def]
    one = predictor(toolchain=OTHER)
    tuned = record_of(make_record, one, 64)
    assert ask(RecordIndex([tuned], [one]), one, 128).record == tuned
    here = predictor(id="q")
    assert ask(RecordIndex([tuned], [one, here]), one, 128).match == "predicted"
    far = record_of(make_record, one, 16)
    assert ask(RecordIndex([far], [one]), one, 1024).match == "other_toolchain"
    stale = replace(tuned, toolchain=OTHER)
    found = ask(RecordIndex([stale], [here]), one, 64)
    assert (found.match, found.record) == ("other_toolchain", stale), "measured at this very shape"


def test_kernel_device_and_dtype_have_to_fit(predictor: Maker) -> None:
    one = predictor()
    index = RecordIndex([], [one])
    same = DeviceFingerprint("cuda", "NVIDIA_H200_141GB_HBM3e")
    assert ask(index, one, 128, device=same).match == "predicted"
    h100 = DeviceFingerprint("cuda", "NVIDIA H100", sm_count=132)
    assert ask(index, one, 128, device=h100).match == "default"
    assert "tuned for cuda/h200/cc90/sm132/144gib (f32)" in ask(index, one, 128, device=h100).reason
    assert lookup(index, one.kernel_hash, one.device, {"M": 128, "N": 64}, "f16").match == "default"
    assert lookup(index, "cd" * 32, one.device, {"M": 128, "N": 64}, "f32").match == "default"


def test_in_a_bundle_and_back(predictor: Maker, make_record, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    one, other = predictor(), predictor(dtype="f16", id="q")
    records = [record_of(make_record, one, m) for m in (128, 64)]
    manifest = write_bundle(tmp_path / "b", records, predictors=[other, one, replace(other, id="r")])
    assert (manifest.schema, manifest.count, manifest.predictors) == (2, 2, 2)
    bundle = read_bundle(tmp_path / "b")
    assert list(bundle.records()) == records
    assert list(bundle.predictors()) == [replace(other, id="r"), one]
    assert ask(bundle.index(), one, 129).match == "predicted"
    assert len(bundle.index()) == 2
    write_bundle(tmp_path / "alone", [], predictors=[one])
    assert ask(read_bundle(tmp_path / "alone").index(), one, 128).match == "predicted"


def test_a_bundle_without_predictors_is_as_it_was(make_record, predictor: Maker, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    manifest = write_bundle(tmp_path / "b", [record_of(make_record, predictor(), 64)])
    assert (manifest.schema, manifest.predictors) == (1, 0)
    lines = (tmp_path / "b").read_bytes().splitlines(keepends=True)
    older = json.loads(lines[0])
    del older["predictors"]
    (tmp_path / "b").write_bytes(json.dumps(older).encode() + b"\n" + lines[1])
    assert len(read_bundle(tmp_path / "b").index()) == 1


def hostile(path: Path, one: Predictor, change: Callable[[dict], None]) -> None:  # type: ignore[type-arg]
    """A bundle that is whole, with a changed predictor."""
    import hashlib

    document = json.loads(json.dumps(one.to_json()))
    change(document)
    line = json.dumps(document).encode() + b"\n"
    head = {"schema": 2, "count": 0, "predictors": 1, "body_sha256": hashlib.sha256(line).hexdigest()}
    head |= {"created_at": "", "service": ""}
    path.write_bytes(json.dumps(head).encode() + b"\n" + line)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d["ranking"]["forest"]["left"].__setitem__(0, 0), "its own child"),
        (lambda d: d["ranking"]["forest"]["right"].__setitem__(2, 99), "child 99"),
        (lambda d: d["ranking"]["forest"]["value"].__setitem__(1, float("nan")), "value|NaN|JSON"),
        (lambda d: d["ranking"]["forest"]["value"].pop(), "value has 4 entries"),
        (lambda d: d["ranking"]["forest"].__setitem__("feature", [0] * 60_000), "entries"),
        (lambda d: d["ranking"]["grid"].append("open('/etc/passwd')"), "open|call"),
        (lambda d: d["ranking"]["space"]["constraints"].append("x ="), "x ="),
        (lambda d: d["shapes"].append({"M": 1}), "is not over M, N"),
        (lambda d: d["shapes"].append({"M": 0, "N": 1}), "size that is not 1 to"),
        (lambda d: d.__setitem__("shapes", []), "shapes"),
        (lambda d: d["accuracy"]["predicted"].__setitem__("geomean", 1.5), "geomean"),
        (lambda d: d["accuracy"]["predicted"].__setitem__("geomean", 0), "geomean"),
        (lambda d: d["accuracy"]["predicted"].__setitem__("geomean", 1e-310), "geomean"),
        (lambda d: d["accuracy"]["nearest"].__setitem__("worst", 5e-324), "worst"),
        (lambda d: d["accuracy"]["predicted"].__setitem__("worst", 0.95), "worst fraction 0.95 is above p10, 0.93"),
        (lambda d: d["ranking"]["space"].__setitem__("constants", {"sm_count": "many"}), "sm_count is the text 'many'"),
        (lambda d: d["ranking"]["space"].__setitem__("constants", {"sm_count": 2**70}), "sm_count is the number"),
        (lambda d: d["ranking"]["space"].__setitem__("constants", {"sm_count": 1e300}), "sm_count is the number"),
        (lambda d: d["ranking"]["dims"].append("BLOCK"), "'BLOCK' is a dim and also a parameter"),
        (lambda d: d["ranking"]["space"]["parameters"][0]["choices"].append("x"), "those of 'BLOCK' are not"),
        (lambda d: d["ranking"]["forest"]["value"].__setitem__(1, 1.7e308), r"value\[1\]"),
        (lambda d: d.pop("device"), "device"),
    ],
)
def test_hostile_predictors_are_refused_naming_the_line(
    predictor: Maker, tmp_path: Path, change: Callable[[dict], None], why: str  # type: ignore[type-arg]
) -> None:  # fmt: skip
    hostile(tmp_path / "b", predictor(), lambda document: None)
    assert len(list(read_bundle(tmp_path / "b").predictors())) == 1
    hostile(tmp_path / "b", predictor(), change)
    with pytest.raises(BundleError, match=why) as caught:
        read_bundle(tmp_path / "b").index()
    assert f"{tmp_path / 'b'}, line 2" in str(caught.value)


def test_the_least_accuracy_that_can_be_read_is_told_in_numbers(predictor: Maker, tmp_path: Path) -> None:
    least = Accuracy.of([1e-310, 5e-324])
    better = predictor(accuracy=CrossValidation(5, Accuracy(2e-12, 1e-12, 1e-12), least))
    write_bundle(tmp_path / "b", [], predictors=[better])
    found = ask(read_bundle(tmp_path / "b").index(), better, 128)
    assert found.match == "predicted" and "Infinity" not in json.dumps(found.to_json(), allow_nan=False)
    assert "inf" not in found.reason and found.expected_loss == pytest.approx(5e11)


def test_a_predictor_that_is_missing_is_noticed(predictor: Maker, tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", [], predictors=[predictor()])
    whole = (tmp_path / "b").read_bytes()
    head, line = whole.splitlines(keepends=True)
    (tmp_path / "b").write_bytes(head)
    with pytest.raises(BundleError, match="promises 0 records and 1 predictors, it ends in line 1"):
        read_bundle(tmp_path / "b")
    (tmp_path / "b").write_bytes(whole + line)
    with pytest.raises(BundleError, match="line 3 does not belong"):
        read_bundle(tmp_path / "b")


def test_one_too_large_for_a_line_is_not_written(predictor: Maker, tmp_path: Path) -> None:
    large = predictor(toolchain={"deuteron": "x" * (1 << 20)})
    with pytest.raises(BundleError, match=r"takes \d+ bytes"):
        write_bundle(tmp_path / "b", [], predictors=[large])
    assert list(tmp_path.iterdir()) == []


def test_unknown_fields_of_later_versions_are_ignored(predictor: Maker) -> None:
    assert Predictor.from_json({**predictor().to_json(), "later": 1}) == predictor()
    with pytest.raises(SchemaError, match="kernel_hash"):
        Predictor.from_json({k: v for k, v in predictor().to_json().items() if k != "kernel_hash"})
