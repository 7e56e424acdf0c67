"""Configurations are handed out for the shapes alone at which they are right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.tuner import ConfigRecord, DeviceFingerprint
from deuteron.tuner.errors import SchemaError
from deuteron.tuner.records import lookup
from deuteron.tuner.records.reach import Reach
from deuteron.tuner.space import Parameter, Space

HASH = "ab" * 32
MakeRecord = Callable[..., ConfigRecord]


@deuteron.jit
def sum_rows(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + row, tl.sum(tl.load(x_ptr + row * N + i, i < N, 0.0), 0))


def test_of_a_space_what_names_a_size_is_kept() -> None:
    choices = (Parameter("BLOCK", (64, 128)), Parameter("num_warps", (4, 8)))
    space = Space(choices, ("BLOCK >= N", "BLOCK >= 32 * num_warps", "BLOCK * element_bytes * N <= shared_bytes"))
    known = {"M": 1, "N": 60, "dtype": "f32", "element_bytes": 4, "sm_count": 132, "shared_bytes": 1 << 16}
    reach = Reach.of(space.bind(known), {"M": 1, "N": 60})
    assert reach.constraints == ("BLOCK >= N", "BLOCK * element_bytes * N <= shared_bytes")
    assert reach.facts == {"element_bytes": 4, "shared_bytes": 1 << 16}
    assert reach.broken({"BLOCK": 64}, {"M": 9, "N": 64}) is None
    assert reach.broken({"BLOCK": 64}, {"M": 9, "N": 65}) == "BLOCK >= N"
    assert reach.broken({"BLOCK": 1024}, {"M": 9, "N": 17}) == "BLOCK * element_bytes * N <= shared_bytes"


def test_a_constraint_that_cannot_be_judged_is_not_true() -> None:
    assert Reach(("BLOCK % (N - 8) == 0",)).broken({"BLOCK": 64}, {"N": 8}) == "BLOCK % (N - 8) == 0"
    assert Reach(("unknown > N",)).broken({"BLOCK": 64}, {"N": 8}) == "unknown > N"


def test_the_nearest_shape_whose_configuration_is_legal_answers(
    make_record: MakeRecord, h100: DeviceFingerprint
) -> None:
    reach = Reach(("BLOCK >= N",), sizes={"N": 8000})
    records = [make_record({"N": n}, config={"BLOCK": b}, reach=reach) for n, b in ((250, 256), (1000, 1024))]

    def find(n: int) -> tuple[str, Mapping[str, object], str]:
        answer = lookup(records, HASH, h100, {"N": n}, "f32")
        return answer.match, answer.config, answer.reason

    assert find(250)[:2] == ("exact", {"BLOCK": 256})
    assert find(100)[:2] == find(256)[:2] == ("nearest_shape", {"BLOCK": 256})
    match, config, reason = find(300)
    assert (match, config) == ("nearest_shape", {"BLOCK": 1024})
    assert "nearest shape is N=250, but the constraint BLOCK >= N is not true there; the nearest whose" in reason
    match, config, reason = find(1025)
    assert (match, config) == ("default", {})
    assert reason == (
        f"no record that may be used: N=1025 was not tuned on {h100.key}, and the configuration of the nearest shape, "
        "N=1000, is not for it: the constraint BLOCK >= N is not true there"
    )
    assert find(9000)[2].startswith("no record near enough")


def test_an_old_toolchain_answers_by_the_same_rule(make_record: MakeRecord, h100: DeviceFingerprint) -> None:
    old = make_record(
        {"N": 250}, config={"BLOCK": 256}, toolchain={"deuteron": "1"}, reach=Reach(("BLOCK >= N",), sizes={"N": 999})
    )
    found = [lookup([old], HASH, h100, {"N": n}, "f32", toolchain={"deuteron": "2"}).match for n in (250, 256, 257)]
    assert found == ["other_toolchain", "other_toolchain", "default"]


def test_a_record_without_reach_is_read_and_one_that_cannot_be_judged_is_refused(make_record: MakeRecord) -> None:
    written = make_record({"N": 4}, reach=Reach(("BLOCK >= N",), {"sm_count": 2})).to_json()
    assert ConfigRecord.from_json(written).reach == Reach(("BLOCK >= N",), {"sm_count": 2})
    with pytest.raises(SchemaError, match="the constraint 'N.real' cannot be read"):
        ConfigRecord.from_json({**written, "reach": {"constraints": ["N.real"]}})
    del written["reach"]
    assert ConfigRecord.from_json(written).reach is None


def test_what_was_tuned_for_short_rows_is_not_used_for_longer_ones(tmp_path: Path) -> None:
    x, y = np.zeros((4, 250), np.float32), np.zeros(4, np.float32)
    rows = deuteron.Workload(
        sum_rows,
        x,
        y,
        250,
        grid=(4,),
        dims={"M": 4, "N": 250},
        search={"BLOCK": [256, 1024]},
        constraints=["BLOCK >= N"],
    )
    (record,) = rows.tune(shapes=[{"M": 4, "N": 250}], trials=2, folder=tmp_path).records
    assert record.reach is not None and record.reach.constraints == ("BLOCK >= N",)
    kernel = deuteron.tuned(sum_rows, cache=tmp_path / "records.bundle")
    for n in (250, 200, 256, 260, 600, 1024):
        x, y = np.ones((4, n), np.float32), np.zeros(4, np.float32)
        kernel[(4,)](x, y, n, BLOCK=1024)
        assert y.tolist() == [n] * 4, kernel.last_answer


def test_what_was_found_right_up_to_a_size_is_used_up_to_it(make_record: MakeRecord, h100: DeviceFingerprint) -> None:
    reach = Reach(sizes={"M": 800, "N": 799}, doubts={"K": "it is wrong at K=799"})
    record = make_record({"M": 100, "N": 100, "K": 100}, reach=reach)

    def find(m: int, n: int, k: int) -> str:
        answer = lookup([record], HASH, h100, {"M": m, "N": n, "K": k}, "f32")
        assert (answer.match == "nearest_shape") is (answer.config == record.config)
        return answer.match if answer.record is not None else answer.reason.rpartition("is not for it: ")[2]

    assert find(800, 100, 100) == find(100, 799, 100) == find(50, 50, 50) == "nearest_shape"
    assert find(100, 800, 100) == "it was found right up to N=799, and not beyond"
    assert find(100, 100, 101) == "it is not known to be right for a larger K (it is wrong at K=799)"
    assert find(101, 101, 100) == "it was found right where one of M, N is larger, not where several are"


def test_a_record_of_an_older_version_answers_for_no_larger_shape(
    make_record: MakeRecord, h100: DeviceFingerprint
) -> None:
    old = make_record({"N": 100}, reach=None)
    assert [lookup([old], HASH, h100, {"N": n}, "f32").match for n in (99, 100, 101)] == [
        "nearest_shape",
        "exact",
        "default",
    ]
    assert lookup([old], HASH, h100, {"N": 101}, "f32").reason.endswith("for a larger N (none was tried)")
