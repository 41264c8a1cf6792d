"""Print a table of UAI competition instances: published values beside exact sums and estimates.

    python benchmarks/uai.py FOLDER [--tolerance 0.05] [--budget 60]
    python benchmarks/uai.py FOLDER --portfolio [--seconds 20]

FOLDER holds .uai files (.xz, .gz), evidence beside them (NAME_….uai.evid), and a values.json that maps instances to
`ln_z` and `log10_published`. Every row is two commands of their own, start-up included: `marginalis exact` and
`marginalis estimate --tolerance`. The instances are third parties' and not part of this repository.

With --portfolio, FOLDER holds a folder for each family, and values.json has the instances by family. Every row is one
call of `mg.exact_log_z` on one thread in a process of its own, with its processor time, that of its children included.
UAI 2022 scored an answer by 100 max(0, 1 - error / error of a trivial solver); here an exact one has 100, a refusal 0.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path


def run(*words: object) -> tuple[dict, float]:
    """Run a command that prints JSON; its answer, or an empty one, and how long it took."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "marginalis", *map(str, words), "--json"], capture_output=True, text=True
    )
    seconds = time.perf_counter() - begin
    return (json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr.strip()}), seconds


def files(folder: Path, name: str) -> tuple[Path, list[object]]:
    """Return the model file of an instance, and the words that name its evidence."""
    evidence = folder / f"{name}.uai.evid"
    models = [path for path in sorted(folder.glob("*.uai*")) if not path.name.endswith(".evid")]
    own = [path for path in models if name == path.name.split(".uai")[0]]
    found = own or [path for path in models if name.startswith(path.name.split(".uai")[0] + "_")]
    some = evidence.exists() and evidence.read_text().strip()
    return found[0], ["--evidence", evidence] if some else []


ONE = """
import json, resource, sys
import marginalis as mg
model, evidence, seconds, twice = sys.argv[1], sys.argv[2] or None, float(sys.argv[3]), sys.argv[4] == "True"
try:
    answer = mg.exact_log_z(mg.load(model, evidence=evidence), max_seconds=seconds, threads=1)
    found = {"log_z": float(answer), "method": answer.method}
except ValueError as error:
    found = {"error": str(error)}
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
found["seconds"] = sum(x.ru_utime + x.ru_stime for x in used)
found["bytes"] = 1024 * max(x.ru_maxrss for x in used)
if twice and "log_z" in found:  # Kernels are compiled now; each call has a model of its own.
    spent = []
    for door in (mg.exact_log_z, mg.free_energy):
        loaded = mg.load(model, evidence=evidence)
        begun = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        answer = door(loaded, threads=1)
        ended = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        spent.append(ended - begun)
    found["door"] = [*spent, answer.is_exact, answer.log_z]
print(json.dumps(found))
"""
LEADERS = {20: 61.7, 1200: 96.8, 3600: 97.1}  # best scores of UAI 2022 over its 197 instances, by seconds
RIGHT = 1e-6  # Relative error of ln Z, absolute below 1, up to which an answer is right.


def portfolio(folder: Path, seconds: float, twice: bool) -> None:
    """Print how each instance is summed, and the score of each family; with `twice` also the time of free_energy."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    families = json.loads((folder / "values.json").read_text())
    totals: dict[str, list[bool]] = {}
    print("| instance | ln Z | error | method | CPU s | GB |" + " exact, free_energy, CPU s |" * twice)
    print("|---|---|---|---|---|---|" + "---|" * twice)
    for family, instances in families.items():
        for name, known in instances.items():
            evidence = folder / family / f"{name}.uai.evid"
            words = [
                folder / family / known.get("model", f"{name}.uai.xz"),
                evidence if evidence.exists() else "",
                seconds,
                twice,
            ]
            done = subprocess.run(
                [sys.executable, "-c", ONE, *map(str, words)], capture_output=True, text=True, env=environment
            )
            found = json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr.strip().splitlines()[-1]}
            cells = [name, "–", "–", found.get("error", "")[:80], f"{found.get('seconds', 0.0):.1f}", "–"]
            if "log_z" in found:
                truth = known.get("ln_z")
                cells[1], cells[3] = f"{found['log_z']:.10g}", found["method"]
                cells[2] = "–" if truth is None else f"{found['log_z'] - truth:.1e}"
                cells[5] = f"{found['bytes'] / 1e9:.1f}"
            if "door" in found:
                exact, door, is_exact, log_z = found["door"]
                cells.append(f"{exact:.3f}, {door:.3f}" + ("" if is_exact else f" (estimated: {log_z:.3f})"))
            if known.get("ln_z") is not None:
                error = abs(found.get("log_z", math.inf) - known["ln_z"])
                right = error <= RIGHT * max(1.0, abs(known["ln_z"])) and found.get("seconds", math.inf) <= seconds
                totals.setdefault(family, []).append(right)
            print("| " + " | ".join(cells) + " |", flush=True)
    print()
    print(f"| family | right within {seconds:g} s | score |")
    print("|---|---|---|")
    everything = [right for rights in totals.values() for right in rights]
    for family, rights in [*totals.items(), ("all", everything)]:
        print(f"| {family} | {sum(rights)} of {len(rights)} | {100.0 * sum(rights) / len(rights):.1f} |")
    print()
    leaders = ", ".join(f"{score} in {limit} s" for limit, score in LEADERS.items())
    print(f"The best solvers of UAI 2022 scored {leaders}, over all 197 instances of that year.")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--portfolio", action="store_true", help="exact answers only, and their score")
    parser.add_argument("--door", action="store_true", help="with --portfolio: the time of free_energy beside it")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each exact answer, with --portfolio")
    options = parser.parse_args()
    if options.portfolio:
        portfolio(options.folder, options.seconds, options.door)
        return
    titles = ("instance", "published log10 Z", "exact log10 Z", "method, s", "estimate − exact, nats", "interval", "s")
    print("| " + " | ".join([*titles, "warnings"]) + " |")
    print("|" + "---|" * (len(titles) + 1))
    for name, known in json.loads((options.folder / "values.json").read_text()).items():
        model, evidence = files(options.folder, name)
        exact, exact_seconds = run("exact", model, *evidence)
        limits = ("--tolerance", options.tolerance, "--budget", options.budget)
        guess, seconds = run("estimate", model, *evidence, *limits)
        truth = exact.get("log_z", known.get("ln_z"))
        cells = [name, f"{known['log10_published']:g}", "–", exact.get("error", "–"), "–", "–", f"{seconds:.1f}", ""]
        if "log_z" in exact:
            cells[2:4] = [f"{truth / math.log(10.0):.6f}", f"{exact['method']}, {exact_seconds:.1f}"]
        if "log_z" in guess and truth is not None:
            low, high = guess["interval"]
            cells[4:6] = [f"{guess['log_z'] - truth:+.3f}", f"± {(high - low) / 2.0:.3f}"]
            cells[7] = str(len(guess["warnings"]))
        else:
            cells[7] = guess.get("error", "")[:60]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
