"""Free energies of bipartite Markov random fields by (marginalized) annealed importance sampling."""

from .estimate import Estimate, estimate
from .exact import ModelTooLarge, exact_log_z
from .graphs import from_bqm, from_edges, from_graph, from_tables, potts
from .grids import ising_grid, potts_grid
from .io import load, save
from .models import BipartiteMRF, dbm, rbm

__version__ = "0.1.0"

__all__ = [
    "BipartiteMRF",
    "Estimate",
    "ModelTooLarge",
    "dbm",
    "estimate",
    "exact_log_z",
    "from_bqm",
    "from_edges",
    "from_graph",
    "from_tables",
    "ising_grid",
    "load",
    "potts",
    "potts_grid",
    "rbm",
    "save",
]
