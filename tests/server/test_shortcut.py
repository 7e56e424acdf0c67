"""Lookups past the routing answer as the route does: the same status, document, headers and counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import quote_plus, urlencode

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from stores import context_of

from deuteron.server import ServiceStore, Settings, shortcut
from deuteron.server.api.configs import LOOKUP_PATH, plain_question
from deuteron.server.configs import put_record
from deuteron.server.shortcut import LookupShortcut
from deuteron.tuner import ConfigRecord

HASH = "a" * 64
QUESTION = {"kernel": HASH, "device": "cpu", "shape": "M=64,N=64"}

MakeRecord = Callable[..., ConfigRecord]


@pytest.fixture
def shortened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries that went past the routing."""
    taken: list[str] = []
    original = LookupShortcut._answer

    async def noting(self: LookupShortcut, scope: dict[str, bytes]) -> object:
        answer = await original(self, scope)
        if answer is not None:
            taken.append(scope["query_string"].decode())
        return answer

    monkeypatch.setattr(LookupShortcut, "_answer", noting)
    return taken


@pytest.fixture
def tuned(client: TestClient, make_record: MakeRecord) -> TestClient:
    """A service that has records of two dtypes and remembers them; its lookups' clock stands still."""
    context = context_of(client)
    context.lookups._clock = lambda: 5.0
    with context.store.write() as tx:
        for dtype in ("f32", "bf16"):
            for size in (64, 128, 4096):
                put_record(tx, make_record({"M": size, "N": 64}, dtype), None)
    for dtype in ("f32", "bf16", "f16"):
        client.get(LOOKUP_PATH, params={**QUESTION, "dtype": dtype, "shape": "M=96,N=64"})
    return client


def text(*common: str) -> st.SearchStrategy[str]:
    usual = st.sampled_from(common)
    return st.one_of(usual, usual, usual, usual, usual, usual, st.text(max_size=8))


FIELDS = {
    "kernel": text(*[HASH] * 6, "softmax", "nobody"),
    "device": text("cpu", "cpu", "cpu", "Test CPU", "cuda"),
    "shape": st.one_of(
        st.builds("M={},N={}".format, st.sampled_from([64, 96, 128, 4096, 10**9, 0]), st.sampled_from([64, 65])),
        text("N=64,M=64", "M=3000,N=64", " M = 64 ,N=6_4", "M=64", "M=1,N=1,M=1", "M=64,N=", "", "M=1,K=1", "M=-1"),
    ),
    "dtype": text("f32", "f32", "bf16", "f16"),
    "toolchain": text('{"deuteron": "0.1.0", "llvm": "20"}', '{"llvm": "21"}', "{}", "[]", "null", '{"a": 1}', ""),
    "strict": text("true", "false", "1", "on", "TRUE"),
    "extra": text("1"),
}


@st.composite
def queries(draw: st.DrawFn) -> str:
    names = ["kernel", "device", "shape"]
    names += [name for name in ("dtype", "toolchain", "strict") if draw(st.integers(0, 2)) == 2]
    if draw(st.integers(0, 9)) == 9:
        names.remove(draw(st.sampled_from(names)))
    if draw(st.integers(0, 9)) == 9:
        names.append(draw(st.sampled_from(["extra", *names])))
    pairs = [(name, draw(FIELDS[name])) for name in draw(st.permutations(names))]
    encode = draw(st.sampled_from([quote_plus, lambda value, *_: quote_plus(value, safe="=,")]))
    query = urlencode(pairs, quote_via=encode)
    return query + draw(st.sampled_from([*[""] * 8, "&", "&kernel", "&%C3%28=1", "&dtype=%ff"]))


def ask(client: TestClient, query: str) -> tuple[int, object, dict[str, str], list[str]]:
    """Status, document, headers, and what the metrics count for it."""
    before = counts(client)
    answer = client.get(f"{LOOKUP_PATH}?{query}")
    after = counts(client)
    headers = {key: value for key, value in answer.headers.items() if key != "date"}
    return answer.status_code, answer.json(), headers, sorted(after - before)


def counts(client: TestClient) -> set[str]:
    lines = context_of(client).metrics.render().splitlines()
    return {line for line in lines if "_total" in line or "seconds_count" in line}


@given(query=queries())
@hypothesis_settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def compare(tuned: TestClient, query: str) -> None:
    tuned.get(f"{LOOKUP_PATH}?{query}")  # what the names stand for is remembered from here on
    quick = ask(tuned, query)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shortcut, "plain_question", lambda query: None)
        slow = ask(tuned, query)
    assert quick[:3] == slow[:3]
    # The counts themselves grow: what is compared is which of them do.
    assert [line.rpartition(" ")[0] for line in quick[3]] == [line.rpartition(" ")[0] for line in slow[3]]


def test_both_ways_answer_alike(tuned: TestClient, shortened: list[str]) -> None:
    compare(tuned)
    assert len(shortened) >= 10, "hardly a query went past the routing: the comparison says nothing"
    assert all(plain_question(query.encode()) is not None for query in shortened)


