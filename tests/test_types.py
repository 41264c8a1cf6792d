"""Type checkers accept a client that uses every public name as documented."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import marginalis as mg

CLIENT = Path(__file__).parent / "data" / "client" / "client.py"


@pytest.mark.docs
def test_the_client_uses_every_name():
    assert {*re.findall(r"\bmg\.(\w+)", CLIENT.read_text(encoding="utf-8"))} == {*mg.__all__}


def test_mypy_accepts_the_client(tmp_path):
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--follow-imports=silent"]
        + ["--config-file", "", "--cache-dir", tmp_path, CLIENT],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(Path(mg.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stdout
