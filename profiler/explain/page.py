"""One HTML page about one variant of a kernel: its stages side by side, lines linked, and its static profile."""

from __future__ import annotations

from importlib.resources import files

from deuteron.compiler.runtime.variant.listings import Listings

from ..occupancy import occupancy
from ..self_contained import page
from .instructions import instruction_mix

_TITLES = {"source": "Source", "tile": "Tile IR", "gpu": "GPU IR", "ptx": "PTX", "sass": "SASS"}
_UNKNOWN = "not known: no assembler is installed"


def explain_page(listings: Listings) -> str:
    """The text of the page; it needs no network and no other file."""
    folder = files("deuteron.profiler.explain") / "page"
    template, style, script = (
        (folder / f"explain.{suffix}").read_text(encoding="utf-8") for suffix in ("html", "css", "js")
    )
    variant = listings.variant
    return page(
        template,
        title=f"{variant.source.name} for {variant.target}",
        style=style,
        script=script,
        data=data_of(listings),
    )


def data_of(listings: Listings) -> dict[str, object]:
    """What the page's script knows: the variant, facts by name, the instruction mix, and each stage's lines."""
    return {
        "variant": f"{listings.variant.describe()}, {listings.metadata.num_warps} warps",
        "facts": [[name, value] for name, value in static_profile(listings).items()],
        "mix": [[kind, count] for kind, count in instruction_mix(x.text for x in listings.stages["ptx"]).items()],
        "stages": [
            {"name": name, "title": _TITLES[name], "lines": [[line.text, line.source] for line in lines]}
            for name, lines in listings.stages.items()
        ],
    }


def static_profile(listings: Listings) -> dict[str, str]:
    """What is known of a kernel before it runs, by name."""
    made = listings.metadata
    threads = made.num_threads
    known = made.registers is not None
    facts = {
        "threads of a CTA": str(threads),
        "registers of a thread": str(made.registers) if known else _UNKNOWN,
        "spilled bytes of a thread": str(made.spills) if known else _UNKNOWN,
        "shared memory of a CTA": f"{made.shared_bytes or 0} bytes",
    }
    if made.registers is not None:
        arch = str(listings.variant.target.capability)
        found = occupancy(arch, threads=threads, registers=made.registers, shared_bytes=made.shared_bytes or 0)
        if found is not None:
            share = found.warps / found.most_warps
            facts["occupancy"] = (
                f"{share:.0%} ({found.blocks} CTAs, {found.warps} of {found.most_warps} warps of an SM)"
            )
            facts["limited by"] = found.limiter
    return facts
