"""Settings that are variables of the environment, and what keeps programs' files."""

from __future__ import annotations


def test_groups_of_settings_of_a_programs_own(program):
    program(
        """
import os, triton
from triton import knobs

class Mine(knobs.base_knobs):
    name = knobs.env_str("MINE_NAME", "default")
    later = knobs.env_str_callable_default("MINE_LATER", lambda: os.getcwd())
    on = knobs.env_bool("MINE_ON", True)
    maybe = knobs.env_opt_bool("MINE_MAYBE")
    text = knobs.env_opt_str("MINE_TEXT")
    count = knobs.env_int("MINE_COUNT", 3)
    kind = knobs.env_class("MINE_KIND", "CacheManager")

mine = Mine()
assert mine.knobs == dict(name="default", later=os.getcwd(), on=True, maybe=None, text=None, count=3, kind=None)
for word, value in (("YES", True), ("n", False), ("Off", False), ("y", True), ("1", True)):
    os.environ["MINE_MAYBE"] = os.environ["MINE_ON"] = word
    assert mine.maybe is value and mine.on is value
os.environ |= {"MINE_COUNT": "-4", "MINE_KIND": "triton.runtime.cache:FileCacheManager"}
assert mine.count == -4 and mine.kind is triton.runtime.cache.FileCacheManager

mine.count, mine.on = 7, False
assert os.environ["MINE_COUNT"] == "7" and os.environ["MINE_ON"] == "0"
other = mine.copy()
other.count = 8
assert (mine.count, other.count) == (7, 8)
with mine.scope():
    mine.count = 9
    del mine.on
    mine.text = "within"
    os.environ["MINE_ON"] = "1"
    assert mine.on and mine.count == 9 and os.environ["MINE_TEXT"] == "within"
assert (mine.count, mine.on, mine.text) == (7, False, None) and "MINE_TEXT" not in os.environ
assert os.environ["MINE_COUNT"] == "8" and os.environ["MINE_ON"] == "0"
mine.count = knobs.env
assert mine.count == 8
knobs.propagate_env = False
mine.name = "mine"
assert mine.reset().name == "default" and "MINE_NAME" not in os.environ

for variable, text, said in (
    ("MINE_ON", "perhaps", "0 or 1"), ("MINE_COUNT", "x", "whole number"), ("MINE_KIND", "os", "MODULE:CLASS"),
    ("MINE_KIND", "os:nothing", "MODULE:CLASS"), ("MINE_KIND", "os:path", "MODULE:CLASS"),
    ("MINE_KIND", ":Y", "MODULE:CLASS"), ("MINE_KIND", "..x:Y", "MODULE:CLASS"),
    ("MINE_KIND", "os:DirEntry", "extends CacheManager"),
):
    os.environ[variable] = text
    try:
        mine.knobs
    except triton.TritonError as error:
        assert variable in error.message and said in error.hint, error
    else:
        raise AssertionError(variable)
    del os.environ[variable]

assert knobs.amd.use_buffer_ops and knobs.amd.use_block_pingpong is None and knobs.redis.port == 6379
knobs.propagate_env = True
knobs.amd.use_buffer_ops = False  # the variable stays, as in Triton, until a scope() takes it back
for take_back in (lambda: setattr(knobs.amd, "use_buffer_ops", knobs.env), knobs.amd.reset):
    take_back()
    assert not knobs.amd.use_buffer_ops and os.environ["AMDGCN_USE_BUFFER_OPS"] == "0"
del os.environ["AMDGCN_USE_BUFFER_OPS"]
assert knobs.amd.use_buffer_ops
with knobs.amd.scope():
    knobs.amd.use_buffer_ops = False
assert knobs.amd.use_buffer_ops
knobs.build.cudart_path = "/rt"
assert knobs.build.backend_dirs == {"/rt"} and knobs.build.impl is None
"""
    )


