"""What a picture says of a lane at a moment."""

from __future__ import annotations

from collections.abc import Sequence

from simcore.schedule import Op
from simcore.units import format_time
from views.pictures.state import Moves, State
from views.player import PlayerLane
from views.text import Text


def caption(lane: PlayerLane, moves: Moves, state: State, text: Text) -> str:
    """The step and what it does; where nothing is under way, for whom everyone waits."""
    if state.finished or not len(moves):
        return text("player.done", time=format_time(lane.trace.time_s))
    if not len(state.active) and (waiting := _who_is_waited_for(moves, state, text)):
        return waiting
    word = Op(int(moves.step_op[max(0, state.step)]))
    step = text("player.step", step=state.step + 1, steps=lane.schedule.n_steps)
    return step + text("player.colon") + text(f"phase.{lane.schedule.name}.{word}")


def _who_is_waited_for(moves: Moves, state: State, text: Text) -> str:
    """Whoever sends next, as in the player's caption; empty where nobody does."""
    later = moves.send_start_s > state.t_s
    if not later.any():
        return ""
    next_s = float(moves.send_start_s[later].min())
    rows = later & (moves.send_start_s <= next_s * (1 + 1e-9))
    ranks = waited_for(moves.src[rows].tolist(), moves.dst[rows].tolist())
    time = format_time(next_s)
    if len(ranks) == moves.trace.n:
        return text("player.waits", time=time)
    return text("player.waits_for", who=ranks_in_words(ranks, text), time=time)


def waited_for(src: Sequence[int], dst: Sequence[int]) -> list[int]:
    """For whom messages wait that begin together: who is at an end of each, else who sends.

    >>> waited_for([0, 1], [1, 2]), waited_for([3, 2], [1, 0]), waited_for([2], [0])
    ([1], [2, 3], [2])
    """
    ends = [{*pair} for pair in zip(src, dst, strict=True)]
    shared = set.intersection(*ends)
    return list(shared) if len(shared) == 1 else sorted({*src})


def ranks_in_words(ranks: list[int], text: Text) -> str:
    """``GPU 1``, ``GPUs 1–3`` or, where they are not consecutive, ``GPUs 1, 4``."""
    if len(ranks) == 1:
        return text("player.gpu_number", rank=ranks[0])
    run = len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1
    return text(
        "player.gpus", list=f"{ranks[0]}–{ranks[-1]}" if run else ", ".join(map(str, ranks))
    )
