"""Options are declared once: an engine or exporter refuses every field that it does not list."""

import ast
import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT, small_model
from serving_world import tiny_translator

from keras_transformer import ModelDir, TransformerConfig, Translator
from keras_transformer.ctranslate2.export import export_ctranslate2
from keras_transformer.ctranslate2.support import CTRANSLATE2_CHOICES, CTRANSLATE2_CONFIG
from keras_transformer.ctranslate2.translator import (
    CTRANSLATE2_OPTIONS,
    CTRANSLATE2_SEARCH_CHOICES,
    CTranslate2Translator,
)
from keras_transformer.errors import UserError
from keras_transformer.export import export_saved_model
from keras_transformer.model import Transformer
from keras_transformer.options import (
    CleaningOptions,
    ParsingOptions,
    SearchOptions,
    ServingOptions,
    TrainingOptions,
)
from keras_transformer.options.records import Record, field
from keras_transformer.parameter_count import parameter_count
from keras_transformer.search import Targets, beam_search, sample, score, search
from keras_transformer.search.beam import BEAM_SEARCH_OPTIONS
from keras_transformer.search.compiled import CompiledSearches
from keras_transformer.search.sampling import SAMPLING_OPTIONS
from keras_transformer.search.scoring import SCORING_OPTIONS
from keras_transformer.search.steps import TransformerSteps
from keras_transformer.search.traced_options import TracedOptions, numbers
from keras_transformer.serving.servable import TranslatorServable
from keras_transformer.serving.server import SERVING_OPTIONS, Server

SOURCES = np.array([[5, 6, 2]])


@dataclasses.dataclass
class World:
    """The translator, the folder and the model_dir that consumers need besides a record."""

    translator: Translator
    folder: Path  # for exports
    model_dir: ModelDir


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    translator = tiny_translator()
    model_dir = ModelDir(folder / "en-de")
    model_dir.create_trained(translator.models[0], translator.tokenizer, None, "a test")
    return World(translator, folder, model_dir)


def with_new_field(record: type[Record], **values) -> Record:
    """A record of a type that has one more field, with a value other than its default."""
    new = ("new_field", int, field(0, "option of a later version"))
    grown = dataclasses.make_dataclass(record.__name__, [new], bases=(record,), frozen=True)
    return grown(new_field=1, **values)


def translator_with(world, options):
    """A translator whose options have changed since it checked them."""
    translator = world.translator.with_options(world.translator.options)
    translator._options = options
    return translator


def steps(world):
    targets = Targets(start_ids=np.array([1]), max_lengths=np.array([5]))
    return TransformerSteps(world.translator.models[0], SOURCES), targets


def exported(world, config):
    model = Transformer(config)
    model.build()
    export_ctranslate2(model, world.translator.tokenizer, world.folder / "ctranslate2")


SMALL = {"vocab_size": 340, "num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16}
# A record, what uses it, and fields that the user needs.
CONSUMERS = {
    "Translator": (
        SearchOptions,
        lambda w, o: Translator(w.translator.models, w.translator.tokenizer, o),
        {},
    ),
    "Translator that samples": (
        SearchOptions,
        lambda w, o: Translator(w.translator.models, w.translator.tokenizer, o),
        {"sample": True},
    ),
    "with_options": (SearchOptions, lambda w, o: w.translator.with_options(o), {}),
    "Translator.score": (
        SearchOptions,
        lambda w, o: translator_with(w, o).score(["A horse!"], ["Ein Pferd!"]),
        {},
    ),
    "search": (SearchOptions, lambda w, o: search(w.translator.models, SOURCES, o), {}),
    "beam_search": (
        SearchOptions,
        lambda w, o: beam_search(*steps(w), o),
        {},
    ),
    "sample": (
        SearchOptions,
        lambda w, o: sample(*steps(w), o),
        {"sample": True},
    ),
    "score": (SearchOptions, lambda w, o: score(w.translator.models, SOURCES, SOURCES, o), {}),
    "CTranslate2Translator": (
        SearchOptions,
        lambda w, o: CTranslate2Translator(w.model_dir.path, o),
        {},
    ),
    "export_saved_model": (
        SearchOptions,
        lambda w, o: export_saved_model(translator_with(w, o), w.folder / "saved_model"),
        {},
    ),
    "TranslatorServable": (
        SearchOptions,
        lambda w, o: TranslatorServable(translator_with(w, o)),
        {},
    ),
    "export_ctranslate2": (TransformerConfig, exported, SMALL),
    "Server": (ServingOptions, lambda w, o: Server([], o), {}),
}


@pytest.mark.parametrize(("record", "use", "values"), CONSUMERS.values(), ids=CONSUMERS)
def test_a_new_field_is_refused_by_name(record, use, values, world):
    with pytest.raises(UserError, match=r"^\w.* does not support new_field=1: \w.*") as error:
        use(world, with_new_field(record, **values))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("record", "supported"),
    [
        (SearchOptions, BEAM_SEARCH_OPTIONS),
        (SearchOptions, SAMPLING_OPTIONS),
        (SearchOptions, SCORING_OPTIONS),
        (SearchOptions, (*CTRANSLATE2_OPTIONS, *CTRANSLATE2_SEARCH_CHOICES)),
        (TransformerConfig, (*CTRANSLATE2_CONFIG, *CTRANSLATE2_CHOICES)),
        (ServingOptions, SERVING_OPTIONS),
    ],
)
def test_what_is_supported_exists(record, supported):
    assert set(supported) <= {field_.name for field_ in dataclasses.fields(record)}


