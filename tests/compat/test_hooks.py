"""Settings and hooks of ``triton.knobs``."""

from __future__ import annotations

KERNEL = """
import numpy as np, os, triton, triton.language as tl
from triton import knobs

def described(grid, metadata, args):
    return {"name": f"add_{args['n']}", "flops64": 2 * args["n"], "shared": metadata.shared}

@triton.jit(launch_metadata=described)
def add(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
def launch():
    return add[(2,)](x, out, 100, BLOCK=64)
"""


def test_launch_hooks_are_called_while_they_are_set(program):
    program(
        KERNEL
        + """
seen = []
def enter(facts): seen.append(("enter", facts.get()["name"], facts.get()["flops64"]))
def leave(facts): seen.append(("exit", facts.get()["stream"]))
launch()
knobs.runtime.launch_enter_hook.add(enter)
knobs.runtime.launch_enter_hook.add(enter)
knobs.runtime.launch_exit_hook.add(leave)
launch()
assert seen == [("enter", "add_100", 200), ("exit", 0)], seen
knobs.runtime.launch_enter_hook.remove(enter)
knobs.runtime.launch_exit_hook.remove(leave)
launch()
assert len(seen) == 2
with knobs.runtime.scope():
    knobs.runtime.launch_enter_hook = enter  # a function in place of the chain
    launch()
launch()
assert len(seen) == 3
"""
    )


def test_compile_hooks_and_listener_see_a_variant_once(program):
    program(
        KERNEL
        + """
calls, loads, compilations = [], [], []
knobs.runtime.jit_cache_hook = lambda **facts: calls.append(("before", facts))
knobs.runtime.jit_post_compile_hook = lambda **facts: calls.append(("after", facts))
knobs.runtime.kernel_load_start_hook.add(lambda module, function, name, group, hash: loads.append(name))
knobs.compilation.listener = lambda **facts: compilations.append(facts)
made = launch()
launch()
assert [when for when, _ in calls] == ["before", "after"] and loads == ["add"]
before, after = (facts for _, facts in calls)
assert before["fn"].name == "add" and before["fn"].jit_function is add and not before["is_manual_warmup"]
assert before["key"] == after["key"] == made.hash and before["compile"]["num_warps"] == 4
assert made.hash in add.device_caches[0][0]
(first,) = compilations
assert not first["cache_hit"] and first["times"].total_lowering > 0 and first["src"].name == "add"
assert first["metadata"]["target"].backend == "cpu" and first["metadata"]["hash"] == made.hash
add.device_caches[0][0].clear()
launch()
assert len(compilations) == 2 and compilations[1]["cache_hit"] and compilations[1]["times"].total_lowering == 0
add.warmup("*fp32", "*fp32", "i32", BLOCK=32)
assert calls[-1][1]["is_manual_warmup"] and calls[-1][1]["compile"]["is_warmup"]
"""
    )


def test_a_kernel_that_lets_go_of_its_module_tells_so(program):
    shown = program(
        KERNEL
        + """
import multiprocessing
gone = []
def hook(module, function, name, group, hash): gone.append((module, function, name, group, hash))
knobs.runtime.kernel_unload_hook.add(hook)
first = add.warmup(x, out, 100, BLOCK=64, grid=(2,))
assert first.module is None and first.function is None
first.__del__()
assert not gone, "nothing is loaded"
knobs.runtime.kernel_unload_hook.add(lambda *facts: print("unloaded here", flush=True))
first._init_handles()
handles = first.module, first.function
assert all(handles)
child = multiprocessing.get_context("fork").Process(target=first.__del__)
child.start()
child.join()
assert child.exitcode == 0
launch()
assert first.module == handles[0]
first.__del__()
assert gone == [(*handles, "add", {}, first.hash)] and first.module is None and first.function is None
first.__del__()
launch()  # the launch has the code
assert out[0] == 1 and len(gone) == 1
first[(2,)](x, out, 100)  # loads it again
assert first.module is not None and len(gone) == 1
source = triton.compiler.ASTSource(add, {"x": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 32})
other = triton.compile(source)
other._init_handles()
del other
assert len(gone) == 2  # and nothing when the process ends, of the first one
"""
    )
    assert shown == "unloaded here\n" * 2


