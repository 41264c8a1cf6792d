"""Mean values and marginals on the command line, and files in UAI's MAR format."""

import gzip
import itertools

import numpy as np
from conftest import answer
from conftest import command as run

import marginalis as mg

HARD = "MARKOV 3 2 3 2 2 2 0 1 2 1 2 6 1 0 2 0 0 3 6 1 2 3 4 1 1\n"  # 1 is never in state 1


def read_mar(path):
    """Probabilities of the states of each variable."""
    word, n, *rest = path.read_text().split()
    assert word == "MAR"
    found = []
    while rest:
        q = int(rest[0])
        found.append([float(x) for x in rest[1 : 1 + q]])
        rest = rest[1 + q :]
    assert len(found) == int(n)
    return found


def brute(text, evidence=()):
    """The marginals of a network of pairs, by summing over all states."""
    tokens = iter(text.split()[1:])
    cards = [int(next(tokens)) for _ in range(int(next(tokens)))]
    scopes = [[int(next(tokens)) for _ in range(int(next(tokens)))] for _ in range(int(next(tokens)))]
    tables = [np.array([float(next(tokens)) for _ in range(int(next(tokens)))]) for _ in scopes]
    law = np.zeros(cards)
    for x in itertools.product(*map(range, cards)):
        if all(x[v] == state for v, state in evidence):
            shaped = zip(scopes, tables, strict=True)
            law[x] = np.prod([t.reshape([cards[v] for v in s])[tuple(x[v] for v in s)] for s, t in shaped])
    law /= law.sum()
    return [law.sum(axis=tuple(k for k in range(len(cards)) if k != i)) for i in range(len(cards))]


def assert_close(found, wanted, within=1e-10):
    assert [len(p) for p in found] == [len(p) for p in wanted]
    assert max(np.abs(np.subtract(p, q)).max() for p, q in zip(found, wanted, strict=True)) < within


def test_means_of_a_model_file(model):
    exact = mg.expectations(mg.load(model))
    got = answer("expectations", model)
    assert got["is_exact"]
    assert [row["mean"] for row in got["means"]] == exact.means.tolist()
    chains = answer("expectations", model, "--estimate", "--steps", 50, "--chains", 200, "--moves", 3)
    assert not chains["is_exact"]
    assert chains["steps"] == 52
    z = [(a["mean"] - b) / a["error"] for a, b in zip(chains["means"], exact.means, strict=True)]
    assert np.abs(z).max() < 4.5
    shown = run("expectations", model).stdout
    assert "⟨0⟩ = " in shown
    assert "exact, by enumeration" in shown
    assert "± " in run("expectations", model, "--estimate", "--steps", 20, "--chains", 50).stdout


def test_marginals_in_mar_format(network, tmp_path):
    out = tmp_path / "m.MAR"
    answer("expectations", network, "--mar", out)
    assert_close(read_mar(out), brute(network.read_text()))
    answer("expectations", network, "--mar", out, "--evidence", tmp_path / "m.evid")
    assert_close(read_mar(out), brute(network.read_text(), [(0, 1)]))
    answer("expectations", network, "--mar", out, "--evidence", tmp_path / "m.evid", "--estimate", "--steps", 50)
    assert_close(read_mar(out), brute(network.read_text(), [(0, 1)]), within=0.05)
    packed = tmp_path / "packed.uai.gz"
    packed.write_bytes(gzip.compress(network.read_bytes()))
    answer("expectations", packed, "--mar", out)
    assert_close(read_mar(out), brute(network.read_text()))


def test_states_that_cannot_occur_have_their_place(tmp_path):
    path, held, out = tmp_path / "h.net", tmp_path / "h.evid", tmp_path / "h.MAR"
    path.write_text(HARD)
    answer("expectations", path, "--mar", out)
    assert_close(read_mar(out), brute(HARD))
    for evidence in ([(0, 1)], [(2, 0)], [(0, 1), (2, 0)]):
        held.write_text(" ".join(map(str, [len(evidence), *itertools.chain(*evidence)])))
        answer("expectations", path, "--mar", out, "--evidence", held)
        assert_close(read_mar(out), brute(HARD, evidence))


def test_marginals_of_other_files(model, tmp_path):
    out = tmp_path / "rbm.MAR"
    answer("expectations", model, "--mar", out)
    assert_close(read_mar(out), mg.expectations(mg.load(model)).marginals)


def test_expectations_refuses_bad_arguments(network, model, tmp_path):
    gaussian = tmp_path / "g.npz"
    mg.save(mg.rbm(np.full((2, 2), 0.1), np.zeros(2), np.zeros(2), units="gaussian"), gaussian)
    big = tmp_path / "big.npz"
    assert run("make", "rbm-gaussian", "--visible", 60, "--hidden", 60, "-o", big).returncode == 0
    for words, problem in (
        ((network, "--mar", network), "named twice"),
        ((network, "--mar", tmp_path / "no" / "m.MAR"), "cannot write"),
        ((gaussian, "--mar", tmp_path / "g.MAR"), "Gaussian"),
        ((big, "--exact"), "leave out exact"),
        ((model, "--estimate", "--moves", 0), "moves is 0"),
    ):
        done = run("expectations", *words)
        assert done.returncode == 2, done
        assert problem in done.stderr
        assert done.stdout == ""
