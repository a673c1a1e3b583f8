"""Starts several worker processes on this machine, joined by TF_CONFIG like machines."""

import json
import os
import socket
import subprocess
import sys

from helpers import ROOT


def start_workers(count: int, script: str, *arguments) -> list[subprocess.Popen]:
    """Starts a script in several processes, the workers of one cluster."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    hosts = [f"127.0.0.1:{free.getsockname()[1]}" for free in sockets]
    for free in sockets:
        free.close()
    command = [sys.executable, "-c", script, *map(str, arguments)]
    workers = []
    for index in range(count):
        cluster = {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}}
        workers.append(
            subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "TF_CONFIG": json.dumps(cluster)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return workers


def outputs(workers, timeout: float = 300) -> list[str]:
    """Waits for all workers and returns their output; kills those that do not end."""
    try:
        return [worker.communicate(timeout=timeout)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
