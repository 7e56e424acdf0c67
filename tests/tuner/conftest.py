"""Records made up for tests, and what stands in for the worker process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deuteron.tuner import Problem, builtin_workload, resolve_workload
from deuteron.tuner.codec import JsonObject
from deuteron.tuner.evaluate.child import ChildProcess
from deuteron.tuner.evaluate.evaluator import LocalEvaluator
from deuteron.tuner.evaluate.nursery import Nursery
from deuteron.tuner.evaluate.processes import Processes
from deuteron.tuner.measure.statistics import Interval
from deuteron.tuner.records import ConfigRecord, DeviceFingerprint, write_bundle
from deuteron.tuner.records.reach import Reach
from deuteron.tuner.records.signature import SigningKey
from deuteron.tuner.records.trust import KeyFolder

sys.path.insert(0, str(Path(__file__).parent))
import checked_kernel  # noqa: E402
from signed_bundles import THERE, Write  # noqa: E402
from stand_in_processes import COMMAND, STAND_IN_TEMPLATE  # noqa: E402

H100 = DeviceFingerprint(
    kind="cuda",
    name="NVIDIA H100 80GB HBM3",
    sm_count=132,
    memory_bytes=85_520_809_984,
    compute_capability=(9, 0),
    power_cap_watts=700.0,
)


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    """That of checked_kernel.py, at a size that no block divides."""
    path = tmp_path / "mine.py"
    path.write_text(checked_kernel.TEXT)
    return Problem(resolve_workload(f"{path}:kernel"), {"n": 1000}, "f32")


@pytest.fixture(scope="session")
def stand_ins() -> Iterator[Nursery]:
    """Forks children that are stand-ins for the worker process."""
    made = Nursery((*STAND_IN_TEMPLATE, "30"))
    yield made
    made.close()


@pytest.fixture
def own() -> Iterator[Nursery]:
    """A nursery for one test, whose template may be killed."""
    made = Nursery((*STAND_IN_TEMPLATE, "30"))
    yield made
    made.close()


@pytest.fixture(params=["program", "forked"])
def nursery(request: pytest.FixtureRequest, stand_ins: Nursery) -> Nursery | None:
    """None, and one: children must be the same."""
    return stand_ins if request.param == "forked" else None


@pytest.fixture
def processes(nursery: Nursery | None) -> Iterator[Processes]:
    with Processes(workers=1, command=COMMAND, nursery=nursery) as made:
        yield made


@pytest.fixture
def evaluator(processes: Processes) -> Iterator[LocalEvaluator]:
    problem = Problem(builtin_workload("vector_add"), {"n": 64}, "f32")
    made = LocalEvaluator(problem, "cpu", "cpu", "cpu", {}, 0, timeout=1.0, processes=processes)
    yield made
    made.close()


@dataclass(frozen=True)
class Message:
    """What a child was told, and which process it had then."""

    child: ChildProcess
    pid: int
    operation: str
    payload: JsonObject


@dataclass
class Told:
    """All that children of this process were told, in order."""

    messages: list[Message] = field(default_factory=list)

    def of(self, operation: str, **payload: object) -> list[Message]:
        """The messages of an operation whose payload has these fields."""
        return [
            message
            for message in self.messages
            if message.operation == operation and payload.items() <= message.payload.items()
        ]

    def last(self, *operations: str) -> Message:
        """The last message of one of these operations."""
        return next(message for message in reversed(self.messages) if message.operation in operations)

    def measured(self) -> Message:
        """The last one that made its process measure."""
        return self.last("screen", "race")

    def prepared(self, **payload: object) -> list[Message]:
        """Those that made their process prepare to measure."""
        return [message for message in self.of("prepare", **payload) if message.payload.get("device") is not None]

    def measuring(self) -> set[ChildProcess]:
        """The children that run and were told to prepare to measure, or to open a device."""
        return {message.child for message in (*self.prepared(), *self.of("open")) if message.child.running}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Notes what children are told."""
    noted = Told()
    send, tell = ChildProcess.send, ChildProcess.tell

    def note(child: ChildProcess, operation: str, payload: JsonObject) -> None:
        assert child.pid is not None
        noted.messages.append(Message(child, child.pid, operation, payload))

    def noted_send(child: ChildProcess, operation: str, payload: JsonObject) -> int:
        number = send(child, operation, payload)
        note(child, operation, payload)
        return number

    def noted_tell(child: ChildProcess, operation: str, payload: JsonObject) -> None:
        tell(child, operation, payload)
        note(child, operation, payload)

    monkeypatch.setattr(ChildProcess, "send", noted_send)
    monkeypatch.setattr(ChildProcess, "tell", noted_tell)
    return noted


@pytest.fixture
def h100() -> DeviceFingerprint:
    return H100


RecordMaker = Callable[..., ConfigRecord]


@pytest.fixture
def make_record() -> RecordMaker:
    def make(
        shape: Mapping[str, int],
        *,
        kernel_hash: str = "ab" * 32,
        device: DeviceFingerprint = H100,
        dtype: str = "f32",
        toolchain: Mapping[str, str] | None = None,
        created_at: str = "2026-01-01T00:00:00+00:00",
        config: Mapping[str, int] | None = None,
        **more: object,
    ) -> ConfigRecord:
        best = dict(config or {"BLOCK": 128, "num_warps": 4})
        return ConfigRecord(
            kernel_name="kernel",
            kernel_hash=kernel_hash,
            device=device,
            shape=dict(shape),
            dtype=dtype,
            toolchain=dict(toolchain or {"deuteron": "0.1.0"}),
            config=best,
            default_config={"BLOCK": 64, "num_warps": 4},
            time_ns=Interval(1000.0, 990.0, 1010.0, 20),
            default_time_ns=Interval(1500.0, 1490.0, 1510.0, 20),
            speedup=Interval(1.5, 1.48, 1.52, 20),
            verdict="FASTER",
            trials=40,
            checked=True,
            created_at=created_at,
            **{"reach": Reach(sizes=dict.fromkeys(shape, 1 << 62), together=True), **more},  # type: ignore[arg-type]
        )

    return make


@pytest.fixture
def keys(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path / "home" / "keys")


@pytest.fixture
def write(tmp_path: Path, make_record: RecordMaker) -> Write:
    """``write("name", key)``: a bundle of two records, signed with the key."""

    def build(
        name: str, key: SigningKey | None = None, *, service: str = THERE, sizes: tuple[int, ...] = (1, 2)
    ) -> Path:
        write_bundle(tmp_path / name, [make_record({"n": n}) for n in sizes], service=service, sign_with=key)
        return tmp_path / name

    return build
