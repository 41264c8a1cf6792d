"""The examples of the pages on formats and on results run, one after the other."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "least", "printed"), [("formats.md", 7, "(0, 1)"), ("results-and-means.md", 6, "approximate: 5 states")]
)
def test_the_examples_run(page, least, printed, tmp_path, monkeypatch, capsys):
    pytest.importorskip("h5py")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= least
    names: dict = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    assert printed in capsys.readouterr().out
