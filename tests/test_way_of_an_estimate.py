"""How much code a plain `estimate` passes through: the modules whose functions run, and the objects that it makes."""

import sys
from pathlib import Path

import numpy as np

import marginalis as mg

ROOT = str(Path(mg.__file__).parent)
MOST_MODULES = 22  # Upper limit of the number of modules; lower it when the way becomes shorter.
MOST_OBJECTS = 14  # Upper limit of the number of objects of the package's classes, named tuples not counted.


def traced(call):
    """Return the modules of the package whose functions run during a call, and the names of the objects it makes."""
    modules, made = set(), {}

    def note(frame, event, argument):
        if event != "call":
            return
        if frame.f_code.co_filename.startswith(ROOT):
            modules.add(frame.f_code.co_filename[len(ROOT) + 1 :])
        if frame.f_code.co_name == "__init__":
            new = frame.f_locals.get("self")
            if type(new).__module__.startswith("marginalis"):
                made[id(new)] = new  # An object that is kept cannot share its number with a later one.

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return sorted(modules), [type(x).__name__ for x in made.values()]


def test_a_plain_estimate_passes_few_modules_and_makes_few_objects():
    rng = np.random.default_rng(0)
    models = [mg.rbm(rng.normal(size=(20, 40)) / 5, np.zeros(20), np.zeros(40)) for _ in range(2)]
    options = {"steps": 50, "chains": 64, "threads": 1}
    mg.estimate(models[0], **options)  # Kernels are compiled at the first call.
    modules, made = traced(lambda: mg.estimate(models[1], **options))
    assert "results/estimate.py" in modules
    assert len(modules) <= MOST_MODULES, modules
    assert "Plan" in made
    assert len(made) <= MOST_OBJECTS, made
