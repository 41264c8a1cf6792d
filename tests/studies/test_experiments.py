"""The paper's experiments at small size: numbers and orderings."""

import csv
import json
import math

import numpy as np
import pytest
from conftest import command

import marginalis as mg
from marginalis.studies import EXPERIMENTS, reproduce, table1
from marginalis.studies.sampling import Run, Setting, derive, exact_rows, make_models, sample_rows
from marginalis.studies.table1 import INV_T, PRINTED, STEPS


def cli(*args, **options):
    return command("reproduce", *args, **options)


def test_the_printed_table_is_consistent():
    """Every printed row obeys the orderings of Theorem 2, so it was copied without slips of order."""
    for true, ais, mais in PRINTED.values():
        assert all(a >= m >= true for a, m in zip(ais, mais, strict=True))
        assert list(ais) == sorted(ais, reverse=True)
    assert set(PRINTED) == set(INV_T)


def test_differences_of_few_machines_are_as_unlikely_as_they_say():
    """With n RBMs the ratio to the standard error follows Student's t, whose tails are long for small n."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(20_000, 3))
    z = np.array([table1._z(row.mean(), 3, row.std(ddof=1) / math.sqrt(3.0)) for row in x])
    assert abs(z.std() - 1.0) < 4.5 / math.sqrt(2 * len(z))
    assert abs(z).max() < 6.0
    assert table1._z(-3.0, 1000, 1.0) == pytest.approx(-2.99, abs=0.01)


def test_table1_agrees_where_it_should(tmp_path, monkeypatch):
    """At 1/T ≤ 1 a small run agrees with the printed means, and the orderings hold within error."""
    some = (0.4, 1.0, 4.0, 8.0)  # of the temperatures
    monkeypatch.setattr(table1, "INV_T", some)
    (result,) = reproduce("table1", experiments=6, chains=1000, out=tmp_path)
    rows = {(r["inv_t"], r["steps"], r["method"]): r for r in result.rows}
    assert len(rows) == 4 * 7
    for inv_t in some:
        assert abs(rows[inv_t, None, "true"]["z"]) < 4.5
        for steps in STEPS:
            ais, mais = (rows[inv_t, steps, m] for m in ("ais", "mais"))
            assert ais["error"] > mais["error"] - 4.5 * math.hypot(ais["error_stderr"], mais["error_stderr"])
            assert mais["error"] > -4.5 * mais["error_stderr"]
            if inv_t <= 1:
                assert abs(ais["z_error"]) < 4.5
                assert abs(mais["z_error"]) < 4.5
    assert rows[8.0, 10, "ais"]["printed"] == -3.70846
    assert rows[8.0, 10, "ais"]["printed_error"] == pytest.approx(0.09435)


def test_both_estimates_of_one_run_are_those_of_separate_runs():
    setting = Setting(0, "hopfield", 40, 2.0)
    models = make_models("x", 0, [setting])

    def rows(*methods):
        (found,) = sample_rows(models, [setting], [Run(20, methods, 5)], 64, trials=3)
        return [(row[:6], row.free_energies.tolist()) for row in found]

    both = rows("ais", "mais")
    assert both == rows("ais") + rows("mais")
    assert [len(free) for _, free in both] == [3, 3]
    (exact,) = exact_rows(models, [setting], "auto", lambda fraction: None)
    assert exact.method == "exact"
    assert exact.free_energies.tolist() == [-mg.exact_log_z(models[0])]


def test_models_that_run_together_have_the_numbers_of_each_alone():
    settings = [Setting(i, kind, 40, t) for i in range(2) for kind in ("gaussian", "hopfield") for t in (1.0, 3.0)]
    settings.append(Setting(0, "gaussian", 10, 1.0))
    models = make_models("x", 0, settings)
    runs = [Run(5, ("ais", "mais") if i % 2 else ("mais",), i) for i in range(len(settings))]

    def plain(found):
        return [[(row[:6], row.free_energies.tolist()) for row in own] for own in found]

    together = plain(sample_rows(models, settings, runs, 20, trials=2))
    for i, (model, setting, run) in enumerate(zip(models, settings, runs, strict=True)):
        assert plain(sample_rows([model], [setting], [run], 20, trials=2)) == together[i : i + 1]


def test_seeds_are_unrelated():
    assert derive(0, "a", 1) != derive(0, "a", 2) != derive(1, "a", 2)
    a, b, c = make_models("x", 0, [Setting(i, "gaussian", 40, t) for i, t in ((0, 1.0), (0, 8.0), (1, 1.0))])
    assert np.array_equal(a.weights, b.weights)
    assert not np.array_equal(a.weights, c.weights)


@pytest.mark.parametrize("name", ["ape-temperature", "size-ratio", "convergence"])
def test_each_figure_at_small_size(tmp_path, name):
    (result,) = reproduce(name, experiments=2, chains=64, out=tmp_path)
    assert result.rows
    assert all(np.isfinite(r["mean"]) and r["experiments"] == 2 for r in result.rows)
    assert result.figure.read_bytes().startswith(b"\x89PNG")
    with open(tmp_path / f"{name}.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(result.rows)
    page = (tmp_path / "report.html").read_text()
    assert "data:image/png;base64" in page
    assert result.experiment.title in page


def test_command_line(tmp_path):
    out = tmp_path / "out"
    done = cli("size-ratio", "--experiments", 1, "--chains", 32, "--out", out, "--json", "--csv")
    assert done.returncode == 0
    rows = json.loads(done.stdout, parse_constant=pytest.fail)["rows"]
    assert {"alpha", "inv_t", "steps", "method", "mean", "stderr"} <= set(rows[0])
    with open(out / "size-ratio-runs.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 5 * 3 * (1 + 3 * 2)
    again = cli("size-ratio", "--experiments", 1, "--chains", 32, "--out", out)
    assert again.returncode == 2
    assert "add --resume" in again.stderr
    other = cli("size-ratio", "--experiments", 1, "--chains", 33, "--seed", 4, "--out", out, "--resume")
    assert other.returncode == 2
    assert "chains was 32, is 33; seed was 0, is 4" in other.stderr
    unknown = cli("table2", "--out", tmp_path / "no")
    assert unknown.returncode == 2
    assert "table1, ape-temperature, size-ratio, convergence, all" in unknown.stderr


def test_an_interrupt_does_not_wait_for_the_pieces_in_hand(tmp_path):
    """These would take minutes."""

    def tick(fraction):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce("convergence", experiments=1, chains=10**6, out=tmp_path, threads=2, progress=tick)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_table_fits_a_terminal(tmp_path, monkeypatch, encoding):
    monkeypatch.setenv("COLUMNS", "80")
    done = cli("table1", "--experiments", 2, "--chains", 16, "--out", tmp_path, encoding=encoding)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    starts = [i for i, line in enumerate(lines) if line.split()[:3] == ["1/T", "K", "method"]]
    assert [lines[i].split()[3:] for i in starts] == [
        ["mean", "error", "paper", "paper"],
        ["error", "error", "paper", "error"],
    ]
    first = lines[starts[0] + 1].split()
    assert first[:2] == ["0.2", "true"]
    assert float(first[2]) == pytest.approx(-0.6976, abs=1e-3)
    assert first[4] == "-0.69759"
    assert len(lines[starts[0] + 1 :]) > 49


@pytest.mark.parametrize(
    ("options", "message"), [(dict(experiments=0), "experiments is 0"), (dict(chains=0), "chains is 0")]
)
def test_bad_numbers_leave_no_store(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        reproduce("table1", out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_names_and_defaults_are_the_papers():
    assert {name: (e.experiments, e.chains) for name, e in EXPERIMENTS.items()} == {
        "table1": (1000, 1000),
        "ape-temperature": (1000, 1000),
        "size-ratio": (4000, 1000),
        "convergence": (1000, 10000),
    }
