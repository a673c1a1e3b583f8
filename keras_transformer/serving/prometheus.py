"""The metrics of a server, in the text format of Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]


class Metrics:
    """The metrics of one server; requests are counted by model, method and status.

    Args:
        queued: returns the number of waiting requests.
    """

    def __init__(self, queued: Callable[[], int]):
        self._registry = CollectorRegistry()

        def define(kind, name, about, labels=(), **options):
            name = f"keras_transformer_{name}"
            return kind(name, about, labels, registry=self._registry, **options)

        by = ["model", "method"]
        self._requests = define(Counter, "requests", "Requests answered", [*by, "code"])
        self._seconds = define(
            Histogram, "request_seconds", "Time to answer a request", by, buckets=_SECONDS
        )
        self._sentences = define(
            Histogram, "batch_sentences", "Sentences computed together", buckets=_SIZES
        )
        self._batch_tokens = define(
            Histogram, "batch_tokens", "Input tokens computed together", buckets=_SIZES
        )
        self._tokens = define(Counter, "tokens", "Input tokens computed")
        self._refused = define(
            Counter,
            "refused_connections",
            "Connections refused, or closed before their answer, by reason",
            ["reason"],
        )
        queue = define(Gauge, "queued_requests", "Requests that wait for a batch")
        queue.set_function(queued)

    def observe_request(self, model: str, method: str, code: int, seconds: float) -> None:
        """Counts an answered request."""
        self._requests.labels(model, method, code).inc()
        self._seconds.labels(model, method).observe(seconds)

    def observe_refused(self, reason: str, code: int | None) -> None:
        """Counts a connection that is refused, or closed without an answer if the code is None."""
        self._refused.labels(reason).inc()
        if code is not None:
            self._requests.labels("", "", code).inc()

    def observe_batch(self, sentences: int, tokens: int) -> None:
        """Counts a computed batch."""
        self._sentences.observe(sentences)
        self._batch_tokens.observe(tokens)
        self._tokens.inc(tokens)

    def text(self) -> bytes:
        """All metrics as text."""
        return generate_latest(self._registry)
