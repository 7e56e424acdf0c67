"""Settings of the service: one frozen value, read once from ``DEUTERON_*`` environment variables.

No other module of the server reads the environment, so a test builds ``Settings(...)`` directly and a
reader finds every name, default and limit here. ``docs/http-api.md`` lists the same names; a test compares.
"""

from __future__ import annotations

import ipaddress
import os
import re
import stat
import tempfile
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from deuteron.compiler import knobs
from deuteron.compiler.errors import DeuteronError, KnobError
from deuteron.compiler.setting_texts import SIZES, bytes_of
from deuteron.tuner.addresses import is_service_address

from .addresses import (
    is_database_address,
    is_loopback_host,
    is_scheduler_address,
    is_upstream_address,
    sqlite_address,
    without_secrets,
)

AuthMode = Literal["auto", "off", "tokens"]

EMBEDDED = "embedded"
NO_DISPATCH = "none"
#: Values of ``signing_key`` that are no file.
OWN_KEY, NO_KEY = "own", "none"

_ENTRY_POINT = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")


class SettingsError(DeuteronError):
    """A ``DEUTERON_*`` variable has a value that the service cannot use; the message names the variable."""


def _default_home(environment: Mapping[str, str] = os.environ) -> Path:
    try:
        return knobs.default_home(environment)
    except KnobError as error:
        raise SettingsError(f"DEUTERON_HOME is not set, and {error.message}", hint=error.hint) from None


def _default_locks() -> Path:
    try:
        return Path(tempfile.gettempdir()) / "deuteron-locks"
    except FileNotFoundError:  # nothing of what may be one can be written
        raise SettingsError(
            "DEUTERON_LOCK_FOLDER is not set, and there is no folder for temporary files",
            hint="mount one at /tmp, or set TMPDIR",
        ) from None


def _setting(variable: str, description: str) -> dict[str, object]:
    return {"variable": variable, "description": description}


def _shared(knob: knobs.Knob[Any]) -> dict[str, object]:
    """A setting that the compiler or the tuner has, too."""
    return {**_setting(knob.name, knob.doc), "knob": knob}


