"""The options of a run: listed, typed, explained and given their defaults here, for every door that takes them.

A function that takes them says ``**options: Unpack[RunOptions]`` and wears `takes_options`, which gives it the full
signature and the explanations; the command line makes its flags from the same list.
"""

from __future__ import annotations

import functools
import inspect
import os
import secrets
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict, TypeVar, get_args, get_type_hints

from numpy.typing import ArrayLike

from .checks import did_you_mean, one_of
from .models.model import MRF
from .parallel.threads import THREADS
from .paths.base import Base

Method = Literal["mais", "mais-v", "mais-h", "ais"]
Transition = Literal["gibbs", "metropolis"]
Precision = Literal["single", "double"]
Draws = Literal["words", "planes"]
Engine = Literal["auto", "numpy", "numba", "cuda"]

METHODS: tuple[str, ...] = get_args(Method)
TRANSITIONS: tuple[str, ...] = get_args(Transition)
PRECISIONS: tuple[str, ...] = get_args(Precision)
DRAWS: tuple[str, ...] = get_args(Draws)
ENGINES: tuple[str, ...] = get_args(Engine)
ENGINE = "MARGINALIS_ENGINE"  # The environment variable that sets the default engine.
WARN = "MARGINALIS_WARN"  # The environment variable that turns warnings of answers into Python warnings.

SCHEDULES = ("linear", "adaptive")  # The words for schedules; a schedule may also be a list of β.

DEFAULT_STEPS = 1000
DEFAULT_CHAINS = 1000


class PlanOptions(TypedDict, total=False):
    """The options that determine the log-weights; each entry carries its explanation."""

    method: Annotated[
        Method,
        "'mais' sums out the larger side of a bipartite graph, or a large independent set of any other; 'mais-v' "
        "samples v and sums h out, 'mais-h' the reverse; 'ais' samples all variables",
    ]
    steps: Annotated[int | None, f"annealing steps K; {DEFAULT_STEPS} by default"]
    chains: Annotated[int | None, f"independent chains N; {DEFAULT_CHAINS} by default"]
    transition: Annotated[
        Transition,
        "transition kernel: 'gibbs' draws one block after the other; 'metropolis' adds sweeps of single flips of the "
        "summed-out side (Roussel et al. 2021; spins and binaries on bipartite graphs)",
    ]
    sweeps: Annotated[int, "number of Metropolis sweeps per step of the 'metropolis' transition"]
    schedule: Annotated[
        str | ArrayLike | None,
        "annealing schedule: 'linear', as in the paper; 'adaptive', fitted to short pilot runs; or an increasing "
        "sequence of β from 0 to 1. Adaptive by default, linear if steps are given",
    ]
    base: Annotated[
        str | Base | MRF | Sequence[ArrayLike] | None,
        "where the path starts: 'uniform', the default if steps or a schedule is given; 'biases', the model's own "
        "fields without couplings; 'mean-field'; 'quenches', a mixture fitted to short runs; the result of "
        "`data_base`; a pair (visible fields, hidden fields); or a model of the same variables that can be summed "
        "exactly. If neither steps nor a schedule is given, the base is chosen from short trial runs",
    ]
    summed: Annotated[
        Sequence[Any] | None, "labels of the variables to sum out, no two of them coupled; chosen by default"
    ]
    resample: Annotated[
        bool | float | None,
        "resampling: whenever the effective sample size of a population falls below half of its chains (True), or "
        "below another fraction of them, low-weight chains are replaced by copies of high-weight ones. By default "
        "off if steps are given, otherwise chosen from short pilot runs",
    ]
    populations: Annotated[int, "number of independent populations into which resampling divides the chains"]
    seed: Annotated[
        int | None,
        "seed of the random numbers. The same seed gives the same result to the last bit, so repeated calls show no "
        "scatter; None draws a fresh one, which the answer reports",
    ]
    first_chain: Annotated[
        int, "number of the first chain; runs over consecutive chain numbers can be joined into one larger run"
    ]
    precision: Annotated[
        Precision,
        "'single': float32 states and fields with float64 log-weights, and double precision where float32 is not "
        "accurate enough; 'double': float64 throughout",
    ]
    draws: Annotated[
        Draws,
        "stream of random numbers: 'words' uses 32 bits per unit; 'planes' is another stream of the same quality with "
        "which lattices run faster",
    ]
    engine: Annotated[
        Engine,
        "'numba' (compiled kernels), 'numpy' (the readable reference), 'cuda' (a GPU), or 'auto': the value of the "
        f"environment variable {ENGINE} if it is set, otherwise compiled kernels where they apply",
    ]
    device: Annotated[
        int | str | Sequence[int] | None,
        "number of the GPU for engine 'cuda', or several numbers, as in 0,1, to divide the chains among them; the "
        "first by default. Does not change the result",
    ]


