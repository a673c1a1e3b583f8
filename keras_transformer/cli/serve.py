"""Serves models over HTTP, with the REST interface of TensorFlow Serving.

keras-transformer serve --model_dir=runs/en-de
curl -d '{"instances": ["Two dogs."]}' http://localhost:8501/v1/models/en-de:predict
"""

from pathlib import Path

from absl import flags

from keras_transformer.cli import quiet
from keras_transformer.cli.flags import FLAGS, group
from keras_transformer.cli.translator_flags import (
    define_model_flags,
    define_search_flags,
    load_translator,
    share_cores_among_workers,
)


def define_flags() -> None:
    define_model_flags()
    with group("Server"):
        flags.DEFINE_string("host", "127.0.0.1", "address to listen at; 0.0.0.0: all of them")
        flags.DEFINE_integer("port", 8501, "port to listen at", lower_bound=0, upper_bound=65535)
    define_search_flags()


def main():
    import uvicorn

    from keras_transformer.serving.app import create_app
    from keras_transformer.serving.batching import Batcher
    from keras_transformer.serving.servable import ParserServable, TranslatorServable
    from keras_transformer.serving.server import Server
    from keras_transformer.serving.versions import FixedModel

    share_cores_among_workers()
    quiet.find_devices()
    translator = load_translator(None, workers=1)
    kinds = {"translation": TranslatorServable, "parsing": ParserServable}
    name = Path(FLAGS.model_dir[0]).resolve().name
    model = FixedModel(name, kinds[translator.tokenizer.task](translator))
    batcher = Batcher(FLAGS.tokens_per_batch, 0.005, 100, FLAGS.workers)
    uvicorn.run(create_app(Server({name: model}, batcher)), host=FLAGS.host, port=FLAGS.port)
