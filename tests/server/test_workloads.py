"""Trying a workload without a job, and refusing at submission what cannot run."""

from __future__ import annotations

import copy
import unicodedata
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from deuteron.server import Settings, checking
from deuteron.server.api.schemas.jobs import SCALE_JOB
from deuteron.tuner import BUILTINS, WorkloadSpec, builtin_workload
from deuteron.tuner.enumeration import Meter
from deuteron.tuner.space import Configuration, Space
from deuteron.tuner.workloads.schema import DESCRIPTIONS, workload_schema


def job(**changes: Any) -> dict[str, Any]:
    """The job of the documentation, its workload with other fields."""
    made = copy.deepcopy(SCALE_JOB)
    made["workload"].update(changes)
    return made


def kernel(*changes: str) -> dict[str, Any]:
    """That of the documentation with some texts, each before what takes its place."""
    text = SCALE_JOB["workload"]["kernel"]
    source = text["source"]
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in source
        source = source.replace(old, new)
    return {**text, "source": source}


def times(constant: str) -> dict[str, Any]:
    """A kernel that multiplies by a constant of its text, which is in line 4."""
    return kernel("@triton", f"W: tl.constexpr = {constant}\n@triton", ") * factor", ") * W")


def space(constraint: str) -> dict[str, Any]:
    return {"parameters": {"BLOCK": [256]}, "constraints": [constraint]}


TENSOR = {"name": "y_ptr", "shape": ["n"], "role": "output"}
#: An expression of 140 nodes.
LONG = " + ".join(["n * n"] * 35)
VAST = {"parameters": {name: list(range(1, 1025)) for name in ("BLOCK", "B")}, "constraints": ["BLOCK + B < 0"]}


def tensors(shape: list[str]) -> dict[str, Any]:
    return {"tensors": [{"name": "x_ptr", "shape": shape}, TENSOR]}


def refused(client: TestClient, document: dict[str, Any]) -> list[dict[str, Any]]:
    """The errors of a job, which validation must name alike."""
    submitted = client.post("/v1/jobs", json=document)
    assert submitted.status_code == 422, submitted.text
    assert client.get("/v1/jobs").json()["jobs"] == []
    tried = client.post("/v1/workloads/validate", json=document)
    assert tried.status_code == 200, tried.text
    assert not tried.json()["valid"]
    errors: list[dict[str, Any]] = tried.json()["errors"]
    assert errors[0]["message"].split("\n")[0] in submitted.json()["detail"]
    return errors


def test_a_sound_workload(client: TestClient) -> None:
    answer = client.post("/v1/workloads/validate", json=SCALE_JOB).json()
    assert answer["valid"] and answer["errors"] == []
    assert (answer["target"], answer["configurations"], answer["default"]) == ("cpu", 3, {"BLOCK": 256})
    first, second = answer["compiled"]
    assert (first["role"], first["status"], first["grid"]) == ("default", "ok", [4096])
    assert (second["role"], second["status"]) == ("random", "ok")
    assert second["config"] != first["config"]
    assert client.get("/v1/jobs").json()["jobs"] == []
    made = client.post("/v1/jobs", json=SCALE_JOB)
    assert made.status_code == 202
    assert made.json()["kernel_hash"] == answer["kernel_hash"]