class RunOptions(PlanOptions, total=False):
    """All options of a run: those that determine the log-weights, and those that say how they are computed."""

    threads: Annotated[
        int | None,
        f"number of threads; by default the value of the environment variable {THREADS}, or all cores that this "
        "process may use. Does not change the result",
    ]
    pool: Annotated[
        Any,
        "where the chains run: a number of local processes, an executor (or any object with submit or map), a Dask "
        "client, 'dask:' followed by the address of a scheduler, or 'dask-local'; threads of this process by default. "
        "With a pool, threads counts those of each task. Does not change the result",
    ]
    checkpoint: Annotated[
        str | os.PathLike[str] | None,
        "file that stores finished chains; the same call continues from it after an interruption, on any number of "
        "workers",
    ]
    progress: Annotated[
        bool | Callable[[float], None],
        "True for a progress bar on stderr (on a terminal, after one second), or a callback that receives the "
        "progress, from 0 to 1",
    ]


WORDS: dict[str, tuple[str, ...]] = {  # The options whose values are words of a fixed list.
    "method": METHODS,
    "transition": TRANSITIONS,
    "precision": PRECISIONS,
    "draws": DRAWS,
    "engine": ENGINES,
}

SYNONYMS = {  # What other packages and the paper call the options.
    "k": "steps",
    "iterations": "steps",
    "n_iter": "steps",
    "n_betas": "steps",
    "n": "chains",
    "samples": "chains",
    "n_samples": "chains",
    "num_samples": "chains",
    "runs": "chains",
    "particles": "chains",
    "betas": "schedule",
    "rng": "seed",
    "random_state": "seed",
    "n_jobs": "threads",
    "num_workers": "threads",
    "cores": "threads",
    "workers": "pool",
    "executor": "pool",
    "client": "pool",
    "backend": "engine",
    "gpu": "engine",
    "cuda": "engine",
    "dtype": "precision",
    "verbose": "progress",
    "tqdm": "progress",
    "tol": "tolerance",
    "eps": "tolerance",
    "epsilon": "tolerance",
    "accuracy": "tolerance",
    "timeout": "budget",
    "seconds": "budget",
    "max_seconds": "budget",
    "p0": "base",
    "initial": "base",
    "kernel": "transition",
    "resampling": "resample",
    "marginalize": "summed",
}

DEFAULTS: RunOptions = {
    "method": "mais",
    "steps": None,
    "chains": None,
    "transition": "gibbs",
    "sweeps": 1,
    "schedule": None,
    "base": None,
    "summed": None,
    "resample": None,
    "populations": 20,
    "seed": 0,
    "first_chain": 0,
    "precision": "single",
    "draws": "words",
    "engine": "auto",
    "device": None,
    "threads": None,
    "pool": None,
    "checkpoint": None,
    "progress": False,
}


NOT_OF_A_PLAN = tuple(name for name in DEFAULTS if name not in PlanOptions.__annotations__)


class UnknownOption(TypeError, ValueError):
    """An option that a function does not have: a TypeError to Python, bad input to the command line."""


Door = TypeVar("Door", bound=Callable[..., Any])