def test_each_search_option_belongs_to_a_search():
    names = {field_.name for field_ in dataclasses.fields(SearchOptions)}
    assert {*BEAM_SEARCH_OPTIONS, *SAMPLING_OPTIONS} == names


@pytest.mark.parametrize(("name", "value"), {"patience": 3.0, "temperature": 0.5}.items())
def test_an_option_of_one_search_is_refused_with_the_other(name, value):
    with pytest.raises(UserError, match=f"^{name} must be left out with"):
        SearchOptions(**{"sample": name in BEAM_SEARCH_OPTIONS, name: value})


def test_beam_search_does_not_sample(world):
    with pytest.raises(
        UserError, match=r"^beam search does not support sample=True: leave it out$"
    ):
        beam_search(*steps(world), SearchOptions(sample=True))


def test_a_server_does_not_sample(world):
    sampling = world.translator.with_options(SearchOptions(sample=True))
    with pytest.raises(
        UserError, match=r"^the server does not support sample=True: leave it out, "
    ):
        TranslatorServable(sampling)


CHANGED = {
    "beam_size": 7,
    "alpha": 0.3,
    "length_penalty": "gnmt",
    "patience": 3.0,
    "n_best": 3,
    "extra_length": 9,
    "max_length": 40,
    "min_length": 3,
    "no_repeat_ngram": 4,
    "constraint": lambda ids: True,
    "sample": True,
    "temperature": 0.7,
    "top_k": 5,
    "top_p": 0.5,
    "seed": 6,
}


@pytest.mark.parametrize("name", [field_.name for field_ in dataclasses.fields(SearchOptions)])
def test_a_graph_gets_every_option(name):
    values = {} if name in (*BEAM_SEARCH_OPTIONS, "sample") else {"sample": True}
    options, usual = SearchOptions(**{**values, name: CHANGED[name]}), SearchOptions(**values)
    graphs = [TracedOptions.of(o.structure(), numbers(o)) for o in (options, usual)]
    # The seed is an argument of the search.
    assert (graphs[0] != graphs[1]) == (name != "seed")


def test_a_new_field_needs_a_graph_of_its_own():
    assert with_new_field(SearchOptions, alpha=0.3).structure().new_field == 1


def test_unsupported_options_leave_no_graph_behind(world):
    searches = CompiledSearches(world.translator.models, False, 1)
    with pytest.raises(UserError):
        searches.of(with_new_field(SearchOptions))
    assert not searches._held


@functools.cache
def names_read():
    """The names of all attributes in the package, except in the modules of the records."""
    paths = (ROOT / "keras_transformer").rglob("*.py")
    readers = [path for path in paths if path.parent.name != "options" and path.name != "config.py"]
    nodes = (node for path in readers for node in ast.walk(ast.parse(path.read_text())))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize(
    "record",
    [
        CleaningOptions,
        ParsingOptions,
        SearchOptions,
        ServingOptions,
        TrainingOptions,
        TransformerConfig,
    ],
)
def test_every_field_has_a_reader(record):
    by_methods = {
        SearchOptions: {"patience"},  # `enough_finished`
        ServingOptions: {"max_connections_per_address"},  # `most_of_address`
        TrainingOptions: {"average_checkpoints"},  # `ModelDir.number_averaged` reads the record
        TransformerConfig: {"target_vocab_size"},  # `output_vocab_size`
    }.get(record, set())
    names = {field_.name for field_ in dataclasses.fields(record)}
    assert names - by_methods <= names_read()


def configurations():
    """The default, and each other choice and switch of a configuration, with what it needs."""
    yield {}
    needed = {
        "restricted": {"radius": 2},
        "convolutional": {"kernel_size": 3},
        "separable": {"kernel_size": 3},
    }
    for field_ in dataclasses.fields(TransformerConfig):
        values = field_.metadata["choices"] or (False, True) * (type(field_.default) is bool)
        for value in (value for value in values if value != field_.default):
            yield {field_.name: value, **needed.get(value, {})}


@pytest.mark.parametrize("fields", list(configurations()), ids=str)
def test_parameters_are_counted_whatever_is_chosen(fields):
    model = small_model(**fields)
    assert parameter_count(model.config) == model.count_params()
