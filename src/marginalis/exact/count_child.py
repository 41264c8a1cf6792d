"""A process that counts solutions of clauses; it reads the task from standard input and prints the answer."""

import contextlib
import json
import sys


def main() -> None:
    """Read a task, count, and print the answer."""
    task = json.load(sys.stdin)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (task["seconds"], task["seconds"] + 1))
        resource.setrlimit(resource.RLIMIT_AS, (task["bytes"], task["bytes"]))
    try:
        answer = counted(task)
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print("\nanswer " + json.dumps(answer), flush=True)


def counted(task: dict) -> dict:
    """Return the count times 2^scale, with a scale that avoids overflow and underflow, or 0 if there is no solution."""
    import pyganak

    low, high, scale = None, None, 0
    for _ in range(task["trials"]):
        counter = pyganak.WeightedCounter()
        scaling = range(task["propositions"] + 1, task["propositions"] + 2 + abs(scale) // 1000)
        counter.new_vars(scaling[-1])
        counter.add_clauses(task["clauses"])
        weights = dict(task["weights"])
        for proposition in {abs(literal) for literal in weights}:
            for literal in (proposition, -proposition):
                counter.set_lit_weight(literal, weights.get(literal, 1.0))
        for k, proposition in enumerate(scaling):  # These propositions are true and have the total weight 2^scale.
            counter.add_clause([proposition])
            counter.set_lit_weight(proposition, 2.0 ** (scale // len(scaling) + (k < scale % len(scaling))))
            counter.set_lit_weight(-proposition, 1.0)
        count = counter.count()
        if 0.0 < count < float("inf"):
            return {"count": count, "scale": scale}
        if count == 0.0 and low is None and scale == 0:
            plain = pyganak.Counter()
            plain.new_vars(task["propositions"])
            plain.add_clauses(task["clauses"])
            plain.set_sampling_set([1])
            if plain.count() == 0:
                return {"count": 0.0, "scale": 0}
        if count == 0.0:
            low = scale
        else:
            high = scale
        if low is not None and high is not None:
            scale = (low + high) // 2
        else:
            scale = 4 * scale or (1500 if count == 0.0 else -1500)
    return {"error": "the count is out of the range of floating point"}


if __name__ == "__main__":
    main()
