"""The commands that talk to a service, against a real one, and those on its database."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from deuteron.server.database import make_engine
from deuteron.server.dispatch.leadership import dispatch_lock

JOB = ("vector_add", "--shape", "n=65536", "--trials", "3", "--seconds", "6")


@pytest.mark.slow
def test_submit_watch_pull_and_lookup(run, service: str, tmp_path: Path):
    server = ("--server", service)
    assert run("jobs", *server).out == "no jobs\n"
    submitted = run("submit", *JOB, "--idempotency-key", "one", *server)
    assert submitted.code == 0, submitted.err
    job = submitted.out.strip()
    assert f"deuteron watch {job}" in submitted.err
    assert run("submit", *JOB, "--idempotency-key", "one", *server).out.strip() == job

    watched = run("watch", job, *server)
    assert watched.code == 0, watched.err
    assert "best so far" in watched.err
    assert f"job {job} succeeded" in watched.err
    assert "n=65536" in watched.out
    assert "speed-up" in watched.out

    apart = ("--shape", "n=4096", "--shape", "n=8192", "--shape", "n=2048", "--jobs", "2", "--trials", "1", "--watch")
    both = run("submit", "vector_add", *apart, "--idempotency-key", "two", *server)
    first, second = both.out.split()[:2]
    assert both.code == 0 and first != second
    assert both.err.count("succeeded") == 2
    assert all(f"n={size}" in both.out for size in (2048, 4096, 8192))
    assert run("submit", "vector_add", *apart, "--idempotency-key", "two", *server).out.split()[:2] == [first, second]

    healthy = run("doctor", "--json", *server)
    (said,) = (finding for finding in json.loads(healthy.out) if finding["name"] == "service")
    assert (said["state"], said["text"].startswith("ready, 1 workers, ")) == ("ok", True)

    (worker,) = json.loads(run("workers", "list", "--json", *server).out)
    assert (worker["state"], worker["device"], worker["job"]) == ("idle", "cpu", None)
    name = worker["name"]
    assert run("workers", "drain", name, *server).out == f"worker {name} gets no job\n"
    table = run("workers", "list", *server).out
    assert name in table and "draining" in table and worker["devices"][0] in table
    waiting = run("submit", "vector_add", "--shape", "n=4096", "--trials", "1", *server).out.strip()
    why = "waits for a worker with cpu that is not draining"
    seen = (run("jobs", "--state", "queued", *server).out for _ in range(300))
    assert any(why in queued for queued in seen), run("jobs", *server).out
    assert run("cancel", waiting, *server).out == f"job {waiting}: cancelled\n"
    assert run("workers", "resume", name, *server).out == f"worker {name} is idle\n"
    unknown = run("workers", "drain", "cpu@nowhere", *server)
    assert (unknown.code, unknown.out) == (2, "") and "there is no worker 'cpu@nowhere'" in unknown.err

    listed = run("jobs", *server).out
    (row,) = [line for line in listed.splitlines() if job in line]
    assert "succeeded" in row
    assert "3/3" in row.split(), "races and finals do not count towards the budget"
    assert run("jobs", "--state", "failed", *server).out == "no jobs\n"

    bundle = tmp_path / "configs.bundle"
    pulled = run("cache", "pull", "-o", bundle, *server)
    assert "downloaded, 4 configurations, sha256 " in pulled.out
    assert "is current" in run("cache", "pull", "-o", bundle, *server).out
    online = run("cache", "lookup", "vector_add_kernel", "--shape", "n=65536", *server).out
    offline = run("cache", "lookup", "vector_add_kernel", "--shape", "n=65536", "--bundle", bundle).out
    assert online.startswith("match   exact\n")
    assert online == offline  # the service is told this machine's toolchain, too

    missing = run("watch", "no-such-job", *server)
    assert missing.code == 2
    assert "no-such-job" in missing.err


@pytest.mark.slow
def test_cancel_ends_a_running_job_and_watching_says_so(run, service: str):
    server = ("--server", service)
    job = run("submit", "matmul", "--shape", "M=256,N=256,K=256", "--seconds", "120", *server).out.strip()
    cancelled = run("cancel", job, *server)
    assert cancelled.code == 0, cancelled.err
    watched = run("watch", job, *server)
    assert watched.code == 1
    assert f"job {job} cancelled" in watched.err
    assert run("cancel", job, *server).out == f"job {job}: cancelled\n"


def test_devices_as_table_and_as_json(run):
    from deuteron.compiler import get_device

    assert get_device("cpu").properties.name in run("devices").out
    rows = json.loads(run("devices", "--json").out)
    assert rows[0]["device"] == "cpu"
    assert rows[0]["key"].startswith("cpu/")


def test_database_goes_up_down_and_up(run, home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert run("db", "upgrade").code == 0
    assert (home / "deuteron.db").is_file()
    newest = run("db", "current").out
    assert newest.endswith("(newest)\n")
    refused = run("db", "downgrade", "base")
    assert refused.code == 1  # nobody answers the question
    assert run("db", "current").out == newest
    engine = make_engine(f"sqlite:///{home / 'deuteron.db'}")
    served = dispatch_lock(engine)
    assert served.acquire()
    refused = run("db", "downgrade", "base", "--yes")
    assert refused.code == 2 and "a server runs on" in refused.err and run("db", "current").out == newest
    served.release(), engine.dispose()
    assert run("db", "downgrade", "base", "--yes").code == 0
    assert run("db", "current").out.startswith("base (newest is ")
    assert "upgrade" in run("db", "backup", str(home / "b.zip")).err
    assert run("db", "upgrade").out.rstrip().endswith(newest.split()[0])


@pytest.mark.parametrize("command", [["current"], ["backup", "b.zip"], ["downgrade", "base", "--yes"]])
def test_a_database_that_is_not_there_is_not_made(run, tmp_path: Path, command: list[str]):
    """Each left an empty file, and that of a wrong name looked like a database that was never migrated."""
    before = sorted(tmp_path.rglob("*"))
    for named in ([], ["--url", f"sqlite:///{tmp_path}/no/such.db"]):
        refused = run("db", *command, *named)
        assert refused.code == 2 and "there is no database sqlite:///" in refused.err
        assert "deuteron db upgrade" in refused.err
    assert sorted(tmp_path.rglob("*")) == before


def test_who_lists_or_ends_tokens_makes_no_database(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEUTERON_HOME", str(tmp_path / "home"))
    for command in (("list",), ("revoke", "3f0c")):
        refused = run("token", *command)
        assert refused.code == 2 and "there is no database sqlite:///" in refused.err and "DEUTERON_HOME" in refused.err
    assert not (tmp_path / "home").exists()


def test_a_database_of_a_newer_version_is_called_so(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As after an update that was taken back: two hints named each other."""
    monkeypatch.setenv("DEUTERON_HOME", str(tmp_path))
    run("db", "upgrade")
    engine = make_engine(f"sqlite:///{tmp_path / 'deuteron.db'}")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999_future'")
    engine.dispose()
    for command in (("serve",), ("db", "upgrade"), ("token", "list")):
        refused = run(*command)
        assert refused.code == 2 and "is of a newer version of deuteron: it is at revision 9999_future" in refused.err
        assert "install that version again" in refused.err
    assert "9999_future (of a newer version of deuteron: " in run("db", "current").out
    assert "install the newer version" in run("db", "backup", str(tmp_path / "b.zip")).err
    checks = {check["name"]: check for check in json.loads(run("doctor", "--json").out)}
    assert checks["database"]["hint"] == "install the newer version of deuteron"


