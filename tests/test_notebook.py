"""What a notebook shows: cards, figures and progress bars, in a real kernel."""

import sys

import nbformat
import pytest
from nbclient import NotebookClient

SETUP = """
import numpy as np
import marginalis as mg
from marginalis.results.curve import Curve
from marginalis.parallel import progress

progress._PATIENCE = progress._PAUSE = 0.0  # a bar that would come after a second comes now
model = mg.rbm(np.full((3, 4), 0.1), np.zeros(3), np.zeros(4))
result = mg.estimate(model, steps=10, chains=50, engine="numpy")
"""
CELLS = {
    "setup": SETUP,
    "card": "result",
    "figure": "mg.plots.weights(result)",
    "axes": "import matplotlib.pyplot as plt\nfigure, ax = plt.subplots()\nmg.plots.weights(result, ax=ax)",
    "after pyplot": "mg.plots.running(result)",
    "open figures": "print(plt.get_fignums())",
    "bar": "from IPython.utils.capture import capture_output\n"
    "with capture_output() as seen:\n"
    "    with progress.ticker(True, '<mais>') as tick:\n"
    "        tick(0.25)\n"
    "        tick(0.5)\n"
    "print([x.data['text/html'] for x in seen.outputs])",
    "done bar": "with progress.ticker(True, 'mais') as tick:\n    tick(0.5)",
}


@pytest.fixture(scope="module")
def shown():
    """The outputs of all cells, executed once."""
    cells = [nbformat.v4.new_code_cell(code) for code in CELLS.values()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources={})
    client.km = client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable  # not one that somebody registered under this name
    client.execute()
    return {name: cell.outputs for name, cell in zip(CELLS, notebook.cells, strict=True)}


def one(outputs, kind):
    (found,) = (x["data"][kind] for x in outputs if kind in x.get("data", {}))
    return found


def test_an_answer_is_a_card(shown):
    html, text = one(shown["card"], "text/html"), one(shown["card"], "text/plain")
    assert "<svg" in html
    assert html.count("F = ") == text.count("F = ") == 1
    assert len(text) < 400
    assert "array" not in text + html


@pytest.mark.parametrize("cell", ["figure", "axes", "after pyplot"])
def test_figures_are_shown_once(shown, cell):
    one(shown[cell], "image/png")


def test_figures_leave_nothing_behind(shown):
    assert shown["open figures"][0]["text"] == "[]\n"  # the notebook closes what pyplot opened; the rest is not there


def test_bars_are_shown_and_taken_away(shown):
    text = shown["bar"][0]["text"]
    assert 'value="0.250"' in text
    assert "&lt;mais&gt;" in text
    assert one(shown["done bar"], "text/html") == ""
