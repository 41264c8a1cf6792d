"""Free energy per site of the 2D Ising model against temperature: mAIS beside Kaufman and Onsager.

Writes docs/figures/ising_free_energy.png; takes about a minute.
"""

from pathlib import Path

import numpy as np
from scipy.integrate import quad

import marginalis as mg
from marginalis import plots

SIDE = 32
TEMPERATURES = np.linspace(1.2, 4.0, 15)


def onsager(temperature: float) -> float:
    """Return βf of the infinite lattice (Onsager, Phys. Rev. 65, 117 (1944)), for unit coupling."""
    k = 1 / temperature
    kappa = 2 * np.sinh(2 * k) / np.cosh(2 * k) ** 2
    value, _ = quad(lambda phi: np.log((1 + np.sqrt(1 - kappa**2 * np.sin(phi) ** 2)) / 2), 0, np.pi)
    return -(np.log(2 * np.cosh(2 * k)) + value / (2 * np.pi))


def main() -> None:
    results, exact = [], []
    for i, t in enumerate(TEMPERATURES):
        model = mg.ising_grid((SIDE, SIDE), periodic=True, temperature=t)
        results.append(mg.estimate(model, steps=8000, chains=512, seed=i))
        exact.append(-mg.exact_log_z(model))
        print(f"T = {t:.1f}: {str(results[-1]).splitlines()[0]}, exact {exact[-1]:.3f}")

    n = SIDE**2
    f = np.array([r.free_energy_per_variable for r in results])
    error = np.array([r.stderr / n for r in results])
    with plots.style():
        figure, panels = plots.figure(2, 1, (6.4, 5.4), sharex=True, height_ratios=(3, 2))
        top, bottom = panels[:, 0]
        line = np.linspace(TEMPERATURES[0], TEMPERATURES[-1], 200)
        top.plot(line, [t * onsager(t) for t in line], color="grey", lw=1, label="Onsager, infinite lattice")
        top.plot(TEMPERATURES, TEMPERATURES * np.array(exact) / n, "k+", ms=9, label=f"Kaufman, {SIDE}×{SIDE} torus")
        top.plot(TEMPERATURES, TEMPERATURES * f, "o", ms=4, mfc="none", color=plots.COLOURS[0], label="mAIS")
        top.set_ylabel("free energy per site, $T F/n$")
        top.legend()
        bottom.axhline(0, color="black", lw=1)
        bottom.axvline(2 / np.log(1 + np.sqrt(2)), color="grey", lw=1, ls=":", label="$T_c$, infinite lattice")
        bottom.errorbar(TEMPERATURES, f * n - exact, 2 * error * n, fmt="o", ms=4, color=plots.COLOURS[0])
        bottom.set_ylabel("$F_{mAIS} - F_{exact}$\n(bars: ±2 standard errors)")
        bottom.set_xlabel("temperature T (coupling 1)")
        bottom.legend()
    plots.save(figure, Path(__file__).parents[1] / "docs" / "figures" / "ising_free_energy.png")


if __name__ == "__main__":
    main()
