"""The OpenAPI page says what the service does: what a run of schemathesis found, and the rules behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from deuteron.server import Settings, api

JOB = {"workload": "softmax", "shapes": [{"M": 8, "N": 8}]}
relaxed = hypothesis_settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def document(client: TestClient) -> dict[str, Any]:
    return dict(client.get("/openapi.json").json())


def parts(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for key, item in value.items():
            if key not in ("example", "examples", "default"):
                yield from parts(item)
    elif isinstance(value, list):
        for item in value:
            yield from parts(item)


def submit(client: TestClient) -> str:
    return str(client.post("/v1/jobs", json=JOB).json()["id"])


def test_every_module_with_a_router_is_served(document: dict[str, Any]) -> None:
    modules = [import_module(f"deuteron.server.api.{info.name}") for info in iter_modules(api.__path__)]
    routes = [route.path for module in modules if hasattr(module, "router") for route in module.router.routes]
    assert len(routes) > 30 and set(routes) <= set(document["paths"])


def test_every_text_is_described_without_nul(document: dict[str, Any]) -> None:
    said = ("pattern", "enum", "const", "format", "contentMediaType")
    texts = [part for part in parts(document) if part.get("type") == "string"]
    assert len(texts) > 50
    assert [text for text in texts if not any(key in text for key in said)] == []
    free = next(text["pattern"] for text in texts if "\\x00" in text.get("pattern", ""))
    assert re.search(free, "a\nb") and not re.search(free, "a\0b")


def test_no_parameter_is_null(document: dict[str, Any]) -> None:
    parameters = [part for part in parts(document["paths"]) if "in" in part]
    assert len(parameters) > 20
    assert [item["name"] for item in parameters if {"type": "null"} in item["schema"].get("anyOf", [])] == []


def test_limits_are_said_in_words_of_json_schema(document: dict[str, Any]) -> None:
    assert [part for part in parts(document) if {"ge", "gt", "le", "lt"} & part.keys()] == []
    lifetime = document["components"]["schemas"]["TokenBody"]["properties"]["expires_in_seconds"]["anyOf"][0]
    assert lifetime["minimum"] == 1


@given(value=st.one_of(st.booleans(), st.integers(1, 99).map(str), st.just("1.5"), st.just(None), st.floats(0.1, 0.9)))
@relaxed
def test_only_numbers_are_numbers(client: TestClient, value: object) -> None:
    for body in ({**JOB, "seed": value}, {**JOB, "shapes": [{"M": value, "N": 8}]}):
        answer = client.post("/v1/jobs", json=body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["type"].endswith(":invalid-request")


@given(value=st.one_of(st.integers(0, 1), st.sampled_from(["true", "yes", "", 0.0, 1.0])))
@relaxed
def test_only_true_and_false_are_booleans(client: TestClient, value: object) -> None:
    assert client.post("/v1/jobs", json={**JOB, "budget": {"settle": value}}).status_code == 422
    assert client.post("/v1/workloads/validate", json={**JOB, "compile": value}).status_code == 422


def test_a_number_with_a_fraction_of_zero_is_an_integer(client: TestClient) -> None:
    answer = client.post("/v1/jobs", json={**JOB, "seed": 5.0, "shapes": [{"M": 8.0, "N": 8}]})
    assert answer.status_code == 202, answer.text
    spec = client.get(answer.json()["links"]["self"]).json()["spec"]
    assert (spec["seed"], spec["shapes"]) == (5, [{"M": 8, "N": 8}])


@given(number=st.integers(2**31, 2**80))
@relaxed
def test_event_numbers_have_an_end(client: TestClient, number: int) -> None:
    """SQLite raised in the middle of a stream that had begun with 200."""
    job = client.get("/v1/jobs").json()["jobs"] or [{"id": submit(client)}]
    answer = client.get(f"/v1/jobs/{job[0]['id']}/events", params={"after": number})
    assert (answer.status_code, answer.json()["errors"][0]["where"]) == (422, "query.after")
    delivery = {"claim_id": "a.b", "events": [{"sequence": number, "event": {"kind": "job_finished"}}]}
    assert client.post(f"/v1/worker/jobs/{job[0]['id']}/events", json=delivery).status_code == 422


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/configs", "/v1/jobs/{id}/trials"])
def test_an_empty_cursor_is_none_of_ours(client: TestClient, path: str) -> None:
    answer = client.get(path.replace("{id}", submit(client)), params={"cursor": ""})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:deuteron:problem:bad-cursor")


@pytest.mark.parametrize("method", ["OPTIONS", "PATCH"])
def test_a_405_names_every_method_of_the_address(client: TestClient, document: dict[str, Any], method: str) -> None:
    for path, described in document["paths"].items():
        answer = client.request(method, re.sub(r"\{\w+\}", "x", path))
        assert answer.status_code == 405, path
        methods = {name.upper() for name in described}
        assert set(answer.headers["allow"].split(", ")) == methods | ({"HEAD"} if "GET" in methods else set()), path
        assert answer.json()["hint"] == f"allowed: {answer.headers['allow']}"
    assert set(client.patch("/login").headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}


def test_the_document_is_made_once(settings: Settings, open_client: Callable[..., TestClient]) -> None:
    client = open_client(settings)
    assert client.app.openapi() is client.app.openapi()  # type: ignore[attr-defined]


@relaxed
@given(
    st.one_of(
        st.text(min_size=1, max_size=20), st.text("a\x00\t\n\r\x7f\x90\u061c\u200e\u202e\u2069\U0001f600é ", min_size=1)
    )
)
@example("a\x90")
@example("\U0001f600")
def test_the_pattern_of_names_of_tokens_is_what_is_taken(client: TestClient, name: str) -> None:
    document = client.get("/openapi.json").json()
    pattern = document["components"]["schemas"]["TokenBody"]["properties"]["name"]["pattern"]
    answer = client.post("/v1/tokens", json={"name": name, "scopes": ["read"]})
    taken = re.search(pattern, name) is not None
    assert answer.status_code == (201 if taken else 400 if "\0" in name else 422), answer.text


def test_parts_and_what_has_not_changed_are_described(client: TestClient, document: dict[str, Any]) -> None:
    """Of every address that sends a file."""
    for path in ("/v1/bundles/latest", "/v1/bundles/latest/pieces"):
        said = document["paths"][path]["get"]["responses"]
        assert client.get(path, headers={"Range": "bytes=0-0"}).status_code == 206
        assert client.get(path, headers={"If-None-Match": "*"}).status_code == 304
        assert {"206", "304"} <= said.keys()
    for path in ("/v1/bundles/{sha256}", "/v1/bundles/{sha256}/pieces", "/v1/jobs/{job_id}/profile"):
        assert {"206", "304"} <= document["paths"][path]["get"]["responses"].keys()
