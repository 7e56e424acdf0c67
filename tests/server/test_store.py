"""The store's contract. A new database inherits every test by adding a parameter to ``database_url``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update
from store_rows import new_config, new_job, new_trial

from deuteron.server.models import IdempotencyRow
from deuteron.server.store import (
    Conflict,
    InvalidToken,
    Job,
    JobIsFinal,
    JobIsTaken,
    JobState,
    KeyIsTaken,
    NotFound,
    ServiceStore,
    StoredKernel,
    TooLong,
    Transaction,
)

LEASE = timedelta(seconds=30)


class TestStore:
    """What every database must do."""

    def submit(self, store: ServiceStore, **changes: object) -> Job:
        with store.write() as tx:
            return tx.jobs.add(new_job(**changes))

    # -- kernels

    def test_a_kernel_is_stored_once_per_hash(self, store: ServiceStore) -> None:
        first = {
            "created_at": datetime.now(UTC),
            "hash": "b" * 64,
            "name": "k",
            "filename": "k.py",
            "text": "x",
            "arguments": "[]",
        }
        with store.write() as tx:
            kernel = tx.kernels.add(StoredKernel(**first))
            again = tx.kernels.add(StoredKernel(**{**first, "text": "a comment more"}))
        assert again == kernel
        with store.read() as tx:
            assert tx.kernels.get("b" * 64).text == "x"
            with pytest.raises(NotFound, match="no kernel ccc"):
                tx.kernels.get("ccc")

    def test_a_name_stands_for_the_text_that_was_stored_last(self, store: ServiceStore) -> None:
        """Also for one that comes back, and while the clock is wrong."""
        now = datetime.now(UTC)

        def stored(letter: str, at: datetime) -> StoredKernel:
            return StoredKernel(letter * 64, "k", "k.py", letter, "[]", at)

        def newest() -> str:
            with store.read() as tx:
                found = tx.kernels.newest_named("k")
            return found.text if found is not None else ""

        for letter, days in (("a", 5), ("b", 0), ("a", 0), ("c", -400)):
            with store.write() as tx:
                tx.kernels.add(stored(letter, now + timedelta(days=days)))
            assert newest() == letter
        with store.write() as tx:
            assert tx.kernels.keep(stored("b", now)).created_at == now
            assert tx.kernels.keep(StoredKernel("d" * 64, "other", "k.py", "d", "[]", now)).text == "d"
        assert newest() == "c"
        with store.read() as tx:
            before = tx.versions()
        with store.write() as tx:
            tx.kernels.add(stored("c", now))
        with store.read() as tx:
            assert tx.versions() == before, "nothing has changed"

    # -- jobs

    def test_a_new_job_is_queued_and_comes_back_whole(self, store: ServiceStore) -> None:
        new = new_job(spec='{"text": "µ ∑ \\u0000"}')
        with store.write() as tx:
            tx.jobs.add(new)
        with store.read() as tx:
            job = tx.jobs.get(new.id)
        assert (job.state, job.attempts, job.trials_done) == (JobState.QUEUED, 0, 0)
        assert job.spec == new.spec
        assert abs(datetime.now(UTC) - job.created_at) < timedelta(seconds=20)

    def test_claim_is_idempotent_for_a_run_and_counts_takeovers(self, store: ServiceStore) -> None:
        job = self.submit(store)
        with store.write() as tx:
            first = tx.jobs.claim(job.id, claim_id="t.1", worker="cpu", lease=LEASE)
            again = tx.jobs.claim(job.id, claim_id="t.1", worker="cpu", lease=LEASE)
            with pytest.raises(JobIsTaken, match="is running on cpu"):
                tx.jobs.claim(job.id, claim_id="other.1", worker="gpu", lease=LEASE)
            other = tx.jobs.claim(job.id, claim_id="t.2", worker="cpu", lease=LEASE)
        assert (first.state, first.attempts) == (JobState.RUNNING, 1)
        assert again == first
        assert (other.attempts, other.claim_id) == (2, "t.2")
        assert first.started_at is not None and abs(datetime.now(UTC) - first.started_at) < timedelta(seconds=20)
        assert other.started_at == first.started_at
        with store.write() as tx:
            assert not tx.jobs.renew(job.id, claim_id="t.1", lease=LEASE)
            assert tx.jobs.renew(job.id, claim_id="t.2", lease=LEASE)

    @pytest.mark.parametrize("end", [s for s in JobState if s.is_final])
    def test_final_states_are_final(self, store: ServiceStore, end: JobState) -> None:
        job = self.submit(store)
        with store.write() as tx:
            ended = tx.jobs.finish(job.id, end, error="why")
            assert tx.jobs.finish(job.id, JobState.SUCCEEDED) == ended
            assert tx.jobs.requeue(job.id) == ended
            assert tx.jobs.request_cancel(job.id) == ended
            with pytest.raises(JobIsFinal, match=end.value):
                tx.jobs.claim(job.id, claim_id="r", worker="w", lease=LEASE)
        assert ended.error == "why"
        assert ended.finished_at is not None

    def test_cancel_ends_a_queued_job_and_asks_a_running_one(self, store: ServiceStore) -> None:
        queued, running = self.submit(store), self.submit(store)
        with store.write() as tx:
            tx.jobs.claim(running.id, claim_id="r", worker="w", lease=LEASE)
            cancelled = tx.jobs.request_cancel(queued.id)
            assert (cancelled.state, cancelled.cancel_requested) == (JobState.CANCELLED, True)
            asked = tx.jobs.request_cancel(running.id)
            assert (asked.state, asked.cancel_requested) == (JobState.RUNNING, True)
            assert tx.jobs.request_cancel(running.id) == asked

    def test_a_silent_run_loses_its_job_to_any_other(self, store: ServiceStore) -> None:
        job = self.submit(store)
        with store.write() as tx:
            tx.jobs.claim(job.id, claim_id="a.1", worker="w", lease=timedelta(seconds=-1))
            taken = tx.jobs.claim(job.id, claim_id="b.1", worker="v", lease=LEASE)
        assert (taken.worker, taken.attempts) == ("v", 2)

    def test_requeue_forgets_the_run_but_not_the_attempts(self, store: ServiceStore) -> None:
        job = self.submit(store)
        with store.write() as tx:
            tx.jobs.claim(job.id, claim_id="r", worker="w", lease=LEASE)
            back = tx.jobs.requeue(job.id)
        assert (back.state, back.attempts, back.claim_id) == (JobState.QUEUED, 1, None)

    def test_pages_are_stable_while_jobs_arrive(self, store: ServiceStore) -> None:
        made = [self.submit(store).id for _ in range(5)]
        with store.read() as tx:
            first = tx.jobs.page(limit=2)
        self.submit(store)
        with store.read() as tx:
            second = tx.jobs.page(before=first[-1].number, limit=10)
        assert [job.id for job in first + second] == made[::-1]

    def test_what_the_dispatcher_looks_at(self, store: ServiceStore) -> None:
        """The oldest queued jobs of each device, cancelled ones that never ran, and leases that are over."""
        with store.write() as tx:
            for number in range(4):
                for device in ("cpu", "cuda:0"):
                    tx.jobs.add(new_job(id=f"{device}-{number}", device=device))
            for job_id in ("cpu-0", "cuda:0-3"):
                tx.jobs.claim(job_id, claim_id="t.r", worker="w", lease=timedelta(seconds=-1))
            tx.jobs.claim("cpu-1", claim_id="t.r", worker="w", lease=timedelta(hours=1))
            tx.jobs.finish("cuda:0-3", JobState.CANCELLED)
            tx.jobs.request_cancel("cuda:0-0")
        with store.read() as tx:
            assert [row[1:] for row in tx.jobs.waiting(limit=1)] == [("cuda:0-1", "cuda:0"), ("cpu-2", "cpu")]
            waiting = tx.jobs.waiting(limit=5)
            assert [job_id for _, job_id, _ in waiting] == ["cuda:0-1", "cpu-2", "cuda:0-2", "cpu-3"]
            assert waiting == sorted(waiting)
            everything = [f"{device}-{number}" for number in range(4) for device in ("cpu", "cuda:0")]
            assert tx.jobs.never_started(everything, JobState.CANCELLED) == {"cuda:0-0"}
            assert tx.jobs.never_started([], JobState.CANCELLED) == set()
            assert [job.id for job in tx.jobs.overdue(datetime.now(UTC))] == ["cpu-0"]

    def test_count_by_state(self, store: ServiceStore) -> None:
        self.submit(store)
        done = self.submit(store)
        with store.write() as tx:
            tx.jobs.finish(done.id, JobState.SUCCEEDED)
        with store.read() as tx:
            counts = tx.jobs.count_by_state()
            assert [job.id for job in tx.jobs.in_state(JobState.SUCCEEDED)] == [done.id]
        assert (counts[JobState.QUEUED], counts[JobState.SUCCEEDED]) == (1, 1)
        assert set(counts) == set(JobState)

    # -- trials and events

    def test_a_trial_delivered_twice_is_stored_once(self, store: ServiceStore) -> None:
        job = self.submit(store)
        trial = new_trial()
        with store.write() as tx:
            assert tx.trials.append(job.id, trial)
            assert not tx.trials.append(job.id, replace(trial, attempt=2))
            assert tx.trials.append(job.id, new_trial(phase="final"))
            assert tx.trials.append(job.id, new_trial(status="timeout", median_ns=None))
        with store.read() as tx:
            trials = tx.trials.page(job.id)
            assert [t.sequence for t in trials] == [1, 2, 3]
            assert tx.trials.page(job.id, after=1, limit=1) == trials[1:2]
            assert [t.status for t in trials] == ["ok", "ok", "timeout"]
        assert trials[0].median_ns == 1234.5
        assert trials[2].median_ns is None

    def test_event_ids_have_no_gaps_under_concurrent_writers(self, store: ServiceStore) -> None:
        jobs = [self.submit(store), self.submit(store)]

        def write(number: int) -> None:
            job = jobs[number % 2]
            with store.write() as tx:
                tx.jobs.lock(job.id)
                tx.events.append(job.id, "trial", "{}", claim_id="r", sequence=number)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(40)))
        with store.read() as tx:
            for parity, job in enumerate(jobs):
                assert [event.id for event in tx.events.page(job.id)] == list(range(1, 21))
                assert tx.events.delivered(job.id, "r") == set(range(parity, 40, 2))
                assert tx.events.last_id(job.id) == 20
                assert [e.id for e in tx.events.page(job.id, after=17)] == [18, 19, 20]

    def test_the_last_run_is_the_one_that_got_the_job_last(self, store: ServiceStore) -> None:
        """Whatever earlier runs still deliver."""
        job, other = self.submit(store), self.submit(store)
        with store.write() as tx:
            assert tx.events.last_run(job.id) is None
            for claim in (None, "t.1", None, "t.2"):
                tx.events.append(job.id, "job_state", "{}", claim_id=claim)
                tx.events.append(other.id, "job_state", "{}", claim_id="t.3")
            tx.events.append(job.id, "trial", "{}", claim_id="t.1", sequence=1)
            assert (tx.events.last_run(job.id), tx.events.last_run(other.id)) == ("t.2", "t.3")

    def test_a_transaction_that_raises_leaves_nothing(self, store: ServiceStore) -> None:
        job = self.submit(store)
        with pytest.raises(ZeroDivisionError), store.write() as tx:
            tx.trials.append(job.id, new_trial())
            tx.events.append(job.id, "trial", "{}")
            tx.jobs.finish(job.id, JobState.FAILED)
            raise ZeroDivisionError
        with store.read() as tx:
            assert tx.jobs.get(job.id).state is JobState.QUEUED
            assert tx.trials.page(job.id) == []
            assert tx.events.page(job.id) == []

    def test_readers_do_not_wait_for_a_writer(self, store: ServiceStore) -> None:
        job = self.submit(store)
        seen = threading.Event()

        def read() -> None:
            with store.read() as tx:
                tx.jobs.get(job.id)
            seen.set()

        with store.write() as tx:
            tx.events.append(job.id, "trial", "{}")
            threading.Thread(target=read).start()
            assert seen.wait(5)

    # -- all tables

    def test_texts_that_no_column_holds_are_refused(self, store: ServiceStore) -> None:
        long = "x" * 5000
        job = self.submit(store)

        def too_long(put: Callable[[Transaction], object], name: str) -> None:
            with pytest.raises(TooLong, match=f"^{name}: 'xxx"), store.write() as tx:
                put(tx)

        too_long(lambda tx: tx.configs.put(new_config(dtype=long)), "dtype")
        too_long(lambda tx: tx.configs.put(new_config(toolchain_key=long)), "toolchain_key")
        too_long(lambda tx: tx.jobs.add(new_job(kernel_name=long)), "kernel_name")
        too_long(lambda tx: tx.trials.append(job.id, new_trial(trial_id=long)), "trial_id")
        device = {"key": "cpu/x", "kind": "cpu", "name": "x", "fingerprint": "{}", "worker": "w"}
        for name in ("key", "kind", "name"):
            too_long(lambda tx, name=name: tx.devices.announce(**{**device, name: long}), name)  # type: ignore[misc]
        with store.write() as tx:
            tx.devices.announce(**device)
        too_long(lambda tx: tx.devices.announce(**{**device, "kind": long}), "kind")
        too_long(lambda tx: tx.workers.announce("cpu@h/1", device_key=long, toolchain=None), "device_key")

    # -- devices

    def test_a_device_announced_again_is_refreshed(self, store: ServiceStore) -> None:
        device = {"key": "cpu:x", "kind": "cpu", "name": "CPU", "fingerprint": "{}"}

        def announce(worker: str) -> None:
            with store.write() as tx:
                tx.devices.announce(**device, worker=worker)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(announce, "abcd"))
        announce("last")
        with store.read() as tx:
            (stored,) = tx.devices.all()
        assert stored.worker == "last"
        assert stored.last_seen >= stored.first_seen

    # -- tokens

    def test_tokens_are_hashed_scoped_and_can_end(self, store: ServiceStore) -> None:
        past = datetime.now(UTC) - timedelta(seconds=1)
        with store.write() as tx:
            token, secret = tx.tokens.create("ci", ["submit", "read"])
            _, expired = tx.tokens.create("old", ["read"], expires_at=past)
        with store.read() as tx:
            assert tx.tokens.check(secret) == token
            assert token.scopes == {"read", "submit"}
            with pytest.raises(InvalidToken, match="'old' expired at"):
                tx.tokens.check(expired)
            with pytest.raises(InvalidToken, match="not known"):
                tx.tokens.check(secret + "x")
        with store.database.read() as connection:
            dump = str(connection.exec_driver_sql("SELECT * FROM tokens").all())
        assert secret not in dump
        with store.write() as tx:
            first = tx.tokens.revoke(token.id)
            assert tx.tokens.revoke(token.id) == first
            with pytest.raises(InvalidToken, match="was revoked"):
                tx.tokens.check(secret)
            with pytest.raises(NotFound):
                tx.tokens.revoke("nobody")

    # -- idempotency

    def test_of_two_servers_one_remembers_an_idempotency_key(self, store: ServiceStore) -> None:
        """The second transaction began before the first was over, and found nothing."""
        job = self.submit(store)
        with store.write() as tx:
            tx.idempotency.add("me", "k1", "s1", job.id)
            with pytest.raises(KeyIsTaken, match="k1"):
                tx.idempotency.add("me", "k1", "s1", job.id)
            assert tx.idempotency.find("me", "k1", "s1") == job.id

    def test_an_idempotency_key_is_fresh_again_after_a_day(self, store: ServiceStore) -> None:
        first, second = self.submit(store), self.submit(store)
        with store.write() as tx:
            tx.idempotency.add("me", "old", "s1", first.id)
            tx.idempotency.add("me", "young", "s1", first.id)
        with store.database.write() as connection:
            for key, age in (("old", timedelta(hours=25)), ("young", timedelta(hours=23))):
                at = datetime.now(UTC) - age
                connection.execute(update(IdempotencyRow).where(IdempotencyRow.key == key).values(created_at=at))
        with store.write() as tx:
            assert tx.idempotency.find("me", "old", "s2") is None
            tx.idempotency.add("me", "old", "s2", second.id)
            assert tx.idempotency.find("me", "old", "s2") == second.id
            assert tx.idempotency.find("me", "young", "s1") == first.id

    def test_an_idempotency_key_finds_its_job_and_refuses_another_body(self, store: ServiceStore) -> None:
        job = self.submit(store)
        with store.write() as tx:
            assert tx.idempotency.find("me", "k1", "s1") is None
            tx.idempotency.add("me", "k1", "s1", job.id)
            assert tx.idempotency.find("me", "k1", "s1") == job.id
            assert tx.idempotency.find("you", "k1", "s2") is None
            with pytest.raises(Conflict, match=f"used for job {job.id}"):
                tx.idempotency.find("me", "k1", "s2")


def test_sqlite_runs_with_the_settings_the_service_relies_on(sqlite_url: str) -> None:
    store = ServiceStore.open(sqlite_url)
    with store.database.read() as connection:
        values = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    store.close()
    assert values == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 15_000,
    }
