"""Measures requests per second and latency of the server, with clients that wait for each answer.

  python benchmarks/serve.py --model_dir=runs/en-de --source=test.en
  python benchmarks/serve.py --model_dir=runs/en-de --source=test.en --soak=100000
  python benchmarks/serve.py --model_dir=runs/en-de --source=test.en --wrk

Each client sends the sentences of --source one after another, over its own connection. Every answer
is compared with the output of `keras-transformer translate` with the same flags. The servers run
one after another: the default one; one that has a plain loop of CTranslate2's calls behind the same
HTTP layer; and those of TensorFlow, with and without batching. With --soak only the default one
runs, for that many requests, and its memory is printed on the way. With --wrk the clients are those
of wrk (apt install wrk), which needs less processor time than ours, and compares no answers.
"""

import asyncio
import contextlib
import itertools
import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", None, "folder of a trained model", required=True)
flags.DEFINE_string("source", None, "file of sentences to translate", required=True)
flags.DEFINE_list("clients", ["1", "8", "64"], "numbers of clients to measure with")
flags.DEFINE_integer("seconds", 20, "seconds to measure with each number of clients")
flags.DEFINE_integer("soak", 0, "number of requests of a soak test; 0: measure instead")
flags.DEFINE_bool("wrk", False, "measure with wrk")
flags.DEFINE_multi_string("flag", [], "flag for each server and for translate, such as --workers=2")
flags.DEFINE_list("only", [], "names of the servers to measure; default: all")
flags.DEFINE_bool("serve_loop", False, "used by this script: serve CTranslate2's plain loop")

LOOP = "plain loop"
SERVERS = {
    "default": [],
    LOOP: [],
    "TensorFlow": ["--engine=tensorflow"],
    "one at a time": [  # requests have one sentence each
        "--engine=tensorflow",
        "--tokens_per_batch=1",
    ],
}


def main(_):
    if FLAGS.soak and FLAGS.wrk:
        raise app.UsageError("expected --soak or --wrk, found both")
    if FLAGS.serve_loop:
        return serve_loop()
    sentences = Path(FLAGS.source).read_text(encoding="utf-8").splitlines()
    servers = {
        name: SERVERS[name] for name in (["default"] if FLAGS.soak else FLAGS.only or SERVERS)
    }
    print("server         clients  requests/s  p50 ms  p95 ms  p99 ms  not 200  differing")
    for name, chosen in servers.items():
        expected = [] if FLAGS.wrk else translated(chosen)
        with server(name, chosen) as (url, pid):
            if FLAGS.soak:
                soak(url, pid, sentences, expected)
                return
            for clients in map(int, FLAGS.clients):
                row = (
                    wrk(url, clients) if FLAGS.wrk else measured(url, clients, sentences, expected)
                )
                print(f"{name:14} {clients:7} {row}", flush=True)


def measured(url, clients, sentences, expected):
    """The row of our own clients."""
    run = Run(url, sentences, expected)
    return run.report(asyncio.run(run.measure(clients, FLAGS.seconds)))


class Run:
    """The answers to clients: latencies, statuses, and the number of wrong translations."""

    def __init__(self, url, sentences, expected):
        self.host, self.port = url.removeprefix("http://").split(":")
        self.pairs = itertools.cycle(zip(sentences, expected, strict=True))
        self.latencies, self.refused, self.differing = [], 0, 0

    async def measure(self, clients, seconds, requests=float("inf")):
        """Sends requests for so many seconds, or so many requests; returns the seconds it took."""
        start = time.perf_counter()
        await asyncio.gather(*(self.ask(start + seconds, requests) for _ in range(clients)))
        return time.perf_counter() - start

    async def ask(self, end, requests):
        reader, writer = await asyncio.open_connection(self.host, self.port)
        while time.perf_counter() < end and len(self.latencies) < requests:
            sentence, expected = next(self.pairs)
            start = time.perf_counter()
            status, body = await post(reader, writer, {"instances": [sentence]})
            self.latencies.append(time.perf_counter() - start)
            if status != 200:
                self.refused += 1
            elif body["predictions"][0]["translation"] != expected:
                self.differing += 1
        writer.close()

    def report(self, seconds):
        p50, p95, p99 = 1000 * np.percentile(self.latencies, [50, 95, 99])
        rate = len(self.latencies) / seconds
        return f"{rate:11.1f} {p50:7.1f} {p95:7.1f} {p99:7.1f} {self.refused:8} {self.differing:10}"


