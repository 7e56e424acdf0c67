"""``triton.knobs``: settings as attributes, and hooks around compilations and launches.

A setting that deuteron has is its own knob (``deuteron.compiler.knobs``): assigned here it holds for the process, wins
over the environment, and ``scope()`` takes it back. Processes that the program starts have it in their environment,
unless ``propagate_env`` is false. Settings without a counterpart are AttributeErrors that say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from deuteron.compat.triton.hooks import Bridge, CompilationListener, CompileTimes, HookChain, JitHook, TuningListener
from deuteron.compiler import knobs as own

if TYPE_CHECKING:
    from deuteron.compat.triton.backends.nvidia.compiler import NvidiaTool

__all__ = [
    "CompileTimes",
    "HookChain",
    "autotuning",
    "cache",
    "compilation",
    "language",
    "nvidia",
    "propagate_env",
    "proton",
    "refresh_knobs",
    "runtime",
]

#: Whether what is assigned to settings is put into the environment, too, for processes that the program starts.
propagate_env: bool = True


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
        self.knob.assign(self._taken(value))
        if propagate_env:
            _tell(self.knob, self.knob.assigned[0])

    def __delete__(self, group: object) -> None:
        before = _before.get(self.knob.name)
        self.put_back(_State((), self.knob.variables() if before is None else before, None))

    def state(self) -> _State:
        """Everything that assigning changes."""
        return _State(self.knob.assigned, self.knob.variables(), _before.get(self.knob.name))

    def put_back(self, state: _State) -> None:
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
    def knob_descriptors(self) -> dict[str, Setting]:
        """All settings of the area themselves: ``key`` is a setting's variable."""
        return {name: found for name, found in vars(type(self)).items() if isinstance(found, Setting)}

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
        """Forget what the program assigned to settings."""
        for setting in self.knob_descriptors.values():
            setting.__delete__(self)
        return self

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is assigned inside a ``with`` block, hooks too, is taken back at its end."""
        states = [(setting, setting.state()) for setting in self.knob_descriptors.values()]
        attributes = dict(vars(self))
        try:
            yield
        finally:
            for setting, state in states:
                setting.put_back(state)
            for name in {*vars(self), *attributes}:
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
    listener: CompilationListener | None = None
    elsewhere = {"override": ": kernels are compiled from their source only"}


class AutotuningKnobs(KnobGroup):
    """What ``@autotune`` keeps and prints."""

    cache = Setting(own.cache_autotuning)
    print = Setting(own.print_autotuning)
    #: Called when a search has chosen: keywords fn, key, best_config, configs_timings, duration in s, cache_hit. A
    #: search that finds all of its timings on disk has no duration.
    listener: TuningListener | None = None


class CacheKnobs(KnobGroup):
    """Where things are kept."""

    dir = Setting(own.cache_dir, str, Path)
    dump_dir = Setting(own.dump_dir, str, Path)
    home_dir = Setting(own.home, str, Path)
    elsewhere = {"manager_class": ": the compile cache has one form", "override_dir": ": nothing is overridden"}


class LanguageKnobs(KnobGroup):
    """What operations mean by default."""

    fp32_default = Setting(own.f32_default)
    default_fp_fusion = Setting(own.default_fp_fusion)


def _ptxas(_: Path | None) -> NvidiaTool:
    from deuteron.compat.triton.backends.nvidia.compiler import get_ptxas  # lazy: compilers come after settings

    return get_ptxas()


class NvidiaKnobs(KnobGroup):
    """The tools of NVIDIA's."""

    #: The assembler, with ``path`` and ``version``; assigned is a path.
    ptxas = Setting(own.ptxas_path, _ptxas, lambda tool: Path(getattr(tool, "path", tool)))
    ptxas_options = Setting(own.ptxas_options)
    disable_ptxas_opt = Setting(own.disable_ptxas_opt)
    #: Kept for those who set it; deuteron's libdevice is written in the language and needs no file.
    libdevice_path: str | None = None
    elsewhere = {
        "dump_nvptx": ": DEUTERON_KERNEL_DUMP=1 writes every stage",
    }


class ProtonKnobs(KnobGroup):
    """The profiler."""

    disable = Setting(own.proton_disable)
    cupti_lib_dir = Setting(own.cupti_path, lambda path: path and str(path), Path)


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


def __getattr__(name: str) -> Any:
    if name in ("amd", "build", "redis"):
        raise AttributeError(f"triton.knobs.{name}: deuteron has nothing that these settings would be for")
    raise AttributeError(f"module 'triton.knobs' has no attribute {name!r}")
