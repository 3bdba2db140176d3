"""A command whose ranks torchrun or srun has started, on one machine or several.

Every process is one rank. Rank 0 does what the command does, on a ``Stage`` of the ranks that are
there: it drives them all, itself in a thread, as ``launch`` drives the processes of a local run.
Each of the others answers, ends when rank 0 says so or is gone, and is silent; so that one line
tells what went wrong, even an error in its own arguments goes to rank 0.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from real_gpu.backends import MULTI_RANK, Choice, choose_together
from real_gpu.info import torch_here
from real_gpu.job import CaseResult, Job, RunError, Stopped, joining_s
from real_gpu.network.interfaces import (
    LOOPBACK,
    NCCL_VARIABLE,
    chosen_interface,
    interface_of,
    network_name,
)
from real_gpu.processes.clocks import clock_name
from real_gpu.processes.launch import longest_s, run_cases
from real_gpu.processes.measure import OnResult, check_bearable, psutil
from real_gpu.processes.meeting import join, open_store
from real_gpu.processes.peers import Hello, Peers
from real_gpu.processes.seats import Seat
from real_gpu.processes.stage import Stage
from real_gpu.processes.worker import Rank, die_with_parent, serve


@dataclass(frozen=True, slots=True)
class Asked:
    """What a rank's command line asks for: its words, by flag, and an interface.

    ``job`` is a ``ValueError`` for what cannot be; a command that measures several says only their
    backend with it. ``lead`` is the command itself, at rank 0, on ranks that agree.
    """

    words: dict[str, Any]
    job: Callable[[], Job]
    lead: Callable[[Launched, Job], int]
    interface: str | None = None


def attend(seat: Seat, asked: Asked) -> NoReturn:
    """Take part in the run as this rank, and end with its exit status."""
    if seat.agent:
        die_with_parent()  # torchrun's agent started us; a killed one leaves nothing behind
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not mix with what rank 0 prints
    if seat.rank:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank 0 gets it too, and tells
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    status, text = 0, ""
    try:
        if seat.restarts:
            raise RunError("the run failed, and a measurement is not restarted: --max-restarts 0")
        if problem := torch_here().problem:
            raise RunError(problem)
        status = _lead(seat, asked) if seat.rank == 0 else _follow(seat, asked)
    except ValueError as error:
        status, text = 2, str(error)
    except RunError as error:
        status, text = 1, str(error)
    except Stopped as stopped:
        status, text = 1, f"stopped by {stopped}; every rank of the run has been ended"
    if text and seat.local_rank == 0:  # before the ranks have met, one on each machine speaks
        _complain(seat, text)
    _end(status)


def refuse(seat: Seat, error: ValueError) -> NoReturn:
    """Take part as a rank whose command line cannot be understood: rank 0 says so, once."""

    def job() -> Job:
        raise error

    attend(seat, Asked({}, job, lambda stage, job: 0))


def _complain(seat: Seat, text: str) -> None:
    who = f"rank {seat.rank}: " if seat.rank else ""
    sys.stderr.write(f"python -m real_gpu: {who}{text}\n")


def _end(status: int) -> NoReturn:
    """At once: a thread may be waiting in the library for a rank that is gone."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _hello(seat: Seat, asked: Asked) -> tuple[Hello, Job | None]:
    """What a rank says of itself, and the job, unless it has been asked for what cannot be."""
    hello: Hello = {
        "rank": seat.rank,
        "ranks": seat.ranks,
        "words": asked.words,
        "clock": clock_name(),
        "machine": f"{clock_name()} {network_name()}",  # as the network sees it
        "flag": asked.interface,
    }
    try:
        job = asked.job()
        hello["interface"] = chosen_interface(asked.interface)
        if asked.interface:
            os.environ[NCCL_VARIABLE] = asked.interface  # a flag goes before the variable
        hello["available"] = psutil().virtual_memory().available
        hello["gpu"], hello["no_nccl"] = _gpu(seat, job.backend)
    except (ValueError, RunError) as error:
        status = 2 if isinstance(error, ValueError) else 1
        return hello | {"error": str(error), "status": status}, None
    return hello, job


