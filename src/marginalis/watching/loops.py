"""Adapters of a watch to the training loops of other packages, which are imported only if an adapter is made."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ..checks import shown, whole

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def lightning_callback(
    watch: Any, model: Callable[[Any], Any] | None, every_n_epochs: int, every_n_batches: int | None
) -> Any:
    """Return a callback for PyTorch Lightning (see `Watch.lightning`)."""
    epochs = whole(every_n_epochs, "every_n_epochs", 1, 2**53)
    batches = None if every_n_batches is None else whole(every_n_batches, "every_n_batches", 1, 2**53)
    if model is not None and not callable(model):
        raise ValueError(f"model is {shown(model)}; it must be a function of the Lightning module")

    class WatchCallback(_base()):  # type: ignore[misc]
        """Calls `update` of a watch, and logs what it finds."""

        def on_train_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
            if batches is not None and (trainer.fit_loop.total_batch_idx + 1) % batches == 0:
                self._update(trainer, module)

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            if batches is None and (trainer.current_epoch + 1) % epochs == 0:
                self._update(trainer, module)

        def on_fit_end(self, trainer: Any, module: Any) -> None:
            watch.close()

        def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
            watch.close()

        def _update(self, trainer: Any, module: Any) -> None:
            if not trainer.is_global_zero:
                return
            point = watch.update(module if model is None else model(module), step=trainer.global_step)
            if point is not None:
                values = {"log_z": point.log_z, **{f"{name}_ln_p": x for name, x in point.log_p.items()}}
                module.log_dict(values, rank_zero_only=True)

    return WatchCallback()


def _base() -> Any:
    """Return the class of callbacks of the installed version of Lightning."""
    for package in _PACKAGES:
        try:
            return importlib.import_module(package).Callback
        except ImportError:
            continue
    raise ValueError("this callback needs PyTorch Lightning: pip install lightning")
