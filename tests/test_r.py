"""R through reticulate: Ising networks of psychometrics, and the R code of the tutorial prints what the page says.

Skipped where R, its package reticulate or pandas is missing, or where reticulate refuses the version of NumPy.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from test_docs import agrees

import marginalis as mg

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "examples" / "ising_network.R"
PAGE = ROOT / "docs" / "tutorials" / "r.md"


def run_r(source, folder):
    """Run R code in a folder of its own, with this Python."""
    path = folder / "script.R"
    path.write_text(f"source({json.dumps(str(SCRIPT))})\n{source}", encoding="utf-8")
    return rscript(path, folder)


def rscript(path, folder):
    """Run a script of R with this Python."""
    environment = {"RETICULATE_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "src"), "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        ["Rscript", "--vanilla", str(path)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
    )


@cache
def what_is_missing():
    """Return what keeps R from using this Python, or an empty text."""
    if shutil.which("Rscript") is None:
        return "Rscript is not installed"
    try:
        import pandas  # noqa: F401
    except ImportError:
        return "pandas is not installed"
    test = "x <- reticulate::import('numpy')$ones(2L); stopifnot(identical(sum(x), 2))"
    environment = {**os.environ, "RETICULATE_PYTHON": sys.executable}
    done = subprocess.run(["Rscript", "-e", test], env=environment, capture_output=True, encoding="utf-8", cwd="/")
    return "" if done.returncode == 0 else done.stderr.strip()


@pytest.fixture
def r(tmp_path):
    if missing := what_is_missing():
        pytest.skip(missing)

    def run(source):
        done = run_r(source, tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_ln_z_is_the_sum_over_all_states(r):
    """For both kinds of responses, several beta, a list as fits return it, and one threshold for all items."""
    out = r("""
log_z <- function(...) {
  found <- mg$free_energy(ising_network(...))
  stopifnot(found$is_exact)
  found$log_z
}
set.seed(3)
for (n in c(1, 2, 5, 12)) for (responses in list(c(0L, 1L), c(-1L, 1L))) for (beta in c(0.5, 1, 1.7)) {
  network <- random_network(n)
  found <- log_z(network, beta = beta, responses = responses)
  cat(found - brute_force_log_z(network$graph, network$thresholds, beta, responses), "")
}
fit <- list(weiadj = network$graph, thresholds = network$thresholds, gamma = 0.25)
cat(log_z(fit) - brute_force_log_z(network$graph, network$thresholds), "")
estimated <- list(graph = network$graph, intercepts = network$thresholds)
cat(log_z(estimated) - brute_force_log_z(network$graph, network$thresholds), "")
cat(log_z(network$graph, -0.3) - brute_force_log_z(network$graph, rep(-0.3, n)))
""")
    errors = np.array(out.split(), dtype=float)
    assert len(errors) == 27
    assert np.abs(errors).max() < 1e-9


def test_probabilities_of_all_states(r):
    """Those of IsingLikelihood, which is the Boltzmann factor of every state over their sum."""
    out = r("""
set.seed(4)
network <- random_network(8)
states <- do.call(expand.grid, rep(list(c(0L, 1L)), 8))
names(states) <- colnames(network$graph)
x <- as.matrix(states)
weight <- exp(1.2 * apply(x, 1, function(s) sum(network$thresholds * s) + sum(network$graph * outer(s, s)) / 2))
found <- exp(mg$log_likelihood(ising_network(network, beta = 1.2), states[, 8:1])$per_sample)
cat(max(abs(found - weight / sum(weight))), sum(found))
""")
    error, total = map(float, out.split())
    assert error < 1e-9
    assert total == pytest.approx(1.0, abs=1e-9)


def test_networks_of_30_and_60_items(r):
    out = r("""
set.seed(5)
for (n in c(30, 60)) {
  network <- random_network(n, 4)
  model <- ising_network(network)
  found <- mg$estimate(model, tolerance = 0.05, seed = 1L)
  exact <- mg$free_energy(model)
  cat(jsonlite::toJSON(list(graph = network$graph, thresholds = network$thresholds, exact = exact$log_z,
    is_exact = exact$is_exact, estimate = found$log_z, interval = unlist(found$log_z_interval)), digits = NA), "\\n")
}
""")
    for line in out.splitlines():
        found = json.loads(line)
        bonds = np.triu(found["graph"])
        pairs = np.argwhere(bonds)
        model = mg.from_edges(pairs, coupling=bonds[tuple(pairs.T)], field=found["thresholds"], units="binary")
        assert found["is_exact"] == [True]
        assert found["exact"][0] == pytest.approx(mg.exact_log_z(model), abs=1e-9)
        assert abs(found["estimate"][0] - found["exact"][0]) < 0.1
        low, high = found["interval"]
        assert 0.0 < high - low <= 0.1 + 1e-9


REFUSED = {
    "ising_network(matrix(c(0, 1, 2, 0), 2))": "graph is not a symmetric matrix",
    "ising_network(diag(c(0, NA)))": "graph has values that are missing",
    "ising_network(diag(0, 3), c(1, 2))": "there are 2 thresholds for 3 items",
    "ising_network(diag(0, 3), NA)": "field holds NaN or infinite values",
    "ising_network(diag(0, 3), responses = c(1, 2))": "responses are neither 0, 1 nor -1, 1",
    "ising_network(diag(0, 3), beta = -1)": "beta is not a positive number",
    "ising_network(list(a = 1))": "the list has no weiadj or graph",
    "mg$log_likelihood(ising_network(diag(0, 2)), data.frame(V1 = 0:1, V2 = c(NA, 1)))": r"data\[0, 'V2'\] is nan",
    "mg$log_likelihood(ising_network(diag(0, 2)), data.frame(V1 = 0:1, x = 1))": "a column 'x', which is no label",
}


def test_refusals(r):
    out = r("".join(f"cat(tryCatch({{{x}; 'none'}}, error = conditionMessage), '\\n', sep = '|')\n" for x in REFUSED))
    messages = [line for line in out.split("|\n") if line]
    assert len(messages) == len(REFUSED)
    for message, problem in zip(messages, REFUSED.values(), strict=True):
        assert re.search(problem, message)


def test_the_example(r, tmp_path):
    done = rscript(SCRIPT, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    exact, brute_force = re.fullmatch(r"10 items: ln Z = ([\d.]+) .*; all states: ([\d.]+)", lines[0]).groups()
    assert exact == brute_force
    assert "30 items: ln Z = " in lines[1]
    assert "60 items: ln Z = " in lines[2]
    assert "estimated" in lines[2]


@pytest.mark.docs
def test_the_r_code_of_the_tutorial(r):
    """Lines of output begin with #> there, as R's own documents have them."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```r\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 3
    mark = "--- end of block ---"
    printed = r(f'\ncat("{mark}\\n")\n'.join(["", *blocks, ""])).split(f"{mark}\n")[1:-1]
    for block, out in zip(blocks, printed, strict=True):
        said = [line[2:].removeprefix(" ").rstrip() for line in block.splitlines() if line.startswith("#>")]
        found = "\n".join(line.rstrip() for line in out.rstrip("\n").split("\n"))
        assert agrees(found, "\n".join(said)), f"this block prints\n{found}\nand the page says\n" + "\n".join(said)
