"""One training step, as PyTorch does it: a model, a strategy, a plan, and its times.

``model`` and ``workload`` say what is trained; ``buckets``, ``calls`` and ``sharded`` which
collectives torch issues for it; ``strategies`` put these into a ``plan``; ``perform`` times the
plan on a cluster; ``step`` says where the time went and ``memory`` what must be held.
``asynchronous`` and ``learning`` are the parameter server without a plan.
"""
