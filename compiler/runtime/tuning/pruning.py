"""Which configurations are worth timing, by the functions of ``prune_configs_by``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral

from ...errors import ArgumentMismatch, LaunchError
from .checks import list_of, number
from .config import Config


def pruned(
    kernel: str,
    configs: list[Config],
    early_config_prune: Callable[..., Sequence[Config]],
    named_args: Mapping[str, object],
    kwargs: Mapping[str, object],
) -> list[Config]:
    """What ``early_config_prune`` leaves of the configurations; raises LaunchError where that is nothing."""
    what = f"autotune of {kernel}: what early_config_prune returned"
    left = early_config_prune(configs, dict(named_args), **kwargs)
    candidates = list_of(Config, left, what, "return a list of some of the configurations")
    if not candidates:
        error = LaunchError(
            "Autotuner error: No valid autotuner configs after pruning. "
            "`early_config_prune` should return at least one config."
        )
        error.add_note(f"in the search of {kernel}, which has {len(configs)} configurations")
        raise error
    return candidates


def most_predicted(kernel: str, top_k: object, count: int) -> int:
    """How many of ``count`` configurations ``perf_model`` chooses: ``top_k``, or this share of all; raises
    ArgumentMismatch where it is neither, as Triton does."""
    if isinstance(top_k, float) and top_k <= 1.0:
        return int(count * top_k)
    if isinstance(top_k, Integral):
        return int(top_k)
    raise ArgumentMismatch(f"autotune of {kernel}: top_k is {top_k!r}", hint="give a share up to 1.0, or a number")


def promising(
    kernel: str, configs: list[Config], perf_model: Callable[..., object], most: int, arguments: Mapping[str, object]
) -> list[Config]:
    """The ``most`` configurations that ``perf_model`` takes for the fastest, one at least; it is asked only where there
    are more, as in Triton. Raises LaunchError where it returns no number."""
    if len(configs) <= most:
        return configs
    what, hint = f"autotune of {kernel}: what perf_model returned", "return a number, less for what is faster"
    predicted = {c: number(perf_model(**{**arguments, **c.all_kwargs()}), what, hint) for c in configs}
    return sorted(configs, key=predicted.__getitem__)[: max(1, most)]