def test_a_backup_is_written_and_restored_once(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run("db", "upgrade")
    run("token", "create", "ci")
    made = run("db", "backup", str(tmp_path / "b.zip"))
    assert made.code == 0 and "0 jobs, 0 trials, 0 configurations, 0 files" in made.out
    again = run("db", "backup", str(tmp_path / "b.zip"))
    assert again.code == 2 and "exists" in again.err
    with monkeypatch.context() as patch:
        patch.setattr("deuteron.server.backup._missing", lambda named, files: 7)
        lacking = run("db", "backup", str(tmp_path / "lacking.zip"))
    assert lacking.code == 2 and "7 profiles that jobs name are not in" in lacking.err
    nowhere = run("db", "backup", str(tmp_path / "missing" / "b.zip"))
    assert nowhere.code == 2 and "missing" in nowhere.err
    monkeypatch.setenv("DEUTERON_HOME", str(tmp_path / "other"))
    assert run("db", "restore", str(tmp_path / "b.zip")).code == 0
    assert "ci" in run("token", "list").out
    assert "has tables" in run("db", "restore", str(tmp_path / "b.zip")).err


def test_when_a_backup_was_made_gives_a_terminal_no_orders(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run("db", "upgrade")
    run("db", "backup", tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["manifest.json"] = json.dumps({**json.loads(members["manifest.json"]), "made_at": "\x1b[2J\n"}).encode()
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    monkeypatch.setenv("DEUTERON_HOME", str(tmp_path / "other"))
    restored = run("db", "restore", tmp_path / "odd.zip")
    assert restored.code == 0 and restored.out.endswith(r"written at \x1b[2J\n" + "\n")


def test_a_password_is_not_shown(run):
    ran = run("db", "current", "--url", "postgresql://me:secret@127.0.0.1:9/x")
    assert ran.code == 2
    assert "secret" not in ran.err
    assert "127.0.0.1:9" in ran.err


def test_tokens_are_created_listed_and_revoked(run, home: Path):
    created = run("token", "create", "ci", "--scope", "read", "--scope", "submit", "--expires", "90d")
    secret = created.out.strip()
    assert secret.startswith("dtn_")
    assert secret not in created.err
    listed = run("token", "list").out
    assert "read submit" in listed
    assert "expires 20" in listed
    assert secret not in listed
    assert secret.encode() not in (home / "deuteron.db").read_bytes()
    (token,) = [word for word in listed.split() if len(word) == 36]
    assert "revoked" in run("token", "revoke", token).out
    assert "revoked" in run("token", "list").out


def test_benchmarks_are_listed_with_what_they_measure(run):
    listed = run("bench").out
    assert "compile_time" in listed
    assert "attention_work" not in listed, "what other benchmarks import is none"
    assert all(len(line.split()) > 2 for line in listed.splitlines())


def test_a_benchmark_gets_its_arguments_and_its_exit_code_is_ours(
    run_process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run
):
    from deuteron.cli import bench

    (tmp_path / "probe.py").write_text(
        '"""Probes."""\nimport sys\n\nif __name__ == "__main__":\n    sys.exit(len(sys.argv))\n'
    )
    monkeypatch.setattr(bench, "benchmarks_folder", lambda: tmp_path)
    assert run("bench", "probe", "--", "--a", "b").code == 3
