"""The log of a server: a line of JSON for each event, on standard error."""

import datetime
import json
import logging
import sys
import warnings

from keras_transformer.translation import TermsWarning


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)  # ASCII, whatever a client sends


def log_to_stderr(access: bool = True) -> None:
    """Makes the server and its libraries log lines of JSON to standard error.

    Args:
        access: whether to log each request, too.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    levels = {
        "keras_transformer.serving": logging.INFO,
        "keras_transformer.serving.access": logging.INFO if access else logging.WARNING,
        "uvicorn": logging.ERROR,  # the server itself logs requests that are malformed
    }
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    # TensorFlow logs by absl, for example that it traces a graph for another set of options.
    for name in ("keras_transformer.serving", "uvicorn", "asyncio", "absl"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    warnings.simplefilter("ignore", TermsWarning)  # the server logs an event, `terms`
