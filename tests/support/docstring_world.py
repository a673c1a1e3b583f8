"""The names and files that examples in docstrings use: a small corpus, treebank and models."""

import functools
import re
import shutil
from pathlib import Path

import keras
import m2m100_folder
import marian_folder
import numpy as np
import opennmt_run
import tensorflow as tf
from helpers import randomise

import keras_transformer as kt
from keras_transformer.data import Batches, BuiltinPairs, Corpus
from keras_transformer.parsing import ParsingOptions, ParsingTokenizer, TreebankPairs
from keras_transformer.report.word_attention import pair_attention
from keras_transformer.search.steps import TransformerSteps
from keras_transformer.training import TrainableTransformer
from keras_transformer.training.log import TrainingLog

# Later ones win: the function `search` of the package `search`.
PACKAGES = [kt, kt.ctranslate2, kt.data, kt.evaluation, kt.layers, kt.parsing]
PACKAGES += [kt.report, kt.search, kt.text, kt.training]
NUM_PAIRS = 200
TREES = [
    "(S (NP (NNS Dogs)) (VP (VBP bark)) (. .))",
    "(S (NP (DT The) (NN cat)) (VP (VBZ sees) (NP (NNS dogs))) (. .))",
    "(S (NP (NNS Cats)) (VP (VBP sleep) (PP (IN in) (NP (DT the) (NN sun)))) (. .))",
]


class World:
    """The same names and files for each example, made only once.

    Args:
        folder: folder of the files; examples work in copies of it.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.pairs = BuiltinPairs("train", NUM_PAIRS)
        sides = zip(*self.pairs, strict=True)
        files = [folder / "train.en", folder / "train.de"]
        for file, sentences in zip(files, sides, strict=True):
            file.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
        self.tokenizer = kt.SubwordTokenizer.train(files, vocab_size=340)
        self.corpus = Corpus.build(self.pairs, self.tokenizer)
        self.config = self._config_of(self.tokenizer)
        self._save(self._new_model(self.config), self.tokenizer, "runs/demo", "de")
        log = TrainingLog(folder / "runs/demo/logs")
        log.figures(100, "train", {"loss": 6.5, "perplexity": 665.1})
        log.figures(100, "validation", {"loss": 6.1, "perplexity": 445.9, "BLEU": 1.5})

        (folder / "train.mrg").write_text("\n".join(TREES) + "\n")
        trees = TreebankPairs([folder / "train.mrg"], ParsingOptions())
        tokenizer = ParsingTokenizer.learn(trees.pairs(), vocab_size=100)
        parser = self._new_model(self._config_of(tokenizer))
        self._save(parser, tokenizer, "runs/parser", None)

        marian_folder.write_folder(folder / "opus-mt-en-fr", encoder_layers=1, decoder_layers=1)
        _, tokenizer = kt.import_marian(folder / "opus-mt-en-fr")
        (folder / "runs/en-fr").mkdir()
        tokenizer.save(folder / "runs/en-fr/vocabulary.zip")
        opennmt_run.write_run(folder / "run", num_layers=(1, 1))
        _, tokenizer = kt.import_opennmt(folder / "run", folder / "run/data.yml")
        tokenizer.save(folder / "runs/en-fr/vocabulary.opennmt.zip")
        layers = dict(encoder_layers=1, decoder_layers=1)
        m2m100_folder.write_nllb(folder / "nllb-200-distilled-600M", **layers)
        self._save(*kt.import_m2m100(folder / "nllb-200-distilled-600M"), "runs/nllb", None)

    def files_in(self, folder: Path) -> Path:
        """Copies the files to a folder."""
        return Path(shutil.copytree(self.folder, folder))

    def names(self, source: str) -> dict:
        """The names that an example may use; some are made only if its source names them."""
        made = {
            "batches": lambda: Batches(self.corpus),
            "model": lambda: self._new_model(self.config),
            "translator": lambda: self._translator,
        }
        return {
            **{name: getattr(package, name) for package in PACKAGES for name in package.__all__},
            "Path": Path,
            "TransformerSteps": TransformerSteps,
            "config": self.config,
            "corpus": self.corpus,
            "keras": keras,
            "kt": kt,
            "np": np,
            "pair_attention": pair_attention,
            "pairs": self.pairs,
            "strategy": tf.distribute.get_strategy(),
            "tf": tf,
            "tokenizer": self.tokenizer,
            **{name: make() for name, make in made.items() if re.search(rf"\b{name}\b", source)},
        }

    @functools.cached_property
    def _translator(self):
        """One for all examples: its graphs take longer than what they compute."""
        return kt.Translator(
            self._new_model(self.config), self.tokenizer, beam_size=2, max_length=8
        )

    def _new_model(self, config):
        model = TrainableTransformer(config)
        # Tracing takes longer than the few steps of the examples.
        model.compile(keras.optimizers.Adam(1e-3), run_eagerly=True)
        randomise(model)
        return model

    def _config_of(self, tokenizer):
        return kt.TransformerConfig(
            vocab_size=tokenizer.vocab_size,
            d_model=16,
            d_ff=24,
            num_heads=4,
            num_encoder_layers=1,
            num_decoder_layers=1,
        )

    def _save(self, model, tokenizer, name, target_lang):
        kt.ModelDir(self.folder / name).create_trained(model, tokenizer, target_lang, "train")
