"""Runs of a plan: on threads, on a pool or from a checkpoint, with progress reports.

`session` opens the resources that the options name (threads, a pool, a checkpoint, a progress bar) and closes them
again. `parts` splits a run into parts for a pool or a checkpoint, and `checkpoint` stores finished chains on disk. The
package may import `engines` and below. Read `session` first.
"""