def _number(variable: str, description: str, low: float, high: float) -> dict[str, object]:
    """A setting from ``low`` to ``high``."""
    return {**_setting(variable, description), "range": (low, high)}


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that changes how the service behaves. Sizes in bytes, durations in seconds."""

    home: Path = field(
        default_factory=_default_home,
        metadata=_shared(knobs.home),
    )
    database_url: str = field(
        default="",
        metadata=_setting("DEUTERON_DATABASE_URL", "sqlite:///... or postgresql://...; default is in the home"),
    )
    host: str = field(default="127.0.0.1", metadata=_setting("DEUTERON_HOST", "address to bind"))
    port: int = field(default=8642, metadata=_number("DEUTERON_PORT", "port to bind, 0 picks a free one", 0, 65535))
    public_url: str = field(
        default="",
        metadata=_setting("DEUTERON_PUBLIC_URL", "address under which workers and clients reach the service"),
    )
    proxies: str = field(
        default="",
        metadata=_setting(
            "DEUTERON_PROXIES",
            "addresses or networks of proxies, with commas, whose X-Forwarded-For and -Proto are believed",
        ),
    )
    auth: AuthMode = field(
        default="auto",
        metadata=_setting("DEUTERON_AUTH", "auto (off on loopback without a proxy, tokens elsewhere), off, or tokens"),
    )
    token: str = field(
        default="",
        metadata=_shared(knobs.token),
    )
    scheduler: str = field(
        default=EMBEDDED,
        metadata=_setting("DEUTERON_SCHEDULER", "embedded, none, or a Dask scheduler address tcp://host:port"),
    )
    max_body_bytes: int = field(
        default=4 << 20, metadata=_number("DEUTERON_MAX_BODY_BYTES", "largest request body", 1024, 1 << 30)
    )
    max_upload_bytes: int = field(
        default=256 << 20,
        metadata=_number("DEUTERON_MAX_UPLOAD_BYTES", "largest profile a worker may upload", 1024, 1 << 34),
    )
    body_seconds: float = field(
        default=30.0,
        metadata=_number(
            "DEUTERON_BODY_SECONDS",
            "how long a request's head, or its body, may take to arrive, and 64 KiB of an answer to be taken",
            0.05,
            3600,
        ),
    )
    rate_per_minute: int = field(
        default=60_000,
        metadata=_number(
            "DEUTERON_RATE_PER_MINUTE", "requests a minute per token (or address), 0 = no limit", 0, 1 << 31
        ),
    )
    max_shapes: int = field(
        default=256, metadata=_number("DEUTERON_MAX_SHAPES", "shapes times dtypes in one job", 1, 256)
    )
    max_trials: int = field(
        default=100_000, metadata=_number("DEUTERON_MAX_TRIALS", "trial budget of one job", 1, 1 << 31)
    )
    max_attempts: int = field(
        default=3,
        metadata=_number("DEUTERON_MAX_ATTEMPTS", "how often a job whose worker died is started", 1, 100),
    )
    lease_seconds: float = field(
        default=30.0,
        metadata=_number("DEUTERON_LEASE_SECONDS", "a job whose worker is silent so long restarts", 0.5, 86400),
    )
    heartbeat_seconds: float = field(
        default=15.0,
        metadata=_number("DEUTERON_HEARTBEAT_SECONDS", "pause between SSE heartbeat comments", 0.05, 3600),
    )
    learn_seconds: float = field(
        default=600.0,
        metadata=_number(
            "DEUTERON_LEARN_SECONDS",
            "how long training the predictors of one kernel may take when jobs ended, 0 = the service trains none",
            0,
            86400,
        ),
    )
    lock_folder: Path = field(
        default_factory=_default_locks,
        metadata=_setting("DEUTERON_LOCK_FOLDER", "locks by which processes of one host take turns on its devices"),
    )
    signing_key: str = field(
        default=OWN_KEY,
        metadata=_setting(
            "DEUTERON_SIGNING_KEY",
            "private key that bundles are signed with: own (in the home, made at the first start), a file, or none",
        ),
    )
    upstream: str = field(
        default="",
        metadata=_setting("DEUTERON_UPSTREAM", "address of a service that is asked for what this one has not"),
    )
    upstream_token: str = field(
        default="",
        metadata=_setting("DEUTERON_UPSTREAM_TOKEN", "bearer token, of scope read, for the upstream"),
    )
    runner: str = field(
        default="deuteron.tuner:run_job",
        metadata=_setting("DEUTERON_RUNNER", "module:function that measures a job on a worker"),
    )

    def __post_init__(self) -> None:
        if not self.database_url:
            object.__setattr__(self, "database_url", sqlite_address(self.home / "deuteron.db"))
        self._check()

    @property
    def is_loopback(self) -> bool:
        """Whether the bind address is reachable from this machine only."""
        return is_loopback_host(self.host)

    @property
    def requires_tokens(self) -> bool:
        """Whether a request without a bearer token is refused."""
        return self.why_tokens is not None

    @property
    def why_tokens(self) -> str | None:
        """Why a request without a bearer token is refused; None where it is not. Where a proxy stands in front, whoever
        it lets in comes from this machine."""
        if self.auth != "auto":
            return "DEUTERON_AUTH asks for tokens" if self.auth == "tokens" else None
        if not self.is_loopback:
            return f"{self.host} is reachable from other machines"
        if self.proxies:
            return "DEUTERON_PROXIES lets others in"
        public = urlsplit(self.public_url).hostname if self.public_url else None
        return None if public is None or is_loopback_host(public) else f"DEUTERON_PUBLIC_URL names {public}"

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is a SQLite file."""
        return self.database_url.startswith("sqlite")

    @property
    def base_url(self) -> str:
        """Address of the service as workers see it, without a trailing slash."""
        if self.public_url:
            return self.public_url.rstrip("/")
        host = self.host.strip("[]")
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}"

    @property
    def keys(self) -> Path:
        """The folder of the keys that sign bundles and of those that are trusted."""
        return self.home / "keys"

    def directory(self, name: str) -> Path:
        """A folder of the data directory, created private to the user when it is missing."""
        path = self.home / name
        for folder in (self.home, path):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, *, home: Path | None = None) -> Settings:
        """Read the settings; those of a service with another ``home`` if one is given.

        Raises:
            SettingsError: a value does not parse, is out of range, or contradicts another one.
        """
        source = os.environ if environment is None else environment
        values: dict[str, object] = {} if home is None else {"home": home}
        for item in fields(cls):
            variable = item.metadata["variable"]
            text = source.get(variable, "").strip()
            if text and item.name not in values:
                values[item.name] = _parser(item)(variable, text)
        if "home" not in values:
            values["home"] = _default_home(source)
        return cls(**values)  # type: ignore[arg-type]

    def _check(self) -> None:
        if not is_database_address(self.database_url):
            raise SettingsError(
                f"DEUTERON_DATABASE_URL: {without_secrets(self.database_url)!r} is not a database address",
                hint="sqlite:////absolute/path.db or postgresql://user:password@host/name",
            )
        if not self.host.strip("[] "):  # it would be all addresses of the machine, and none that clients could ask
            raise SettingsError(
                f"DEUTERON_HOST: {self.host!r} is no address to bind",
                hint="127.0.0.1, or 0.0.0.0 for all addresses of this machine",
            )
        if self.auth not in ("auto", "off", "tokens"):
            raise SettingsError(f"DEUTERON_AUTH: {self.auth!r} is not a mode", hint="auto, off or tokens")
        if self.auth == "off" and not self.is_loopback:
            raise SettingsError(
                f"DEUTERON_AUTH=off with DEUTERON_HOST={self.host}: anyone who reaches this address "
                "could submit kernels",
                hint="set DEUTERON_AUTH=tokens and create one with `deuteron token create`, or bind 127.0.0.1",
            )
        if self.scheduler not in (EMBEDDED, NO_DISPATCH) and not is_scheduler_address(self.scheduler):
            raise SettingsError(
                f"DEUTERON_SCHEDULER: {without_secrets(self.scheduler)!r} is not a scheduler",
                hint="embedded, none, or tcp://host:port of `dask scheduler`",
            )
        if self.upstream and not is_upstream_address(self.upstream):
            raise SettingsError(
                f"DEUTERON_UPSTREAM: {without_secrets(self.upstream)!r} is not the address of a service",
                hint="https://tuner.example",
            )
        if self.public_url and not is_service_address(self.public_url):
            raise SettingsError(
                f"DEUTERON_PUBLIC_URL: {without_secrets(self.public_url)!r} is not the address of a service",
                hint="http://tuner.example:8642",
            )
        for proxy in filter(None, map(str.strip, self.proxies.split(","))):
            _check_proxy(proxy)
        if not _ENTRY_POINT.match(self.runner):
            raise SettingsError(
                f"DEUTERON_RUNNER: {self.runner!r} is not module:function",
                hint="deuteron.tuner:run_job",
            )
        if self.signing_key not in (OWN_KEY, NO_KEY):
            _path("DEUTERON_SIGNING_KEY", self.signing_key)
        if _is_no_folder(self.lock_folder):
            raise SettingsError(f"DEUTERON_LOCK_FOLDER: {self.lock_folder} is not a folder", hint="/tmp/deuteron-locks")
        self._check_ranges()

    def _check_ranges(self) -> None:
        for item in fields(self):
            if "range" not in item.metadata:
                continue
            low, high = item.metadata["range"]
            value = getattr(self, item.name)
            if not low <= value <= high:
                raise SettingsError(
                    f"{item.metadata['variable']}: {value} is out of range",
                    hint=f"a number between {low:g} and {high:g}",
                )


