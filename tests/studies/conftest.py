"""Exact values of the experiments, each once."""

from unittest import mock

import pytest

from marginalis.exact import batch


@pytest.fixture(autouse=True, scope="package")
def exact_once():
    """Sum each model once: the same few come in many of these tests, and the sum takes longest."""
    known, real = {}, batch.exact_log_z

    def exact(model, **options):
        key = model.weights.tobytes(), model.visible_bias.tobytes(), model.hidden_bias.tobytes(), model.temperature
        if key not in known:
            known[key] = real(model, **options)
        return known[key]

    with mock.patch.object(batch, "exact_log_z", exact):
        yield
