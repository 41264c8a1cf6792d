"""A free energy on a Slurm cluster, by dask-jobqueue: workers are jobs of their own, encrypted and authenticated.

    pip install 'marginalis[dask]' dask-jobqueue cryptography
    python slurm.py model.npz --cores 256

Run it where jobs can be submitted. It may be stopped and started at will: finished chains are in the checkpoint.
"""

import argparse

from dask_jobqueue import SLURMCluster
from distributed import Client
from distributed.security import Security

import marginalis as mg


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--cores", type=int, default=64)
    parser.add_argument("--queue", default=None)
    parser.add_argument("--interface", default=None, help="network that the nodes share, as ib0")
    options = parser.parse_args()
    cluster = SLURMCluster(
        queue=options.queue,
        cores=8,  # of one job: eight processes of one thread
        processes=8,
        memory="8GB",
        walltime="02:00:00",
        interface=options.interface,
        security=Security.temporary(),  # TLS, by certificates made for this run
        shared_temp_directory=".",  # where the jobs find them: a folder that all nodes see and nobody else reads
        worker_extra_args=["--lifetime", "110m", "--lifetime-stagger", "5m"],  # end before the job does
    )
    cluster.adapt(minimum=8, maximum=options.cores)
    with Client(cluster) as client:
        client.wait_for_workers(1)
        model = mg.load(options.model)
        result = mg.estimate(
            model, steps=10_000, chains=1_000_000, pool=client, checkpoint=f"{options.model}.checkpoint", progress=True
        )
    print(result)
    result.save(f"{options.model}.result.npz")


if __name__ == "__main__":
    main()
