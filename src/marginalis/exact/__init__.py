"""Exact ln Z of models that are small, sparse, planar, layered or Gaussian.

Each method has a file of its own: `enumeration`, `layers`, `transfer`, `elimination`, `contraction`, `counting`,
`planar`, `pfaffian`, `kaufman` and `gaussian`. `ways` predicts the time of each method for a model, and `choice`
(`exact_log_z`) runs the cheapest one that applies. `sampling` draws exact samples by some of these methods. The
package may import the model files, the models and the layers below them; mainly the paths, the planning and the answers
use it. Read `choice` first, then `ways`.
"""

from .choice import METHODS as METHODS
from .choice import ExactLogZ as ExactLogZ
from .choice import ModelTooLarge as ModelTooLarge
from .choice import Prediction as Prediction
from .choice import as_summable as as_summable
from .choice import cheapest as cheapest
from .choice import duration as duration
from .choice import eliminate as eliminate
from .choice import exact_log_z as exact_log_z
from .choice import predicted as predicted
from .choice import soon as soon
