"""Programs of ranks: generators that compute, send and receive, run on the engine's clock.

For what no schedule can say because the order depends on who comes first. What they send shares
links as every other message does. Who asks whom for what is decided by the programs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simcore.schedule import IntArray, Op
from simcore.solvers.events import Clock
from simcore.solvers.network import Network
from simcore.solvers.slots import Messages, Rows
from simcore.solvers.timeline import adding_seconds
from simcore.trace import FloatArray, Lane, Spans


@dataclass(frozen=True, slots=True)
class Compute:
    """Be busy for so long; ``step`` names it in the trace. The program gets the time at its end."""

    seconds: float
    step: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Let time pass, without a trace. The program gets the time at its end."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Send:
    """Put a message to each of these programs on the wire, and go on at once.

    What is empty, or stays on its rank, is there at once and is not sent.
    """

    to: tuple[int, ...]
    nbytes: int
    op: Op
    step: int
    note: Any


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait for a message, first come first served; the program gets it as ``Mail``."""


@dataclass(frozen=True, slots=True)
class Mail:
    """What a message says, and the time at which the program takes it up."""

    note: Any
    now_s: float


Effect = Compute | Wait | Send | Receive
Program = Generator[Effect, Any, None]


@dataclass(frozen=True, slots=True, eq=False)
class _Letterhead:
    """What is the same whenever a rank sends so many bytes to the same others."""

    columns: dict[str, IntArray | FloatArray]
    routes: IntArray

    @classmethod
    def of(cls, src: int, dst: Sequence[int], nbytes: int, op: Op, network: Network) -> _Letterhead:
        wide = np.broadcast_arrays(src, np.array(dst, np.int64), 0, op, 1, nbytes)
        names = ("src", "dst", "chunk", "op", "width", "nbytes")
        columns: dict[str, IntArray | FloatArray] = {
            name: column.astype(np.int64) for name, column in zip(names, wide, strict=True)
        }
        ends = columns["src"].astype(np.int64), columns["dst"].astype(np.int64)
        columns["latency_s"] = network.latencies_s(*ends, wide[5])
        reduce_s = network.cluster.reduce_s_per_byte
        columns["adds_s"] = adding_seconds(wide[3], wide[5], reduce_s)
        return cls(columns, network.routes(*ends))


class _Letters(Messages):
    """The messages of one ``Send``: to which program each goes, and what it says."""

    def __init__(self, number: int, send: Send, to: list[int], head: _Letterhead) -> None:
        start_s, left_s, adding_s = np.zeros((3, len(to)))
        step = np.array([send.step] * len(to), np.int64)
        columns: dict[str, Any] = head.columns
        super().__init__(step=step, start_s=start_s, left_s=left_s, adding_s=adding_s, **columns)
        self.number, self.routes = number, head.routes
        self.to, self.note = to, send.note


@dataclass(slots=True, eq=False)
class ProgramRule:
    """Runs ``programs``, the i-th on rank ``ranks[i]``; several may live on one rank.

    Two programs that talk once, over a second of wire, after three seconds of work:

    >>> from simcore.cluster import uniform
    >>> def sender() -> Program:
    ...     yield Compute(3.0, step=0)
    ...     yield Send((1,), 100, Op.COPY, step=0, note="hello")
    >>> def receiver() -> Program:
    ...     print((yield Receive()).note)
    >>> rule = ProgramRule([0, 1], [sender(), receiver()])
    >>> Clock(Network(uniform(2, 100.0))).run(rule).time_s
    hello
    4.0
    """

    ranks: Sequence[int]
    programs: Sequence[Program]
    clock: Clock = field(init=False)
    end_s: float = 0.0  # of the last thing that a program did
    _boxes: list[deque[Any]] = field(init=False)
    _waits: list[bool] = field(init=False)
    _heads: dict[tuple[int, tuple[int, ...], int, Op], _Letterhead] = field(default_factory=dict)
    _number: int = 0
    _computed: list[tuple[int, int, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._boxes = [deque() for _ in self.programs]
        self._waits = [False] * len(self.programs)

    def done(self) -> float:
        """Nobody knows how long programs run."""
        return 0.0

    def begin(self, clock: Clock) -> None:
        """All programs start at once, in their order."""
        self.clock = clock
        for program in range(len(self.programs)):
            clock.at(0.0, self._go_on, program, None)

    def sent(self, letters: _Letters, rows: Rows) -> None:
        """A sender waits for nothing."""

    def arrived(self, letters: _Letters, rows: Rows, was_last: bool) -> None:
        """Into the box of the program that it goes to."""
        for row in rows:
            self._deliver(letters.to[row], letters.note)

    def _deliver(self, program: int, note: Any) -> None:
        if self._waits[program]:
            self._waits[program] = False
            self._go_on(program, Mail(note, self.clock.now))
        else:
            self._boxes[program].append(note)

    def _go_on(self, program: int, value: Any) -> None:
        """Until the program has to wait for something."""
        self.end_s = max(self.end_s, self.clock.now)
        box, send = self._boxes[program], self.programs[program].send
        while True:
            try:
                effect = send(value)
            except StopIteration:
                return
            if isinstance(effect, Send):
                self._send(program, effect)
                value = None
            elif isinstance(effect, Receive):
                if not box:
                    self._waits[program] = True
                    return
                value = Mail(box.popleft(), self.clock.now)
            else:
                end_s = self.clock.now + effect.seconds
                if isinstance(effect, Compute) and effect.seconds:
                    span = (self.ranks[program], effect.step, self.clock.now, end_s)
                    self._computed.append(span)
                self.clock.at(end_s, self._go_on, program, end_s)
                return

    def _send(self, program: int, send: Send) -> None:
        src = self.ranks[program]
        here = [to for to in send.to if self.ranks[to] == src or not send.nbytes]
        for to in here:
            self.clock.at(self.clock.now, self._deliver, to, send.note)
        far = [to for to in send.to if to not in here] if here else list(send.to)
        if not far:
            return
        key = src, tuple([self.ranks[to] for to in far]), send.nbytes, send.op
        if key not in self._heads:
            self._heads[key] = _Letterhead.of(*key, self.clock.network)
        self._number += 1
        letters = _Letters(self._number, send, far, self._heads[key])
        self.clock.made(letters)
        self.clock.when_issued(letters, list(range(len(far))), self.clock.start)

    def compute_spans(self) -> Spans:
        """What the programs computed, as rows of a trace."""
        rank, step, start_s, end_s = np.array(self._computed).reshape(-1, 4).T
        none = np.full(len(rank), -1, np.int64)
        return Spans(
            rank=rank.astype(np.int64),
            lane=np.full(len(none), Lane.COMPUTE, np.int64),
            step=step.astype(np.int64),
            peer=none,
            chunk=none,
            op=np.zeros(len(none), np.int64),
            width=np.ones(len(none), np.int64),
            start_s=start_s,
            end_s=end_s,
            nbytes=np.zeros(len(none), np.int64),
        )
