"""A comparison as a picture: one panel a recording, median and quartiles over seeds, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from .comparison import Quartiles, StrategyComparison, StrategyScore

#: Colours that stay apart for people who do not tell red from green (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
COLUMNS, WIDTH, HEIGHT = 3, 320, 230
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 30, 34
TICKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LOWEST = 0.5


def plot_svg(comparison: StrategyComparison) -> str:
    """The text of an SVG file. Fractions below a half lie on the lower edge."""
    recordings = list(dict.fromkeys(score.recording for score in comparison.scores))
    colours = dict(zip(comparison.strategies, COLOURS * len(comparison.strategies), strict=False))
    columns = min(COLUMNS, len(recordings))
    rows = -(-len(recordings) // columns)
    legend = 26
    width, height = columns * WIDTH, rows * HEIGHT + legend
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_legend(colours),
    ]
    for index, name in enumerate(recordings):
        x, y = (index % columns) * WIDTH, legend + (index // columns) * HEIGHT
        scores = [score for score in comparison.scores if score.recording == name]
        parts += [f'<g transform="translate({x},{y})">', *_panel(name, scores, colours), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _legend(colours: dict[str, str]) -> list[str]:
    parts, x = [], LEFT
    for name, colour in colours.items():
        parts.append(f'<rect x="{x}" y="8" width="14" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 19}" y="17">{escape(name)}</text>')
        x += 40 + 7 * len(name)
    return parts


def _panel(name: str, scores: Sequence[StrategyScore], colours: dict[str, str]) -> list[str]:
    most = max(score.budget for score in scores)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def at(evaluations: int, fraction: float) -> str:
        x = LEFT + (right - LEFT) * evaluations / most
        y = bottom - (bottom - TOP) * (max(fraction, LOWEST) - LOWEST) / (1 - LOWEST)
        return f"{x:.1f},{y:.1f}"

    parts = [f'<text x="{LEFT}" y="{TOP - 10}" font-weight="bold">{escape(name)}</text>']
    for tick in TICKS:
        (x0, y), (x1, _) = (at(n, tick).split(",") for n in (0, most))
        parts.append(f'<line x1="{x0}" y1="{y}" x2="{x1}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{float(y) + 4:.1f}" text-anchor="end">{tick:.1f}</text>')
    for evaluations in (0, most // 4, most // 2, most):
        x = at(evaluations, LOWEST).partition(",")[0]
        parts.append(f'<text x="{x}" y="{bottom + 14}" text-anchor="middle">{evaluations}</text>')
    parts.append(f'<text x="{(LEFT + right) / 2}" y="{bottom + 28}" text-anchor="middle">evaluations</text>')
    for score in scores:
        quartiles, colour = score.quartiles, colours[score.strategy]
        forth = [at(n, v) for n, v in zip(quartiles.evaluations, quartiles.high, strict=True)]
        back = [at(n, v) for n, v in zip(quartiles.evaluations, quartiles.low, strict=True)][::-1]
        parts.append(f'<polygon points="{" ".join(forth + back)}" fill="{colour}" fill-opacity="0.15"/>')
        parts.append(f'<polyline points="{_line(quartiles, at)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return parts


def _line(quartiles: Quartiles, at: Callable[[int, float], str]) -> str:
    return " ".join(at(n, v) for n, v in zip(quartiles.evaluations, quartiles.median, strict=True))
