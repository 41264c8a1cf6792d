"""A free energy on the ranks of an MPI job, by mpi4py: rank 0 gives out chains, the others run them.

    pip install marginalis mpi4py
    mpiexec -n 65 python -m mpi4py.futures mpi.py model.npz

MPI ends the whole job when a rank dies: the same command then goes on from the checkpoint. Between the ranks nothing
is encrypted; that is the affair of the machine's own network.
"""

import sys

from mpi4py.futures import MPIPoolExecutor

import marginalis as mg


def main(path: str) -> None:
    with MPIPoolExecutor() as pool:
        result = mg.estimate(
            mg.load(path), steps=10_000, chains=1_000_000, pool=pool, checkpoint=f"{path}.checkpoint", progress=True
        )
    print(result)
    result.save(f"{path}.result.npz")


if __name__ == "__main__":
    main(sys.argv[1])
