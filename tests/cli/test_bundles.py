"""``deuteron cache`` on files: show, lookup, export."""

from __future__ import annotations

import ast
import csv
import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from deuteron.cli.errors import CommandError
from deuteron.cli.exports import FORMATS, ExportSource, TextFormat
from deuteron.tuner import ConfigRecord, DeviceFingerprint, read_bundle, write_bundle
from deuteron.tuner.records.lookup import lookup
from deuteron.tuner.records.reach import Reach


def test_show_lists_the_records(run, bundle: Path):
    ran = run("cache", "show", bundle)
    assert ran.code == 0
    assert "1 configuration from local" in ran.out
    assert "vector_add_kernel on cpu/" in ran.out
    assert "n=65536" in ran.out


def test_show_says_what_was_not_checked(run, bundle: Path, tmp_path: Path):
    (record,) = read_bundle(bundle).records()
    assert "warning" not in run("cache", "show", bundle).out
    write_bundle(tmp_path / "b", [replace(record, checked=False)])
    ran = run("cache", "show", tmp_path / "b")
    assert "warning: vector_add_kernel n=65536 f32: not checked: no reference and no other configuration" in ran.out


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
    assert ask("vector_add", "--shape", "n=65536") == exact
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


def test_lookup_looks_in_one_place(run, bundle: Path):
    where = ("--bundle", bundle, "--server", "http://127.0.0.1:9")
    asked = run("cache", "lookup", "vector_add", "--shape", "n=65536", *where)
    assert asked.code == 2 and "--bundle and --server are two places" in asked.err


def test_lookup_of_other_dims_names_the_right_ones(run, bundle: Path):
    asked = run("cache", "lookup", "--bundle", bundle, "vector_add_kernel", "--shape", "m=65536")
    assert asked.code == 2
    assert "the shape m=65536 lacks 'n'" in asked.err and "dims of vector_add_kernel: n" in asked.err


def test_lookup_by_the_kernel_of_a_file(run, bundle: Path):
    from deuteron.tuner.workloads import kernels

    file = Path(kernels.__path__[0]) / "vector_add.py"
    ran = run("cache", "lookup", f"{file}:vector_add_kernel", "--shape", "n=65536", "--bundle", bundle)
    assert ran.out.startswith("match   exact\n")


def test_a_name_stands_for_the_newest_text(run, bundle: Path, tmp_path: Path):
    (record,) = read_bundle(bundle).records()
    old = replace(record, kernel_hash="0" * 64, created_at="2025-01-01T00:00:00Z", config={"BLOCK_SIZE": 1})
    write_bundle(tmp_path / "two.bundle", [old, record])
    where = ("--shape", "n=65536", "--bundle", tmp_path / "two.bundle")
    ran = run("cache", "lookup", "vector_add_kernel", *where)
    assert f"config  BLOCK_SIZE={record.config['BLOCK_SIZE']}\n" in ran.out
    assert f"the newest of 2 texts, {record.kernel_hash[:12]} (the others: 000000000000)" in ran.out
    ran = run("cache", "lookup", "0" * 12, *where)
    assert "config  BLOCK_SIZE=1\n" in ran.out and "texts" not in ran.out


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


def record_of(base: ConfigRecord, shape: dict[str, int], config: dict[str, object], **changes: object) -> ConfigRecord:
    """Another record of the same search."""
    gpu = DeviceFingerprint(kind="cuda", name="NVIDIA H200", compute_capability=(9, 0))
    text = ",".join(f"{d}={n}" for d, n in sorted(shape.items()))
    return replace(base, shape=shape, shape_key=text, config=config, **{"device": gpu, "dtype": "bf16", **changes})


def module_of(records: list[ConfigRecord]) -> dict[str, object]:
    """What ``--format dispatch`` writes, as a module whose triton is deuteron."""
    import deuteron

    text = io.StringIO()
    dispatch = FORMATS["dispatch"]
    assert isinstance(dispatch, TextFormat)
    dispatch.write(ExportSource(records), text)
    names: dict[str, object] = {}
    kept = sys.modules.get("triton")
    sys.modules["triton"] = deuteron
    try:
        exec(compile(text.getvalue(), "dispatch", "exec"), names)
    finally:
        sys.modules.pop("triton") if kept is None else sys.modules.update(triton=kept)
    return names


