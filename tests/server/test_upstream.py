"""Services that ask another one for what they have not: chains, loops, outages and forgeries, over real HTTP."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from answering import AnsweringServer, send
from msgspec.structs import replace

from deuteron import migrations
from deuteron.server import Client, ServiceStore, upstream
from deuteron.server.bundles import Bundles
from deuteron.server.client import ServiceError
from deuteron.server.configs import put_record
from deuteron.server.metrics import Metrics
from deuteron.server.predictors import FILE_NAME, Predictors
from deuteron.server.upstream import FRESH_S, KEPT_S, MOST_HOPS, Part, Upstream, merged_lines, services_in
from deuteron.tuner import ConfigRecord, DeviceFingerprint, encode_record, read_bundle, write_bundle
from deuteron.tuner.measure.statistics import Interval
from deuteron.tuner.records import Predictor
from deuteron.tuner.records.reach import Reach
from deuteron.tuner.records.signature import SigningKey
from deuteron.tuner.records.trust import KeyFolder

H200 = DeviceFingerprint(kind="cuda", name="NVIDIA H200", compute_capability=(9, 0))
KERNEL = "ab" * 32
TIME = Interval(1000.0, 990.0, 1010.0, 20)


def record(m: int, block: int = 64, **more: Any) -> ConfigRecord:
    """A record of the kernel for M=m."""
    fields: dict[str, Any] = {
        "kernel_hash": KERNEL,
        "device": H200,
        "shape": {"M": m},
        "toolchain": {"compiler": "1"},
        **more,
    }
    return ConfigRecord(
        kernel_name="kernel",
        dtype="f32",
        config={"BLOCK": block},
        default_config={"BLOCK": 32},
        time_ns=TIME,
        default_time_ns=TIME,
        speedup=TIME,
        verdict="FASTER",
        trials=3,
        checked=True,
        reach=Reach(sizes={"M": 1 << 62}),
        **fields,
    )


Start = Callable[..., str]


@pytest.fixture
def start(live_service: Callable[..., str], tmp_path: Path) -> Start:
    """``start("name", [records], **settings)``: a service that has them."""

    def go(name: str, records: list[ConfigRecord], **fields: Any) -> str:
        url = live_service(tmp_path / name, **fields)
        store = ServiceStore.open(f"sqlite:///{tmp_path / name / 'deuteron.db'}")
        with store.write() as tx:
            for item in records:
                put_record(tx, item, None)
        store.close()
        return url

    return go


def look(url: str, m: int, **more: Any) -> dict[str, Any]:
    asked = {"kernel": KERNEL, "device": "NVIDIA H200", "shape": f"M={m}", **more}
    return dict(httpx.get(f"{url}/v1/configs/lookup", params=asked).raise_for_status().json())


def counts(url: str) -> dict[str, float]:
    """How often the upstream was asked, by outcome."""
    text = httpx.get(f"{url}/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("deuteron_upstream_requests_total")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}


def test_a_chain_of_three(start: Start, tmp_path: Path):
    """Laptop, cluster, company: each answers for what those before it have not, and the record says whose it is."""
    company = start("company", [record(4096, 1), record(512, 2)])
    cluster = start("cluster", [record(512, 3), record(64, 4)], upstream=company)
    laptop = start("laptop", [record(8, 5)], upstream=cluster)
    for m, block, site in ((4096, 1, company), (512, 3, cluster), (64, 4, cluster), (8, 5, None)):
        found = look(laptop, m)
        assert (found["match"], found["config"]["BLOCK"], found["record"]["site"]) == ("exact", block, site), m
        assert found["upstream"] == (None if site is None else "reached")
        assert (f"; from {site}" in found["reason"]) == (site is not None)
    near = look(laptop, 4000)
    assert (near["match"], near["config"]["BLOCK"], near["record"]["site"]) == ("nearest_shape", 1, company)
    assert look(laptop, 10)["config"] == {"BLOCK": 5}, "of two that are near the own one"
    assert counts(laptop) == {"fetched": 1, "kept": 4}, "one request for all of a kernel"
    assert look(laptop, 4096, strict="true")["match"] == "exact"
    named = look(laptop, 4096, kernel=KERNEL, device="cuda")
    assert named["match"] == "exact", "a kind of which the own store knows one device"
    assert "deuteron_upstream_answers_total{" in httpx.get(f"{laptop}/metrics").text

    # The bundle of a kernel has what the chain has, signed by who hands it out.
    with Client(laptop) as client:
        client.pull_bundle(tmp_path / "b", kernel=KERNEL)
        bundle = read_bundle(tmp_path / "b")
        assert [(r.shape["M"], r.config["BLOCK"], r.site) for r in bundle.records()] == [
            (4096, 1, company),
            (512, 3, cluster),
            (64, 4, cluster),
            (8, 5, None),
        ]
        own = KeyFolder(tmp_path / "laptop" / "keys").own()
        assert bundle.manifest.signature is not None and own is not None
        assert bundle.manifest.signature.key == own.public_key
        with pytest.raises(ServiceError, match="only other shapes were tuned"):
            client.lookup(KERNEL, "NVIDIA H200", {"M": 7}, "f32", strict=True)
        answers = client._http.send(
            "POST",
            "/v1/configs/lookup",
            json={"lookups": [{"kernel": KERNEL, "device": "NVIDIA H200", "shape": {"M": 4096}, "dtype": "f32"}]},
        ).json()["answers"]
        assert answers[0]["record"]["site"] == company


def test_services_in_a_loop_answer(start: Start, tmp_path: Path):
    """Each asks the other, and a question that came back is not asked again."""
    from deuteron.server.listen import bind
    from deuteron.server.settings import Settings

    with bind(Settings(home=tmp_path, port=0, scheduler="none")) as probe:
        port = probe.getsockname()[1]
    first = start("first", [record(8, 1)], upstream=f"http://127.0.0.1:{port}")
    second = start("second", [record(512, 2)], upstream=first, listen_on=port)
    assert look(first, 512)["config"] == {"BLOCK": 2}
    assert look(second, 8)["config"] == {"BLOCK": 1}
    assert look(first, 100_000)["match"] == "default"
    assert counts(first)["loop"] == 1 and counts(second).get("unreachable") is None


class Fake(AnsweringServer):
    """An upstream written by hand, which counts requests."""

    def __init__(self) -> None:
        self.body, self.status, self.seen = b"", 200, list[dict[str, str]]()
        self.state = "reached"
        super().__init__(self.answer)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.seen.append({name.lower(): value for name, value in handler.headers.items()})
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


def test_an_upstream_that_is_down(start: Start, fake: Fake):
    """Own answers go on, and say so."""
    fake.close()
    url = start("alone", [record(8)], upstream=fake.url)
    assert look(url, 8)["upstream"] is None
    near = look(url, 9)
    assert (near["match"], near["upstream"]) == ("nearest_shape", "unreachable")
    assert f"the upstream {fake.url} was not reached" in near["reason"]
    for m in (10, 11, 12):
        assert look(url, m)["upstream"] == "unreachable"
    assert counts(url) == {"unreachable": 1, "skipped": 3}
    answer = httpx.get(f"{url}/v1/bundles/latest", params={"kernel": KERNEL})
    assert (answer.status_code, answer.headers["Deuteron-Upstream"]) == (200, "unreachable")
    missing = httpx.get(
        f"{url}/v1/configs/lookup", params={"kernel": "nothing", "device": "cuda", "shape": "M=1"}
    ).json()
    assert missing["status"] == 404 and "was not reached" in missing["detail"]
    strict = {"kernel": KERNEL, "device": "NVIDIA H200", "shape": "M=9", "strict": "true"}
    refused = httpx.get(f"{url}/v1/configs/lookup", params=strict).json()
    assert refused["status"] == 404 and "was not reached" in refused["detail"]


def answer_with(url: str, m: int, toolchain: dict[str, str]) -> dict[str, Any]:
    asked = {"kernel": KERNEL, "device": "NVIDIA H200", "shape": {"M": m}, "dtype": "f32", "toolchain": toolchain}
    return dict(
        httpx.post(f"{url}/v1/configs/lookup", json={"lookups": [asked]}).raise_for_status().json()["answers"][0]
    )


def test_a_chain_answers_as_one_service_with_both_records(start: Start):
    """A near shape of this toolchain beats a far one of another; boards of one name and other dims stand together."""
    board = {watts: replace(H200, power_cap_watts=watts) for watts in (600.0, 700.0)}
    own = [record(1000, 1), record(64, 3, device=board[600.0])]
    theirs = [
        record(8192, 9, toolchain={"compiler": "old"}),
        record(4096, 4, device=board[700.0]),
        record(0, 5, shape={"rows": 64}),
    ]
    company = start("company", theirs)
    laptop, both = start("laptop", own, upstream=company), start("both", own + theirs)
    for m in (1024, 8192, 64, 4096):
        found, whole = (answer_with(url, m, {"compiler": "1"}) for url in (laptop, both))
        assert (found["match"], found["config"]) == (whole["match"], whole["config"]), m
    assert answer_with(laptop, 1024, {"compiler": "1"})["config"] == {"BLOCK": 1}
    rows = look(laptop, 0, shape="rows=64")
    assert (rows["match"], rows["config"], rows["upstream"]) == ("exact", {"BLOCK": 5}, "reached")
    wrong = {"kernel": KERNEL, "device": "NVIDIA H200", "shape": "columns=3"}
    assert httpx.get(f"{laptop}/v1/configs/lookup", params=wrong).status_code == 422
    alone = start("alone", [record(4096, 4, device=item) for item in board.values()])
    for m, url in ((4096, start("empty", [], upstream=alone)), (4096, alone)):
        assert look(url, m, device=board[600.0].key)["match"] == "exact"


def test_predictions_of_the_upstream_are_answers_and_in_the_bundle(
    start: Start, tmp_path: Path, predictor: Callable[..., Predictor]
):
    made = predictor(kernel_hash=KERNEL, device=H200)
    (tmp_path / "company").mkdir()
    write_bundle(tmp_path / "company" / FILE_NAME, [], predictors=[made])
    company = start("company", [record(0, 1, shape={"M": 64, "N": 64})])
    laptop = start("laptop", [record(0, 2, shape={"M": 1, "N": 64})], upstream=company)
    found, whole = (look(url, 0, shape="M=96,N=64") for url in (laptop, company))
    assert found["match"] == whole["match"] == "predicted" and found["config"] == whole["config"]
    with Client(laptop) as client:
        client.pull_bundle(tmp_path / "b", kernel=KERNEL)
    assert list(read_bundle(tmp_path / "b").predictors()) == [made]


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
