"""Services that ask another one for what they have not, over real HTTP: chains, loops and outages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from answering import AnsweringServer, send
from msgspec.structs import replace
from upstream_records import H200, KERNEL, record

from deuteron.server import Client, ServiceStore
from deuteron.server.client import ServiceError
from deuteron.server.configs import put_record
from deuteron.server.predictors import FILE_NAME
from deuteron.tuner import ConfigRecord, read_bundle, write_bundle
from deuteron.tuner.records import Predictor
from deuteron.tuner.records.trust import KeyFolder

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


def test_an_upstream_that_is_down(start: Start):
    """Own answers go on, and say so."""
    gone = AnsweringServer(lambda handler: send(handler, 200, b""))
    gone.close()
    url = start("alone", [record(8)], upstream=gone.url)
    assert look(url, 8)["upstream"] is None
    near = look(url, 9)
    assert (near["match"], near["upstream"]) == ("nearest_shape", "unreachable")
    assert f"the upstream {gone.url} was not reached" in near["reason"]
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