def _gpu(seat: Seat, backend: str) -> tuple[dict[str, Any], str | None]:
    """This rank's device, and why NCCL cannot use it, if so."""
    nothing = {"index": None, "name": None}
    if backend == "gloo":
        return nothing, "gloo was asked for"
    here = torch_here()
    if not here.nccl:
        return nothing, "its torch has no NCCL"
    if not here.cuda_devices:
        return nothing, "it sees no CUDA device"
    # Slurm may show each task its own device alone; where ranks are more, some share one.
    index = seat.local_rank % len(here.cuda_devices)
    identity = here.cuda_ids[index] or f"{clock_name()}, device {index}"
    gpu = {"index": index, "name": here.cuda_devices[index], "id": identity, "nccl": here.nccl}
    return gpu | {"several": os.environ.get(MULTI_RANK, "")}, None


def _follow(seat: Seat, asked: Asked) -> NoReturn:
    """Answer rank 0 until it ends the run."""
    rank = Rank()
    hello, _ = _hello(seat, asked)
    rank.store = open_store(seat)
    line = join(seat, rank.store, hello)

    def requests() -> Iterator[str]:
        for text in line:
            if (request := json.loads(text))["do"] == "end":
                _end(request["status"])
            yield text

    def lost() -> NoReturn:
        if seat.first_here:  # one on each machine
            _complain(seat, "rank 0, which drives the run, is gone")
        _end(1)

    serve(rank, requests(), line.say, lost)


def _lead(seat: Seat, asked: Asked) -> int:
    """Meet the ranks, and do on them what is asked."""
    hello, job = _hello(seat, asked)
    me = Rank()
    me.store = open_store(seat)
    with Peers(seat.ranks, me) as peers:
        hellos = {0: hello} | dict(sorted(peers.meet(seat).items()))
        agree(hellos)
        peers.clock_names = [hellos[rank]["clock"] for rank in range(seat.ranks)]
        assert job is not None  # or its error would have been among the hellos
        return asked.lead(Launched(seat.launcher, peers, hellos), job)


def agree(hellos: dict[int, Hello]) -> None:
    """A ``ValueError`` where ranks were asked for what cannot be, or for different things."""
    for rank, hello in sorted(hellos.items()):
        if "error" in hello:
            text = f"rank {rank}: {hello['error']}" if rank else hello["error"]
            raise ValueError(text) if hello["status"] == 2 else RunError(text)
    for rank, hello in sorted(hellos.items()):
        if hello["ranks"] != hellos[0]["ranks"]:
            raise ValueError(
                f"rank {rank} was started as one of {hello['ranks']} ranks, rank 0 as one of "
                f"{hellos[0]['ranks']}; accepted: one world size"
            )
        for flag in sorted({**hello["words"], **hellos[0]["words"]}):
            theirs, ours = (h["words"].get(flag) for h in (hello, hellos[0]))
            if theirs != ours:
                raise ValueError(
                    f"rank {rank} was given {_said(flag, theirs)}, rank 0 {_said(flag, ours)}; "
                    "accepted: the same command line on every rank"
                )


def _said(flag: str, word: Any) -> str:
    if word is True:
        return flag
    return f"{flag} {word}" if word else f"no {flag}"


