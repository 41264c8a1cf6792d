"""The paper's experiments on one page: figures, tables, settings, versions, machine and run times."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..display.page import definitions, machine, page, section, table
from ..display.words import escaped, heading
from ..exact import duration
from ..files.atomic import write_whole

if TYPE_CHECKING:
    from . import StudyResult


def write_report(results: Sequence[StudyResult], path: Path) -> None:
    """Write the HTML page."""
    links = "".join(f'<a href="#{r.experiment.name}">{escaped(r.experiment.title)}</a>' for r in results)
    text = page(
        "Marginalized AIS, reproduced",
        [
            "<h1>Free energies by marginalized annealed importance sampling: the paper's experiments, re-run</h1>",
            "<p>M. Yasuda and C. Takahashi, Phys. Rev. E <b>106</b>, 024127 (2022). Cells headed z compare with "
            "printed values: green within 3 standard errors, red beyond.</p>",
            f"<nav>{links}</nav>",
            definitions(machine()),
            *map(_section, results),
        ],
    )
    write_whole(path, lambda file: file.write(text))


def _section(result: StudyResult) -> str:
    title = escaped(result.experiment.title)
    picture = base64.b64encode(result.figure.read_bytes()).decode()
    settings = {heading(key): value for key, value in result.settings.items()}
    return section(
        result.experiment.name,
        result.experiment.title,
        f"<p>{escaped(result.experiment.text)}</p>",
        f'<figure><img alt="{title}" src="data:image/png;base64,{picture}"></figure>',
        definitions({**settings, "run time": duration(result.seconds)}),
        table(result.rows),
    )