def test_a_specialization_is_compiled_before_its_first_launch(program):
    program(
        KERNEL
        + """
data = []
knobs.runtime.jit_cache_hook = lambda **facts: data.append(facts["compile"]["specialization_data"])
made = launch()
add.cache.clear()
assert add.preload(data[0]).hash == made.hash
launch()
assert len(data) == 1, "the launch found what was loaded before"

@triton.jit
def other(x, out, n, BLOCK: tl.constexpr):
    pass

for text in (data[0], "{}", data[0].replace("cpu", "hip")):
    try:
        (other if text == data[0] else add).preload(text)
    except triton.TritonError as error:
        print(error.message)
    else:
        raise AssertionError(text)
"""
    )


def test_settings_are_our_knobs(program):
    program(
        KERNEL
        + """
from deuteron.compiler import knobs as own
assert knobs.autotuning.print is False
knobs.autotuning.print = True
assert own.print_autotuning.get() and own.print_autotuning.source() == "program"
with knobs.autotuning.scope():
    knobs.autotuning.print = False
    assert not own.print_autotuning.get()
assert own.print_autotuning.get() and knobs.autotuning.knobs == {"cache": False, "print": True}
del knobs.autotuning.print
assert not own.print_autotuning.get()
os.environ["TRITON_PRINT_AUTOTUNING"] = "1"
assert knobs.autotuning.print
knobs.compilation.always_compile = True
assert not launch().metadata.cached
add.cache.clear()
assert not launch().metadata.cached
knobs.compilation.reset()
add.cache.clear()
assert launch().metadata.cached
knobs.cache.dir = str(os.getcwd())
assert str(own.cache_dir.get()) == os.path.join(os.getcwd(), "deuteron") and os.getcwd() == knobs.cache.dir
"""
    )


def test_files_are_kept_under_a_key(program):
    program(
        """
from pathlib import Path
from triton.runtime.cache import FileCacheManager, get_cache_manager
cache = get_cache_manager("key")
path = cache.put(b"\\x00\\xff", "code.bin")
assert Path(path).read_bytes() == b"\\x00\\xff" and cache.get_file("code.bin") == path
assert cache.get_file("other") is None and cache.get_group("all") is None
cache.put_group("all", {"code.bin": path, "other.bin": (other := cache.put("text", "other.bin", binary=False))})
assert cache.get_group("all") == {"code.bin": path, "other.bin": other}
Path(other).unlink()
assert cache.get_group("all") is None  # a group is whole or not there
assert not FileCacheManager("another key").has_file("code.bin")
assert sorted(p.name for p in Path(cache.cache_dir).iterdir()) == ["__grp__all", "code.bin"]
"""
    )


