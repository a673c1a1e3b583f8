"""The metrics of a server, in the text format of Prometheus."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]


class Metrics:
    """The metrics of one server; requests are counted by model, method and status.

    Args:
        queued: returns the number of waiting requests.
        served: returns the name and version of each loaded model, and when it was loaded, in
            seconds since 1970.
    """

    def __init__(
        self, queued: Callable[[], int], served: Callable[[], Iterable[tuple[str, int, float]]]
    ):
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
        self._registry.register(_Served(served))

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


class _Served(Collector):
    """Which version of each model is served, read anew for each answer."""

    def __init__(self, served: Callable[[], Iterable[tuple[str, int, float]]]):
        self._served = served

    def collect(self) -> Iterator[GaugeMetricFamily]:
        info = GaugeMetricFamily(
            "keras_transformer_model_info",
            "Version of the model that answers; always 1",
            labels=["model", "version"],
        )
        loaded = GaugeMetricFamily(
            "keras_transformer_model_loaded_timestamp_seconds",
            "When this version was loaded, since 1970",
            labels=["model"],
        )
        for name, version, time in self._served():
            info.add_metric([name, str(version)], 1)
            loaded.add_metric([name], time)
        yield from (info, loaded)
