"""Answers: the public functions that take a model, and the frozen values that they return.

Each file holds one function, such as `estimate`, `bound` or `expectations`, together with the class of its result. A
result has a `Record` of the run, an error for each number, `warnings`, `to_dict` and a printed form.

This layer may import all layers below it (planning, results, running, engines, paths, models, exact, files); nothing
below imports it. Read `estimate.py` first, then `results.estimate`: most other files follow their pattern.
"""
