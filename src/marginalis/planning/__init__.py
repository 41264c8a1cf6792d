"""Planning: which path, schedule, number of steps and number of chains, as far as the options leave them open.

`pilots` fits a schedule to short runs. `search` makes trials (`trial`) of the paths from mixtures of `phases`, and
`choose` decides; `run_chosen` runs along the chosen path and compares the result with the trials. `draft` and
`narrowing` find the numbers of steps and chains for a tolerance, and `tolerance` joins both. `quenches` is the mixture
of one base. `tuning` has all numbers that studies chose. Pilots draw from random streams of their own and never enter
the estimate, so that Ẑ stays unbiased. The package may import `results` and below. Read `pilots` first.
"""
