"""ln Z and ln p of held-out rows while a model is trained.

`watch` has the class that a training loop calls. `follow` carries a population of chains from one state of the model to
the next and decides when a fresh run is needed; `store` and `live` write its files, `loops` has the adapters to the
loops of other packages. The package imports the answers and the figures; only the public names import it. Read `follow`
first.
"""
