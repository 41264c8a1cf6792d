"""Models: Markov random fields and factor models, and the functions that build them.

`model` defines `MRF`, the model that is annealed: variables in two groups, their fields and couplings; `forms` has its
parts. `units` has the kinds of variables. `layered`, `graphs`, `grids`, `networks` and `named_arrays` build models from
weights, graphs, lattices, factors and state dictionaries; `arrange` chooses which variables are summed out. `factors`
defines `FactorModel` with tables over any number of variables, `reduction` sums some of them exactly, and `interacting`
makes the rest a model that can be annealed. `data` and `labelled` check rows of data. The package may import
`statistics`, `checks`, `display` and the other modules of the lowest layer. Read `model` first, then `units`.
"""
