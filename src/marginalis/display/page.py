"""Self-contained pages of HTML, with style and pictures inside and all text escaped."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .. import __version__
from .words import cell_text, escaped, heading, is_far

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --faint: #59636e; --rule: #d5dae0; --ground: #fff; --panel: #f5f7f9;
  --link: #005f96; --warn: #e69f00; --warned: #fdf3dd; --good: #009e73; --fine: #e3f4ee; --bad: #fae3d6; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e7eb; --faint: #9aa4af; --rule: #3a424b; --ground: #14171b;
  --panel: #1e2329; --link: #6cbcf0; --warned: #3a2e10; --fine: #10352a; --bad: #4a2614; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: var(--text);
  background: var(--ground); max-width: 60em; margin: 0 auto; padding: 1.5em 1.2em 4em; overflow-wrap: anywhere; }
h1 { font-size: 1.45em; line-height: 1.25; margin: 0.3em 0; }
h2 { font-size: 1.2em; margin: 2.6em 0 0.6em; padding-bottom: 0.25em; border-bottom: 1px solid var(--rule); }
a { color: var(--link); } small, dt, figcaption, .faint { color: var(--faint); }
nav { display: flex; flex-wrap: wrap; gap: 0.3em 1.1em; margin: 1.2em 0; font-size: 0.94em; }
.value { font-size: clamp(1.35em, 6vw, 1.9em); font-weight: 600; line-height: 1.25; margin: 0.2em 0;
  font-variant-numeric: tabular-nums; }
.facts { display: flex; flex-wrap: wrap; gap: 0.1em 1.6em; margin: 0.5em 0 0.8em; padding: 0; list-style: none; }
.warning, .fine { margin: 0.5em 0; padding: 0.45em 0.9em; border-left: 5px solid var(--warn); background: var(--warned);
  border-radius: 0 5px 5px 0; }
.fine { border-color: var(--good); background: var(--fine); }
figure { margin: 1em 0; } figure img { display: block; max-width: 100%; height: auto; }
figure svg { display: block; width: 100%; max-width: 40em; height: auto; }
figure svg text { fill: currentColor; } figcaption { font-size: 0.9em; max-width: 44em; }
.figures { display: flex; flex-wrap: wrap; gap: 0 2em; align-items: flex-end; }
.figures figure { flex: 1 1 20em; min-width: 0; max-width: 34em; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0.1em 1.3em; font-size: 0.95em; }
dt { max-width: 12em; } dd { margin: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.86em; font-variant-numeric: tabular-nums; margin: 0.8em 0; }
th, td { padding: 0.2em 0.75em; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { background: var(--panel); font-weight: 600; } td.words, th.words { text-align: left; }
td.words { white-space: normal; }
td.far { background: var(--bad); } td.near { background: var(--fine); }
code, pre { font: 0.9em/1.5 ui-monospace, Menlo, Consolas, monospace; }
pre { background: var(--panel); padding: 0.7em 1em; border-radius: 5px; white-space: pre-wrap; user-select: all; }
summary { cursor: pointer; color: var(--link); }
@media print { body { max-width: none; } h2 { break-after: avoid; } figure, tr { break-inside: avoid; }
  nav { display: none; } }
"""


def page(title: str, parts: Iterable[str]) -> bytes:
    """Return a page of HTML, encoded."""
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'  # An empty icon saves a request of the browser.
        f"<title>{escaped(title)}</title><style>{_STYLE}</style></head><body>"
    )
    return "\n".join([head, *parts, "</body></html>\n"]).encode(errors="replace")


def section(name: str, title: str, *parts: str) -> str:
    """Return a section of a page, with `name` as the target of links."""
    return "\n".join([f'<section id="{escaped(name)}"><h2>{escaped(title)}</h2>', *parts, "</section>"])


def definitions(facts: Mapping[str, Any]) -> str:
    """Return a list of names with their values."""
    pairs = (f"<dt>{escaped(str(k))}</dt><dd>{escaped(str(v))}</dd>" for k, v in facts.items())
    return f"<dl>{''.join(pairs)}</dl>"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of rows under readable headings; cells that compare with a printed value are coloured."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    words = {key for key in keys if any(isinstance(row.get(key), str) for row in rows)}
    head = "".join(f"<th{_left(key in words)}>{escaped(heading(key))}</th>" for key in keys)
    body = "".join(f"<tr>{''.join(_cell(key, row, key in words) for key in keys)}</tr>\n" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _left(words: bool) -> str:
    return ' class="words"' if words else ""


def _cell(key: str, row: Mapping[str, Any], words: bool) -> str:
    text = escaped(cell_text(key, row.get(key), row))
    far = is_far(key, row.get(key))
    return f"<td{_left(words)}>{text}</td>" if far is None else f'<td class="{"far" if far else "near"}">{text}</td>'


def machine() -> dict[str, str]:
    """Return the date, the versions of packages and the machine, for the record."""
    packages = [f"{name} {version(name)}" for name in ("numpy", "scipy", "numba")]
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "versions": ", ".join([f"marginalis {__version__}", *packages, f"Python {platform.python_version()}"]),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
