"""Settings come from the environment, or not at all."""

from __future__ import annotations

import pwd
import re
from dataclasses import fields
from pathlib import Path

import pytest

from deuteron.cli.database import shown
from deuteron.cli.settings import settings_with
from deuteron.compiler import knobs
from deuteron.compiler.errors import KnobError
from deuteron.migrations import upgrade
from deuteron.server import Settings, SettingsError
from deuteron.server.database import parse_url
from deuteron.tuner.job import MAX_SHAPES
from deuteron.tuner.records.trust import machine_keys

ROOT = Path(__file__).resolve().parents[2]


def test_defaults_are_a_single_user_service_on_loopback() -> None:
    settings = Settings.from_environment({})
    assert settings.host == "127.0.0.1"
    assert not settings.requires_tokens
    assert settings.database_url == f"sqlite:///{Path.home() / '.deuteron' / 'deuteron.db'}"


@pytest.mark.parametrize(
    ("values", "required"),
    [
        ({"PUBLIC_URL": "http://localhost:8642"}, False),
        ({"PUBLIC_URL": "http://[::1]:8642"}, False),
        ({"PUBLIC_URL": "https://tuner.example"}, True),
        ({"PROXIES": "127.0.0.1"}, True),
        ({"PUBLIC_URL": "https://tuner.example", "AUTH": "off"}, False),
        ({"HOST": "0.0.0.0"}, True),
    ],
)
def test_whom_a_proxy_lets_in_needs_a_token(values: dict[str, str], required: bool) -> None:
    """All of them come from loopback."""
    settings = Settings.from_environment({f"DEUTERON_{name}": value for name, value in values.items()})
    assert settings.requires_tokens == required


def test_every_setting_has_a_variable_and_is_read_from_it(tmp_path: Path) -> None:
    values = {
        "home": str(tmp_path),
        "database_url": "postgresql://u:p@h/d",
        "host": "::1",
        "port": "9000",
        "public_url": "https://tune.example/",
        "proxies": "10.0.0.1, 10.1.0.0/16",
        "auth": "tokens",
        "token": "dtn_x",
        "scheduler": "tcp://10.0.0.1:8786",
        "max_body_bytes": "1_000_000",
        "max_upload_bytes": "2000000",
        "body_seconds": "8.5",
        "rate_per_minute": "7",
        "max_shapes": "3",
        "max_trials": "4",
        "max_attempts": "5",
        "lease_seconds": "6.5",
        "heartbeat_seconds": "0.5",
        "learn_seconds": "45.5",
        "lock_folder": str(tmp_path / "locks"),
        "upstream": "https://tuner",
        "upstream_token": "secret",
        "signing_key": "/run/key.pem",
        "runner": "a.b:c",
    }
    assert set(values) == {item.name for item in fields(Settings)}
    variables = {item.metadata["variable"]: values[item.name] for item in fields(Settings)}
    settings = Settings.from_environment(variables)
    read = {name: str(getattr(settings, name)) for name in values}
    assert read == {**values, "max_body_bytes": "1000000"}
    assert settings.base_url == "https://tune.example"


def test_the_home_is_that_of_the_compiler_and_of_its_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DEUTERON_HOME")
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    settings = Settings.from_environment()
    assert settings.home == Settings().home == knobs.home.get() == tmp_path / ".deuteron"
    assert settings.keys == machine_keys().path


