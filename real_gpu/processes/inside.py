"""The launcher of a shaped run, first process of its namespaces. Started by ``measure``.

One line of JSON in, the job; one line out for each case, its result, as it comes, or an error,
which is the last. When the input ends, whatever ended the one who gave it, this process ends, and
with it every process in the namespace.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import asdict
from typing import Any

from real_gpu.job import Job, RunError, job_from_json
from real_gpu.network.shaped import Hub
from real_gpu.processes.launch import launch


def main() -> None:
    """Run the job and say what comes of it."""
    job = job_from_json(json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_input, daemon=True).start()
    if error := _run(job):
        _say({"error": error})


def _run(job: Job) -> str | None:
    """What prevented it, if anything did."""
    from pyroute2.netlink.exceptions import NetlinkError

    assert job.network is not None
    try:
        hub = Hub(job.network.wiring(job.n))
        launch(job, hub, lambda result: _say({"result": asdict(result)}))
    except RunError as error:
        return str(error)
    except (NetlinkError, OSError) as error:
        return f"the shaped network could not be made: {error.args[-1]}"
    return None


def _say(outcome: dict[str, Any]) -> None:
    print(json.dumps(outcome), flush=True)  # noqa: T201


def _end_with_input() -> None:
    while os.read(0, 4096):  # not sys.stdin: a thread that waits in it spoils the exit
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