@settings(max_examples=60)
@given(data=st.data())
def test_a_dispatch_module_gives_what_a_lookup_gives(bundle: Path, data: st.DataObject):
    """The module has no default to fall back to: where a lookup answers with it, it raises. A bundle has a record of
    each shape for each toolchain that measured it; this machine's is one of them on the CPU, and unknown for a GPU."""
    (base,) = read_bundle(bundle).records()
    sizes = st.fixed_dictionaries({"M": st.integers(1, 64), "N": st.integers(1, 64)})
    grown = st.dictionaries(st.sampled_from("MN"), st.integers(1, 200))
    rule = st.sampled_from(
        [(), ("BLOCK_SIZE >= M",), ("M % BLOCK_SIZE == 0 or BLOCK_SIZE >= least", "cdiv(N, M - 9) < 8 ** 2")]
    )
    chains = [{**base.toolchain, "compiler": text} for text in ("0", base.toolchain["compiler"], "z")]
    kept = st.tuples(sizes, st.integers(0, 2))
    shapes = data.draw(
        st.lists(kept, min_size=1, max_size=6, unique_by=lambda k: (k[0]["M"], k[0]["N"], k[1])), "shape and toolchain"
    )
    days = data.draw(st.permutations(range(len(shapes))), "days")
    changes = {"device": base.device} if data.draw(st.booleans(), "here") else {}
    records = [
        record_of(
            base,
            shape,
            {"BLOCK_SIZE": 1 << i, "num_warps": 4, "persistent": True},
            reach=Reach(data.draw(rule), {"least": 16}, data.draw(grown), together=data.draw(st.booleans())),
            toolchain=chains[chain],
            created_at=f"2026-01-0{day + 1}T00:00:00Z",
            **changes,
        )
        for i, ((shape, chain), day) in enumerate(zip(shapes, days, strict=True))
    ]
    wanted = data.draw(sizes)
    config_for = module_of(sorted(records, key=lambda record: record.key))["config_for"]
    here = base.toolchain if changes else None
    answer = lookup(records, base.kernel_hash, records[0].device, wanted, "bf16", toolchain=here)
    if answer.record is None:
        with pytest.raises(KeyError, match="no configuration of .* may be used for"):
            config_for(base.kernel_name, "bf16", **wanted)
        return
    config = config_for(base.kernel_name, "bf16", **wanted)
    assert config.num_warps == 4 and config.kwargs.keys() == {"BLOCK_SIZE"}  # what Triton does not know is left out
    assert config.kwargs["BLOCK_SIZE"] == answer.record.config["BLOCK_SIZE"]


def test_a_constraint_of_a_bundle_becomes_no_other_code(bundle: Path):
    (base,) = read_bundle(bundle).records()
    with pytest.raises(ValueError, match="cannot be read"):
        Reach(("__import__('os').getcwd()",))
    strange = record_of(base, {"M": 8}, {"BLOCK_SIZE": 64}, reach=Reach(("exit or M",)))
    with pytest.raises(CommandError, match="names 'exit', which has no value"):
        module_of([strange])
    # A text stays a text, and a number below 0 one factor.
    reach = Reach(
        ("name == text and low ** 2 == M",), {"text": "\"'); exit()", "low": -3, "name": "\"'); exit()"}, {"M": 10}
    )
    config_for = module_of([record_of(base, {"M": 8}, {"BLOCK_SIZE": 64}, reach=reach)])["config_for"]
    assert config_for(base.kernel_name, "bf16", M=9).kwargs == {"BLOCK_SIZE": 64}
    with pytest.raises(KeyError, match="may be used"):
        config_for(base.kernel_name, "bf16", M=10)