def notes() -> dict[str, str]:
    """Return the note of every option."""
    hints = get_type_hints(RunOptions, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


_told: set[str] = set()  # Texts that were given as Python warnings already.


def tells(door: Door) -> Door:
    """Let the warnings of an answer be Python warnings as well, each text once, where `WARN` is set to 1."""

    @functools.wraps(door)
    def answering(*args: Any, **given: Any) -> Any:
        answer = door(*args, **given)
        if os.environ.get(WARN, "").strip() not in ("", "0"):
            for text in answer.warnings:
                if text not in _told:
                    _told.add(text)
                    warnings.warn(text, stacklevel=2)
        return answer

    return answering  # type: ignore[return-value]


def _named(door: Door, known: Sequence[str]) -> Door:
    """Let a function refuse options that are not known before anything else, and say which ones are meant."""

    @functools.wraps(door)
    def checking(*args: Any, **given: Any) -> Any:
        check_names(given, known)
        return door(*args, **given)

    return checking  # type: ignore[return-value]


def takes_options(*names: str, leave_out: Sequence[str] = ()) -> Callable[[Door], Door]:
    """Give a function with ``**options`` the signature and the explanations of the named options, or of all."""
    chosen = [name for name in names or DEFAULTS if name not in leave_out]

    def dress(undressed: Door) -> Door:
        signature = inspect.signature(undressed)
        hints = get_type_hints(RunOptions)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        door = tells(_named(undressed, [*(p.name for p in own), *chosen]))
        listed = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS[name], annotation=hints[name])  # type: ignore[literal-required]
            for name in chosen
        ]
        door.__signature__ = signature.replace(parameters=own + listed)  # type: ignore[attr-defined]
        explained = "\n".join(f"{name}\n{_paragraph(text)}" for name, text in notes().items() if name in chosen)
        door.__doc__ = inspect.cleandoc(door.__doc__ or "") + "\n\nRun options\n-----------\n" + explained + "\n"
        return door

    return dress


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 100, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def check_names(options: Iterable[str], known: Sequence[str]) -> None:
    """Raise an `UnknownOption` that names the first option that is not known, and the one that is meant, if any."""
    for name in options:
        if name not in known:
            raise UnknownOption(f"there is no option {name!r} here{meant(name, known)}")


def meant(name: str, known: Sequence[str]) -> str:
    """Return the end of a message about an unknown option: which of the known ones is probably meant."""
    if name in DEFAULTS and name not in known:  # An option of other functions is no misspelling.
        return ""
    plain = name.lower().replace("-", "_").strip("_")
    if plain in ("temperature", "beta", "t"):
        return ": the temperature belongs to the model, as in rbm(..., temperature=2.0)"
    if plain in SYNONYMS:
        return f"; did you mean {SYNONYMS[plain]!r}?" if SYNONYMS[plain] in known else ""
    return did_you_mean(name, known)


def filled_in(options: Mapping[str, Any], leave_out: Sequence[str] = ()) -> RunOptions:
    """Return the options with defaults for those left out; a seed of None becomes a fresh one, here and only once."""
    check_names(options, [name for name in DEFAULTS if name not in leave_out])
    chosen: dict[str, Any] = {**DEFAULTS, **options}
    if chosen["seed"] is None:
        chosen["seed"] = secrets.randbits(63)
    word = os.environ.get(ENGINE, "").strip()
    if word and isinstance(chosen["engine"], str) and chosen["engine"] == "auto":
        one_of(word, ENGINES, ENGINE)
        chosen["engine"] = word
    for name, words in WORDS.items():
        one_of(chosen[name], words, name)
    return chosen  # type: ignore[return-value]


def plan_options(options: RunOptions) -> PlanOptions:
    """Return those options that decide the weights."""
    return {name: value for name, value in options.items() if name in PlanOptions.__annotations__}  # type: ignore[return-value]


def leaves_path_open(options: PlanOptions) -> bool:
    """Whether neither the steps, nor the schedule, nor the base is given, so that the package chooses the path."""
    return all(options.get(name) is None for name in ("steps", "schedule", "base"))


def is_adaptive(options: PlanOptions) -> bool:
    """Whether the schedule is fitted to pilot runs, which is the default unless the steps are given."""
    schedule = options.get("schedule")
    if schedule is None:
        return options.get("steps") is None
    return isinstance(schedule, str) and schedule == "adaptive"
