"""A model file for the commands."""

import pytest
from conftest import command as run


@pytest.fixture(scope="package")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "rbm.npz"
    made = run("make", "rbm-gaussian", "--visible", 8, "--hidden", 12, "--temperature", 0.5, "--seed", 3, "-o", path)
    assert made.returncode == 0
    assert made.stdout == ""
    return path