class Launched(Stage):
    """The ranks that a launcher has started: a job runs on the first of them, the others wait."""

    def __init__(self, launcher: str, peers: Peers, hellos: dict[int, Hello]) -> None:
        self.launcher, self.peers, self.hellos = launcher, peers, hellos
        self.there = self.ranks = peers.n
        on: dict[str, list[int]] = {}
        for rank in range(peers.n):
            on.setdefault(hellos[rank]["machine"], []).append(rank)
        self.machines = tuple(map(tuple, on.values())) if len(on) > 1 else ()
        self.jobs = 0

    def choose(self, asked: str, gpus: int, shaped: bool = False) -> Choice:
        """NCCL where every rank has it, unless Gloo is asked for."""
        if shaped:
            raise ValueError(f"--network: under {self.launcher} the network is real; leave it away")
        if gpus > self.there:
            raise ValueError(
                f"{gpus} ranks are more than the {self.there} that {self.launcher} started"
            )
        choice = _backend(asked, self.hellos)
        where = self.whereabouts(Job(gpus, (), choice.backend))
        why = f"; {choice.why}" if choice.why else ""
        return Choice(choice.backend, f"as {self.launcher} started the ranks{where}{why}")

    def place(self, job: Job) -> Job:
        """By which launcher, on how many machines, over which interfaces; with NCCL the GPUs."""
        ranks = [self.hellos[rank] for rank in range(job.n)]
        gpus = [rank["gpu"]["name"] for rank in ranks if job.backend == "nccl"]
        launched = {
            "launcher": self.launcher,
            "machines": len({rank["machine"] for rank in ranks}),
            "interfaces": sorted({*filter(None, _interfaces(job, self.peers, self.hellos))}),
        }
        return replace(job, launched=launched | ({"gpus": gpus} if gpus else {}))

    def whereabouts(self, job: Job) -> str:
        """On so many machines, over these interfaces."""
        found = self.place(job).launched
        several = f"{found['machines']} machine{'s' * (found['machines'] > 1)}"
        over = f" over {' and '.join(found['interfaces'])}" if found["interfaces"] else ""
        return f" on {several}{over}"

    def measure(self, job: Job, on_result: OnResult | None = None) -> list[CaseResult]:
        """On the ranks that are there, which part from those of the job before."""
        job = self.place(job)
        try:
            self._meet(job)
            results = []
            for result in run_cases(self.peers, job):
                results.append(result)
                if on_result:
                    on_result(result)
            return results
        except Stopped as stopped:
            self.peers.blame(stopped)
            raise

    def _meet(self, job: Job) -> None:
        _check_memory(job, self.hellos)
        if self.jobs:
            self.peers.all(60, do="leave")
        self.jobs += 1
        self.peers.n = job.n
        names = _interfaces(job, self.peers, self.hellos)
        _set_up(self.peers, job, self.hellos, names, f"job {self.jobs}")


def _backend(asked: str, hellos: dict[int, Hello]) -> Choice:
    """What all ranks can use, and why it is not NCCL where each of them alone could."""
    lacking = {rank: h["no_nccl"] for rank, h in hellos.items() if h["no_nccl"]}
    if asked == "nccl" and lacking:
        rank = min(lacking)
        raise RunError(f"rank {rank} cannot use NCCL: {lacking[rank]}; use --backend gloo")
    if asked == "gloo" or lacking:
        return Choice("gloo", "")
    gpus = [h["gpu"] for h in hellos.values()]
    told = {MULTI_RANK: "1"} if all(gpu["several"] == "1" for gpu in gpus) else {}
    choice = choose_together(asked, gpus, told)
    return choice if choice.backend == "gloo" else Choice(choice.backend, "")


def _interfaces(job: Job, peers: Peers, hellos: dict[int, Hello]) -> list[str]:
    """Each rank's interface: as chosen, else the one over which it reaches rank 0. NCCL finds
    its own unless a flag says which.
    """
    if job.backend == "nccl":
        return [hellos[rank]["flag"] or "" for rank in range(job.n)]
    outward = filter(None, (line.local_address for line in peers.lines.values()))
    own = hellos[0]["interface"] or next(map(interface_of, outward), None) or LOOPBACK
    return [hellos[rank]["interface"] or own for rank in range(job.n)]


def _check_memory(job: Job, hellos: dict[int, Hello]) -> None:
    """Each machine must bear its own ranks."""
    for machine in {hellos[rank]["clock"] for rank in range(job.n)}:
        here = [rank for rank in range(job.n) if hellos[rank]["clock"] == machine]
        check_bearable(job, min(hellos[rank]["available"] for rank in here), here)


def _set_up(
    peers: Peers, job: Job, hellos: dict[int, Hello], names: list[str], meeting: str
) -> None:
    load = {"do": "load", "n": job.n, "backend": job.backend}
    gpus = [hellos[rank]["gpu"]["index"] for rank in range(job.n)]
    peers.ask([load | {"rank": r, "gpu": gpu} for r, gpu in enumerate(gpus)], 60 + 5 * job.n)
    join = {"do": "join", "address": "", "port": 0, "meeting": meeting}
    join |= {"timeout_s": longest_s(job)}
    peers.ask(
        [join | {"interface": name} for name in names], max(60, joining_s(job.n, job.backend))
    )
