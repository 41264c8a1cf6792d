"""Free energies of bipartite Markov random fields by (marginalized) annealed importance sampling."""

from . import plots
from .bases import data_base
from .bounds import Bounds, bound
from .curve import Curve
from .estimate import Estimate, estimate
from .exact import ModelTooLarge, exact_log_z
from .graphs import from_bqm, from_edges, from_graph, from_tables, potts
from .grids import ising_grid, potts_grid
from .io import load, save
from .likelihood import LogLikelihood, log_likelihood
from .models import BipartiteMRF, as_model, dbm, rbm
from .thermodynamics import Thermodynamics, thermodynamics

__version__ = "0.1.0"

__all__ = [
    "BipartiteMRF",
    "Bounds",
    "Curve",
    "Estimate",
    "LogLikelihood",
    "ModelTooLarge",
    "Thermodynamics",
    "as_model",
    "bound",
    "data_base",
    "dbm",
    "estimate",
    "exact_log_z",
    "from_bqm",
    "from_edges",
    "from_graph",
    "from_tables",
    "ising_grid",
    "load",
    "log_likelihood",
    "plots",
    "potts",
    "potts_grid",
    "rbm",
    "save",
    "thermodynamics",
]