def test_a_user_without_a_home_folder_is_told_of_the_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container whose user no passwd knows."""

    def unknown(number: int) -> object:
        raise KeyError(number)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("DEUTERON_HOME", raising=False)
    monkeypatch.delenv("TRITON_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert Settings.from_environment({"DEUTERON_HOME": str(tmp_path)}).home == tmp_path
    assert settings_with(home=tmp_path).database_url == f"sqlite:///{tmp_path}/deuteron.db"
    for ask in (Settings, lambda: Settings.from_environment({})):
        with pytest.raises(SettingsError, match="DEUTERON_HOME is not set, and there is no home folder ~") as caught:
            ask()
        assert caught.value.hint == "set DEUTERON_HOME to a folder"
    with pytest.raises(KnobError, match="no home folder"):
        knobs.home.get()
    monkeypatch.setenv("DEUTERON_HOME", "~nosuch/x")
    with pytest.raises(KnobError, match="DEUTERON_HOME is '~nosuch/x'"):
        knobs.home.get()


def test_no_folder_for_temporary_files_is_no_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("tempfile.gettempdir", none)
    with pytest.raises(SettingsError, match="DEUTERON_LOCK_FOLDER is not set") as caught:
        Settings(home=tmp_path)
    assert "TMPDIR" in (caught.value.hint or "")
    assert Settings.from_environment({"DEUTERON_HOME": str(tmp_path), "DEUTERON_LOCK_FOLDER": str(tmp_path)})


def test_sizes_are_written_as_those_of_the_compiler() -> None:
    settings = Settings.from_environment({"DEUTERON_MAX_BODY_BYTES": "8M", "DEUTERON_MAX_UPLOAD_BYTES": " 1GiB "})
    assert (settings.max_body_bytes, settings.max_upload_bytes) == (8 << 20, 1 << 30)


@pytest.mark.parametrize(
    ("variable", "value", "fragment"),
    [
        ("DEUTERON_HOST", "[]", "no address to bind"),
        ("DEUTERON_PORT", "http", "not a whole number"),
        ("DEUTERON_MAX_BODY_BYTES", "4X", "not a size"),
        ("DEUTERON_PORT", "70000", "out of range"),
        ("DEUTERON_AUTH", "maybe", "not a mode"),
        ("DEUTERON_DATABASE_URL", "mysql://x", "not a database address"),
        ("DEUTERON_SCHEDULER", "localhost", "not a scheduler"),
        ("DEUTERON_SCHEDULER", "tcp://h:99999", "not a scheduler"),
        ("DEUTERON_LOCK_FOLDER", __file__, "is not a folder"),
        ("DEUTERON_LOCK_FOLDER", "~nosuch/locks", "no such home folder"),
        ("DEUTERON_HOME", "~nosuch/x", "no such home folder"),
        ("DEUTERON_SIGNING_KEY", "~nosuch/key", "no such home folder"),
        ("DEUTERON_LEASE_SECONDS", "soon", "not a number of seconds"),
        ("DEUTERON_LEASE_SECONDS", "0", "out of range"),
        ("DEUTERON_LEARN_SECONDS", "-1", "out of range"),
        ("DEUTERON_MAX_SHAPES", str(MAX_SHAPES + 1), "out of range"),
        ("DEUTERON_UPSTREAM", "tuner:8642", "not the address of a service"),
        ("DEUTERON_UPSTREAM", "http://a..b", "not the address of a service"),
        ("DEUTERON_UPSTREAM", "http://xn--a", "not the address of a service"),
        ("DEUTERON_UPSTREAM", "http://user@tuner", "not the address of a service"),
        ("DEUTERON_UPSTREAM", "http://tuner/path", "not the address of a service"),
        ("DEUTERON_RUNNER", "os.system", "not module:function"),
        ("DEUTERON_PROXIES", "10.0.0.1,tuner", "'tuner' is not an address or a network"),
        ("DEUTERON_PROXIES", "*", "not an address or a network"),
        ("DEUTERON_PUBLIC_URL", "tuner:8642", "not the address of a service"),
        ("DEUTERON_PUBLIC_URL", "http://[::1", "not the address of a service"),
    ],
)
def test_bad_values_name_the_variable_and_the_remedy(variable: str, value: str, fragment: str) -> None:
    with pytest.raises(SettingsError, match=fragment) as caught:
        Settings.from_environment({variable: value})
    assert variable in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_address_of_ipv6_has_brackets_once(host: str) -> None:
    settings = Settings.from_environment({"DEUTERON_HOST": host})
    assert settings.is_loopback and settings.base_url == "http://[::1]:8642"


@pytest.mark.parametrize("url", ["postgresql://u:p@[::1/x", "postgresql://u:p@h:port/x"])
def test_addresses_of_databases_that_do_not_parse(url: str) -> None:
    with pytest.raises(SettingsError, match="does not parse"):
        parse_url(url)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DEUTERON_DATABASE_URL", "postgre://u:SECRET@h/x"),
        ("DEUTERON_DATABASE_URL", "mysql://h/x?user=u&password=SECRET&x=1"),
        ("DEUTERON_UPSTREAM", "http://u:SECRET@tuner"),
        ("DEUTERON_UPSTREAM", "http://u:SEC/SECRET@more@tuner"),
        ("DEUTERON_PUBLIC_URL", "http//u:x://u:SECRET@tuner"),
        ("DEUTERON_SCHEDULER", "tcp://u:SECRET@h"),
    ],
)
def test_passwords_are_not_in_what_is_said_of_an_address(variable: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.from_environment({variable: value})
    assert "SECRET" not in str(caught.value) and "***" in str(caught.value)


def test_the_common_name_of_postgresql_is_one() -> None:
    settings = Settings.from_environment({"DEUTERON_DATABASE_URL": "postgres://u:SECRET@h/x"})
    assert parse_url(settings.database_url).drivername == "postgresql+psycopg" and not settings.is_sqlite
    with pytest.raises(SettingsError) as caught:
        parse_url("postgres://u:SECRET@h:abc/x")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_is_a_file(url: str) -> None:
    with pytest.raises(SettingsError, match="names no file"):
        parse_url(url)


def test_options_of_a_file_are_refused() -> None:
    """SQLite's driver passed over them with a warning: what was to be read alone was written."""
    with pytest.raises(SettingsError, match="a file of SQLite has no options") as caught:
        parse_url("sqlite:////a.db?mode=ro&cache=shared")
    assert "(cache, mode)" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["a?b", "a?mode=ro", "a%41b", "a%b", "a#b", "a b", "a\udcffb"])
def test_the_database_is_in_the_home_whatever_that_is_called(name: str, tmp_path: Path) -> None:
    """It was a file beside it, or in another folder: of a?b and a?c the same one."""
    home = tmp_path / name
    address = Settings(home=home).database_url
    assert parse_url(address).database == str(home / "deuteron.db")
    upgrade(address)
    assert list(tmp_path.iterdir()) == [home] and (home / "deuteron.db").is_file()
    assert str(tmp_path) in shown(address)


def test_only_settings_read_the_environment() -> None:
    readers = [
        path.relative_to(ROOT).as_posix()
        for folder in ("server", "migrations")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"\bos\.(environ|getenv)\b", path.read_text())
    ]
    assert readers == ["server/settings.py"]


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "http-api.md").read_text()
    missing = [item.metadata["variable"] for item in fields(Settings) if f"`{item.metadata['variable']}`" not in text]
    assert missing == []


def test_every_number_has_a_range() -> None:
    unchecked = [
        item.name for item in fields(Settings) if item.type in ("int", "float") and "range" not in item.metadata
    ]
    assert unchecked == []
