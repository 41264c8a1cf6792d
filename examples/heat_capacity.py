"""Energy, entropy and heat capacity of the 2D Ising model from one run of mAIS, beside the exact ones.

The exact curves are derivatives of Kaufman's ln Z of the same torus. Writes heat_capacity.png, or the file that is
named as argument; takes about half a minute.
"""

import sys

import numpy as np

import marginalis as mg

SIDE = 24
TEMPERATURES = np.linspace(1.5, 3.5, 21)
T_C = 2 / np.log(1 + np.sqrt(2))  # of the infinite lattice


def exact(temperature: float, h: float = 1e-3) -> tuple[float, float, float]:
    """Return U, S and C per site from differences of ln Z of fourth order in h, good to about 1e-6 here."""
    beta = 1 / temperature
    lattices = [mg.ising_grid((SIDE, SIDE), coupling=b, periodic=True) for b in beta + h * np.arange(-2, 3)]
    log_z = np.array([mg.exact_log_z(lattice, method="kaufman") for lattice in lattices]) / SIDE**2
    energy = -float(log_z @ (1, -8, 0, 8, -1)) / (12 * h)
    return energy, log_z[2] + beta * energy, beta**2 * float(log_z @ (-1, 16, -30, 16, -1)) / (12 * h**2)


def main(path: str) -> None:
    model = mg.ising_grid((SIDE, SIDE), coupling=1.0, periodic=True)
    result = mg.thermodynamics(model, 1 / TEMPERATURES, steps=8000, chains=1500, moves=40, schedule="adaptive")
    true = np.array([exact(t) for t in TEMPERATURES]).T
    values = np.array([result.energy, result.entropy, result.heat_capacity]) / SIDE**2
    errors = np.array([result.energy_error, result.entropy_error, result.heat_capacity_error]) / SIDE**2
    z = (values - true) / errors
    print("   T        U/n      z   |       S/n      z   |       C/n           exact    z")
    for t, u, s, c, du, ds, dc, exact_c, zu, zs, zc in zip(TEMPERATURES, *values, *errors, true[2], *z, strict=True):
        print(
            f"{t:.2f}  {u:.4f} ± {du:.4f} {zu:+.1f}  {s:.4f} ± {ds:.4f} {zs:+.1f}"
            f"  {c:.4f} ± {dc:.4f}  {exact_c:.4f} {zc:+.1f}"
        )
    print("root mean square of z: {:.2f}, {:.2f}, {:.2f}".format(*np.sqrt((z**2).mean(axis=1))))
    print(f"{result.chains} chains, {result.steps} steps, {result.seconds:.0f} s", *result.warnings, sep="\n")

    figure = mg.plots.thermodynamics(result)
    line = np.linspace(TEMPERATURES[0], TEMPERATURES[-1], 201)
    for axes, curve in zip(figure.axes, np.array([exact(t) for t in line]).T, strict=True):
        axes.plot(line, curve, color="black", lw=0.8, label="exact (Kaufman)", zorder=0)
        axes.axvline(T_C, color="grey", lw=1, ls=":", label="$T_c$, infinite lattice", zorder=0)
    figure.axes[-1].legend(frameon=False, fontsize="small")
    mg.plots.save(figure, path)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "heat_capacity.png")