def test_a_dispatch_module_says_what_it_cannot_tell(bundle: Path):
    (base,) = read_bundle(bundle).records()
    records = [
        record_of(base, {"M": 8}, {"BLOCK_SIZE": 64}),
        replace(base, shape={"M": 8}, shape_key="M=8", dtype="bf16"),
    ]
    config_for = module_of(records)["config_for"]
    with pytest.raises(KeyError, match="was tuned for cpu/.*, cuda/h200/cc90: say which device this is"):
        config_for(base.kernel_name, "bf16", M=8)
    assert config_for(base.kernel_name, "bf16", "cuda/h200/cc90", M=4).kwargs == {"BLOCK_SIZE": 64}
    with pytest.raises(KeyError, match="was tuned over M, not N"):
        config_for(base.kernel_name, "bf16", "cuda/h200/cc90", N=100)


TILES = {"BLOCK_SIZE_M": 64, "BLOCK_N": 128, "BLOCK_SIZE_K": 64, "GROUP_M": 8, "num_warps": 4, "num_stages": 3}


def test_files_of_mixtures_of_experts(run, bundle: Path, tmp_path: Path):
    """A file for each E, N, device and dtype, with a configuration for each M under the names that vLLM takes."""
    (base,) = read_bundle(bundle).records()
    tuned = tmp_path / "tuned.bundle"
    shapes = [{"E": 8, "K": 4096, "M": m, "N": n} for n in (7168, 3584) for m in (64, 1)]
    records = [record_of(base, shape, {**TILES, "BLOCK_SIZE_M": 16 * (1 + shape["M"] % 2)}) for shape in shapes]
    records.append(record_of(base, shapes[0], TILES, dtype="f8e4m3"))
    write_bundle(tuned, records)
    folder = tmp_path / "made" / "configs"
    assert run("cache", "export", tuned, "--format", "vllm", "-o", folder).code == 0
    name = "E=8,N=7168,device_name=NVIDIA_H200"
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [f"{name}.json", f"{name},dtype=fp8_w8a8.json", "E=8,N=3584,device_name=NVIDIA_H200.json"]
    )
    read = {int(m): values for m, values in json.loads((folder / f"{name}.json").read_text()).items()}
    assert list(read) == [1, 64]
    assert read[1] == {
        "BLOCK_SIZE_M": 32,
        "BLOCK_SIZE_N": 128,
        "BLOCK_SIZE_K": 64,
        "GROUP_SIZE_M": 8,
        "num_warps": 4,
        "num_stages": 3,
    }


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shape": {"M": 8, "N": 8}}, "was tuned over M=8,N=8, without E"),
        ({"config": {"BLOCK_SIZE_M": 64}}, "has no BLOCK_SIZE_N or BLOCK_N"),
        ({"dtype": "i32"}, "there is no such file for i32"),
        (
            {"shape": {"E": 8, "K": 64, "M": 8, "N": 8}, "config": {**TILES, "num_warps": 8}},
            "two configurations for M=8",
        ),
    ],
)
def test_what_is_no_mixture_of_experts(run, bundle: Path, tmp_path: Path, changes: dict, says: str):
    (base,) = read_bundle(bundle).records()
    made = {"shape": {"E": 8, "K": 32, "M": 8, "N": 8}, "config": TILES}
    both = {record.key: record for record in (record_of(base, **made), record_of(base, **{**made, **changes}))}
    tuned = tmp_path / "tuned.bundle"
    write_bundle(tuned, [both[key] for key in sorted(both)])
    ran = run("cache", "export", tuned, "--format", "vllm", "-o", tmp_path / "configs")
    assert ran.code == 2 and says in ran.err
    assert not (tmp_path / "configs").exists()


def test_files_need_a_folder(run, bundle: Path):
    ran = run("cache", "export", bundle, "--format", "vllm")
    assert ran.code == 2 and "-o FOLDER says where" in ran.err


def test_a_broken_export_leaves_what_was_there(run, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    output = tmp_path / "configs.json"
    output.write_text("before")

    def broken(source: object, file: io.TextIOBase) -> None:
        file.write("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(FORMATS, "json", TextFormat("json", "", broken))
    ran = run("cache", "export", bundle, "-o", output)
    assert ran.code == 2 and "No space left on device" in ran.err
    assert output.read_text() == "before" and list(tmp_path.glob(".*")) == []
