"""A service whose predictors a fake trains, with a clock that is set by hand, and jobs whose trials are made up."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import modelled_products
from fastapi.testclient import TestClient

from deuteron.server.context import ServiceContext
from deuteron.server.dispatch.ingest import Delivery
from deuteron.server.learning.messages import Learnt, Train, Trained
from deuteron.server.learning.trainer import Trainer
from deuteron.tuner import Interval, Trial
from deuteron.tuner.events import JobFinished, JobStarted, TrialFinished, TuneEvent
from deuteron.tuner.learn import kernel_hash_of
from deuteron.tuner.workloads import builtin_workload

H200 = "cuda/h200/cc90/sm132/144gib"
MATMUL = builtin_workload("matmul")
KERNEL = kernel_hash_of(MATMUL)


@dataclass
class Fake:
    """A trainer that notes what it is asked for, and answers what it is told to."""

    asked: list[str] = field(default_factory=list)
    answer: Trained | Exception = Trained("matmul_kernel", (Learnt("f16", H200, 8, 100, 0.02, 0.05, True),))

    def __call__(self, request: Train, stopping: threading.Event) -> Trained:
        self.asked.append(request.kernel_hash)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass
class Service:
    """An application whose clock is set by hand and whose training is a fake."""

    client: TestClient
    fake: Fake = field(default_factory=Fake)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.trainer._clock = lambda: self.now
        self.trainer._train = self.fake

    @property
    def context(self) -> ServiceContext:
        return self.client.app.state.context  # type: ignore[attr-defined, no-any-return]

    @property
    def trainer(self) -> Trainer:
        return self.context.trainer

    def run_job(self, among: slice = slice(None), *, end: bool = True, workload: str = "matmul") -> str:
        """A job whose trials are products of the model; its id."""
        table = TABLE
        places = range(len(table.shapes))[among]
        shapes = [table.shapes[place] for place in places]
        body = {"workload": workload, "device": "cuda", "dtypes": ["f16"], "shapes": shapes}
        answer = self.client.post("/v1/jobs", json=body)
        assert answer.status_code == 202, answer.text
        job_id = str(answer.json()["id"])
        events: list[TuneEvent] = [JobStarted("matmul_kernel", H200, "random", 1, 5, None)]
        for place in places:
            for config, time_ns in table.times[place].items():
                trial = a_trial({**table.configs[config], "persistent": False}, time_ns)
                events.append(TrialFinished(table.shapes[place], "f16", trial, trial.id))
        self.context.ingest.claim(job_id, claim_id="t.a", worker="w")
        self.deliver(job_id, [*events, *([JobFinished((), 1.0)] if end else [])])
        return job_id

    def deliver(self, job_id: str, events: list[TuneEvent], first: int = 1) -> None:
        lines = [Delivery(first + place, event.to_json()) for place, event in enumerate(events)]
        self.context.ingest.deliver(job_id, claim_id="t.a", events=lines)

    def after(self, seconds: float) -> list[str]:
        """What was asked to be trained in all, so many seconds later."""
        self.now += seconds
        while self.trainer.step() == 0:
            pass
        return self.fake.asked


TABLE = modelled_products.table(
    12, seed=4, among=modelled_products.shapes([(4096, 4096), (1024, 8192), (8192, 2048)], (16, 128, 1024, 4096))
)
_numbers = iter(range(1 << 30))


def a_trial(config: Mapping[str, Any], time_ns: float) -> Trial:
    number = next(_numbers)
    return Trial(
        id=f"trial{number}",
        number=number,
        config=config,
        status="ok",
        time_ns=Interval(time_ns, time_ns, time_ns, 5),
        error=None,
        metrics={},
        phase="screen",
        started_at="2026-01-01T00:00:00+00:00",
        duration_s=0.01,
    )
