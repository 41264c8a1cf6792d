"""Statistics of independent, positive, unbiased weights: their mean, its error, and warnings.

`weights` defines `Weights`: N log-weights with the estimate of ln Z that follows from them. `confidence` has intervals
and warnings for one set of log-weights, `bennett` estimates from the forward and the reverse process, and `resampling`
draws states in proportion to their weights. Nothing here depends on models or runs: the package may import `checks`,
`display` and the other modules of the lowest layer only. Read `weights` first, then `confidence`.
"""
