"""The commands in the documents are run as they stand, one shell per document, against a real service."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from deuteron.tuner import ConfigRecord, write_bundle

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands_of(document: str) -> list[str]:
    return BLOCK.findall((ROOT / "docs" / document).read_text())


def run_blocks(document: str, url: str, folder: Path) -> list[str]:
    """Run a document's blocks in one shell; the output of each."""
    mark = "=== next block ==="
    blocks = commands_of(document)
    assert blocks, f"{document} has no commands"
    script = f"\necho '{mark}'\n".join(blocks).replace("http://127.0.0.1:8642", url)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("DEUTERON_")},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DEUTERON_HOME": str(folder / "client-home"),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout.split(f"{mark}\n")


@pytest.fixture
def service(make_service: Callable[..., Any]) -> Any:
    """One that compiles and measures for real, on the CPU."""
    return make_service(DEUTERON_RUNNER="deuteron.tuner:run_job")


def test_http_api(service: Any, tmp_path: Path) -> None:
    out = run_blocks("http-api.md", service.url, tmp_path)
    health, submit, follow, read, lookup, other, batch, history, bundle, kernel, fleet, problem = out
    assert "single user" in json.loads(health)["auth"]
    decoder, at, said = json.JSONDecoder(), 0, []
    while at < len(fleet.rstrip()):
        document, at = decoder.raw_decode(fleet, at)
        said.append(document)
    (worker,) = said[0]["workers"]
    assert worker["toolchain"]["target"] == "cpu"
    assert [each["state"] for each in (worker, *said[1:])] == ["idle", "draining", "draining", "idle"]
    assert f"{service.url}/v1/jobs/" in submit
    trials, resumed = follow.split("\n")[:2]
    assert int(trials) >= 4
    assert resumed == "id: 3"
    assert '"state":"succeeded"' in read
    assert (tmp_path / "search.hatchet").read_text().lstrip().startswith("[")
    assert json.loads(lookup)["match"] == "exact"
    assert json.loads(other)["match"] == "other_toolchain"
    differences = {part["name"]: part for part in json.loads(other)["toolchain_differences"]}
    assert differences["deuteron"]["current"] == "0.0.9" and "target" not in differences
    assert differences["compiler"]["recorded"] and differences["compiler"]["current"] is None
    assert [a["match"] for a in json.loads(batch)["answers"]] == ["exact", "nearest_shape"]
    entries = json.loads(history[history.index('{"history"') :])["history"]
    assert [entry["action"] for entry in entries] == ["stored", "pinned", "unpinned", "withdrawn"]
    assert "configs.bundle: OK" in bundle
    assert bundle.rstrip().endswith("304")
    assert len(json.loads(kernel)["hash"]) == 64
    document = json.loads(problem)
    shown = re.search(r"```json\n(.*?)```", (ROOT / "docs/http-api.md").read_text(), re.DOTALL)
    assert shown is not None
    assert document == json.loads(shown.group(1))


def test_workloads(service: Any, tmp_path: Path) -> None:
    """The page's shell commands, then its Python, beside the files that the commands wrote."""
    valid, wrong, norm, expand = run_blocks("workloads.md", service.url, tmp_path)
    answer = json.loads(valid)
    assert answer["valid"] and [item["status"] for item in answer["compiled"]] == ["ok", "ok"]
    refusal = json.loads(wrong)
    assert not refusal["valid"] and "role 'out'" in refusal["errors"][0]["message"]
    for end in (norm, expand):
        assert json.loads(end.removeprefix("data:"))["state"] == "succeeded", end
    for name in ("rms_norm.json", "dequantise.json"):
        assert len((tmp_path / name).read_text().splitlines()) < 25
    page = (ROOT / "docs" / "workloads.md").read_text()
    script = "".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    (tmp_path / "page.py").write_text(script.replace("http://127.0.0.1:8642", service.url))
    for kernel in ("rms_norm", "dequantise"):
        path = tmp_path / f"{kernel}.py"
        text = path.read_text().replace("import triton\n", "import deuteron as triton\n")
        path.write_text(text.replace("import triton.", "import deuteron."))
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env={**os.environ, "DEUTERON_HOME": str(tmp_path / "client-home"), "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    tuned, described, event = done.stdout.splitlines()
    assert tuned.startswith("rms_norm ")
    assert described == "('cdiv(N, BLOCK)',) [('N',), ('N // 128',), ('N',)]"
    assert event == "job_state"
    assert [job["state"] for job in service.get("/v1/jobs")["jobs"]] == ["succeeded"] * 3


EXPERTS = {f"BLOCK_SIZE_{dim}": 16 for dim in "MNK"} | {"GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 2}


def test_config_bundles(
    service: Any, tmp_path: Path, wait_until: Callable[..., None], make_record: Callable[..., ConfigRecord]
) -> None:
    job_id = service.submit(shapes=[{"M": 64, "N": 128}], budget={"trials": 3, "seconds": 60})
    wait_until(
        lambda: service.job(job_id)["finished_at"] is not None,
        120,
        lambda: (service.home / "server.log").read_text(),
    )
    experts = replace(make_record({"E": 8, "M": 64, "N": 7168}, kernel_name="experts"), dtype="bf16", config=EXPERTS)
    h200 = replace(experts.device, kind="cuda", name="NVIDIA H200")
    write_bundle(tmp_path / "experts.bundle", [replace(experts, device=h200)])
    out = run_blocks("config-bundles.md", service.url, tmp_path)
    assert "1 configuration " in out[0]
    assert "exact" in out[3]
    for module, function in (("tuned_configs", "config_for"), ("tuned_cache", "remember")):
        text = (tmp_path / f"{module}.py").read_text()
        assert f"def {function}(" in text and "{'M': 64, 'N': 128}" in text
    name = "E=8,N=7168,device_name=NVIDIA_H200.json"
    for folder in ("vllm-configs", "sglang-configs/configs/triton_3_6_0"):
        assert json.loads((tmp_path / folder / name).read_text())["64"]["BLOCK_SIZE_M"] == 16
    (helion,) = (tmp_path / "helion-configs").iterdir()
    assert "block_sizes" in json.loads(helion.read_text())
    (results,) = (tmp_path / "t4-results").iterdir()
    assert json.loads(results.read_text())["schema_version"] == "1.0.0"
    manifest = json.loads(out[-1])
    assert manifest["count"] == 1
    record = json.loads((tmp_path / "record.json").read_text())
    text = (ROOT / "docs/config-bundles.md").read_text()
    undocumented = [name for name in [*manifest, *record] if f"`{name}`" not in text]
    assert set(undocumented) <= {"shape_key", "dims_from_arguments", "dtype_argument"}
