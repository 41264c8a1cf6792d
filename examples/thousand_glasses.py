"""Free energy and heat capacity of ±J glasses in two and three dimensions, averaged over a thousand samples each.

The square glasses are summed exactly, by Pfaffians; the cubes are annealed. The light bands are the standard deviations
over the disorder, the dark ones the 95 % intervals of the means. Writes glasses.png, or the file that is named as
argument; takes some minutes.
"""

import sys

import numpy as np

import marginalis as mg
from marginalis.examples import ising_grid

TEMPERATURES = np.array([0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0])


def square(seed: int) -> mg.MRF:
    return ising_grid((8, 8), coupling="pm:1", periodic=True, seed=seed)


def cube(seed: int) -> mg.MRF:
    return ising_grid((4, 4, 4), coupling="pm:1", periodic=True, seed=seed)


def main(path: str, samples: int = 1000) -> None:
    curves = {}
    for name, make, exact in (("8×8", square, True), ("4×4×4", cube, False)):
        options = {"samples": samples, "temperatures": TEMPERATURES, "exact": exact, "progress": True}
        curves[name] = mg.average(make, "heat_capacity_per_variable", **options)
        print(curves[name])
    figure, panels = mg.plots.figure(1, 2, (10.0, 4.0))
    for (name, heat), colour in zip(curves.items(), mg.plots.COLOURS[1:], strict=False):
        free = heat.of("free_energy_per_variable")
        for axes, x, scale in ((panels[0, 0], free, TEMPERATURES), (panels[0, 1], heat, 1.0)):
            mean, spread, (low, high) = x.value * scale, x.spread * scale, x.interval.T * scale
            axes.fill_between(TEMPERATURES, mean - spread, mean + spread, color=colour, alpha=0.15, lw=0)
            axes.fill_between(TEMPERATURES, low, high, color=colour, alpha=0.5, lw=0)
            label = f"{name}, {x.exact} of {x.count} exact"
            axes.plot(TEMPERATURES, mean, ".-", color=colour, lw=1.2, label=label)
    for axes, words in zip(panels[0], ("free energy per spin, −T ln Z/n", "heat capacity per spin, C/n"), strict=True):
        axes.set_xlabel("temperature T")
        axes.set_ylabel(words)
        axes.legend()
    mg.plots.save(figure, path)


if __name__ == "__main__":
    main(*sys.argv[1:2] or ["glasses.png"])
