"""Searches as graphs that serve any numbers of the options (TensorFlow)."""

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf

from keras_transformer.fast.xla_flags import set_xla_flags
from keras_transformer.model import Transformer
from keras_transformer.options.search import LENGTH_PENALTIES, SearchOptions
from keras_transformer.search.beam import BEAM_SEARCH_OPTIONS
from keras_transformer.search.sampling import SAMPLING_OPTIONS
from keras_transformer.search.scoring import SCORING_OPTIONS, score
from keras_transformer.search.steps import search
from keras_transformer.search.targets import Required
from keras_transformer.search.terms import Terms, TermTables
from keras_transformer.search.traced_options import TracedOptions, numbers

_IDS, _INDEX, _NUMBER = (
    tf.TensorSpec([None, None], tf.int32),
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([], tf.int32),
)
_TABLE = tf.TensorSpec([None, None, None], tf.int32)
_OF_VOCABULARY = tf.TensorSpec([None], tf.bool)
# The fields of `Required`.
_REQUIRED = {
    "prefix_ids": _IDS,
    "first_id": _NUMBER,
    "terms": Terms(
        TermTables(
            symbols=_IDS,
            continues=tf.TensorSpec([None, None], tf.bool),
            next_state=_TABLE,
            ends=_TABLE,
            gains=_TABLE,
            shortest=_IDS,
            counts=_IDS,
        ),
        continues=_OF_VOCABULARY,
        opens=_OF_VOCABULARY,
    ),
}


class CompiledSearches:
    """The graphs in which a model searches and scores, each traced when it is first used.

    Tracing takes seconds, and a graph tens of MB. So there is one graph for each
    `SearchOptions.structure`, and the numbers of the options are its inputs. The graphs of the last
    `_NUM_KEPT` structures are kept, besides those that a caller holds.

    Args:
        models: a built `Transformer`, or several, as for `search`.
        jit_compile: whether XLA compiles the searches, once for each shape.
        workers: number of threads that may search at the same time.
        has_first: whether each translation begins with a symbol of its own, see `Required`.
    """

    _NUM_KEPT = 8

    def __init__(
        self,
        models: Sequence[Transformer],
        jit_compile: bool,
        workers: int,
        has_first: bool = False,
    ):
        self.models = models
        self.jit_compile = jit_compile
        if jit_compile:
            set_xla_flags()
        # Threads for the first run of each search that XLA compiles, see `CompiledSearch`.
        self.compilers = ThreadPoolExecutor(workers)
        self._held: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._recent = functools.lru_cache(self._NUM_KEPT)(self._held_or_new)
        # Partials, because TensorFlow counts the traces of a function over all objects: it would
        # warn about retracing after a few translators.
        self._score = {
            penalty: tf.function(
                functools.partial(_score, models, penalty),
                [_IDS, _IDS, tf.TensorSpec([], tf.float32), *[_NUMBER] * has_first],
                autograph=False,
            )
            for penalty in LENGTH_PENALTIES
        }

    def of(self, options: SearchOptions) -> "CompiledSearch":
        """The search of these options' structure.

        Raises:
            UserError: the search does not support an option.
        """
        if options.sample:
            options.expect_only(SAMPLING_OPTIONS, "sampling", "leave it out")
        else:
            options.expect_only(BEAM_SEARCH_OPTIONS, "beam search", "leave it out")
        with self._lock:
            return self._recent(options.structure())

    def _held_or_new(self, structure):
        compiled = self._held.get(structure)
        if compiled is None:
            compiled = self._held[structure] = CompiledSearch(self, structure)
        return compiled

    def score(
        self,
        options: SearchOptions,
        source_ids: tf.Tensor,
        target_ids: tf.Tensor,
        first_id: int | None = None,
    ):
        """Computes `search.score`; ids are int32 (batch, length)."""
        options.expect_only(SCORING_OPTIONS, "scoring", "leave it out")
        first = [] if first_id is None else [first_id]
        return self._score[options.length_penalty](source_ids, target_ids, options.alpha, *first)


class CompiledSearch:
    """A search of one structure.

    Args:
        searches: the searches that this one belongs to.
        structure: result of `SearchOptions.structure`.
    """

    def __init__(self, searches: CompiledSearches, structure: SearchOptions):
        self.jit_compile = searches.jit_compile
        self._compilers = searches.compilers
        self._have_run: set = set()
        specs = {
            name: tf.TensorSpec([], _dtype_of(value)) for name, value in numbers(structure).items()
        }
        self._signature = [specs, _NUMBER, _IDS, _NUMBER, _INDEX]
        self._structure, self._models = structure, searches.models
        self._functions: dict[tuple[str, ...], Callable] = {}

    def function(self, *names: str) -> Callable:
        """The function of the searches that require the fields of `Required` with these names."""
        if names in self._functions:
            return self._functions[names]

        def run(values, seed, source_ids, num_slots, sentence_ids, required, room=None):
            options = TracedOptions.of(self._structure, values, room)
            required = Required(**required)
            return search(
                self._models, source_ids, options, required, seed, num_slots, sentence_ids
            )

        # For XLA each shape is another program; TensorFlow's own function takes all shapes.
        # Autograph is off because it takes time and has nothing to convert.
        signature = [*self._signature, {name: _REQUIRED[name] for name in names}]
        function = tf.function(
            functools.partial(run),
            None if self.jit_compile else signature,
            jit_compile=self.jit_compile,
            autograph=False,
        )
        return self._functions.setdefault(names, function)  # another thread may have made it

    def __call__(
        self,
        options: SearchOptions,
        source_ids: tf.Tensor,
        num_slots: int,
        sentence_ids: tf.Tensor,
        seed: int | None = None,
        required: Required = Required(),
    ):
        """Computes `search.search`, with options of this structure.

        Args:
            options: options of the search.
            source_ids: int32 (batch, source_length).
            num_slots: number of batch slots.
            sentence_ids: int32 (batch,).
            seed: seed of sampling, which needs one.
            required: what the translations must contain, as tensors.
        """
        given = {name: x for name, x in required._asdict().items() if x is not None}
        function = self.function(*given)
        values = {
            name: tf.constant(value, _dtype_of(value)) for name, value in numbers(options).items()
        }
        arguments = [values, tf.constant(seed or 0), source_ids, num_slots, sentence_ids, given]
        if not self.jit_compile:
            return function(*arguments)
        room = rounded(options.longest(source_ids.shape[1]))
        return self._run_compiled(function, [*arguments, room])

    def _run_compiled(self, function, arguments):
        """Calls a search that XLA compiles; for the first time in a thread apart.

        The compiler leaves thousands of free blocks in its thread's part of the memory (glibc's
        arena). Each product of a search allocates memory, and would look through them. The thread
        lives as long as the searches, because glibc gives the arena of an ended thread to another.
        """
        # TensorFlow warns about retracing, but here each shape needs its own trace.
        function = function.get_concrete_function(*arguments)
        if function in self._have_run:
            return function(*arguments)
        results = self._compilers.submit(function, *arguments).result()
        self._have_run.add(function)
        return results


def _dtype_of(number):
    return tf.float32 if isinstance(number, float) else tf.int32


def rounded(length: int) -> int:
    """Rounds up a length for XLA: to 8, 16, 24, 32, 48, 64, 96, 128 and so on."""
    unit = max(8, (1 << length.bit_length()) // 4)
    return -(-length // unit) * unit


def _score(models, length_penalty, source_ids, target_ids, alpha, first_id=None):
    options = TracedOptions(alpha=alpha, length_penalty=length_penalty)
    return score(models, source_ids, target_ids, options, first_id)