def test_fields_alone_are_checked_without_a_compiler(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise AssertionError("nothing is compiled")

    monkeypatch.setattr("deuteron.server.checking.compile_some", broken)
    answer = client.post("/v1/workloads/validate", json={**SCALE_JOB, "compile": False}).json()
    assert answer["valid"] and answer["compiled"] == []


@pytest.mark.parametrize(
    ("changes", "where", "message"),
    [
        ({"grid": ["2 ** 60"]}, "workload.grid", "cannot be launched"),
        ({"grid": ["n - n"]}, "workload.grid", "cannot be launched"),
        ({"grid": ["'a' + 1"]}, "workload.grid", "arithmetic on the text"),
        ({"grid": ["n // 0"]}, "workload.grid", "division by zero"),
        ({"grid": ["2 ** 2 ** 40"]}, "workload.grid", "1024 bits"),
        ({"grid": ["cdiv(m, BLOCK)"]}, "workload.grid[0]", "unknown name 'm'"),
        ({"scalars": {"n": "'text'", "factor": 1}}, "workload.scalars.n", "not a number"),
        ({"scalars": {"n": "n"}}, "workload.tensors", "does not describe the argument 'factor'"),
        ({"scalars": {"n": "n", "factor": 1, "extra": 2}}, "workload.tensors", "no run-time argument 'extra'"),
        ({"scalars": {"n": "n / (n - n)", "factor": 1}}, "workload.scalars.n", "division by zero"),
        ({"constexprs": {"BLOKC": 4}}, "workload.constexprs.BLOKC", "no constexpr 'BLOKC'"),
        ({"space": {"parameters": {"WIDTH": [4]}}, "grid": ["n"]}, "workload.spaces.any", "constexpr 'BLOCK'"),
        ({"space": space("BLOCK > n")}, "workload.spaces.any", "no configuration"),
        ({"space": space("BLOCK < m")}, "workload.spaces.any.constraints", "'m'"),
        ({"reference": "numpy"}, "workload.reference", "unknown reference 'numpy'"),
        ({"flops": "n / 0"}, "workload.flops", "division by zero"),
        ({"bytes": "'many'"}, "workload.bytes", "not a number"),
        ({"dims": ["n", "dtype"]}, "workload.dims", "distinct names"),
        ({"tensors": [{"name": "x_ptr", "shape": ["n"]}]}, "workload.tensors", "role output"),
        ({"tensors": [{"name": "x_ptr", "shape": ["n"], "role": "out"}]}, "workload", "role 'out' is not possible"),
        ({"tensors": "x"}, "workload.tensors", "expected"),
        ({"colour": 1}, "workload", "colour"),
        (tensors(["2 ** 500"] * 3), "workload.tensors[0].shape[0]", "'2 ** 500' is 32733"),
        (tensors(["2 ** 60"] * 32), "shapes", "far too many GiB together"),
        (tensors(["n"] * 20_000), "workload.tensors[0].shape", "20000 axes"),
        ({"tensors": [TENSOR] * 20_000}, "workload.tensors", "20000 tensors"),
        ({"scalars": {f"a{i}": "1" for i in range(20_000)}}, "workload.scalars", "20000 scalars"),
        ({"constexprs": {f"a{i}": 1 for i in range(20_000)}}, "workload.constexprs", "20000 constexprs"),
        ({"dims": [f"d{i}" for i in range(20_000)]}, "workload.dims", "20000 dims"),
        ({"grid": ["1"] * 20_000}, "workload.grid", "20000 axes"),
        ({"spaces": {f"a{i}": space("True") for i in range(9)}}, "workload.spaces", "9 spaces"),
        ({"constexprs": {f"a{i}": LONG for i in range(100)}}, "workload", "names, numbers and operators together"),
        ({"scalars": {"n": "2 ** 64", "factor": 1}}, "workload.scalars.n", "is 18446744073709551616 at n="),
        ({"flops": "(1 << 1023) + ((1 << 1023) - 1)"}, "workload.flops", "which floats do not hold"),
        ({"bytes": "1 << 900"}, "workload.bytes", "'1 << 900' is 8.45271e+270 at n="),
        ({"space": VAST}, "workload.spaces.any", "too large to list"),
        ({"kernel": kernel("tl.arange", "tl.nowhere")}, "workload.kernel", "nowhere"),
        ({"kernel": kernel("i < n) * factor", "i < n) @ factor")}, "workload.kernel", "does not compile"),
        ({"kernel": kernel("def scale(", "def scale(((")}, "workload.kernel", ""),
        ({"kernel": times("10 ** 10 ** 8")}, "workload.kernel line 4", "256 bits"),
        ({"kernel": times("[i for i in range(9)]")}, "workload.kernel line 4", "is not a constant"),
        ({"kernel": kernel("constexpr):", "constexpr, C: tl.constexpr = D):")}, "workload.kernel", "'C' is not known"),
        ({"kernel": {**kernel("", ""), "name": "other"}}, "workload.kernel", "other"),
    ],
    ids=lambda value: str(value)[:50] if isinstance(value, dict) else None,
)  # fmt: skip
def test_what_cannot_run_is_refused_with_its_field(
    client: TestClient, changes: dict[str, Any], where: str, message: str
) -> None:
    errors = refused(client, job(**changes))
    assert errors[0]["where"].startswith(where)
    assert message in errors[0]["message"]


def test_a_space_is_searched_for_a_default_once(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[Meter | None] = []
    search = Space.nearest

    def counted(space: Space, preferred: Configuration, meter: Meter | None = None) -> dict[str, Any]:
        searches.append(meter)
        return search(space, preferred, meter)

    monkeypatch.setattr(Space, "nearest", counted)
    refused(client, {**job(space=space("BLOCK > 256")), "shapes": [{"n": 1024 + i} for i in range(50)]})
    assert len(searches) == 2, "once for the job and once for the validation"
    assert all(meter is not None for meter in searches)


@pytest.mark.parametrize("device", ["cuda:0\n", "cuda:\u0663", "cuda:" + "9" * 60, "cpu\n"])
def test_devices_are_spelled_in_one_way(client: TestClient, device: str) -> None:
    for address in ("/v1/jobs", "/v1/workloads/validate"):
        answer = client.post(address, json={**job(), "device": device})
        assert answer.status_code == 422, answer.text


def test_sizes_are_checked_at_every_shape(client: TestClient) -> None:
    tensors = [{"name": "x_ptr", "shape": ["n - 2000"]}, {"name": "y_ptr", "shape": ["n"], "role": "output"}]
    document = {**job(tensors=tensors), "shapes": [{"n": 4096}, {"n": 1000}]}
    (error,) = refused(client, document)
    assert error["where"] == "workload.tensors[0].shape[0]"
    assert error["message"] == "'n - 2000' is -1000 at n=1000: the tensor 'x_ptr' has no elements"
    tensors[0]["shape"] = ["n * 2 ** 40"]
    assert (
        "GiB together"
        in refused(client, {**document, "workload": {**document["workload"], "tensors": tensors}})[0]["message"]
    )


def test_all_wrong_fields_are_named_at_once(client: TestClient) -> None:
    changes = {"grid": ["cdiv(m, BLOCK)"], "scalars": {"n": "k", "factor": "1 +"}, "flops": "nothing * 2"}
    answer = client.post("/v1/workloads/validate", json=job(**{**changes, "scalars": {"n": "k", "factor": 1}})).json()
    assert [error["where"] for error in answer["errors"]] == [
        "workload.scalars.n",
        "workload.grid[0]",
        "workload.flops",
    ]
    assert all(error["hint"] for error in answer["errors"])


def test_a_stored_kernel_is_used_by_its_hash_or_its_name(client: TestClient) -> None:
    text = SCALE_JOB["workload"]["kernel"]
    stored = client.post("/v1/kernels", json={"name": "scale", "text": text["source"]}).json()
    for reference in ({"hash": stored["hash"]}, {"name": "scale"}):
        made = client.post("/v1/jobs", json=job(kernel=reference))
        assert made.status_code == 202, made.text
        assert made.json()["kernel_hash"] == stored["hash"]
        spec = client.get(made.json()["links"]["self"]).json()["spec"]
        assert spec["workload"]["kernel"]["source"] == text["source"]
    unknown = client.post("/v1/jobs", json=job(kernel={"hash": "0" * 64}))
    assert (unknown.status_code, unknown.json()["type"]) == (404, "urn:deuteron:problem:not-found")
    assert client.post("/v1/jobs", json=job(kernel={"name": "scael"})).status_code == 404
    assert client.post("/v1/jobs", json=job(kernel={})).status_code == 422


def test_a_name_is_the_text_that_was_posted_last_and_no_job_that_names_a_text_changes_it(client: TestClient) -> None:
    source = SCALE_JOB["workload"]["kernel"]["source"]
    texts = [source, source.replace("* factor", "* factor * 2")]
    hashes = [client.post("/v1/kernels", json={"name": "scale", "text": text}).json()["hash"] for text in texts]

    def tuned(kernel: dict[str, str]) -> str:
        return str(client.post("/v1/jobs", json=job(kernel=kernel)).json()["kernel_hash"])

    assert client.post("/v1/kernels", json={"name": "scale", "text": texts[0]}).json()["hash"] == hashes[0]
    assert tuned({"name": "scale"}) == hashes[0]
    assert tuned({"hash": hashes[1]}) == hashes[1]
    assert tuned({"name": "scale"}) == hashes[0]
    assert tuned({"name": "scale", "source": texts[1]}) == hashes[1]
    assert tuned({"name": "scale"}) == hashes[1]


@pytest.mark.parametrize(
    ("written", "asked"), [("\ufb01x", "\ufb01x"), ("\ufb01x", "fix"), ("caf\u00e9", "cafe\u0301")]
)
def test_names_are_those_that_python_reads(client: TestClient, written: str, asked: str) -> None:
    source = SCALE_JOB["workload"]["kernel"]["source"].replace("def scale", f"def {written}")
    stored = client.post("/v1/kernels", json={"name": asked, "text": source})
    assert stored.status_code == 201, stored.text
    assert stored.json()["name"] == unicodedata.normalize("NFKC", written)
    checked = client.post("/v1/workloads/validate", json={**job(kernel={"name": asked}), "compile": False}).json()
    assert checked["kernel_hash"] == stored.json()["hash"], checked


def test_a_kernel_that_crashes_the_compiler_harms_nobody(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """3,000 functions deep: refused, and the service goes on."""
    monkeypatch.setattr("deuteron.tuner.evaluate.trial_compile.PATIENCE_S", 20.0)
    chain = "".join(f"@triton.jit\ndef f{i}(x):\n    return f{i + 1}(x)\n" for i in range(3000))
    source = SCALE_JOB["workload"]["kernel"]["source"].replace("* factor", "* f0(factor)")
    source += f"{chain}@triton.jit\ndef f3000(x):\n    return x\n"
    answer = client.post("/v1/jobs", json=job(kernel={"name": "scale", "source": source}))
    assert answer.status_code in (202, 422)
    assert client.get("/v1/jobs").status_code == 200


def test_submissions_do_not_wait_for_compilers_without_end(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "_TURN_S", 0.01)
    with ExitStack() as compiling:
        for _ in range(2):
            compiling.enter_context(checking._compilers)
        for address in ("/v1/jobs", "/v1/workloads/validate"):
            busy = client.post(address, json=SCALE_JOB)
            assert (busy.status_code, busy.json()["type"]) == (503, "urn:deuteron:problem:compilers-busy")
            assert int(busy.headers["Retry-After"]) > 0
        assert client.post("/v1/workloads/validate", json={**SCALE_JOB, "compile": False}).json()["valid"]
    assert client.get("/v1/jobs").json()["jobs"] == []
    assert client.post("/v1/jobs", json=SCALE_JOB).status_code == 202


def test_only_a_few_submissions_wait_for_compilers(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "_TURN_S", 600.0)
    with ExitStack() as others:
        for _ in range(2):
            others.enter_context(checking._compilers)
        for _ in range(10):
            others.enter_context(checking._places)
        assert client.post("/v1/jobs", json=SCALE_JOB).status_code == 503, "it would wait for ten minutes"


def test_a_gpu_job_is_compiled_for_the_gpu_that_announced_itself(client: TestClient) -> None:
    document = {**SCALE_JOB, "device": "cuda"}
    assert client.post("/v1/workloads/validate", json={**document, "compile": False}).json()["target"] == "cuda:90a"
    announced = {"kind": "cuda", "name": "NVIDIA A100", "sm_count": 108, "compute_capability": [8, 0]}
    assert client.post("/v1/worker/devices", json={"worker": "w", "devices": [announced]}).status_code == 200
    answer = client.post("/v1/workloads/validate", json={**document, "compile": False}).json()
    assert (answer["target"], answer["valid"]) == ("cuda:80", True)


def test_builtin_workloads_can_be_read_and_sent_back(client: TestClient) -> None:
    assert client.get("/v1/workloads").json()["workloads"] == list(BUILTINS)
    for name in BUILTINS:
        document = client.get(f"/v1/workloads/{name}").json()
        assert WorkloadSpec.from_json(document) == builtin_workload(name)
        answer = client.post("/v1/workloads/validate", json={"workload": document, "compile": False})
        assert answer.json()["valid"], answer.text
    assert client.get("/v1/workloads/sofmax").status_code == 404


def test_the_schema_is_that_of_the_class_that_reads_it(client: TestClient) -> None:
    """Every field of the class, and the two abbreviations; what it lists is read, what it does not is refused."""
    schema = workload_schema()
    properties: Any = schema["properties"]
    assert set(properties) == {field.encode_name for field in _fields()} | {"space", "default"}
    assert set(DESCRIPTIONS) == set(properties)
    served = client.get("/openapi.json").json()["components"]["schemas"]["JobBody"]
    assert {"type": "string", "enum": list(BUILTINS)} in served["properties"]["workload"]["anyOf"]
    assert served["properties"]["workload"]["anyOf"][1]["properties"].keys() == properties.keys()
    required: Any = schema["required"]
    for name in required:
        document = {key: value for key, value in SCALE_JOB["workload"].items() if key != name}
        assert client.post("/v1/workloads/validate", json={**SCALE_JOB, "workload": document}).json()["valid"] is False


def _fields() -> Any:
    import msgspec

    return msgspec.structs.fields(WorkloadSpec)


def test_examples_of_openapi_are_sound(client: TestClient) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for name, path, status in (("JobBody", "/v1/jobs", 202), ("ValidateBody", "/v1/workloads/validate", 200)):
        examples = schemas[name]["examples"]
        assert examples
        for example in examples:
            answer = client.post(path, json=example)
            assert answer.status_code == status, answer.text
            assert answer.json().get("valid", True)


def test_tokens_are_described_where_they_are_required(
    client: TestClient, settings: Settings, open_client: Callable[..., TestClient]
) -> None:
    guarded = open_client(replace(settings, auth="tokens", home=settings.home / "other", database_url=""))
    for described, secured in ((client, False), (guarded, True)):
        document = described.get("/openapi.json").json()
        operation = document["paths"]["/v1/workloads/validate"]["post"]
        assert ("security" in operation, "securitySchemes" in document["components"]) == (secured, secured)
