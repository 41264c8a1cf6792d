"""The GPU as the package sees it: arrays, and kernels that are compiled at run time."""
