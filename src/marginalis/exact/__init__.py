"""Exact ln Z: one method a file, `choice` takes the cheapest that fits the model."""

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
