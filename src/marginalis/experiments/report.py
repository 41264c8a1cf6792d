"""One self-contained HTML page: figures, tables, settings, versions, machine and run times."""

from __future__ import annotations

import base64
import html
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..exact import duration
from ..formats.files import write_whole

if TYPE_CHECKING:
    from . import Result

_STYLE = """
body { font: 15px/1.5 Georgia, serif; max-width: 62em; margin: 2em auto; padding: 0 1em; color: #222; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2em; border-bottom: 1px solid #ccc; }
img { max-width: 100%; } small, dd, dt { color: #555; }
table { border-collapse: collapse; font: 12px/1.4 Menlo, Consolas, monospace; margin: 1em 0; }
th, td { padding: 0.15em 0.7em; text-align: right; border-bottom: 1px solid #e5e5e5; }
th { position: sticky; top: 0; background: #f6f6f6; }
td.far { background: #fbe3e1; } td.near { background: #e7f4e4; }
dl { display: grid; grid-template-columns: max-content auto; gap: 0 1.5em; } dd { margin: 0; }
@media print { body { max-width: none; margin: 0; } h2, figure { break-inside: avoid; } th { position: static; } }
"""


def write_report(results: Sequence[Result], path: Path) -> None:
    """Write the page."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>Marginalized AIS, reproduced</title><style>{_STYLE}</style></head><body>",
        "<h1>Free energies by marginalized annealed importance sampling: the paper's experiments, re-run</h1>",
        "<p>M. Yasuda and C. Takahashi, Phys. Rev. E <b>106</b>, 024127 (2022). Cells headed z compare with printed "
        "values: green within 3 standard errors, red beyond.</p>",
        _definitions(_machine()),
    ]
    parts += [_section(result) for result in results]
    parts.append("</body></html>\n")
    write_whole(path, lambda file: file.write("\n".join(parts).encode()))


def _section(result: Result) -> str:
    title = html.escape(result.experiment.title)
    picture = base64.b64encode(result.figure.read_bytes()).decode()
    settings = {**result.settings, "run time": duration(result.seconds)}
    return "\n".join(
        [
            f"<h2>{title}</h2>",
            f"<p>{html.escape(result.experiment.text)}</p>",
            f"<figure><img alt='{title}' src='data:image/png;base64,{picture}'></figure>",
            _definitions(settings),
            _table(result.rows),
        ]
    )


def _table(rows: Sequence[dict[str, Any]]) -> str:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    head = "".join(f"<th>{html.escape(key.replace('_', ' '))}</th>" for key in keys)
    body = "".join(f"<tr>{''.join(_cell(key, row.get(key)) for key in keys)}</tr>\n" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "<td></td>"
    if key.startswith("z"):
        return f"<td class='{'near' if abs(value) <= 3 else 'far'}'>{value:+.1f}</td>"
    return f"<td>{f'{value:.5g}' if isinstance(value, float) else html.escape(str(value))}</td>"


def _definitions(facts: dict[str, Any]) -> str:
    pairs = (f"<dt>{html.escape(str(k))}</dt><dd>{html.escape(str(v))}</dd>" for k, v in facts.items())
    return f"<dl>{''.join(pairs)}</dl>"


def _machine() -> dict[str, str]:
    packages = ("marginalis", "numpy", "scipy", "numba")
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "versions": ", ".join(f"{p} {version(p)}" for p in packages) + f", Python {platform.python_version()}",
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
