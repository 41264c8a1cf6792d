"""Certificates for a Dask cluster of your own machines, and a run on it.

    pip install 'marginalis[dask]' cryptography
    python tls.py make certificates                 # ca.pem (of itself), key.pem; copy the folder to every machine

    export DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=true DASK_DISTRIBUTED__COMM__TLS__CA_FILE=certificates/ca.pem
    for who in SCHEDULER WORKER CLIENT; do
        export DASK_DISTRIBUTED__COMM__TLS__${who}__CERT=certificates/ca.pem
        export DASK_DISTRIBUTED__COMM__TLS__${who}__KEY=certificates/key.pem
    done
    dask scheduler --protocol tls --host 192.0.2.1 --no-dashboard          # on one machine, by its own address
    dask worker tls://192.0.2.1:8786 --nworkers auto --nthreads 1          # on every machine
    python tls.py run tls://192.0.2.1:8786 model.npz

Only who has the key can join: keep the folder to yourself.
"""

import os
import sys
from pathlib import Path

from distributed.security import Security

import marginalis as mg


def make(folder: str) -> None:
    """Write a certificate that vouches for itself, and its key."""
    made = Security.temporary()
    place = Path(folder)
    place.mkdir(mode=0o700, parents=True)
    (place / "ca.pem").write_text(made.tls_ca_file)
    with open(os.open(place / "key.pem", os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as file:
        file.write(made.tls_client_key)


def run(address: str, path: str) -> None:
    """Estimate a free energy on the cluster; a run that was stopped goes on from the checkpoint."""
    result = mg.estimate(
        mg.load(path), steps=10_000, chains=1_000_000, pool=f"dask:{address}", checkpoint=f"{path}.checkpoint"
    )
    print(result)


if __name__ == "__main__":
    {"make": make, "run": run}[sys.argv[1]](*sys.argv[2:])
