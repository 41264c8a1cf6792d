"""Watches in training loops of PyTorch and PyTorch Lightning, where these are installed."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import marginalis as mg

ROWS = np.random.default_rng(1).integers(0, 2, (60, 6)).astype(np.float32)


def machine(torch):
    """A module with the arrays of an RBM of zeros and ones, and a step of contrastive divergence."""

    class RBM(torch.nn.Module):
        def __init__(self):
            super().__init__()
            generator = torch.Generator().manual_seed(0)
            self.W = torch.nn.Parameter(0.1 * torch.randn(6, 5, generator=generator))
            self.v_bias = torch.nn.Parameter(torch.zeros(6))
            self.h_bias = torch.nn.Parameter(torch.zeros(5))

        def free(self, v):
            return v @ self.v_bias + torch.nn.functional.softplus(v @ self.W + self.h_bias).sum(dim=1)

        def loss(self, v):
            with torch.no_grad():
                h = torch.bernoulli(torch.sigmoid(v @ self.W + self.h_bias))
                model = torch.bernoulli(torch.sigmoid(h @ self.W.T + self.v_bias))
            return (self.free(model) - self.free(v)).mean()

    return RBM()


def check(point, module):
    model = mg.as_model(module)
    assert abs(point.log_z - mg.exact_log_z(model)) < 4.5 * point.stderr
    exact = mg.log_likelihood(model, ROWS)
    assert point.log_p["test"] + point.log_z == pytest.approx(exact.mean + exact.log_z)


def test_a_plain_torch_loop():
    torch = pytest.importorskip("torch")
    module = machine(torch)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.2)
    rows = torch.tensor(ROWS)
    watch = mg.Watch(rows={"test": rows})
    state = torch.get_rng_state()
    watch.update(module, step=-1)
    assert torch.equal(torch.get_rng_state(), state)  # The watch has random numbers of its own.
    for epoch in range(5):
        optimiser.zero_grad()
        module.loss(rows).backward()
        optimiser.step()
        check(watch.update(module, step=epoch), module)
    parts = (module.W, module.v_bias, module.h_bias, "binary")
    assert watch.update(parts, step=4) == watch.history[-1]  # the same machine, as a tuple of parameters
    assert {p.source for p in watch.history.points[1:]} == {"carried"}


def lightning():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("lightning.pytorch")


@pytest.mark.filterwarnings("ignore")  # Lightning has remarks on loaders, loggers and deprecated functions.
@pytest.mark.parametrize(("batches", "steps"), [(None, [3, 6, 9, 12]), (5, [5, 10])])
def test_lightning(batches, steps, tmp_path):
    torch, pl = pytest.importorskip("torch"), lightning()

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.rbm = machine(torch)

        def training_step(self, batch, number):
            return self.rbm.loss(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.2)

    class Listener(pl.Callback):
        logged = None

        def on_train_end(self, trainer, module):
            self.logged = {name: float(x) for name, x in trainer.callback_metrics.items()}

    module, listener = Module(), Listener()
    watch = mg.Watch(tmp_path / "run", rows={"test": ROWS})
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.tensor(ROWS)), batch_size=20)
    trainer = pl.Trainer(
        max_epochs=4,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[watch.lightning(lambda module: module.rbm, every_n_batches=batches), listener],
    )
    trainer.fit(module, loader)
    assert [p.step for p in watch.history.points] == steps
    last = watch.history[-1]
    if batches is None:
        check(last, module.rbm)
    assert listener.logged["log_z"] == pytest.approx(last.log_z, rel=1e-6)
    assert listener.logged["test_ln_p"] == pytest.approx(last.log_p["test"], rel=1e-6)
    assert len((tmp_path / "run" / "watch.csv").read_text().splitlines()) == len(steps) + 1


def page():
    """Return the names that the code of the tutorial for PyTorch and Lightning defines."""
    path = Path(__file__).parents[2] / "docs" / "tutorials" / "watching.md"
    if not path.exists():
        pytest.skip("the documentation is not here")
    names = {}
    for code in re.findall(r"^```py\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(code, str(path), "exec"), names)
    return names


@pytest.mark.filterwarnings("ignore")
def test_the_code_of_the_tutorial(tmp_path, monkeypatch):
    torch, _ = pytest.importorskip("torch"), lightning()
    monkeypatch.chdir(tmp_path)
    names = page()
    rows = torch.tensor(ROWS)
    module = names["RBM"](6, 5)
    watch = names["train"](module, rows.split(20), ROWS, 3, tmp_path / "plain")
    assert len(watch.history) == 3
    check(watch.history[-1], module)
    training = names["Training"](6, 5)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=20)
    watch = names["fit"](training, loader, ROWS, 2, tmp_path / "lightning")
    assert [p.step for p in watch.history.points] == [3, 6]
    check(watch.history[-1], training.rbm)


def test_lightning_takes_functions_and_counts():
    lightning()
    with pytest.raises(ValueError, match="model is 3; it must be a function of the Lightning module"):
        mg.Watch().lightning(3)
    with pytest.raises(ValueError, match="every_n_epochs is 0; it must be at least 1"):
        mg.Watch().lightning(every_n_epochs=0)


def test_without_lightning(monkeypatch):
    monkeypatch.setattr("marginalis.watching.loops._PACKAGES", ("no_such_lightning",))
    with pytest.raises(ValueError, match="this callback needs PyTorch Lightning: pip install lightning"):
        mg.Watch().lightning()