def test_assigned_settings_reach_processes_that_the_program_starts(program):
    """The environment has the value under both names while it is assigned, and what it had before afterwards."""
    program(
        """
import os, subprocess, sys
from triton import knobs
from deuteron.compiler import knobs as own

CHILD = "from deuteron.compiler import knobs; print(knobs.print_autotuning.get(), knobs.disable_ptxas_opt.get())"
def child():
    return subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True).stdout.split()

assert knobs.propagate_env is True
os.environ["DISABLE_PTXAS_OPT"] = "0"
knobs.autotuning.print = True
knobs.nvidia.disable_ptxas_opt = True
assert os.environ["TRITON_PRINT_AUTOTUNING"] == os.environ["DISABLE_PTXAS_OPT"] == "1"
assert child() == ["True", "True"]
with knobs.autotuning.scope(), knobs.nvidia.scope():
    knobs.autotuning.print = False
    del knobs.nvidia.disable_ptxas_opt
    assert os.environ["DISABLE_PTXAS_OPT"] == "0" and child() == ["False", "False"]
assert child() == ["True", "True"] and own.disable_ptxas_opt.get()
knobs.autotuning.reset()
assert "TRITON_PRINT_AUTOTUNING" not in os.environ and "DEUTERON_PRINT_AUTOTUNING" not in os.environ
knobs.nvidia.reset()
assert os.environ["DISABLE_PTXAS_OPT"] == "0" and "DEUTERON_DISABLE_PTXAS_OPT" not in os.environ
with knobs.runtime.scope():
    knobs.runtime.override_arch = "sm80"
    knobs.runtime.override_arch = None
    assert "TRITON_OVERRIDE_ARCH" not in os.environ
knobs.propagate_env = False
knobs.autotuning.print = True
assert own.print_autotuning.get() and "TRITON_PRINT_AUTOTUNING" not in os.environ
knobs.autotuning.reset()
"""
    )


def test_listeners_hear_of_searches(program):
    program(
        KERNEL
        + """
from triton.runtime.jit import JITFunction
heard = []
def listen(*, fn, key, best_config, configs_timings, duration, cache_hit):
    heard.append((duration, cache_hit))
    assert isinstance(fn, JITFunction) and fn.__name__ == "step" and key[0] == 100
    assert best_config in configs_timings and len(configs_timings) == 2
    assert min(configs_timings.values()) == configs_timings[best_config]
knobs.autotuning.listener = listen

def kernel(configs):
    def bench(call, quantiles): return triton.testing.do_bench(call, quantiles=quantiles, warmup=1, rep=1)
    @triton.autotune(configs=configs, key=["n"], cache_results=True, do_bench=bench)
    @triton.jit
    def step(x, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, i, mask=i < n)
    return step

two = kernel([triton.Config({"BLOCK": block}) for block in (32, 128)])
two[(4,)](x, 100)
two[(4,)](x, 100)
((spent, hit),) = heard
assert spent > 0 and not hit
two.cache.clear()  # the timings are on disk
two[(4,)](x, 100)
assert heard[1:] == [(None, True)]
kernel([triton.Config({"BLOCK": 32})])[(4,)](x, 100)
assert len(heard) == 2
try:
    pruned = kernel([triton.Config({"BLOCK": block}) for block in (32, 64)])
    pruned.early_config_prune = lambda configs, named_args, **kwargs: []
    pruned[(4,)](x, 100)
except triton.TritonError as error:
    assert str(error).startswith("Autotuner error: No valid autotuner configs") and "step" in error.__notes__[0]
else:
    raise AssertionError("nothing was left to choose from")
"""
    )


def test_settings_list_their_variables_and_kernels_their_globals(program):
    program(
        KERNEL
        + """
settings = knobs.cache.knob_descriptors | knobs.autotuning.knob_descriptors
assert {name: setting.key for name, setting in settings.items()} == {
    "home_dir": "TRITON_HOME", "dir": "TRITON_CACHE_DIR", "dump_dir": "TRITON_DUMP_DIR",
    "override_dir": "TRITON_OVERRIDE_DIR", "manager_class": "TRITON_CACHE_MANAGER",
    "remote_manager_class": "TRITON_REMOTE_CACHE_BACKEND",
    "cache": "TRITON_CACHE_AUTOTUNING", "print": "TRITON_PRINT_AUTOTUNING"}

TYPE, SCALE = tl.int32, tl.constexpr(3)
@triton.jit
def plain(x): return x
@triton.jit
def typed(x): tl.store(x, plain((SCALE + tl.zeros((), TYPE)).to(tl.float32)))
typed[(1,)](x)
assert not add.used_global_vals and x[0] == 3
assert {name: value for (name, _), (value, _) in typed.used_global_vals.items()} == {"TYPE": tl.int32, "SCALE": 3}
TYPE = tl.int64
try:
    typed[(1,)](x)
except RuntimeError as error:
    assert "Global variable TYPE has changed" in str(error)
else:
    raise AssertionError("the kernel was compiled for another type")

def key(lines):
    text = "# a line\\n" * lines + "import triton\\n@triton.jit\\ndef f(i): i = i + 1\\n"
    with open("moved.py", "w") as file: file.write(text)
    import importlib.util
    spec = importlib.util.spec_from_file_location(f"moved{lines}", "moved.py")
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module.f.cache_key, module.f.source.hash
import linecache, os, tempfile
os.chdir(tempfile.mkdtemp())
(first, digest), _ = key(0), linecache.clearcache()
(moved, same) = key(1)
assert first != moved and digest == same
"""
    )


