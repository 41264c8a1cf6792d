"""What marginalis is measured against, each in a process of its own so that its threads can be bounded.

`Worker` is the parent's side. Run as a script, this file is the child: it sets one task up, then runs it once
per line on its standard input and answers with the time that took. Set-up and compilation are not timed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import marginalis as mg
from marginalis.examples import rbm_gaussian

Run = Callable[[], float | None]  # does the work once, returns ln Z where there is one

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")  # NPROC: XLA


class Timing(NamedTuple):
    """Wall time, and how many cores the work and all other processes of the machine had meanwhile."""

    seconds: float
    cores: float
    foreign: float = 0.0


def cpu_time(timing: Timing) -> Timing:
    """Return the time that the process itself had, of work on one thread."""
    return timing._replace(seconds=timing.seconds * timing.cores, cores=1.0)


def timed(run: Callable[[], Any]) -> tuple[Timing, Any]:
    """Run once; return how long it took and what it returned."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Timing(wall, cpu / wall), result


class Unavailable(Exception):
    """The task cannot run here; the message says why in one line."""


class Worker:
    """A task in a child process; calling it runs the task once and times it."""

    def __init__(self, task: str, *sizes: int, threads: int, **environment: str) -> None:
        self.log_z = float("nan")
        bounds = dict.fromkeys(_THREAD_VARIABLES, str(threads))
        self._process = subprocess.Popen(
            [sys.executable, __file__, task, *map(str, sizes)],
            env={**os.environ, **bounds, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            self._answer()
        except Unavailable:
            self.close()
            raise

    def __call__(self) -> Timing:
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        answer = self._answer()
        self.log_z = answer["log_z"]
        return Timing(*answer["timing"])

    def close(self) -> None:
        """End the child: its input closes."""
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise Unavailable(f"the process ended with code {self._process.wait()}")
        answer = json.loads(line)
        if "missing" in answer:
            raise Unavailable(answer["missing"])
        return answer


def model(visible: int, hidden: int, units: str = "spin") -> mg.BipartiteMRF:
    """Return the model that everyone gets."""
    m = rbm_gaussian(visible, hidden, temperature=0.5, seed=1)
    return mg.rbm(m.weights, m.visible_bias, m.hidden_bias, units=units, temperature=m.temperature)


def parameters(visible: int, hidden: int, dtype: type) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return weights, visible_bias and hidden_bias of the same model, divided by its temperature."""
    m = model(visible, hidden)
    w, b, c = ((x / m.temperature).astype(dtype) for x in (m.weights, m.visible_bias, m.hidden_bias))
    return w, b, c


def log_mean_exp(log_weights: np.ndarray) -> float:
    """ln of the mean weight, in float64."""
    log_weights = np.asarray(log_weights, dtype=np.float64)
    top = log_weights.max()
    return float(top + np.log(np.exp(log_weights - top).mean()))


def products(visible: int, hidden: int, chains: int, steps: int) -> Run:
    """Nothing but the matrix products of mAIS in float32: K in one direction, K − 1 in the other."""
    w, _, _ = parameters(visible, hidden, np.float32)
    v, h = np.ones((chains, visible), np.float32), np.ones((chains, hidden), np.float32)
    to_h, to_v = np.empty_like(h), np.empty_like(v)

    def run() -> None:
        for k in range(steps):
            np.matmul(v, w, out=to_h)
            if k < steps - 1:
                np.matmul(h, w.T, out=to_v)

    return run


def script(visible: int, hidden: int, chains: int, steps: int) -> Run:
    """mAIS-V as one would write it in NumPy: float64, every field computed once and used twice."""
    w, b, c = parameters(visible, hidden, np.float64)

    def log_2cosh(field: np.ndarray) -> np.ndarray:
        return np.log(2.0 * np.cosh(field)).sum(axis=1)

    def run() -> float:
        rng = np.random.default_rng(0)

        def draw(field: np.ndarray) -> np.ndarray:
            return np.where(rng.uniform(-1.0, 1.0, field.shape) < np.tanh(field), 1.0, -1.0)

        v = draw(np.zeros((chains, visible)))
        log_weights = np.zeros(chains)
        for k in range(1, steps + 1):
            field = c + v @ w
            log_weights += v @ b / steps + log_2cosh(k / steps * field) - log_2cosh((k - 1) / steps * field)
            if k < steps:
                h = draw(k / steps * field)
                v = draw(k / steps * (b + h @ w.T))
        return log_mean_exp(log_weights) + (visible + hidden) * np.log(2.0)

    return run


def reference(visible: int, hidden: int, chains: int, steps: int) -> Run:
    """The readable engine of marginalis itself."""
    m = model(visible, hidden)
    return lambda: mg.estimate(m, chains=chains, steps=steps, engine="numpy").log_z


def tfp(visible: int, hidden: int, chains: int, steps: int) -> Run:
    """AIS of TensorFlow Probability on JAX, float32, over the joint state (v, h).

    It hands a transition kernel nothing but the tempered ln P(v, h). That is linear in each side, so its
    gradient with respect to a side is the field which a Gibbs draw of that side needs. XLA merges the product
    vᵀW of the weight with that of the draw, so that two products per step remain.
    """
    import jax
    import jax.numpy as jnp
    from tensorflow_probability.substrates.jax import mcmc

    w, b, c = map(jnp.asarray, parameters(visible, hidden, np.float32))
    Results = namedtuple("Results", "accepted_results proposed_results")  # what their AIS looks for
    Inner = namedtuple("Inner", "target_log_prob")

    def draw(key: Any, field: Any) -> Any:
        return jnp.where(jax.random.uniform(key, field.shape, minval=-1.0) < jnp.tanh(field), 1.0, -1.0)

    class Gibbs(mcmc.TransitionKernel):
        is_calibrated = True

        def __init__(self, log_prob: Callable[[Any, Any], Any]) -> None:
            self.log_prob = log_prob

        def one_step(self, current_state: Any, previous_kernel_results: Any, seed: Any = None) -> Any:
            v, h = current_state
            key_h, key_v = jax.random.split(seed)
            h = draw(key_h, jax.grad(lambda h: self.log_prob(v, h).sum())(h))
            v = draw(key_v, jax.grad(lambda v: self.log_prob(v, h).sum())(v))
            return [v, h], previous_kernel_results

        def bootstrap_results(self, init_state: Any) -> Any:
            return Results(*(Inner(jnp.zeros(chains)) for _ in range(2)))

    @jax.jit
    def anneal(key: Any) -> Any:
        key_v, key_h, key = jax.random.split(key, 3)
        _, log_weights, _ = mcmc.sample_annealed_importance_chain(
            num_steps=steps,
            proposal_log_prob_fn=lambda v, h: jnp.zeros(chains),
            target_log_prob_fn=lambda v, h: v @ b + h @ c + ((v @ w) * h).sum(axis=1),
            current_state=[
                draw(key_v, jnp.zeros((chains, visible))),
                draw(key_h, jnp.zeros((chains, hidden))),
            ],
            make_kernel_fn=Gibbs,
            seed=key,
        )
        return log_weights

    return lambda: log_mean_exp(anneal(jax.random.PRNGKey(0))) + (visible + hidden) * np.log(2.0)


def rbms(visible: int, hidden: int, chains: int, steps: int) -> Run:
    """AIS of the package rbms (torch, float32) on the binary model: it samples v and sums h out."""
    import torch
    from rbms.bernoulli_bernoulli.classes import BBRBM
    from rbms.partition_function.ais import compute_partition_function_ais

    w, b, c = map(torch.from_numpy, parameters(visible, hidden, np.float32))
    machine = BBRBM(weight_matrix=w, vbias=b, hbias=c)
    torch.manual_seed(0)
    # It counts the inverse temperatures, both ends included: steps + 1.
    return lambda: compute_partition_function_ais(num_chains=chains, num_beta=steps + 1, params=machine)


TASKS = {task.__name__: task for task in (products, script, reference, tfp, rbms)}


def main() -> None:
    """Serve one task until the input ends."""
    answers = os.fdopen(os.dup(1), "w")  # the libraries may print; the answers keep a channel of their own
    os.dup2(2, 1)

    def say(**answer: Any) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    task, *sizes = sys.argv[1:]
    try:
        run = TASKS[task](*map(int, sizes))
        run()  # compiles what is compiled, and warms up
    except ImportError as error:
        return say(missing=f"not installed ({error})")
    except Exception as error:
        return say(missing=f"{type(error).__name__}: {error}".splitlines()[0])
    say(ready=True)
    for _ in sys.stdin:
        timing, log_z = timed(run)
        say(timing=timing, log_z=log_z)


if __name__ == "__main__":
    main()
