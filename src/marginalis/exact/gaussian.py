"""Closed forms for models with Gaussian units."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_solve, cholesky, lapack, solve_triangular
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import splu

from ..checks import Array, dense, stored

_DENSE_SIDE = 3000  # Largest smaller side for which a sparse W is treated by a dense Schur complement.
_MOST_DENSE = 20_000  # Most rows of a dense matrix: 3 GiB.
_MOST_ENTRIES = 1 << 28  # Most entries of a sparse factor.
_LOG_2PI = math.log(2.0 * math.pi)
_CHUNK_BITS = 20  # log2 of the states that are summed at a time.
_EPS = 2.0**-52
_PROMISED = 1e-9  # Relative accuracy of ln Z, absolute for |ln Z| < 1.
_MOST_EXTENDED = 1e9  # Most multiplications in extended precision, which no library accelerates.


def gaussian_gaussian_log_z(
    W: Any, b: Array, c: Array, precision_v: Array, precision_h: Array, lateral: Any = None
) -> float:
    """ln ∫ exp(b·v + c·h + v'Wh + ½v'Lv − ½Σ p_i v_i² − ½Σ q_j h_j²) dv dh, W and L (`lateral`) dense or sparse.

    With Λ = [[diag p − L, −W], [−W', diag q]] and β = (b, c) the result is ½(n+m) ln 2π − ½ ln det Λ + ½ β'Λ⁻¹β.
    Units are rescaled to precision one (B = p^{-½} W q^{-½}). The larger side, or the one without couplings inside, is
    integrated out, and the Schur complement I − B'B − L of the other side is factored. If W is sparse and this
    complement is large, Λ itself is factored instead.

    The integral exists only if Λ is positive definite. Raises a ValueError otherwise, and also if Λ is so nearly
    singular that rounding errors decide, or if fewer than nine digits are left after a second computation in extended
    precision.
    """
    b, p = _gaussian_side("b", b, "precision_v", precision_v)
    c, q = _gaussian_side("c", c, "precision_h", precision_h)
    sparse = sp.issparse(W)
    W = sp.csr_matrix(W, dtype=float) if sparse else np.asarray(W, dtype=float)
    _check_weights(W, len(b), len(c))
    if lateral is not None or len(b) < len(c):
        W, b, c, p, q = W.T, c, b, q, p
    given = W, b, c, p, q
    W, b, c = _unit_precision(*given)
    inside = None if lateral is None else _scaled_lateral(lateral, q)
    if sparse and len(c) > _DENSE_SIDE:
        own_block = sp.identity(len(c)) if inside is None else sp.identity(len(c)) - sp.csr_array(inside)
        joint = sp.bmat([[sp.identity(len(b)), -W], [-W.T, own_block]], format="csc")
        log_det, quadratic, error = _sparse_factor(joint, np.concatenate([b, c]))
        own = 0.0
    else:
        log_det, quadratic, error = _dense_factor(*_schur(W, b, c, inside))
        own = float(b @ b)
    constant = (len(b) + len(c)) * _LOG_2PI - math.fsum(np.log(p)) - math.fsum(np.log(q)) + own
    value = 0.5 * (constant - log_det + quadratic)
    if error > _PROMISED * max(1.0, abs(value)):
        gain = float(np.finfo(np.longdouble).eps) / _EPS
        operations = len(c) ** 2 * (len(b) + len(c))
        if not error * gain <= _PROMISED * max(1.0, abs(value)) or operations > _MOST_EXTENDED:
            raise ValueError(
                f"this Gaussian model is so nearly singular that ln Z = {value:.6g} is known to about {error:.1g} only"
            )
        value = _in_extended_precision(lateral, *given)
    return value


def gaussian_seconds(W: Any, lateral: Any) -> float:
    """Return the approximate time of `gaussian_gaussian_log_z`, infinite if it needs too much memory."""
    n = min(W.shape) if lateral is None else W.shape[0]
    if lateral is None or n <= _DENSE_SIDE or not sp.issparse(W):
        return 1e-9 * n**3 if lateral is None or n <= _MOST_DENSE else math.inf
    # A banded factor is an upper bound on the entries of the factor.
    joint = sp.csr_array(sp.bmat([[sp.csr_array(lateral), W], [W.T, None]]))
    place = np.argsort(reverse_cuthill_mckee(joint, symmetric_mode=True))
    i, j = sp.coo_array(joint).coords
    band = int(np.abs(place[i] - place[j]).max(initial=0)) + 1
    return 1e-9 * len(place) * band**2 if len(place) * band < _MOST_ENTRIES else math.inf


def _in_extended_precision(lateral: Any, W: Any, *vectors: Array) -> float:
    """Compute `gaussian_gaussian_log_z` by a Cholesky factorisation in long doubles, row by row."""
    wide = np.longdouble
    b, c, p, q = (x.astype(wide) for x in vectors)
    W = dense(W).astype(wide) / np.sqrt(p)[:, None] / np.sqrt(q)
    b, c = b / np.sqrt(p), c / np.sqrt(q)
    matrix, y = np.identity(len(c), dtype=wide) - W.T @ W, c + W.T @ b
    if lateral is not None:
        matrix -= dense(lateral).astype(wide) / np.sqrt(q)[:, None] / np.sqrt(q)
    for k in range(len(c)):
        if not matrix[k, k] > 0:
            raise _not_definite()
        matrix[k, k] = np.sqrt(matrix[k, k])
        matrix[k + 1 :, k] /= matrix[k, k]
        y[k] /= matrix[k, k]
        y[k + 1 :] -= matrix[k + 1 :, k] * y[k]
        matrix[k + 1 :, k + 1 :] -= np.outer(matrix[k + 1 :, k], matrix[k + 1 :, k])
    log_2pi = np.log(2 * np.arctan2(wide(0), wide(-1)))
    logs = 2 * np.log(np.diag(matrix)).sum() + np.log(p).sum() + np.log(q).sum()
    return float(((len(b) + len(c)) * log_2pi - logs + y @ y + b @ b) / 2)


def gaussian_marginal(
    W: Any, b: Array, c: Array, precision_v: Array, precision_h: Array, lateral: Any = None
) -> tuple[Array, Array]:
    """Return A and the mean of y such that h = Ay has its marginal distribution for normal y with unit covariance.

    The density is the integrand of `gaussian_gaussian_log_z`, except that `lateral` couples h. With the Cholesky factor
    L of the Schur complement S = LL' and its linear term r, both in units of precision one, y has mean L⁻¹r and h is
    q^{-½} L^{-T} y. Raises a ValueError if S is so nearly singular that rounding errors decide.
    """
    W, b, c = _unit_precision(W, b, c, precision_v, precision_h)
    schur, linear = _schur(W, b, c, None if lateral is None else _scaled_lateral(lateral, precision_h))
    if not len(c):
        return np.zeros((0, 0)), np.zeros(0)
    factor, _ = dense_cholesky(schur)
    root = solve_triangular(factor, np.identity(len(c)), lower=True, trans="T")
    return root / np.sqrt(precision_h)[:, None], solve_triangular(factor, linear, lower=True)


def integrate_out(W: Any, b: Array, precision: Array) -> tuple[Array, Array, float]:
    """Integrate a Gaussian side v out of a model whose other side x is fixed; return J, linear and constant.

    These are defined by ∫ exp(b·v + v'Wx − ½Σ p_i v_i²) dv = exp(constant + linear·x + ½ x'Jx), so that J = W'p⁻¹W,
    linear = W'p⁻¹b and constant = Σ ½ ln(2π/p_i) + b_i²/2p_i.
    """
    b, p = _gaussian_side("b", b, "precision", precision)
    W = W.tocsr() if sp.issparse(W) else np.asarray(W, dtype=float)
    _check_weights(W, len(b), W.shape[-1])
    scaled = W.multiply(1.0 / p[:, None]).tocsr() if sp.issparse(W) else W / p[:, None]
    quadratic = W.T @ scaled
    constant = 0.5 * math.fsum(_LOG_2PI - np.log(p) + b * b / p)
    return dense(quadratic), scaled.T @ b, constant


def gaussian_discrete_log_z(W: Any, b: Array, precision: Array, c: Array, values: tuple[float, float]) -> float:
    """ln Σ_x ∫ exp(b·v + c·x + v'Wx − ½Σ p_i v_i²) dv, where each x_j is one of the two `values`.

    The Gaussian side is integrated out, and all 2^n states of x are summed (n = 24 takes less than a second).
    """
    J, linear, constant = integrate_out(W, b, precision)
    c = np.asarray(c, dtype=float)
    n = len(linear)
    if c.shape != (n,) or not np.isfinite(c).all():
        raise ValueError(f"c must hold {n} finite numbers, one per column of W")
    linear = linear + c
    # Columns are the states of the lower units, rows those of the upper units. A matrix product gives the part of x'Jx
    # that couples them, so a state costs one multiply-add per upper unit and one exponential.
    lower = n // 2
    columns, rows = _states(lower, values), _states(n - lower, values)
    of_columns, of_rows = (
        x @ linear[part] + 0.5 * np.einsum("ki,ij,kj->k", x, J[part, part], x)
        for x, part in ((columns, slice(0, lower)), (rows, slice(lower, n)))
    )
    coupling = J[lower:, :lower] @ columns.T
    step = max(1, (1 << _CHUNK_BITS) >> lower)
    parts = []
    for start in range(0, len(rows), step):
        exponents = rows[start : start + step] @ coupling
        exponents += of_rows[start : start + step, None]
        exponents += of_columns
        top = exponents.max()
        exponents -= top
        parts.append(top + math.log(np.exp(exponents, out=exponents).sum()))
    return constant + float(np.logaddexp.reduce(parts))


def _unit_precision(W: Any, b: Array, c: Array, p: Array, q: Array) -> tuple[Any, Array, Array]:
    """Rescale both sides to precision one."""
    root_p, root_q = np.sqrt(p), np.sqrt(q)
    return sp.diags(1.0 / root_p) @ W @ sp.diags(1.0 / root_q), b / root_p, c / root_q


def _scaled_lateral(lateral: Any, precision: Array) -> Any:
    """Rescale couplings inside a side to units of precision one."""
    scale = sp.diags(1.0 / np.sqrt(precision))
    return scale @ lateral @ scale


def _schur(W: Any, b: Array, c: Array, inside: Any = None) -> tuple[Array, Array]:
    """Return the precision matrix and linear term of h, with the side of b integrated out; precisions are one."""
    matrix = np.identity(len(c)) - dense(W.T @ W)
    return matrix if inside is None else matrix - dense(inside), c + W.T @ b


def _gaussian_side(bias_name: str, bias: Array, name: str, precision: Array) -> tuple[Array, Array]:
    bias, precision = np.asarray(bias, dtype=float), np.asarray(precision, dtype=float)
    if bias.ndim != 1 or not np.isfinite(bias).all():
        raise ValueError(f"{bias_name} must be a vector of finite numbers")
    if precision.shape != bias.shape or not np.isfinite(precision).all():
        raise ValueError(f"{name} must hold {len(bias)} finite numbers, one per unit")
    if not (precision > 0).all():
        raise ValueError(f"{name} must be positive, got {precision.min()}: not positive definite")
    return bias, precision


def _check_weights(W: Any, n: int, m: int) -> None:
    if W.shape != (n, m):
        raise ValueError(f"W must have shape ({n}, {m}), got {W.shape}")
    if not np.isfinite(stored(W)).all():
        raise ValueError("W must be finite")


def _states(n: int, values: tuple[float, float]) -> Array:
    low, high = values
    return np.where((np.arange(1 << n)[:, None] >> np.arange(n)) & 1, float(high), float(low))


def _not_definite() -> ValueError:
    return ValueError(
        "the precision matrix [[diag(precision_v), -W], [-W', diag(precision_h)]] is not positive definite "
        "to working accuracy: the model cannot be normalised"
    )


def _accept(norm_of_inverse: float, size: int) -> None:
    """Raise a ValueError unless the rounding error of the inverse, for entries of order one, is small."""
    if not norm_of_inverse * math.sqrt(size) * np.finfo(float).eps < 1e-6:
        raise _not_definite()


def _dense_factor(matrix: Array, vector: Array) -> tuple[float, float, float]:
    """Return ln det A and x'A⁻¹x by Cholesky, and the approximate error of their sum."""
    if not len(matrix):
        return 0.0, 0.0, 0.0
    factor, inverse = dense_cholesky(matrix)
    quadratic = float(vector @ cho_solve((factor, True), vector))
    return 2.0 * math.fsum(np.log(np.diag(factor))), quadratic, _error(inverse, len(matrix), quadratic)


def _error(norm_of_inverse: float, size: int, quadratic: float) -> float:
    """Return the error of ln det A and x'A⁻¹x due to rounding of the entries, which are of order one."""
    return _EPS * norm_of_inverse * (math.sqrt(size) + quadratic)


def dense_cholesky(matrix: Array) -> tuple[Array, float]:
    """Return the lower Cholesky factor of a clearly positive definite matrix, and the norm of its inverse."""
    try:
        factor = cholesky(matrix, lower=True)
    except np.linalg.LinAlgError:
        raise _not_definite() from None
    norm = float(np.abs(matrix).sum(axis=0).max())
    reciprocal, _ = lapack.dpocon(factor, norm, uplo="L")  # The result is 1/(‖A‖‖A⁻¹‖).
    inverse = 1.0 / (reciprocal * norm) if reciprocal else math.inf
    _accept(inverse, len(matrix))
    return factor, inverse


def _sparse_factor(matrix: Any, vector: Array) -> tuple[float, float, float]:
    """Return ln det A and x'A⁻¹x, and the approximate error of their sum.

    They come from a sparse LU with pivots on the diagonal, which is an LDL' factorisation. A symmetric matrix is
    positive definite if and only if these pivots are positive.
    """
    options = {"SymmetricMode": True}
    try:
        lu = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    except RuntimeError:  # The matrix is exactly singular.
        raise _not_definite() from None
    pivots = lu.U.diagonal()
    if not np.array_equal(lu.perm_r, lu.perm_c) or not (pivots > 0).all():
        raise _not_definite()
    inverse, quadratic = _inverse_norm(lu.solve, matrix.shape[0]), float(vector @ lu.solve(vector))
    _accept(inverse, matrix.shape[0])
    return math.fsum(np.log(pivots)), quadratic, _error(inverse, matrix.shape[0], quadratic)


def _inverse_norm(solve: Callable[[Array], Array], n: int) -> float:
    """Estimate ‖A⁻¹‖₁ of a symmetric matrix (Hager, SIAM J. Sci. Stat. Comput. 5, 311 (1984))."""
    x = np.full(n, 1.0 / n)
    estimate = 0.0
    for _ in range(5):
        y = solve(x)
        estimate = max(estimate, float(np.abs(y).sum()))
        z = solve(np.where(y < 0, -1.0, 1.0))
        k = int(np.abs(z).argmax())
        if abs(z[k]) <= z @ x:
            break
        x = np.zeros(n)
        x[k] = 1.0
    return estimate
