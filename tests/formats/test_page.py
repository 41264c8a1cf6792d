"""The examples of the page on formats run, one after the other."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("h5py")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 7
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert "(0, 1)" in capsys.readouterr().out
