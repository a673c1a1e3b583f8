"""The limits of a server: one frozen, validated record."""

import dataclasses
import math

from keras_transformer.options.records import Record, field


@dataclasses.dataclass(frozen=True)
class ServingOptions(Record):
    """Limits and waiting times of a server. Every field is a flag of `serve`.

    Raises:
        UserError: a value has the wrong type or is out of range.
    """

    max_body_bytes: int = field(2**20, "maximum size of a request's body, in bytes; else 413")
    max_sentences: int = field(256, "maximum number of sentences in a request; else 400")
    max_characters: int = field(10_000, "maximum number of characters in a sentence; else 400")
    max_sentence_tokens: int = field(1023, "maximum number of tokens in a sentence; else 400")
    max_queue: int = field(256, "maximum number of requests that wait for a batch; else 429")
    max_connections: int = field(
        2000, "maximum number of open connections; idle ones make room for new ones; else 503"
    )
    max_connections_per_address: int | None = field(
        None,
        "maximum number of open connections of one address; a proxy has one address; "
        "default: nine tenths of max_connections",
    )
    request_timeout: float = field(
        60.0, "seconds from reading a request until its answer must be computed; else 504"
    )
    read_timeout: float = field(
        10.0,
        "seconds that a client may take to send a request's headers, to send its body (else 408) "
        "or to read the answer, and that a connection may stay unused",
    )
    batch_wait_ms: float = field(
        0.0,
        "milliseconds that a request waits for others to join its batch, even if the model is idle",
    )
    poll_seconds: float = field(2.0, "seconds between checks for new versions of SavedModels")

    def __post_init__(self):
        super().__post_init__()
        for name in (
            "max_body_bytes",
            "max_sentences",
            "max_characters",
            "max_sentence_tokens",
            "max_queue",
            "max_connections",
        ):
            self.expect(name, getattr(self, name) >= 1, "at least 1")
        per_address = self.max_connections_per_address
        is_fit = per_address is None or per_address >= 1
        self.expect("max_connections_per_address", is_fit, "at least 1")
        # Years, in seconds, would overflow in a thread's clock.
        self.expect("request_timeout", 0 < self.request_timeout <= 86_400, "in (0, 86400]")
        self.expect("read_timeout", 0 < self.read_timeout <= 86_400, "in (0, 86400]")
        self.expect("poll_seconds", 0.01 <= self.poll_seconds <= 86_400, "in [0.01, 86400]")
        self.expect("batch_wait_ms", 0 <= self.batch_wait_ms <= 10_000, "in [0, 10000]")

    def most_of_address(self) -> int:
        """The maximum number of open connections of one address."""
        if self.max_connections_per_address is not None:
            return self.max_connections_per_address
        return math.ceil(0.9 * self.max_connections)
