"""Running: where the chains of a call are advanced, and what is kept of them.

`session` opens what the options name (threads, a pool, a checkpoint, a progress bar) and closes it again; `parts` does
a run in parts, on a pool or with a checkpoint, and `checkpoint` keeps finished chains on disk. May import `engines` and
below. Read `session` first.
"""
