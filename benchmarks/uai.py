"""Print a table of UAI competition instances: published values beside exact sums and estimates.

    python benchmarks/uai.py FOLDER [--tolerance 0.05] [--budget 60]

FOLDER holds .uai files (.xz, .gz), evidence beside them (NAME_….uai.evid), and a values.json that maps instances to
`ln_z` and `log10_published`. Every row is two commands of their own, start-up included: `marginalis exact` and
`marginalis estimate --tolerance`. The instances are third parties' and not part of this repository.
"""

from __future__ import annotations

import argparse
import json
import math
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--budget", type=float, default=60.0)
    options = parser.parse_args()
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