def test_a_plain_lookup_goes_past_the_routing_and_a_refusal_does_not(tuned: TestClient, shortened: list[str]) -> None:
    plain = urlencode(QUESTION)
    for query in (plain, f"{plain}&strict=true", f"{plain}&dtype=bf16&toolchain=%7B%7D"):
        assert tuned.get(f"{LOOKUP_PATH}?{query}").status_code == 200
    assert len(shortened) == 3
    assert tuned.head(f"{LOOKUP_PATH}?{plain}").status_code == 200
    assert len(shortened) == 4
    assert tuned.post(f"{LOOKUP_PATH}?{plain}", json={}).status_code == 422, "what is asked for is in the body"
    for query in ("", f"{plain}&strict=1", f"{plain}&dtype=f32&dtype=f32", f"{plain}&shap=M"):
        tuned.get(f"{LOOKUP_PATH}?{query}")
    assert tuned.get(f"{LOOKUP_PATH}?{plain[:-1]}5&strict=true").status_code == 404
    assert len(shortened) == 4


@pytest.fixture
def guarded(
    settings: Settings, open_client: Callable[..., TestClient], make_record: MakeRecord
) -> Iterator[tuple[TestClient, str, str]]:
    client = open_client(replace(settings, auth="tokens"))
    with context_of(client).store.write() as tx:
        put_record(tx, make_record({"M": 64, "N": 64}), None)
        token, secret = tx.tokens.create("ci", ["read"])
    headers = {"Authorization": f"Bearer {secret}"}
    context_of(client).lookups._clock = lambda: 5.0
    for size in (96, 64):
        assert client.get(LOOKUP_PATH, params={**QUESTION, "shape": f"M={size},N=64"}, headers=headers).is_success
    yield client, token.id, secret


def test_tokens_are_asked_for_on_the_way(guarded: tuple[TestClient, str, str], shortened: list[str]) -> None:
    client, token_id, secret = guarded
    headers = {"Authorization": f"bearer  {secret}"}
    assert client.get(LOOKUP_PATH, params=QUESTION, headers=headers).status_code == 200
    assert client.get(LOOKUP_PATH, params=QUESTION, cookies={"deuteron_token": secret}).status_code == 200
    client.cookies.clear()
    assert len(shortened) == 2
    for wrong in ({}, {"Authorization": "Bearer dtn_wrong"}, {"Authorization": secret}):
        answer = client.get(LOOKUP_PATH, params=QUESTION, headers=wrong)
        assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
    elsewhere = ServiceStore.open(context_of(client).settings.database_url)
    with elsewhere.write() as tx:
        tx.tokens.revoke(token_id)
    elsewhere.close()
    assert client.get(LOOKUP_PATH, params=QUESTION, headers=headers).status_code == 401
    assert len(shortened) == 2


def test_what_a_name_stands_for_is_asked_again_when_it_may_have_changed(
    tuned: TestClient, make_record: MakeRecord
) -> None:
    """Trials of a running job leave it be; a kernel, a device or a record does not."""
    named = {**QUESTION, "kernel": "mine"}
    assert tuned.get(LOOKUP_PATH, params=named).status_code == 404
    store = context_of(tuned).store
    with store.read() as tx:
        before = tx.versions()
    source = "@triton.jit\ndef mine(x_ptr, n, BLOCK: tl.constexpr):\n    ...\n"
    kernel = tuned.post("/v1/kernels", json={"name": "mine", "text": source}).json()
    assert tuned.get(LOOKUP_PATH, params=named).json()["match"] == "default"
    with store.write() as tx:
        put_record(tx, make_record({"M": 64, "N": 64}, kernel_hash=kernel["hash"]), None)
    assert tuned.get(LOOKUP_PATH, params=named).json()["match"] == "exact"
    device = {"kind": "cpu", "name": "Another CPU"}
    assert tuned.post("/v1/worker/devices", json={"worker": "w", "devices": [device]}).status_code == 200
    assert tuned.get(LOOKUP_PATH, params=named).json()["type"].endswith("ambiguous-device")
    with store.read() as tx:
        changed = dict(tx.versions())
    assert {name for name in changed if changed[name] != dict(before).get(name, 0)} == {"configs", "devices", "kernels"}
    job = {"workload": "softmax", "shapes": [{"M": 8, "N": 8}]}
    tuned.post("/v1/jobs", json=job)
    with store.read() as tx:
        after_kernel = tx.versions()
    tuned.post("/v1/jobs", json={**job, "seed": 1})
    with store.read() as tx:
        assert tx.versions() == after_kernel, "the kernel was stored already"


def test_many_exact_lookups_of_a_group_read_it_once(
    client: TestClient, make_record: MakeRecord, shortened: list[str]
) -> None:
    context = context_of(client)
    context.lookups._clock = lambda: 5.0
    with context.store.write() as tx:
        put_record(tx, make_record({"M": 64, "N": 64}), None)
    for _ in range(20):
        assert client.get(LOOKUP_PATH, params=QUESTION).json()["match"] == "exact"
    assert len(shortened) == 20 - 9
