"""From sentence pairs to batches of ids (section 5.1): tokenise, filter, shuffle, bucket, pad."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from keras_transformer.data.sources import SentencePairs, TextPairs
from keras_transformer.errors import UserError
from keras_transformer.tokenizers import PAD_ID, Tokenizer

_BLOCK = 1024  # sentences tokenised at once: the cost of one call is spread over many


def translation_dataset(
    source: str | os.PathLike | Sequence[str | os.PathLike],
    target: str | os.PathLike | Sequence[str | os.PathLike],
    tokenizer: Tokenizer,
    **options,
) -> tf.data.Dataset:
    """Batches of two parallel text files, ready for `model.fit`.

    Args:
        source, target: UTF-8 text files, plain or `.gz`, or lists of them; line n of one side
            translates line n of the other.
        tokenizer: the vocabulary of both sides.
        **options: those of `pair_batches`.

    Returns:
        The batches of `pair_batches`.

    Raises:
        UserError: files cannot be read or do not match line by line, or an option is wrong.

    Example:
        >>> dataset = translation_dataset("train.en", "train.de", tokenizer, tokens_per_batch=4096)
        >>> model.fit(dataset, epochs=10)
    """
    pairs = TextPairs(source, target)
    pairs.check()
    return pair_batches(pairs, tokenizer, **options)


def pair_batches(
    pairs: SentencePairs,
    tokenizer: Tokenizer,
    tokens_per_batch: int = 4096,
    max_length: int = 256,
    shuffle_buffer: int = 1_000_000,
    seed: int = 0,
    repeat: bool = False,
    drop_remainder: bool = False,
    batch_multiple: int = 1,
    bpe_dropout: float = 0.0,
) -> tf.data.Dataset:
    """Batches of pairs of similar length, about as many tokens in each (section 5.1).

    A pair goes to the bucket of its longer side, end symbol included, and a batch holds
    `tokens_per_batch // boundary` pairs of one bucket, both sides padded to its boundary: there is
    one shape a bucket, so a compiled model compiles once for each of `bucket_boundaries`. Pairs
    with an empty side, or one longer than `max_length`, are left out as pairs; `count_pairs` counts
    them. The order differs from epoch to epoch; it follows from `seed`, and from TensorFlow's
    global seed where one is set.

    Args:
        pairs: where the sentences come from.
        tokenizer: the vocabulary of both sides.
        tokens_per_batch: source tokens, and target tokens, of a batch at most, padding included;
            exceeded only where fewer than `batch_multiple` pairs would fit.
        max_length: of a side in tokens, end symbol included.
        shuffle_buffer: pairs of text held in memory to draw from (about 0.5 KB each); 0 keeps the
            order of `pairs`.
        seed: of the order.
        repeat: go on for ever, so that each batch is full; at least one pair must be kept.
        drop_remainder: at the end of a single pass, leave out what does not fill a batch.
        batch_multiple: full batches hold a multiple of this number of pairs: that of replicas.
        bpe_dropout: see `Tokenizer.tokenize`.

    Returns:
        A dataset of `({"source_ids", "target_ids"}, labels)`, each int32 `(batch, length)`:
        `source_ids` and `labels` end in the end symbol, `target_ids` begins with the start symbol.

    Raises:
        UserError: `max_length` has no room for a token.
    """
    boundaries = bucket_boundaries(max_length)
    batch_sizes = tf.constant(
        [max(1, tokens_per_batch // b // batch_multiple) * batch_multiple for b in boundaries],
        tf.int64,
    )
    boundaries = tf.constant(boundaries, tf.int64)

    def finish(source, target):
        lengths = source.row_lengths() + 1, target.row_lengths() + 1
        longest = tf.maximum(*lengths)
        keep = (tf.minimum(*lengths) > 1) & (longest <= max_length)
        end = tf.fill([tf.math.count_nonzero(keep), 1], tokenizer.end_id)
        source, labels = (
            tf.concat([tf.ragged.boolean_mask(side, keep), end], axis=1)
            for side in (source, target)
        )
        bucket = tf.searchsorted(boundaries, longest[keep], out_type=tf.int64)
        return bucket, source, labels

    def pad(bucket, source, labels):
        shape = tf.stack([source.nrows(), boundaries[bucket[0]]])
        source, labels = (
            side.to_tensor(tokenizer.pad_id, shape=shape) for side in (source, labels)
        )
        # The decoder reads the labels one step late: the start symbol first, the end never.
        shifted = tf.where(labels == tokenizer.end_id, tokenizer.pad_id, labels)[:, :-1]
        target = tf.pad(shifted, [[0, 0], [1, 0]], constant_values=tokenizer.start_id)
        return {"source_ids": source, "target_ids": target}, labels

    tokenizer.tokenize([""], bpe_dropout)  # refuses at once what it would refuse in the graph
    lines = pairs.dataset()
    if shuffle_buffer:
        lines = lines.shuffle(shuffle_buffer, seed=seed)
    if repeat:
        lines = lines.repeat()
    return (
        _token_blocks(lines, tokenizer, bpe_dropout)
        .map(finish, num_parallel_calls=tf.data.AUTOTUNE)
        .unbatch()
        .group_by_window(
            lambda bucket, source, labels: bucket,
            lambda bucket, window: window.batch(batch_sizes[bucket], drop_remainder),
            window_size_func=lambda bucket: batch_sizes[bucket],
        )
        .map(pad, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


def bucket_boundaries(max_length: int, first: int = 8, growth: float = 1.1) -> list[int]:
    """The lengths that batches are padded to: each `growth` times the last, up to `max_length`.

    Example:
        >>> bucket_boundaries(16)
        [8, 9, 10, 11, 12, 13, 14, 15, 16]
    """
    if max_length < 2:
        raise UserError(f"expected max_length of at least 2 tokens, found {max_length}")
    boundaries = []
    length = first
    while length < max_length:
        boundaries.append(length)
        length = max(length + 1, int(length * growth))
    return [*boundaries, max_length]


@dataclass(frozen=True)
class PairCounts:
    """What `pair_batches` keeps of a source, and what it leaves out.

    Attributes:
        kept: pairs.
        empty: pairs left out since a side has no token.
        too_long: pairs left out since a side is longer than `max_length`.
        source_tokens, target_tokens: tokens of the pairs kept, end symbols included.
    """

    kept: int
    empty: int
    too_long: int
    source_tokens: int
    target_tokens: int


def count_pairs(pairs: SentencePairs, tokenizer: Tokenizer, max_length: int = 256) -> PairCounts:
    """Counts, in one pass over `pairs`, what `pair_batches` keeps and leaves out."""

    def add(counts, block):
        source, target = (side.row_lengths() + 1 for side in block)
        empty = tf.minimum(source, target) == 1
        too_long = ~empty & (tf.maximum(source, target) > max_length)
        kept = ~(empty | too_long)
        sums = (kept, empty, too_long, tf.where(kept, source, 0), tf.where(kept, target, 0))
        return counts + tf.stack([tf.reduce_sum(tf.cast(s, tf.int64)) for s in sums])

    blocks = _token_blocks(pairs.dataset(), tokenizer)
    counts = blocks.reduce(tf.zeros(5, tf.int64), add)
    return PairCounts(*counts.numpy().tolist())


def padding_share(batches: tf.data.Dataset, pad_id: int = PAD_ID) -> float:
    """The share of padding in the source and target ids of finite `batches`, from 0 to 1."""

    def add(counts, batch):
        inputs, _ = batch
        sides = inputs["source_ids"], inputs["target_ids"]
        padding = sum(tf.math.count_nonzero(side == pad_id) for side in sides)
        return counts + tf.stack([padding, sum(tf.size(side, tf.int64) for side in sides)])

    padding, total = batches.reduce(tf.zeros(2, tf.int64), add)
    return float(padding / total)


def _token_blocks(lines, tokenizer, bpe_dropout=0.0):
    """Blocks of pairs of ragged ids."""
    return lines.batch(_BLOCK).map(
        lambda source, target: (
            tokenizer.tokenize(source, bpe_dropout),
            tokenizer.tokenize_target(target, bpe_dropout),
        ),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