def test_a_pool_compiles_and_launches_wait(program):
    program(
        KERNEL
        + """
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from triton.runtime._async_compile import active_mode

class Later(Executor):
    def __init__(self): self.queue = []
    def submit(self, work): self.queue.append(work); return Future()

@triton.jit
def put(x, VALUE: tl.constexpr):
    tl.static_assert(VALUE != 2)
    tl.store(x, VALUE)

table, later = put.device_caches[0][0], Later()
with triton.AsyncCompileMode(later) as mode:
    assert active_mode.get() is mode
    first = [put.warmup(out, VALUE=value, grid=(1,)) for value in (0, 1)]
    again = put.warmup(out, VALUE=1, grid=(1,))
    assert again is first[1] and len(table) == len(later.queue) == 2
    put[(1,)](out, 3)  # not in the queue
    assert out[0] == 3 and len(table) == 3 and len(later.queue) == 2
    later.queue.pop(0)()
    assert put[(1,)](out, 0) is first[0].result() and out[0] == 0 and len(table) == 3
    later.queue.pop(0)()
assert active_mode.get() is None and put[(1,)](out, 1) is first[1].result() and out[0] == 1

with ThreadPoolExecutor(2) as pool:
    try:
        with triton.AsyncCompileMode(pool):
            put.warmup(out, VALUE=2, grid=(1,))
            assert len(table) == 4
            put.warmup(out, VALUE=5, grid=(1,))
    except triton.compiler.errors.CompileTimeAssertionFailure:
        pass
    else:
        raise AssertionError("the end of the block did not raise")
    assert active_mode.get() is None and len(table) == 4  # the wrong one is forgotten
    with triton.AsyncCompileMode(pool, ignore_errors=True):
        put.warmup(out, VALUE=2, grid=(1,))
put[(1,)](out, 5)
assert out[0] == 5 and len(table) == 4
try:
    with triton.AsyncCompileMode(pool):
        put.warmup(out, VALUE=6, grid=(1,))
except RuntimeError as error:
    assert "after shutdown" in str(error)
assert len(table) == 4
"""
    )


def test_specializations_name_functions(program):
    program(
        KERNEL
        + """
def make(number):
    @triton.jit
    def value(): return number
    return value

@triton.jit
def put(x, VALUE: tl.constexpr): tl.store(x, VALUE())

three = make(tl.constexpr(3))
told = []
knobs.runtime.jit_cache_hook = lambda **facts: told.append(facts["compile"]["specialization_data"])
made = put[(1,)](out, three)
put.device_caches.clear()
assert put.preload(told[0]).hash == made.hash
put[(1,)](out, three)
assert out[0] == 3 and len(told) == 1
four = make(tl.constexpr(4))  # takes the other one's place
def refused(why):
    try:
        put.preload(told[0])
    except RuntimeError as error:
        assert why in str(error), error
    else:
        raise AssertionError("another function was taken")
refused("has another text")
del four
refused("is not here")
put[(1,)](out, make(tl.constexpr(4)))
assert out[0] == 4 and len(told) == 2
"""
    )