async def post(reader, writer, value):
    """The status and body of an answer; a client library would compute more than the server."""
    body = json.dumps(value).encode()
    path = "/v1/models/served:predict"
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
    answer = await reader.readexactly(int(fields[b"content-length"]))
    return int(head.split()[1]), json.loads(answer)


def wrk(url, clients):
    """Runs wrk, and returns the row that `serve.lua` prints."""
    command = ["wrk", "-t1", f"-c{clients}", f"-d{FLAGS.seconds}s", "--timeout=60s", "--latency"]
    script = ["-s", str(Path(__file__).with_suffix(".lua")), f"{url}/v1/models/served:predict"]
    process = subprocess.run(
        [*command, *script, "--", FLAGS.source], check=True, capture_output=True, text=True
    )
    return process.stdout.splitlines()[-1]


def soak(url, pid, sentences, expected):
    """Prints the memory of the server after each tenth of the requests."""
    share = FLAGS.soak // 10
    for number in range(1, 11):
        run = Run(url, sentences, expected)
        seconds = asyncio.run(run.measure(64, float("inf"), share))
        resident = f"{resident_mib(pid):.0f} MiB resident after {number * share} requests"
        print(f"{'default':14} {64:7} {run.report(seconds)}  {resident}", flush=True)


def resident_mib(pid):
    [line] = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line
    ]
    return int(line.split()[1]) / 1024


def translated(chosen):
    """The translations that the command `translate` writes."""
    with open(FLAGS.source, "rb") as sentences:
        command = [*keras_transformer("translate", chosen), f"--model_dir={FLAGS.model_dir}"]
        lines = subprocess.run(command, stdin=sentences, check=True, capture_output=True).stdout
    return lines.decode().splitlines()


@contextlib.contextmanager
def server(name, chosen):
    """Starts a server, and gives its URL and process once it is ready."""
    model = f"--model=served={FLAGS.model_dir}"
    command = [*keras_transformer("serve", chosen), model, "--port=0", "--noaccess_log"]
    if name == LOOP:
        command = [sys.executable, __file__, "--serve_loop", f"--model_dir={FLAGS.model_dir}"]
        command.append(f"--source={FLAGS.source}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().split()[-1]
            while not is_ready(url) and process.poll() is None:
                time.sleep(0.1)
            yield url, process.pid
        finally:
            process.terminate()


def serve_loop():
    """Serves CTranslate2's own calls, as its documentation has them, behind our HTTP layer."""
    # Here, since the clients need none of it.
    from keras_transformer.ctranslate2 import CTranslate2Translator
    from keras_transformer.machine.cores import number_of_cores
    from keras_transformer.options import ServingOptions
    from keras_transformer.serving import logs, model_sources, run
    from keras_transformer.translation import Translation

    class PlainLoop(CTranslate2Translator):
        def translate_n(self, sentences, prefixes=None):
            results = self._engine.translate_batch(
                self._subwords.split_source(sentences),
                beam_size=self.options.beam_size,
                patience=self.options.patience,
                length_penalty=self.options.alpha,
            )
            texts = self._subwords.join(result.hypotheses[0] for result in results)
            return [[Translation(text, 0.0)] for text in texts]

        def count_tokens(self, sentences):
            return [1] * len(sentences)

    logs.log_to_stderr(access=False)
    paths = [FLAGS.model_dir]
    run.serve(
        [model_sources.trained_model("served", paths, lambda paths: PlainLoop(paths[0]))],
        ServingOptions(),
        run.Access([], [], []),
        port=0,
        workers=number_of_cores(),
    )


def is_ready(url):
    try:
        return urllib.request.urlopen(f"{url}/readyz").status == 200
    except OSError:
        return False


def keras_transformer(command, chosen):
    return [sys.executable, "-m", "keras_transformer", command, *FLAGS.flag, *chosen]


if __name__ == "__main__":
    app.run(main)
