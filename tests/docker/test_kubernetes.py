"""The manifest for Kubernetes, without a cluster: Kubernetes' schemas, and agreement with the images and the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer
import yaml

from deuteron.cli.app import app
from deuteron.server import Settings

ROOT = Path(__file__).parents[2]
MANIFEST = list(yaml.safe_load_all((ROOT / "docker" / "kubernetes.yaml").read_text()))
RELEASE = "1.31"
PODS = ("StatefulSet", "Deployment")


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = (item for item in MANIFEST if (item["kind"], item["metadata"]["name"]) == (kind, name))
    return dict(found)


def pods() -> dict[str, dict[str, Any]]:
    """Specs of pods by the name of their container."""
    cluster = named("DaskCluster", "deuteron")["spec"]
    specs = [item["spec"]["template"]["spec"] for item in MANIFEST if item["kind"] in PODS]
    specs += [cluster["scheduler"]["spec"], cluster["worker"]["spec"]]
    return {spec["containers"][0]["name"]: spec for spec in specs}


def container(name: str) -> dict[str, Any]:
    (only,) = pods()[name]["containers"]
    return dict(only)


def values(name: str) -> dict[str, str]:
    """The container's variables; what a secret holds is "secret"."""
    given = {item["name"]: item.get("value", "secret") for item in container(name).get("env", ())}
    return {k: re.sub(r"\$\((\w+)\)", lambda m: given[m[1]], v) for k, v in given.items()}


def as_objects() -> list[dict[str, Any]]:
    """What Kubernetes has schemas for: the operator's cluster as the pods and the service that are made of it."""
    cluster = named("DaskCluster", "deuteron")["spec"]
    meta = {"name": "x"}
    made = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": cluster[part]["spec"]}
        for part in ("scheduler", "worker")
    ]
    made.append({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": cluster["scheduler"]["service"]})
    return [item for item in MANIFEST if item["kind"] != "DaskCluster"] + made


def test_kubernetes_schemas() -> None:
    lint = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate (22 MB)")
    for item in as_objects():
        lint.validate(item, RELEASE, strict=True)
    with pytest.raises(lint.ValidationError):
        lint.validate({"apiVersion": "v1", "kind": "Service", "metadata": {}, "spec": {"ports": 1}}, RELEASE)


def test_names_refer_to_what_is_there() -> None:
    services = {item["metadata"]["name"] for item in MANIFEST if item["kind"] == "Service"}
    # The operator calls the scheduler's service after its cluster.
    services.add(f"{named('DaskCluster', 'deuteron')['metadata']['name']}-scheduler")
    for name in ("server", "worker"):
        settings = Settings.from_environment({k: v for k, v in values(name).items() if k.startswith("DEUTERON_")})
        assert urlsplit(settings.public_url).hostname in services
    server = Settings.from_environment({k: v for k, v in values("server").items() if k.startswith("DEUTERON_")})
    assert urlsplit(server.scheduler).hostname in services
    database = urlsplit(server.database_url)
    owner = values("postgres")
    assert (database.hostname, database.username, database.path) == (
        "deuteron-database",
        owner["POSTGRES_USER"],
        f"/{owner['POSTGRES_DB']}",
    )
    for spec in pods().values():
        (only,) = spec["containers"]
        volumes = {item["name"] for item in spec.get("volumes", ())} | {"data"}
        assert {mount["name"] for mount in only.get("volumeMounts", ())} <= volumes


def test_selectors_find_pods_and_ports() -> None:
    labels = [item["spec"]["template"]["metadata"]["labels"] for item in MANIFEST if item["kind"] in PODS]
    # Those that the operator gives to the pods of a cluster.
    labels += [{"dask.org/cluster-name": "deuteron", "dask.org/component": part} for part in ("scheduler", "worker")]

    def found(selector: dict[str, str]) -> bool:
        return any(selector.items() <= have.items() for have in labels)

    for item in MANIFEST:
        spec = item["spec"]
        if item["kind"] == "Service":
            assert found(spec["selector"])
        if item["kind"] in PODS:
            assert found(spec["selector"]["matchLabels"])
        if item["kind"] == "NetworkPolicy":
            assert found(spec["podSelector"]["matchLabels"])
            for peer in (p["podSelector"] for rule in spec["ingress"] for p in rule["from"] if "podSelector" in p):
                assert found(peer["matchLabels"])
    offered = {
        item["name"]: item["port"] for item in named("DaskCluster", "deuteron")["spec"]["scheduler"]["service"]["ports"]
    }
    assert offered == {p["name"]: p["containerPort"] for p in container("scheduler")["ports"]}
    assert f":{offered['tcp-comm']}" in values("server")["DEUTERON_SCHEDULER"]


def test_commands_exist() -> None:
    command, *arguments = container("worker")["args"]
    assert command == "deuteron"
    worker = typer.main.get_command(app).commands[arguments[0]]  # type: ignore[attr-defined]
    given = worker.make_context("worker", [a.replace("$(", "").replace(")", "") for a in arguments[1:]]).params
    assert (given["scheduler"], given["device"]) == ("DASK_SCHEDULER_ADDRESS", ["cuda:0"])
    assert container("scheduler")["args"][:2] == ["dask", "scheduler"]


def test_nothing_runs_as_root_and_secrets_come_from_outside() -> None:
    for name, spec in pods().items():
        assert spec["automountServiceAccountToken"] is False
        # Kubernetes would set DEUTERON_PORT to an address, for the service of that name.
        assert spec["enableServiceLinks"] is False
        for volume in spec.get("volumes", ()):
            # A private key that everybody may read is refused; files of a secret are 0644 by default.
            assert "secret" not in volume or volume["secret"]["defaultMode"] & 0o007 == 0
        assert name == "postgres" or spec["securityContext"]["runAsNonRoot"] is True
        for item in container(name).get("env", ()):
            if re.search("PASSWORD|TOKEN|SECRET", item["name"]):
                assert "secretKeyRef" in item["valueFrom"]
    assert not [item for item in MANIFEST if item["kind"] == "Secret"]


def test_every_ported_container_is_asked_whether_it_is_ready() -> None:
    for name in pods():
        if "ports" in container(name):
            assert "readinessProbe" in container(name)
        assert "requests" in container(name)["resources"]
