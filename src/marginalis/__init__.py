"""Free energies of Markov random fields by (marginalized) annealed importance sampling."""

# ruff: noqa: F403
from __future__ import annotations

TYPE_CHECKING = False  # Type checkers take it as true, as `typing.TYPE_CHECKING`, whose import takes time.
if TYPE_CHECKING:
    from ._public import *
    from ._public import MRF as BipartiteMRF  # noqa: F401

__version__ = "0.3.0"


if not TYPE_CHECKING:  # Type checkers know the names, and report others.

    def __getattr__(name):
        """Find the public names in `_public` when the first is used: the command line handles signals before that.

        `__all__` is one of them, so that every public name is listed once.
        """
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import _public

        if not _public.__spec__._initializing:
            names = {public: value for public, value in vars(_public).items() if not public.startswith("_")}
            globals().update(names, __all__=sorted(names))
        if name == "BipartiteMRF":  # The name of the class in version 0.1, when all graphs were bipartite.
            import warnings

            warnings.warn("BipartiteMRF is now called MRF", DeprecationWarning, stacklevel=2)
            name = "MRF"
        if name not in globals():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals()[name]

    def __dir__():
        return sorted({*globals(), *__getattr__("__all__")})
