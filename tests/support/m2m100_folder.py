"""M2M100 and NLLB models in the format of Hugging Face's Transformers, random, and in NumPy.

They are written from the format's description, and share no code with the package. Transformers
5.23 gives the same ids, logits and translations for such folders (docs/published_models.md).
"""

import json
import math

import numpy as np
import sentencepiece
from marian_folder import (
    SOURCE_TEXT,
    TARGET_TEXT,
    NumpyMarian,
    random_weights,
    sentencepiece_model,
    write_safetensors,
)

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
NLLB_CODES = ["deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans", "zho_Hant"]
M2M100_CODES = 100


def configuration(vocab_size, **fields):
    """The content of `config.json`, as Transformers writes it."""
    return {
        "model_type": "m2m_100",
        "activation_function": "relu",
        "d_model": 32,
        "decoder_attention_heads": 4,
        "decoder_ffn_dim": 48,
        "decoder_layers": 2,
        "decoder_start_token_id": 2,
        "dropout": 0.1,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "encoder_layers": 2,
        "eos_token_id": 2,
        "max_position_embeddings": 1024,
        "pad_token_id": 1,
        "scale_embedding": True,
        "vocab_size": vocab_size,
        **fields,
    }


def weights_of(config, seed=0):
    """Random weights: as of Marian, with a norm after each stack, and no bias of logits."""
    weights = random_weights(config, seed)
    rng = np.random.default_rng(seed + 1)
    for side in ("encoder", "decoder"):
        del weights[f"model.{side}.embed_positions.weight"]
        for name, mean in (("weight", 1), ("bias", 0)):
            values = mean + rng.normal(scale=0.2, size=config["d_model"])
            weights[f"model.{side}.layer_norm.{name}"] = values.astype("float32")
    del weights["final_logits_bias"]
    return weights


def write_m2m100(folder, **fields):
    """Writes a folder of M2M100, and returns its configuration and weights."""
    model = sentencepiece_model([*SOURCE_TEXT, *TARGET_TEXT], 90)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(id_) for id_ in range(3, processor.vocab_size())]
    vocabulary = {piece: id_ for id_, piece in enumerate([*SPECIAL, *pieces[:-2]])}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    config = configuration(len(vocabulary) + M2M100_CODES + 8, **fields)
    return _write(folder, model, config)


def write_nllb(folder, **fields):
    """Writes a folder of NLLB, and returns its configuration and weights."""
    model = sentencepiece_model([*SOURCE_TEXT, *TARGET_TEXT], 90)
    size = sentencepiece.SentencePieceProcessor(model_proto=model).vocab_size() + 1
    folder.mkdir(parents=True, exist_ok=True)
    symbols = {"additional_special_tokens": NLLB_CODES, "mask_token": "<mask>"}
    (folder / "special_tokens_map.json").write_text(json.dumps(symbols))
    return _write(folder, model, configuration(size + len(NLLB_CODES) + 3, **fields))


def _write(folder, model, config):
    weights = weights_of(config)
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", weights)
    return config, weights


class NumpyM2M100(NumpyMarian):
    """The forward pass of M2M100 for one sentence pair, in float64."""

    def logits(self, source_ids, target_ids):
        matrix = self.weights["model.shared.weight"]
        memory = self.embed(source_ids, matrix)
        for index in range(self.config["encoder_layers"]):
            memory = self.layer(f"model.encoder.layers.{index}", memory)
        memory = self.norm("model.encoder.layer_norm", memory)
        x = self.embed(target_ids, matrix)
        for index in range(self.config["decoder_layers"]):
            x = self.layer(f"model.decoder.layers.{index}", x, memory)
        return self.norm("model.decoder.layer_norm", x) @ matrix.T

    def embed(self, ids, matrix):
        half = self.config["d_model"] // 2
        x = matrix[ids] * math.sqrt(self.config["d_model"])
        for position in range(len(ids)):
            for i in range(half):
                angle = (position + 2) / 10000 ** (i / (half - 1))
                x[position, i] += math.sin(angle)
                x[position, half + i] += math.cos(angle)
        return x

    def layer(self, name, x, memory=None):
        normal = self.norm(f"{name}.self_attn_layer_norm", x)
        x = x + self.attention(f"{name}.self_attn", normal, normal, is_causal=memory is not None)
        if memory is not None:
            normal = self.norm(f"{name}.encoder_attn_layer_norm", x)
            x = x + self.attention(f"{name}.encoder_attn", normal, memory)
        hidden = self.linear(f"{name}.fc1", self.norm(f"{name}.final_layer_norm", x))
        return x + self.linear(f"{name}.fc2", np.maximum(0, hidden))
