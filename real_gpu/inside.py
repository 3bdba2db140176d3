"""The launcher of a shaped run, first process of its namespaces. Started by ``measure``.

One line of JSON in, the job; one line out, results or an error. When the input ends, whatever
ended the one who gave it, this process ends, and with it every process in the namespace.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import asdict

from real_gpu.job import Job, RunError, job_from_json
from real_gpu.launch import launch
from real_gpu.shaped import Hub


def main() -> None:
    """Run the job and print what came of it."""
    job = job_from_json(json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_input, daemon=True).start()
    sys.stdout.write(json.dumps(_outcome(job)) + "\n")


def _outcome(job: Job) -> dict[str, object]:
    from pyroute2.netlink.exceptions import NetlinkError

    assert job.network is not None
    try:
        hub = Hub(job.network.bytes_per_s, job.network.latency_s)
        return {"results": [asdict(result) for result in launch(job, hub)]}
    except RunError as error:
        return {"error": str(error)}
    except (NetlinkError, OSError) as error:
        return {"error": f"the shaped network could not be made: {error.args[-1]}"}


def _end_with_input() -> None:
    while os.read(0, 4096):  # not sys.stdin: a thread that waits in it spoils the exit
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
