"""Files: readers and writers of models, data and results, one format per file.

`model_files` detects the format of a model file from its content, and chooses the writer from the ending of its name.
`npz` is the package's own format; `uai`, `libdai`, `dimod_files`, `rudy`, `adabm`, `rbms`, `rbm_jl` and `torch_state`
are those of others. `tables` and `fasta` read data, `results` has files of results, and `database` SQLite files.
Files may come from untrusted sources: `archive`, `text` and `hdf5` check sizes before they read, and nothing is
unpickled. `atomic` writes files whole or not at all. The package may import `models` and below. Read `model_files`
first, then `npz`.
"""
