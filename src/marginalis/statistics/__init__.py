"""Statistics: what independent, positive, unbiased weights tell about their mean.

`weights` has the value that estimates hold: N log-weights and what they tell. `confidence` has intervals and warnings
for one set of log-weights, `bennett` the estimates from two directions of a process, `resampling` the choice of states
in proportion to their weights. Nothing here knows of models or runs.
"""
