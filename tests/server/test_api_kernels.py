"""Kernels over HTTP: stored under their hash, read, and never executed."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sent_bodies import KERNEL


def test_a_kernel_is_stored_under_its_hash(client: TestClient) -> None:
    made = client.post("/v1/kernels", json={"name": "add_kernel", "text": KERNEL})
    assert made.status_code == 201
    kernel = made.json()
    assert made.headers["location"] == f"/v1/kernels/{kernel['hash']}"
    assert kernel["arguments"][-1] == {"name": "BLOCK", "constexpr": True, "default": "128"}
    assert client.get(made.headers["location"]).json() == kernel
    again = client.post("/v1/kernels", json={"name": "add_kernel", "text": KERNEL + "# note\n"})
    assert again.json()["hash"] == kernel["hash"]


@pytest.mark.parametrize("default", ["float('-inf')", "DEFAULT", "torch.finfo(torch.float32).max"])
def test_defaults_that_a_text_does_not_say_do_no_harm(client: TestClient, default: str) -> None:
    """A search gives the parameter a value."""
    made = client.post("/v1/kernels", json={"name": "add_kernel", "text": KERNEL.replace("= 128", f"= {default}")})
    assert made.status_code == 201, made.text
    assert made.json()["arguments"][-1]["default"] == default


def test_a_kernel_is_never_executed(client: TestClient, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    text = f"open({str(trace)!r}, 'w')\n" + KERNEL
    client.post("/v1/kernels", json={"name": "add_kernel", "text": text})
    assert not trace.exists()


def test_functions_of_compile_time_values_are_never_executed(client: TestClient, tmp_path: Path) -> None:
    """In a program they are Python that runs; of a text that somebody sends they are the kernel language."""
    trace = tmp_path / "trace"
    helper = f"@triton.constexpr_function\ndef early(n):\n    return len(open({str(trace)!r}, 'w').name) + n\n\n"
    text = KERNEL.replace("@triton.jit", helper + "@triton.jit").replace("* BLOCK", "* early(BLOCK)")
    client.post("/v1/kernels", json={"name": "add_kernel", "text": text})
    workload = {
        "kernel": {"name": "add_kernel", "source": text},
        "dims": ["n"],
        "tensors": [
            {"name": "x_ptr", "shape": ["n"]},
            {"name": "y_ptr", "shape": ["n"]},
            {"name": "out_ptr", "shape": ["n"], "role": "output"},
        ],
        "scalars": {"n": "n"},
        "grid": ["cdiv(n, BLOCK)"],
        "space": {"parameters": {"BLOCK": [128]}},
        "bytes": "3 * n * element_bytes",
    }
    job = {"workload": workload, "shapes": [{"n": 256}], "device": "cpu", "budget": {"trials": 2}}
    refused = client.post("/v1/jobs", json=job, headers={"idempotency-key": "early"})
    assert refused.status_code == 422
    assert "the name 'open' is not defined" in refused.text
    assert not trace.exists()


def test_a_bad_kernel_is_shown_with_its_place(client: TestClient) -> None:
    text = KERNEL.replace("mask = i < n", "mask = i << < n")
    response = client.post("/v1/kernels", json={"name": "add_kernel", "text": text, "filename": "add.py"})
    assert response.status_code == 422
    document = response.json()
    assert document["location"]["file"] == "add.py"
    assert document["location"]["line"] == 7
    assert "mask = i << < n" in document["report"]
    assert "^" in document["report"]
    missing = client.post("/v1/kernels", json={"name": "sub_kernel", "text": KERNEL})
    assert missing.status_code == 422
    assert "add_kernel" in missing.json()["hint"]
    assert client.get(f"/v1/kernels/{'0' * 64}").status_code == 404
