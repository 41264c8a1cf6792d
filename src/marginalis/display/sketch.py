"""Thumbnails: small SVG pictures without axes, made without a plotting library, for light and dark backgrounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..checks import Array
from .words import escaped

# Size of a thumbnail, in pixels.
WIDTH, HEIGHT = 180, 56
# The colours of Okabe and Ito, which colour-blind readers can distinguish.
RED, BLUE, GREEN, PURPLE, ORANGE = "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00"
COLOURS = (RED, BLUE, GREEN, PURPLE, ORANGE)
# Number of bins of a histogram.
_BINS = 36


def histogram(
    *samples: Array, at: Sequence[float] = (), span: tuple[float, float] | None = None, about: str = ""
) -> str:
    """Return a histogram of one or two samples, with lines at the values `at` and a shaded interval `span`."""
    known = [x[np.isfinite(x)] for x in (np.asarray(sample, dtype=np.float64).ravel() for sample in samples)]
    known = [x for x in known if x.size]
    if not known:
        return ""
    low, high = min(float(x.min()) for x in known), max(float(x.max()) for x in known)
    if not high - low > 1e-12 * max(1.0, abs(low)):  # All values are equal up to rounding.
        low, high = low - 0.5, high + 0.5
    parts = []
    if span is not None and np.isfinite(span).all():
        left, right = np.clip(_scaled(np.array(span), low, high, WIDTH), 0.0, WIDTH)
        parts.append(_box(left, 0.0, max(1.0, right - left), HEIGHT, RED, 0.25))
    for x, colour in zip(known, (BLUE, ORANGE), strict=False):
        counts = np.histogram(x, bins=_BINS, range=(low, high))[0]
        tall = np.log1p(counts) / np.log1p(counts.max()) * (HEIGHT - 4)  # The log scale shows bins of few chains.
        wide = WIDTH / _BINS
        parts += [_box(k * wide, HEIGHT - t, wide - 0.5, t, colour, 0.85) for k, t in enumerate(tall) if t]
    for x in _scaled(np.array([place for place in at if low <= place <= high]), low, high, WIDTH):
        parts.append(_box(x - 0.75, 0.0, 1.5, HEIGHT, RED, 1.0))
    return _svg(parts, about)


def line(x: Array, y: Array, reach: Array | None = None, about: str = "") -> str:
    """Return a line through the points with a band of ± `reach` around it."""
    keep = np.isfinite(x) & np.isfinite(y)
    order = np.argsort(x[keep], kind="stable")
    x, y = x[keep][order], y[keep][order]
    if not len(x):
        return ""
    pick = np.unique(np.linspace(0, len(x) - 1, WIDTH // 2).round().astype(np.int64))  # More are not visible.
    x, y = x[pick], y[pick]
    around = np.zeros(len(x)) if reach is None else np.nan_to_num(reach[keep][order][pick], posinf=0.0)
    low, high = float((y - around).min()), float((y + around).max())
    across = _scaled(x, float(x.min()), float(x.max()), WIDTH - 6) + 3
    up, middle, down = (HEIGHT - 3 - _scaled(v, low, high, HEIGHT - 6) for v in (y + around, y, y - around))
    band = [*zip(across, up, strict=True), *zip(across[::-1], down[::-1], strict=True)]
    parts = [f'<polygon points="{_points(band)}" fill="{BLUE}" opacity="0.25"/>']
    points = _points(list(zip(across, middle, strict=True)))
    parts.append(f'<polyline points="{points}" fill="none" stroke="{BLUE}" stroke-width="1.5"/>')
    if len(x) == 1:
        parts.append(f'<circle cx="{across[0]:.1f}" cy="{middle[0]:.1f}" r="2.5" fill="{BLUE}"/>')
    return _svg(parts, about)


def _scaled(x: Array, low: float, high: float, size: float) -> Array:
    """Return values scaled from `low` … `high` to 0 … `size`, or size/2 if `low` equals `high`."""
    return (x - low) / (high - low) * size if high > low else np.full(len(x), size / 2)


def _box(x: float, y: float, width: float, height: float, colour: str, opacity: float) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} fill="{colour}" opacity="{opacity:g}"/>'


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _svg(parts: Sequence[str], about: str) -> str:
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    label = escaped(about)
    return f'<svg {size} role="img" aria-label="{label}"><title>{label}</title>{"".join(parts)}</svg>'
