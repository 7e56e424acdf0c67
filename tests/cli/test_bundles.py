"""``deuteron cache`` on files: show, lookup, export."""

from __future__ import annotations

import ast
import csv
import json
from pathlib import Path

from msgspec.structs import replace

from deuteron.tuner import read_bundle, write_bundle


def test_show_lists_the_records(run, bundle: Path):
    ran = run("cache", "show", bundle)
    assert ran.code == 0
    assert "1 configurations from local" in ran.out
    assert "vector_add_kernel on cpu/" in ran.out
    assert "n=65536" in ran.out


def test_lookup_says_why(run, bundle: Path):
    def ask(*arguments: str) -> dict[str, str]:
        ran = run("cache", "lookup", "--bundle", bundle, *arguments)
        assert ran.code == 0, ran.err
        return dict(line.split(maxsplit=1) for line in ran.out.splitlines())

    (record,) = read_bundle(bundle).records()
    exact = ask("vector_add_kernel", "--shape", "n=65536")
    assert exact["match"] == "exact"
    assert exact["config"] == f"BLOCK_SIZE={record.config['BLOCK_SIZE']}"
    assert ask(record.kernel_hash[:12], "--shape", "n=65536") == exact
    near = ask("vector_add_kernel", "--shape", "n=60000")
    assert near["match"] == "nearest_shape"
    assert "n=65536" in near["reason"]
    other = ask("vector_add_kernel", "--shape", "n=65536", "--dtype", "f16")
    assert (other["match"], other["config"]) == ("default", "-")


def test_lookup_says_what_another_toolchain_was(run, bundle: Path, tmp_path: Path):
    (record,) = read_bundle(bundle).records()
    other = tmp_path / "other.bundle"
    write_bundle(other, [replace(record, toolchain={**record.toolchain, "compiler": "of yesterday"})])
    asked = run("cache", "lookup", "--bundle", other, "vector_add_kernel", "--shape", "n=65536")
    assert asked.code == 0
    assert asked.out.startswith("match   other_toolchain\n")
    assert f"compiler of yesterday, here {record.toolchain['compiler']}" in asked.out
    strict = run("cache", "lookup", "--bundle", other, "vector_add_kernel", "--shape", "n=65536", "--strict")
    assert strict.code == 2
    assert "compiler of yesterday" in strict.err


def test_lookup_of_other_dims_names_the_right_ones(run, bundle: Path):
    asked = run("cache", "lookup", "--bundle", bundle, "vector_add_kernel", "--shape", "m=65536")
    assert asked.code == 2
    assert "the shape m=65536 lacks 'n'" in asked.err and "dims of vector_add_kernel: n" in asked.err


def test_lookup_by_the_kernel_of_a_file(run, bundle: Path):
    from deuteron.tuner.workloads import kernels

    file = Path(kernels.__path__[0]) / "vector_add.py"
    ran = run("cache", "lookup", f"{file}:vector_add_kernel", "--shape", "n=65536", "--bundle", bundle)
    assert ran.out.startswith("match   exact\n")


def test_export_as_json_is_the_records(run, bundle: Path, tmp_path: Path):
    (record,) = read_bundle(bundle).records()
    assert json.loads(run("cache", "export", bundle).out) == [json.loads(json.dumps(record.to_json()))]
    output = tmp_path / "records.json"
    assert run("cache", "export", bundle, "-o", output).out == ""
    assert json.loads(output.read_text())[0]["id"] == record.id


def test_export_as_csv_has_a_row_a_record(run, bundle: Path):
    (record,) = read_bundle(bundle).records()
    (row,) = csv.DictReader(run("cache", "export", bundle, "--format", "csv").out.splitlines())
    assert row["kernel"] == "vector_add_kernel"
    assert row["shape"] == "n=65536"
    assert float(row["time_ns"]) == record.time_ns.median
    assert json.loads(row["config"]) == dict(record.config)


def test_export_as_python_is_a_list_of_configs(run, bundle: Path):
    (record,) = read_bundle(bundle).records()
    text = run("cache", "export", bundle, "--format", "python").out
    names: dict[str, object] = {}
    exec(compile(ast.parse(text), "configs", "exec"), names)
    (config,) = names["VECTOR_ADD_KERNEL_CONFIGS"]
    assert config.kwargs == {"BLOCK_SIZE": record.config["BLOCK_SIZE"]}
