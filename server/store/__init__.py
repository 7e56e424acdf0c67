"""The store: what must survive. One class per concept, all bound to one transaction.

>>> with store.write() as tx:                               # doctest: +SKIP
...     job = tx.jobs.claim(job_id, claim_id=..., worker="cpu", lease=timedelta(seconds=30))
...     trials = tx.trials.page(job.id)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, select, update

from ..database import Database, make_engine
from ..models import CounterRow
from .configs import CONFIGS, Configs
from .errors import (
    Conflict,
    InvalidToken,
    JobIsFinal,
    JobIsTaken,
    KeyIsTaken,
    NotFound,
    StoreError,
    TooLong,
    WorkerIsDraining,
)
from .events import Events
from .history import ConfigHistory
from .idempotency import IdempotencyKeys
from .jobs import Jobs
from .kernels import KERNELS, Kernels
from .known_devices import DEVICES, Devices
from .records import (
    ConfigAction,
    ConfigEntry,
    CoveredShape,
    FoundSearch,
    Job,
    JobState,
    NewJob,
    NewTrial,
    ScreenedTime,
    StoredConfig,
    StoredDevice,
    StoredEvent,
    StoredKernel,
    StoredTrial,
    StoredWorker,
    Token,
)
from .tokens import SCOPES, Tokens
from .trials import Trials
from .workers import Workers, worker_name
from .writes import insert_unless_present

__all__ = [
    "SCOPES",
    "ConfigAction",
    "ConfigEntry",
    "Conflict",
    "CoveredShape",
    "FoundSearch",
    "StoredDevice",
    "StoredEvent",
    "InvalidToken",
    "Job",
    "JobIsFinal",
    "JobIsTaken",
    "JobState",
    "StoredKernel",
    "NewJob",
    "NewTrial",
    "NotFound",
    "KeyIsTaken",
    "ServiceStore",
    "StoreError",
    "StoredConfig",
    "StoredTrial",
    "StoredWorker",
    "ScreenedTime",
    "Token",
    "TooLong",
    "Transaction",
    "WorkerIsDraining",
    "worker_name",
]


#: The row of the counters that counts nothing.
_HOME = "home"


class Transaction:
    """The concepts of the store, seen through one open transaction."""

    def __init__(self, connection: Connection) -> None:
        self.configs = Configs(connection)
        self.config_history = ConfigHistory(connection)
        self.devices = Devices(connection)
        self.events = Events(connection)
        self.idempotency = IdempotencyKeys(connection)
        self.jobs = Jobs(connection)
        self.kernels = Kernels(connection)
        self.tokens = Tokens(connection)
        self.trials = Trials(connection)
        self.workers = Workers(connection)
        self._connection = connection
        #: Called once what was written is there for everybody; not at all where the transaction fails.
        self.committed: list[Callable[[], None]] = []

    @contextmanager
    def part(self) -> Iterator[None]:
        """Writes that are undone together where the block raises; the transaction goes on."""
        hooks = len(self.committed)
        try:
            with self._connection.begin_nested():
                yield
        except BaseException:
            del self.committed[hooks:]
            raise

    def versions(self) -> tuple[tuple[str, int], ...]:
        """The version counters of configurations, devices and kernels: while they are the same, so is everything that
        a lookup reads."""
        named = select(CounterRow.name, CounterRow.value).where(CounterRow.name.in_((CONFIGS, DEVICES, KERNELS)))
        rows = self._connection.execute(named.order_by(CounterRow.name))
        return tuple((row.name, row.value) for row in rows)

    def home(self) -> int | None:
        """The number of the data directory that belongs to this database, None before one was noted."""
        return self._connection.execute(select(CounterRow.value).where(CounterRow.name == _HOME)).scalar_one_or_none()

    def note_home(self, number: int) -> None:
        """Note which data directory belongs to this database."""
        noted = update(CounterRow).where(CounterRow.name == _HOME).values(value=number)
        if self._connection.execute(noted).rowcount == 0:
            insert_unless_present(self._connection, CounterRow, {"name": _HOME, "value": number})


class ServiceStore:
    """Transactions on the service's database. Safe to share between threads.

    The schema must be there: call ``deuteron.migrations.upgrade(url)`` first.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        #: Counts the committed writes of this process: what was read at another count may be out of date.
        self.generation = 0

    @classmethod
    def open(cls, url: str) -> ServiceStore:
        """The store at a database URL; connects on first use."""
        return cls(Database(make_engine(url)))

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A transaction that only reads."""
        with self.database.read() as connection:
            yield Transaction(connection)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction that commits at the end of the block and rolls back when the block raises."""
        with self.database.write() as connection:
            transaction = Transaction(connection)
            yield transaction
        self.generation += 1
        for tell in transaction.committed:
            tell()

    def close(self) -> None:
        """Give the database's connections back."""
        self.database.close()
