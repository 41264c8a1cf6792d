"""How good a model of handwritten digits is a BernoulliRBM? Its log-likelihood, while it is being trained.

scikit-learn has the RBM and the 8×8 digits, but no ln Z and so no likelihood. Takes about twenty seconds.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import BernoulliRBM

import marginalis as mg

EPOCHS = (10, 30, 100, 300)


def fitted(hidden: int, epochs: int, data: np.ndarray) -> BernoulliRBM:
    return BernoulliRBM(hidden, learning_rate=0.05, batch_size=20, n_iter=epochs, random_state=0).fit(data)


def pseudo_likelihood(rbm: BernoulliRBM, data: np.ndarray) -> float:
    """Return the mean of scikit-learn's score, which looks at one random pixel of each row: here at twenty."""
    return rbm.score_samples(np.tile(data, (20, 1))).mean()


def line(name: str, train: mg.LogLikelihood, test: mg.LogLikelihood, pseudo: float) -> str:
    """Return a line of the table; both means share one ln Z, so that the doubt about it moves them together."""
    low, high = test.interval
    means = f"{train.mean:9.3f} {test.mean:9.3f}"
    return f"{name:<20}{means} {(high - low) / 2:9.3f} {test.sampling_error:9.2f} {pseudo:9.2f}"


def main() -> None:
    digits = load_digits().data / 16 > 0.5  # pixels from 0 to 16; the states of a binary unit are 0 and 1
    train, test = train_test_split(digits, test_size=0.2, random_state=0)
    print(
        f"Mean ln p, in nats, of {len(train)} digits to train on and {len(test)} to test; {digits.shape[1]} pixels.\n"
    )
    print(f"{'':<20}{'train':>9} {'test':>9} {'± ln Z':>9} {'± rows':>9} {'pseudo':>9}")

    # Independent pixels are an RBM without weights; one count is added so that no pixel is impossible.
    p = (train.sum(axis=0) + 1) / (len(train) + 2)
    pixels = np.zeros((64, 1)), np.log(p / (1 - p)), np.zeros(1), "binary"
    scores = [mg.log_likelihood(pixels, rows) for rows in (train, test)]
    print(line("independent pixels", *scores, scores[1].mean))  # its pseudo-likelihood is its likelihood

    for epochs in EPOCHS:
        rbm = fitted(64, epochs, train)
        log_z = mg.estimate(mg.as_model(rbm), steps=5000)  # once, for both sets of rows
        scores = [mg.log_likelihood(rbm, rows, log_z) for rows in (train, test)]
        print(line(f"RBM, {epochs} epochs", *scores, pseudo_likelihood(rbm, test)))
        for warning in sorted({w for score in scores for w in score.warnings}):
            print(f"  warning: {warning}")
    print("\n± ln Z: half of the 95 % interval, from the estimate of ln Z alone; ± rows: standard error of the mean")
    print("over the test rows; pseudo: scikit-learn's pseudo-likelihood of the test rows.\n")

    small = fitted(16, 100, train)
    log_z, exact = mg.estimate(mg.as_model(small), steps=5000), mg.exact_log_z(mg.as_model(small))
    z = (log_z.log_z - exact) / log_z.stderr
    print(
        f"Check on 16 hidden units: ln Z = {log_z.log_z:.4f} ± {log_z.stderr:.4f}, exact {exact:.4f} ({z:+.1f} s.e.)."
    )
    print("With the exact value, which log_likelihood finds by itself:")
    print(mg.log_likelihood(small, test))


if __name__ == "__main__":
    main()
