"""``triton.knobs``: settings as attributes, and hooks around compilations and launches.

A setting that deuteron has is its own knob (``deuteron.compiler.knobs``): assigned here it holds for the process, wins
over the environment, and ``scope()`` takes it back. Processes that the program starts have it in their environment,
unless ``propagate_env`` is false. ``amd``, ``build`` and ``redis`` are what Triton has for other hardware and for
programs' own files; a setting elsewhere that asks for something that does not exist here is an AttributeError that says
what to use. Programs make groups of their own from ``base_knobs`` and ``env_str``, ``env_bool`` and so on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from deuteron.compat.triton.environment import (
    Env,
    Folder,
    env,
    env_base,
    env_bool,
    env_class,
    env_int,
    env_opt_bool,
    env_opt_str,
    env_str,
    env_str_callable_default,
    propagation,
)
from deuteron.compat.triton.hooks import Bridge, CompilationListener, CompileTimes, HookChain, JitHook, TuningListener
from deuteron.compiler import knobs as own

if TYPE_CHECKING:
    from deuteron.compat.triton.assembler import NvidiaTool

__all__ = [
    "CompileTimes",
    "Env",
    "HookChain",
    "amd",
    "autotuning",
    "base_knobs",
    "build",
    "cache",
    "compilation",
    "env",
    "env_base",
    "env_bool",
    "env_class",
    "env_int",
    "env_opt_bool",
    "env_opt_str",
    "env_str",
    "env_str_callable_default",
    "language",
    "nvidia",
    "propagate_env",
    "proton",
    "redis",
    "refresh_knobs",
    "runtime",
]

#: Whether what is assigned to settings is put into the environment, too, for processes that the program starts.
propagate_env: bool = True
propagation.wanted = lambda: propagate_env


class Setting:
    """One of our knobs as an attribute. ``shown`` and ``taken`` translate between its values and Triton's."""

    def __init__(
        self,
        knob: own.Knob[Any],
        shown: Callable[[Any], Any] = lambda value: value,
        taken: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self.knob = knob
        self._shown, self._taken = shown, taken

    @property
    def key(self) -> str:
        """The variable of the environment that Triton has for the setting, or else ours."""
        return next((name for name in self.knob.names if not name.startswith("DEUTERON_")), self.knob.name)

    def __get__(self, group: object, owner: type[object]) -> Any:
        return self if group is None else self._shown(self.knob.get())

    def __set__(self, group: object, value: Any) -> None:
        if isinstance(value, Env):
            self.__delete__(group)
            return
        self.knob.assign(self._taken(value))
        if propagate_env:
            _tell(self.knob, self.knob.assigned[0])

    def __delete__(self, group: object) -> None:
        before = _before.get(self.knob.name)
        self.put_back(group, _State((), self.knob.variables() if before is None else before, None))

    def state(self, group: object) -> _State:
        """Everything that assigning changes."""
        return _State(self.knob.assigned, self.knob.variables(), _before.get(self.knob.name))

    def put_back(self, group: object, state: _State) -> None:
        """Have what :meth:`state` said before."""
        self.knob.assign(*state.assigned)
        self.knob.put_variables(state.variables)
        if state.before is None:
            _before.pop(self.knob.name, None)
        else:
            _before[self.knob.name] = state.before


class _State(NamedTuple):
    """Of a setting: the value that was assigned, if any, the variables of the environment, and those before that."""

    assigned: tuple[Any, ...]
    variables: Mapping[str, str]
    before: Mapping[str, str] | None


#: By knob: the variables as they were before the program assigned the setting for the first time.
_before: dict[str, Mapping[str, str]] = {}


def _tell(knob: own.Knob[Any], value: object) -> None:
    """Put an assigned value into the environment, under all of the knob's names; None is a variable that is not set."""
    _before.setdefault(knob.name, knob.variables())
    text = None if value is None else str(int(value)) if isinstance(value, bool) else str(value)
    knob.put_variables({} if text is None else dict.fromkeys(knob.names, text))


class KnobGroup:
    """Settings of one area."""

    #: What Triton has and deuteron does not -> what to use.
    elsewhere: ClassVar[Mapping[str, str]] = {}

    @property
    def knob_descriptors(self) -> dict[str, Setting | env_base]:
        """All settings of the area themselves: ``key`` is a setting's variable."""
        return {name: found for name, found in vars(type(self)).items() if isinstance(found, Setting | env_base)}

    @property
    def knobs(self) -> dict[str, Any]:
        """All settings of the area with their values."""
        return {name: getattr(self, name) for name in self.knob_descriptors}

    def copy(self) -> KnobGroup:
        """A group of its own: what is set in it that is no setting, such as a hook, is set only in it."""
        made = type(self)()
        vars(made).update(vars(self))
        return made

    def reset(self) -> KnobGroup:
        """Forget what the program assigned to settings. The variables of those that are not deuteron's own stay as they
        are, as in Triton, and with them what was assigned."""
        for setting in self.knob_descriptors.values():
            setting.__delete__(self)
        return self

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is assigned inside a ``with`` block, hooks too, is taken back at its end."""
        settings = self.knob_descriptors
        states: list[tuple[Any, Any]] = [(setting, setting.state(self)) for setting in settings.values()]
        attributes = dict(vars(self))
        try:
            yield
        finally:
            for setting, state in states:
                setting.put_back(self, state)
            for name in {*vars(self), *attributes} - settings.keys():
                if name in attributes:
                    setattr(self, name, attributes[name])
                else:
                    delattr(self, name)

    def __getattr__(self, name: str) -> Any:
        hint = self.elsewhere.get(name)
        area = type(self).__name__.removesuffix("Knobs").lower()
        raise AttributeError(f"triton.knobs.{area} has no {name!r} in deuteron{hint or ''}")

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(type(self), name):
            self.__getattr__(name)
        super().__setattr__(name, value)


base_knobs = KnobGroup


class RuntimeKnobs(KnobGroup):
    """How kernels run, and hooks: chains of functions, called with keywords."""

    interpret = Setting(own.interpret)
    debug = Setting(own.debug)
    override_arch = Setting(own.override_arch)

    launch_enter_hook: HookChain = HookChain()
    launch_exit_hook: HookChain = HookChain(reversed=True)
    kernel_load_start_hook: HookChain = HookChain()
    kernel_load_end_hook: HookChain = HookChain(reversed=True)
    #: Called when a kernel that was loaded is no more; its code stays in the GPU's memory, for CUDA graphs.
    kernel_unload_hook: HookChain = HookChain()
    #: Called before a variant is compiled, and afterwards; what they return is not looked at.
    jit_cache_hook: JitHook | None = None
    jit_post_compile_hook: JitHook | None = None
    elsewhere = {"add_stages_inspection_hook": ": deuteron compile --emit STAGE shows every stage"}

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        _bridge.refresh()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        _bridge.refresh()


class CompilationKnobs(KnobGroup):
    """What is compiled, and the listener of finished compilations."""

    always_compile = Setting(own.always_compile)
    dump_ir = Setting(own.kernel_dump)
    allow_non_constexpr_globals = Setting(own.plain_globals)
    #: Which stage's text the lines in debuggers and profilers are those of; here they are always the kernel's own.
    use_ir_loc = env_opt_str("USE_IR_LOC")
    listener: CompilationListener | None = None
    elsewhere = {
        "override": ": kernels are compiled from their source only",
        "dump_ir_extract_di_local_variables": ": deuteron compile --emit STAGE shows every stage",
        "store_binary_only": ": the cache keeps machine code and PTX alone",
        "enable_asan": ": deuteron sanitize SCRIPT checks every access",
        "instrumentation_mode": ": deuteron sanitize SCRIPT checks every access",
        "disable_line_info": ": code has lines only while a session samples program counters",
        "front_end_debugging": ": errors have the compiler's own frames in their traceback",
    }


class AutotuningKnobs(KnobGroup):
    """What ``@autotune`` keeps and prints."""

    cache = Setting(own.cache_autotuning)
    print = Setting(own.print_autotuning)
    #: Called when a search has chosen: keywords fn, key, best_config, configs_timings, duration in s, cache_hit. A
    #: search that finds all of its timings on disk has no duration.
    listener: TuningListener | None = None


def _triton_dir(name: str) -> str:
    return cache.get_triton_dir(name)


class CacheKnobs(KnobGroup):
    """Where programs keep files (:mod:`.runtime.cache`): Triton's folders. A program that chooses one chooses for
    deuteron, too, whose variants are in the folder ``deuteron`` of the cache, its dumps in the dump folder, and
    everything else that it keeps in ``.deuteron`` at home; left alone, all of it is in ``~/.deuteron``."""

    home_dir = Folder("TRITON_HOME", lambda: str(Path.home()) + os.sep, own.home, ".deuteron")
    dir = Folder("TRITON_CACHE_DIR", lambda: _triton_dir("cache"), own.cache_dir, "deuteron")
    dump_dir = Folder("TRITON_DUMP_DIR", lambda: _triton_dir("dump"), own.dump_dir, "")
    override_dir = env_str_callable_default("TRITON_OVERRIDE_DIR", lambda: _triton_dir("override"))
    #: What ``runtime.cache.get_cache_manager`` gives, where it is no FileCacheManager.
    manager_class = env_class("TRITON_CACHE_MANAGER", "CacheManager")
    #: Where ``RemoteCacheManager`` keeps files.
    remote_manager_class = env_class("TRITON_REMOTE_CACHE_BACKEND", "RemoteCacheBackend")

    def get_triton_dir(self, dirname: str) -> str:
        """The folder of this name at home."""
        return str(Path(self.home_dir) / ".triton" / dirname)


class LanguageKnobs(KnobGroup):
    """What operations mean by default."""

    fp32_default = Setting(own.f32_default)
    default_fp_fusion = Setting(own.default_fp_fusion)


def _ptxas(_: Path | None) -> NvidiaTool:
    from deuteron.compat.triton.assembler import get_ptxas  # lazy: compilers come after settings

    return get_ptxas()


class NvidiaKnobs(KnobGroup):
    """The tools of NVIDIA's."""

    #: The assembler, with ``path`` and ``version``; assigned is a path.
    ptxas = Setting(own.ptxas_path, _ptxas, lambda tool: Path(getattr(tool, "path", tool)))
    ptxas_options = Setting(own.ptxas_options, lambda text: text or None, lambda text: text or "")
    disable_ptxas_opt = Setting(own.disable_ptxas_opt)
    #: What ``backends.nvidia.compiler.get_ptxas_version`` says instead of asking the assembler.
    mock_ptx_version = env_opt_str("TRITON_MOCK_PTX_VERSION")
    #: Kept for those who set it; deuteron's libdevice is written in the language and needs no file.
    libdevice_path: str | None = None
    elsewhere = {
        "dump_nvptx": ": DEUTERON_KERNEL_DUMP=1 writes every stage",
        "dump_ptxas_log": ": metadata of a compiled kernel has registers and spills",
        "ptxas_blackwell": ": ptxas is the assembler for every GPU",
        "cuobjdump": ": DEUTERON_CUOBJDUMP_PATH says which one prints machine code",
        "nvdisasm": ": DEUTERON_NVDISASM_PATH says which one prints machine code",
        "libcuda_path": ": the system's loader finds the driver",
    }


class ProtonKnobs(KnobGroup):
    """The profiler."""

    disable = Setting(own.proton_disable)
    cupti_lib_dir = Setting(own.cupti_path, lambda path: path and str(path), Path)
    profile_buffer_size = Setting(own.profile_buffer_bytes)
    profile_metric_buffer_size = Setting(own.profile_metric_buffer_bytes)
    enable_nvtx = Setting(own.nvtx_ranges)


class BuildKnobs(KnobGroup):
    """What builds C programs at run time. deuteron builds none; programs that do ask here."""

    cc = env_opt_str("CC")
    cudacrt_path = env_opt_str("TRITON_CUDACRT_PATH")
    cudart_path = env_opt_str("TRITON_CUDART_PATH")
    #: The program's own function that builds, if any.
    impl: Callable[..., str] | None = None

    @property
    def backend_dirs(self) -> set[str]:
        """The folders of CUDA's headers and libraries that were named."""
        return {path for path in (self.cudacrt_path, self.cudart_path) if path is not None}


class RedisKnobs(KnobGroup):
    """The server of :class:`.runtime.cache.RedisRemoteCacheBackend`."""

    key_format = env_str("TRITON_REDIS_KEY_FORMAT", "triton:{key}:{filename}")
    host = env_str("TRITON_REDIS_HOST", "localhost")
    port = env_int("TRITON_REDIS_PORT", 6379)


class AmdKnobs(KnobGroup):
    """How Triton compiles for AMD's GPUs: kept, and handed to processes that the program starts, as Triton does on a
    machine that has none."""

    use_buffer_ops = env_bool("AMDGCN_USE_BUFFER_OPS", True)
    use_buffer_atomics = env_bool("AMDGCN_USE_BUFFER_ATOMICS", True)
    buffer_ops_analyze_small_tensor_range = env_bool("AMDGCN_ANALYZE_SMALL_TENSOR_RANGE")
    dump_amdgcn = env_bool("AMDGCN_ENABLE_DUMP")
    libhip_path = env_opt_str("TRITON_LIBHIP_PATH")
    use_block_pingpong = env_opt_bool("TRITON_HIP_USE_BLOCK_PINGPONG")
    use_in_thread_transpose = env_opt_bool("TRITON_HIP_USE_IN_THREAD_TRANSPOSE")
    use_async_copy = env_bool("TRITON_HIP_USE_ASYNC_COPY")
    scalarize_packed_fops = env_bool("AMDGCN_SCALARIZE_PACKED_FOPS")


amd = AmdKnobs()
build = BuildKnobs()
redis = RedisKnobs()
runtime = RuntimeKnobs()
compilation = CompilationKnobs()
autotuning = AutotuningKnobs()
cache = CacheKnobs()
language = LanguageKnobs()
nvidia = NvidiaKnobs()
proton = ProtonKnobs()


def refresh_knobs() -> None:
    """Have ``runtime.debug`` from the environment again, whatever the program assigned. Nothing else needs it: settings
    read the environment whenever they are asked."""
    own.debug.assign()


_bridge = Bridge(lambda: runtime, lambda: compilation.listener, lambda: autotuning.listener)
for _chain in (RuntimeKnobs.launch_enter_hook, RuntimeKnobs.launch_exit_hook):
    _chain.changed = _bridge.refresh