def _is_no_folder(path: Path) -> bool:
    """Whether something else is there."""
    try:
        return not stat.S_ISDIR(path.stat().st_mode)
    except OSError:  # nothing, or nobody may look
        return False


def _check_proxy(text: str) -> None:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise SettingsError(
            f"DEUTERON_PROXIES: {text!r} is not an address or a network", hint="for example 127.0.0.1,10.1.0.0/16"
        ) from None


def _text(_variable: str, text: str) -> str:
    return text


def _path(variable: str, text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise SettingsError(f"{variable}: {text!r}: there is no such home folder", hint="/a/path") from None


def _integer(variable: str, text: str) -> int:
    try:
        return int(text.replace("_", ""))
    except ValueError:
        raise SettingsError(f"{variable}: {text!r} is not a whole number", hint="for example 4096") from None


def _bytes(variable: str, text: str) -> int:
    try:
        return bytes_of(text)
    except ValueError:
        raise SettingsError(f"{variable}: {text!r} is not a size", hint=SIZES) from None


def _seconds(variable: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SettingsError(f"{variable}: {text!r} is not a number of seconds", hint="for example 30 or 0.5") from None


_BY_TYPE: Mapping[str, Callable[[str, str], object]] = {"int": _integer, "float": _seconds, "Path": _path}


def _of_knob(knob: knobs.Knob[Any], variable: str, text: str) -> object:
    try:
        return knob.parse(text)
    except ValueError as error:
        why = ": there is no such home folder" if isinstance(error.__cause__, RuntimeError) else ""
        raise SettingsError(f"{variable}: {text!r} is not {knob.allowed}{why}", hint="/a/path") from None


def _parser(item: Field[Any]) -> Callable[[str, str], object]:
    """From variable and text to value."""
    if "knob" in item.metadata:
        return lambda variable, text: _of_knob(item.metadata["knob"], variable, text)
    return _bytes if item.name.endswith("_bytes") else _BY_TYPE.get(str(item.type), _text)


def lift_thread_limits(limits: Mapping[str, object], environment: MutableMapping[str, str] | None = None) -> None:
    """Take back ``limits``, which Dask's nannies set for workers that compute in threads of their own, such as
    OMP_NUM_THREADS=1: the references of large shapes are products of NumPy's, in processes that inherit the
    environment. What a user has set to anything else stays."""
    changed = os.environ if environment is None else environment
    for name, value in limits.items():
        if name.endswith("_NUM_THREADS") and changed.get(name) == str(value):
            del changed[name]
