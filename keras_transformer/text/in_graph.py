"""Functions of text for tensors, with operations of TensorFlow alone."""

import tensorflow as tf

from keras_transformer.text import plain_text as python


def plain_text(texts: tf.Tensor) -> tf.Tensor:
    """Replaces control characters by spaces and removes invisible ones, as in `plain_text.py`.

    Bytes that are not UTF-8 become U+FFFD, the same number as in Python.
    """
    decoded = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    separated = tf.strings.regex_replace(decoded, python.SEPARATORS, " ")
    visible = tf.strings.regex_replace(separated, python.INVISIBLE, "")
    return tf.strings.regex_replace(visible, r"^\p{Z}+|\p{Z}+$", "")


def with_final_sigmas(texts: tf.Tensor) -> tf.Tensor:
    """Replaces each capital sigma that ends a word by U+03C2, as in `plain_text.py`."""
    return tf.strings.regex_replace(texts, python.final_sigma_pattern(), python.FINAL_SIGMA)


def with_single_spaces(texts: tf.Tensor) -> tf.Tensor:
    """Makes texts plain, with one space between words: `" ".join(plain_text(text).split())`."""
    return tf.strings.regex_replace(plain_text(texts), r"\p{Z}+", " ")


def one_line(texts: tf.Tensor) -> tf.Tensor:
    """Makes one line of text of what a model said, as in `translation.py`."""
    whole = tf.strings.regex_replace(texts, r"\x{FFFD}+$", "")
    return tf.strings.regex_replace(plain_text(whole), " +", " ")


def lower(texts: tf.Tensor) -> tf.Tensor:
    """Lower-cases texts in the same way in every locale.

    In Turkish, `tf.strings.lower` makes "I" a dotless letter, and in Lithuanian it adds dots.
    """
    for letter in "IİJĮÌÍĨ":
        texts = tf.strings.regex_replace(texts, letter, letter.lower())
    return tf.strings.lower(texts, "utf-8")