def test_folders_that_a_program_chooses(program):
    program(
        """
import os
from pathlib import Path
from triton import knobs
from deuteron.compiler import knobs as own

home = Path(os.environ["TRITON_HOME"])
assert knobs.cache.dir == str(home / ".triton/cache") and Path(knobs.cache.home_dir) == home
with knobs.cache.scope():
    knobs.cache.dir = "/tmp/chosen"
    assert knobs.cache.dir == os.environ["TRITON_CACHE_DIR"] == "/tmp/chosen"
    assert own.cache_dir.get() == Path("/tmp/chosen/deuteron")
    knobs.cache.dump_dir = "/tmp/dumped"
    assert own.dump_dir.get() == Path("/tmp/dumped")
assert own.cache_dir.get() == own.home.get() / "cache" and own.dump_dir.get() == own.home.get() / "dump"
with knobs.cache.scope():
    knobs.cache.dir = "/tmp/chosen"
    del knobs.cache.dir
    assert knobs.cache.dir == os.environ["TRITON_CACHE_DIR"] == "/tmp/chosen"
knobs.propagate_env = False
with knobs.cache.scope():
    knobs.cache.dir = "/tmp/here"
    assert "TRITON_CACHE_DIR" not in os.environ and own.cache_dir.get() == Path("/tmp/here/deuteron")
    knobs.cache.dir = knobs.env
    assert own.cache_dir.get() == own.home.get() / "cache"
knobs.propagate_env = True
with knobs.cache.scope():
    del os.environ["DEUTERON_HOME"]
    knobs.cache.home_dir = "/tmp/elsewhere"
    assert knobs.cache.dir == "/tmp/elsewhere/.triton/cache" and own.home.get() == Path("/tmp/elsewhere/.deuteron")
    assert knobs.cache.override_dir == "/tmp/elsewhere/.triton/override"
"""
    )


def test_files_on_other_machines(program):
    program(
        """
import json, os, resource, signal, sys, types
from pathlib import Path
import triton
from triton import knobs
from triton.runtime import cache

class Redis:  # the two calls of redis-py's that are used
    held, made = {}, []
    def __init__(self, **where): self.made.append(where)
    def mget(self, names): return [self.held.get(name) for name in names]
    def set(self, name, value): self.held[name] = value

sys.modules["redis"] = types.SimpleNamespace(Redis=Redis)
try:
    cache.RemoteCacheManager("key")
except triton.TritonError as error:
    assert "remote_manager_class" in error.hint
knobs.cache.remote_manager_class = cache.RedisRemoteCacheBackend
knobs.cache.manager_class = cache.RemoteCacheManager
knobs.redis.port, knobs.redis.key_format = 7, "{filename}@{key}"
files = cache.get_cache_manager("key")
assert isinstance(files, cache.RemoteCacheManager) and Redis.made == [{"host": "localhost", "port": 7}]
assert Path(files.put(b"\\x00", "code")).read_bytes() == b"\\x00" == Redis.held["code@key"]
assert files.get_group("all") is None and files.get_file("text") is None
Path(files.put("words", "text", binary=False)).unlink()
assert Path(files.get_file("text")).read_text() == "words"  # from the server
files.put_group("all", {"code": "wherever", "text": "wherever"})
for path in Path(knobs.cache.dir, "key").iterdir(): path.unlink()
group = cache.RemoteCacheManager("key").get_group("all")
assert {name: Path(path).read_bytes() for name, path in group.items()} == {"code": b"\\x00", "text": b"words"}
del Redis.held["text@key"]
assert files.get_group("all") is None
for garbled in (b"\\xff{", b"", b"[1", b"{}", b"[1]", b"[" * 100000):
    Redis.held["__grp__bad@key"] = garbled
    assert files.get_group("bad") is None, garbled
for away in ("../pwned", "/pwned", "..", ".", "", "a/b", "a\\0"):
    Redis.held["__grp__bad@key"], Redis.held[away + "@key"] = json.dumps(["code", away]).encode(), b""
    Redis.held["text@key"] = b"words"
    try:
        files.get_group("bad")
    except triton.TritonError as error:
        assert repr(away) in error.message
    else:
        raise AssertionError(away)
assert not Path(knobs.cache.dir, "pwned").exists()
del Redis.held["text@key"]
kept = len(Redis.held)
dumped, other = cache.get_dump_manager("key"), cache.get_override_manager("key")
assert Path(dumped.put("d", "f")) == Path(knobs.cache.dump_dir, "key", "f") == Path(dumped.get_file("f"))
assert Path(other.put("o", "f")) == Path(knobs.cache.override_dir, "key", "f")
dumped.put_group("all", {"f": dumped.get_file("f")})
assert dumped.get_group("all") == {"f": dumped.get_file("f")} and len(Redis.held) == kept
for garbled in (b"", b"\\xff", b"[]", b'{"child_paths": [1]}', b'{"child_paths": {"a": 1}}'):
    dumped.put(garbled, "__grp__bad")
    assert dumped.get_group("bad") is None
for mask, mode in ((0o022, 0o644), (0o002, 0o664), (0o077, 0o600)):
    os.umask(mask)
    assert os.stat(dumped.put(b"x", f"{mask}")).st_mode & 0o777 == mode
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as a full disk: files end after 1000 bytes
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    dumped.put(b"y" * 5000, "large")
except OSError:
    assert not [p for p in Path(dumped.cache_dir if hasattr(dumped, "cache_dir") else dumped._files.cache_dir).iterdir()
                if p.name.startswith("tmp-") or p.name == "large"]
else:
    raise AssertionError
"""
    )
