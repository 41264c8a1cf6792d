"""Answers: the public functions that take a model, and the frozen values that they return.

Each file holds one function, such as `estimate`, `bound` or `expectations`, together with the class of its result. A
result has a `record.Record` of the run, an error for each number, `warnings`, `to_dict` and a printed form.

This layer may import the layers below it (models, paths, engines, planning, running, statistics, exact, files); nothing
below imports it. Read `record.py`, `estimate.py` and `estimating.py` first: most other files follow their pattern.
"""
