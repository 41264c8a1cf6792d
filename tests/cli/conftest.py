"""Model files for the commands."""

import pytest
from conftest import command as run


@pytest.fixture(scope="package")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "rbm.npz"
    made = run("make", "rbm-gaussian", "--visible", 8, "--hidden", 12, "--temperature", 0.5, "--seed", 3, "-o", path)
    assert made.returncode == 0
    assert made.stdout == ""
    return path


@pytest.fixture
def network(tmp_path):
    """A network of four variables, and evidence for the first."""
    path = tmp_path / "m.uai"
    path.write_text("MARKOV 4 2 2 2 2 4 1 0 2 0 1 2 1 2 2 2 3 2 1 3 4 1 2 3 1 4 2 1 1 5 4 1 2 2 1\n")
    (tmp_path / "m.evid").write_text("1\n1 0 1\n")
    return path
