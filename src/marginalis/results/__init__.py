"""Results of runs: an `Estimate`, which holds the weights of its chains, and the `Record` of where they come from.

`record` defines `Record`, which has everything that is needed to repeat a run, and `Answer`, the base class of all
answers that have one. `estimate` defines `Estimate` and the functions that make one from a plan or from its
log-weights. `curve` is ln Z(β) along the path of a run, and `written` turns answers into plain data, JSON and tables.
The package may import `running` and below; planning looks at the results of pilots, and `answers` returns them to the
user. Read `record` first, then `estimate`.
"""
