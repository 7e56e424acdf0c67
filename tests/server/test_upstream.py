"""What a service asks its upstream for, keeps and believes: freshness, forgeries, loops, and bundles of both."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from answering import AnsweringServer, send
from msgspec.structs import replace
from upstream_records import H200, KERNEL, record

from deuteron import migrations
from deuteron.server import ServiceStore, upstream
from deuteron.server.bundles import Bundles
from deuteron.server.configs import put_record
from deuteron.server.metrics import Metrics
from deuteron.server.predictors import FILE_NAME, Predictors
from deuteron.server.upstream import FRESH_S, KEPT_S, MOST_HOPS, Part, Upstream, merged_lines, services_in
from deuteron.tuner import ConfigRecord, encode_record, read_bundle, write_bundle
from deuteron.tuner.records import Predictor
from deuteron.tuner.records.signature import SigningKey
from deuteron.tuner.records.trust import KeyFolder


class Fake(AnsweringServer):
    """An upstream written by hand, which counts requests. It answers while it ``answers``."""

    def __init__(self) -> None:
        self.body, self.status, self.seen = b"", 200, list[dict[str, str]]()
        self.state = "reached"
        self.answers = threading.Event()
        self.answers.set()
        super().__init__(self.answer)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.seen.append({name.lower(): value for name, value in handler.headers.items()})
        self.answers.wait(30)
        etag = f'"{hashlib.sha256(self.body).hexdigest()}"'
        same = self.status == 200 and handler.headers.get("If-None-Match") == etag
        said = {"etag": etag, "deuteron_upstream": self.state}
        send(handler, 304 if same else self.status, b"" if same else self.body, **said)


@pytest.fixture
def fake() -> Iterator[Fake]:
    made = Fake()
    yield made
    made.close()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def asking(fake: Fake, tmp_path: Path, clock: Clock) -> Iterator[Upstream]:
    made = Upstream(fake.url, KeyFolder(tmp_path / "keys"), tmp_path, Metrics(), token="secret", clock=clock)
    yield made
    made.close()


@pytest.fixture
def signed(tmp_path: Path) -> Callable[..., bytes]:
    key = SigningKey.generate()

    def build(*records: ConfigRecord, by: SigningKey | None = key) -> bytes:
        write_bundle(tmp_path / "made", list(records), service="http://company", sign_with=by)
        return (tmp_path / "made").read_bytes()

    return build


def sizes(upstream: Upstream, kernel: str = KERNEL) -> tuple[list[int], str]:
    asked = upstream.ask(kernel)
    return [item.shape["M"] for item in asked.part.records], asked.state


def test_what_is_kept_is_asked_for_again_after_a_minute_and_lasts_a_day(
    fake: Fake, asking: Upstream, clock: Clock, signed: Callable[..., bytes]
):
    fake.body = signed(record(1))
    assert sizes(asking) == sizes(asking) == ([1], "reached")
    assert len(fake.seen) == 1 and fake.seen[0]["authorization"] == "Bearer secret"
    assert services_in({"Deuteron-Via": fake.seen[0]["deuteron-via"]}) == (asking.id,)
    clock.now = FRESH_S + 1
    assert sizes(asking) == ([1], "reached")
    assert "if-none-match" in fake.seen[1]
    fake.body = signed(record(1), record(2))
    clock.now *= 2
    assert sizes(asking) == ([1, 2], "reached")
    fake.status = 500
    clock.now += FRESH_S + 1
    assert sizes(asking) == sizes(asking) == ([1, 2], "unreachable")
    assert len(fake.seen) == 4, "one that is down is left alone"
    clock.now += KEPT_S
    assert sizes(asking) == ([], "unreachable"), "too old to be told"
    fake.status = 200
    clock.now += upstream.BREAK_S + 1
    assert sizes(asking) == ([1, 2], "reached"), "and asked again when it is back"
    fake.status = 404
    assert sizes(asking, "other") == sizes(asking, "other") == ([], "reached")
    assert len(fake.seen) == 7


def test_a_forged_part_is_not_used(fake: Fake, asking: Upstream, clock: Clock, signed: Callable[..., bytes]):
    """After the first one whose key is trusted: altered, unsigned, of another key, of another kernel, cut."""
    fake.body = signed(record(1))
    assert sizes(asking) == ([1], "reached")
    good = signed(record(1, 128))
    head, body = good.splitlines(keepends=True)
    bad = body.replace(b'"BLOCK":128', b'"BLOCK":129')
    lying = {**json.loads(head), "body_sha256": hashlib.sha256(bad).hexdigest()}
    forged = json.dumps(lying, sort_keys=True, separators=(",", ":")).encode() + b"\n" + bad
    for answer, state in (
        (forged, "refused"),
        (signed(record(1, 128), by=None), "refused"),
        (signed(record(1, 128), by=SigningKey.generate()), "refused"),
        (signed(record(1, kernel_hash="cd" * 32)), "unreachable"),
        (good[:-5], "unreachable"),
        (b"<html>", "unreachable"),
    ):
        fake.body = answer
        clock.now += FRESH_S + 1
        found = asking.ask(KERNEL)
        assert found.state == state, answer[:300]
        assert [item.config["BLOCK"] for item in found.part.records] == [64], "what was kept"
    fake.status = 401
    clock.now += FRESH_S + 1
    assert sizes(asking) == ([1], "refused")


def test_what_is_kept_is_bounded(
    fake: Fake, asking: Upstream, signed: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
):
    size = len(signed(*(record(m, kernel_hash="0" * 64) for m in (1, 2))))
    monkeypatch.setattr(upstream, "MOST_KEPT_BYTES", size * 5 // 2)
    for digit in "0123":
        fake.body = signed(*(record(m, kernel_hash=digit * 64) for m in (1, 2)))
        assert sizes(asking, digit * 64) == ([1, 2], "reached")
    assert list(asking._kept) == ["2" * 64, "3" * 64] and abs(asking._size - 2 * size) < 100


def test_what_a_forgotten_key_signed_counts_no_longer(
    fake: Fake, asking: Upstream, clock: Clock, tmp_path: Path, signed: Callable[..., bytes]
):
    """Neither while it is fresh, nor by an answer that nothing has changed, nor while the upstream is down."""
    fake.body = signed(record(1))
    assert sizes(asking) == ([1], "reached")
    keys = KeyFolder(tmp_path / "keys")
    for key in keys.trusted():
        keys.forget(key)
    keys.trust(SigningKey.generate().public_key, "another of this address", service=fake.url)
    assert sizes(asking) == ([], "refused")
    assert "if-none-match" not in fake.seen[-1]


def test_predictors_arrive(fake: Fake, asking: Upstream, tmp_path: Path, predictor: Callable[..., Predictor]):
    mine = predictor(kernel_hash=KERNEL, device=H200)
    write_bundle(tmp_path / "made", [], predictors=[mine], service="http://company", sign_with=SigningKey.generate())
    fake.body = (tmp_path / "made").read_bytes()
    part = asking.ask(KERNEL).part
    assert part.predictors == (mine,) and part.kernel_hash == KERNEL and list(part.devices) == [H200.key]


def test_a_part_of_which_the_far_end_is_missing_is_asked_for_again_soon(
    fake: Fake, asking: Upstream, clock: Clock, signed: Callable[..., bytes]
):
    fake.body, fake.state = signed(record(1)), "unreachable"
    assert sizes(asking) == ([1], "reached")
    clock.now, fake.state = upstream.PARTIAL_S + 1, "reached"
    assert sizes(asking) == sizes(asking) == ([1], "reached") and len(fake.seen) == 2
    clock.now += FRESH_S - 1
    assert sizes(asking) == ([1], "reached") and len(fake.seen) == 2


def test_who_waits_for_a_moment_only_does_not_keep_others_from_asking(
    fake: Fake, asking: Upstream, signed: Callable[..., bytes]
):
    fake.body = signed(record(1))
    fake.answers.clear()
    assert asking.ask("other", patience_s=upstream.LEAST_S).state == "unreachable"
    fake.answers.set()
    assert sizes(asking) == ([1], "reached")


def test_questions_that_came_back_are_not_asked(fake: Fake, asking: Upstream):
    assert asking.pass_on(KERNEL, ("0" * 16, asking.id)) is None
    assert asking.pass_on(KERNEL, ("0" * 16,) * MOST_HOPS) is None
    assert fake.seen == []
    assert services_in({}) == ()
    assert services_in({"Deuteron-Via": "x, " + "0" * 16 + ",,"}) == ("?", "0" * 16)
    assert len(services_in({"Deuteron-Via": "x," * 1000})) > MOST_HOPS


def test_lines_of_both_in_order_and_own_ones_first():
    other = replace(H200, name="NVIDIA H100")
    own = sorted([record(8), record(64)], key=lambda item: item.key)
    part = Part(tuple(sorted([record(8, 1), record(3), record(9, device=other)], key=lambda item: item.key)))
    everything = [json.loads(line) for line in merged_lines(map(encode_record, own), part, None)]
    keys = [ConfigRecord.from_json(item).key for item in everything]
    assert keys == sorted(set(keys)) and len(keys) == 4
    assert all(item["config"] == {"BLOCK": 64} for item in everything)
    assert len(list(merged_lines(map(encode_record, own), part, H200.key))) == 3


@pytest.mark.parametrize("seed", range(3))
def test_a_bundle_has_what_dicts_of_own_and_their_records_say(
    sqlite_url: str, tmp_path: Path, predictor: Callable[..., Predictor], seed: int
):
    """Of one key the own record and the own predictor; of one device what is for it; as old as the newest of them."""
    rng = random.Random(seed)
    devices = [H200, replace(H200, name="NVIDIA B300")]

    def made() -> tuple[list[ConfigRecord], list[Predictor]]:
        """Each with a time of its own, by which it is known."""
        records = [record(rng.randint(1, 4), device=rng.choice(devices), created_at=time()) for _ in range(5)]
        predictors = [
            predictor(kernel_hash=KERNEL, device=device, dtype=dtype, created_at=time())
            for device, dtype in itertools.product(devices, ("f32", "bf16"))
            if rng.random() < 0.6
        ]
        return sorted({item.key: item for item in records}.values(), key=lambda item: item.key), predictors

    def time() -> str:
        return datetime.fromtimestamp(1.7e9 + rng.randrange(10**7), UTC).isoformat()

    migrations.upgrade(sqlite_url)
    store = ServiceStore.open(sqlite_url)
    (records, predictors), (theirs, their_predictors) = made(), made()
    with store.write() as tx:
        for item in records:
            put_record(tx, item, None)
    write_bundle(tmp_path / FILE_NAME, [], predictors=predictors)
    bundles = Bundles(tmp_path, store, Predictors(tmp_path / FILE_NAME), service="http://here")
    part = Part(tuple(theirs), tuple(their_predictors), version="1")
    for device in (None, *(device.key for device in devices)):
        bundle = read_bundle(bundles.latest(KERNEL, device, part).path)
        for found, here, there in (
            (bundle.records(), records, theirs),
            (bundle.predictors(), predictors, their_predictors),
        ):
            model = {item.key: item.created_at for item in (*there, *here) if device in (None, item.device.key)}
            assert {item.key: item.created_at for item in found} == model
        times = [
            item.created_at
            for item in (*records, *theirs, *predictors, *their_predictors)
            if device in (None, item.device.key)
        ]
        known = {item.key for item in predictors}
        hidden = [item.created_at for item in their_predictors if item.key in known]
        assert bundle.manifest.created_at == max(time for time in times if time not in hidden)
    store.close()
