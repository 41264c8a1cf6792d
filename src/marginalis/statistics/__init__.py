"""Statistics: what independent, positive, unbiased weights tell about their mean.

`weights` has the value that estimates hold: N log-weights and what they tell. `confidence` has intervals and warnings for one set of log-weights, `bennett` the estimates from two directions of a
process. These are functions of arrays alone; nothing here knows of models or runs.
"""
