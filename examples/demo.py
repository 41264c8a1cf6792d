"""mAIS and AIS beside the exact value on the paper's 20×40 RBM; writes a figure. Takes a few seconds."""

from pathlib import Path

import marginalis as mg
from marginalis import plots
from marginalis.examples import rbm_gaussian

OUT = Path("demo")
STEPS = (10, 20, 50, 100, 200, 500, 1000)

model = rbm_gaussian(20, 40, temperature=0.5, seed=1)
exact = -mg.exact_log_z(model)
print(f"An RBM of 20 + 40 spins at T = 0.5. Exact free energy, by summing 2^20 states: F = {exact:.4f}\n")

results = {}
for method, name in (("ais", "AIS"), ("mais", "mAIS")):
    results[method] = [mg.estimate(model, method=method, steps=k, chains=1000) for k in STEPS]
    last = results[method][-1]
    z = (last.free_energy - exact) / last.stderr
    print(f"{name}:\n{last}\n({z:+.1f} standard errors from the exact value)\n")

OUT.mkdir(exist_ok=True)
mg.save(model, OUT / "rbm.npz")
plots.save(plots.convergence(results, exact), OUT / "demo.png")
print(f"Figure: {OUT}/demo.png. Model: {OUT}/rbm.npz; try .venv/bin/marginalis estimate {OUT}/rbm.npz")
