"""Running independent pieces of work: on threads of this process, on worker processes, or on a cluster.

`threads` runs jobs on threads. `pools` wraps everything that can run tasks elsewhere (local processes, an executor, a
Dask cluster) in one interface. `tasks` defines what is sent to a worker and what comes back, `ledger` keeps account of
which parts of a run are open, running or finished, and `dispatch` is the loop that sends parts out until all are
finished. Nothing here depends on models. Read `tasks` first, then `dispatch`.
"""
