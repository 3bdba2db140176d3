"""SyncScope's core: collective algorithms as data, what they mean, and how long they take.

>>> from simcore import build_schedule, prove, simulate, uniform
>>> schedule = build_schedule("ring", n=4)
>>> prove(schedule)
>>> simulate(schedule, uniform(4, 25e6), elements=2 * 2**20).trace.time_s
0.50331648

NumPy and the standard library only. What is listed in ``__all__`` is promised to stay.
"""

from simcore import reference
from simcore.algorithms import ALGORITHMS, build_schedule
from simcore.check import prove
from simcore.cluster import Cluster, Level, Port, ring_order, uniform
from simcore.cluster_file import load_cluster, presets
from simcore.cost import ClosedForm, closed_form, lower_bound_s
from simcore.engine import Simulation, SimulationError, simulate
from simcore.schedule import (
    Collective,
    Op,
    Schedule,
    ScheduleError,
    Transfer,
    chunk_sizes,
    parse_schedule,
    reorder,
)
from simcore.solvers.network import Slowdown, parse_slow_link
from simcore.trace import Source, Trace

__all__ = [
    "ALGORITHMS",
    "ClosedForm",
    "Cluster",
    "Collective",
    "Level",
    "Op",
    "Port",
    "Schedule",
    "ScheduleError",
    "Simulation",
    "SimulationError",
    "Slowdown",
    "Source",
    "Trace",
    "Transfer",
    "build_schedule",
    "chunk_sizes",
    "closed_form",
    "load_cluster",
    "lower_bound_s",
    "parse_schedule",
    "parse_slow_link",
    "presets",
    "prove",
    "reference",
    "reorder",
    "ring_order",
    "simulate",
    "uniform",
]
