"""A Marian model in the format of Hugging Face's Transformers, with random weights, and in NumPy.

It is written from the format's description, and shares no code with the package.
"""

import functools
import io
import json
import math
import pickle
import struct
import zipfile

import numpy as np
import sentencepiece

SOURCE_TEXT = [
    "A man rides a brown horse.",
    "Two women are riding horses along the river.",
    "The old man sees two birds in the garden.",
]
TARGET_TEXT = [
    "Un homme monte un cheval brun.",
    "Deux femmes montent à cheval le long de la rivière.",
    "Le vieil homme voit deux oiseaux dans le jardin.",
]


def sentencepiece_model(sentences, vocab_size):
    """A model like those of OPUS-MT: unigram pieces, without byte pieces."""
    return _sentencepiece_model(tuple(sentences), vocab_size)


@functools.cache
def _sentencepiece_model(sentences, vocab_size):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences * 20),
        model_writer=model,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def vocabulary_of(*models):
    """The pieces of both sides; the end and unknown symbols come first, padding last."""
    pieces = ["</s>", "<unk>", ">>fra<<", ">>ron<<"]
    for model in models:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces += [processor.id_to_piece(i) for i in range(3, processor.vocab_size())]
    pieces = [*dict.fromkeys(pieces), "<pad>"]
    return {piece: index for index, piece in enumerate(pieces)}


def configuration(vocab_size, **fields):
    """The content of `config.json`, as OPUS-MT writes it."""
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "activation_function": "swish",
        "add_bias_logits": False,
        "add_final_layer_norm": False,
        "bad_words_ids": [[vocab_size - 1]],
        "d_model": 32,
        "decoder_attention_heads": 4,
        "decoder_ffn_dim": 48,
        "decoder_layers": 2,
        "decoder_start_token_id": vocab_size - 1,
        "dropout": 0.1,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "encoder_layers": 2,
        "eos_token_id": 0,
        "max_position_embeddings": 512,
        "normalize_before": False,
        "normalize_embedding": False,
        "num_beams": 6,
        "pad_token_id": vocab_size - 1,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "vocab_size": vocab_size,
        **fields,
    }


def random_weights(config, seed=0):
    """Weights by the names that Transformers gives them; padding is embedded as zeros."""
    rng = np.random.default_rng(seed)
    d_model, d_ff = config["d_model"], config["encoder_ffn_dim"]
    weights = {}

    def linear(name, inputs, outputs):
        weights[f"{name}.weight"] = rng.normal(scale=inputs**-0.5, size=(outputs, inputs))
        weights[f"{name}.bias"] = rng.normal(scale=0.2, size=outputs)

    def norm(name):
        weights[f"{name}.weight"] = 1 + rng.normal(scale=0.2, size=d_model)
        weights[f"{name}.bias"] = rng.normal(scale=0.2, size=d_model)

    def embedding(name):
        weights[name] = rng.normal(scale=d_model**-0.5, size=(config["vocab_size"], d_model))
        weights[name][config["pad_token_id"]] = 0

    for side in ("encoder", "decoder"):
        for index in range(config[f"{side}_layers"]):
            layer = f"model.{side}.layers.{index}"
            for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
                for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{layer}.{attention}.{projection}", d_model, d_model)
                norm(f"{layer}.{attention}_layer_norm")
            linear(f"{layer}.fc1", d_model, d_ff)
            linear(f"{layer}.fc2", d_ff, d_model)
            norm(f"{layer}.final_layer_norm")
        weights[f"model.{side}.embed_positions.weight"] = sinusoids(
            config["max_position_embeddings"], d_model
        )
    if config.get("share_encoder_decoder_embeddings", True):
        embedding("model.shared.weight")
    else:
        embedding("model.encoder.embed_tokens.weight")
        embedding("model.decoder.embed_tokens.weight")
    if not config.get("tie_word_embeddings", True):
        embedding("lm_head.weight")
    weights["final_logits_bias"] = rng.normal(scale=0.2, size=(1, config["vocab_size"]))
    weights["final_logits_bias"][:, config["pad_token_id"]] = 0
    weights["final_logits_bias"][:, config["eos_token_id"]] = 2  # so that translations end
    return {name: array.astype("float32") for name, array in weights.items()}


def sinusoids(positions, d_model):
    """The table of positions: for each, all sines, then all cosines."""
    table = np.empty((positions, d_model))
    for position in range(positions):
        for i in range(d_model // 2):
            angle = position / 10000 ** (2 * i / d_model)
            table[position, i], table[position, d_model // 2 + i] = np.sin(angle), np.cos(angle)
    return table


def write_safetensors(path, arrays, dtype="F32"):
    """Writes arrays by the format's description."""
    header, content = {"__metadata__": {"format": "pt"}}, b""
    for name, array in arrays.items():
        if dtype == "BF16":  # cut, not rounded: the test reads what is here
            data = (array.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
        else:
            data = array.astype({"F32": "<f4", "F16": "<f2", "F64": "<f8"}[dtype]).tobytes()
        offsets = [len(content), len(content) + len(data)]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        content += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)


def write_folder(folder, seed=0, weights=None, **fields):
    """Writes a whole folder; returns its configuration and weights."""
    folder.mkdir(parents=True, exist_ok=True)
    source, target = sentencepiece_model(SOURCE_TEXT, 60), sentencepiece_model(TARGET_TEXT, 60)
    vocabulary = vocabulary_of(source, target)
    config = configuration(len(vocabulary), **fields)
    weights = random_weights(config, seed) if weights is None else weights
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", weights)
    return config, weights


class NumpyMarian:
    """Marian's forward pass for one sentence pair, in float64."""

    ACTIVATIONS = {  # noqa: RUF012 (a constant)
        "relu": lambda x: np.maximum(0, x),
        "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
        "swish": lambda x: x / (1 + np.exp(-x)),
        "silu": lambda x: x / (1 + np.exp(-x)),
    }

    def __init__(self, config, weights):
        self.config = config
        self.weights = {name: array.astype("float64") for name, array in weights.items()}

    def logits(self, source_ids, target_ids):
        if self.config.get("share_encoder_decoder_embeddings", True):
            source = target = self.weights["model.shared.weight"]
        else:
            source = self.weights["model.encoder.embed_tokens.weight"]
            target = self.weights["model.decoder.embed_tokens.weight"]
        output = target if self.config.get("tie_word_embeddings", True) else None
        output = self.weights["lm_head.weight"] if output is None else output
        memory = self.embed(source_ids, source)
        for index in range(self.config["encoder_layers"]):
            memory = self.layer(f"model.encoder.layers.{index}", memory)
        x = self.embed(target_ids, target)
        for index in range(self.config["decoder_layers"]):
            x = self.layer(f"model.decoder.layers.{index}", x, memory)
        return x @ output.T + self.weights.get("final_logits_bias", np.zeros((1, 1)))[0]

    def embed(self, ids, matrix):
        scale = math.sqrt(self.config["d_model"]) if self.config["scale_embedding"] else 1
        return matrix[ids] * scale + sinusoids(len(ids), self.config["d_model"])

    def layer(self, name, x, memory=None):
        attended = self.attention(f"{name}.self_attn", x, x, is_causal=memory is not None)
        x = self.norm(f"{name}.self_attn_layer_norm", x + attended)
        if memory is not None:
            attended = self.attention(f"{name}.encoder_attn", x, memory)
            x = self.norm(f"{name}.encoder_attn_layer_norm", x + attended)
        activation = self.ACTIVATIONS[self.config["activation_function"]]
        hidden = activation(self.linear(f"{name}.fc1", x))
        return self.norm(f"{name}.final_layer_norm", x + self.linear(f"{name}.fc2", hidden))

    def attention(self, name, x, attended, is_causal=False):
        heads = self.config["encoder_attention_heads"]
        q, k, v = (
            np.stack(np.split(self.linear(f"{name}.{p}_proj", y), heads, axis=-1))
            for p, y in (("q", x), ("k", attended), ("v", attended))
        )
        scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
        if is_causal:
            scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        context = weights / weights.sum(-1, keepdims=True) @ v
        return self.linear(f"{name}.out_proj", np.concatenate(list(context), axis=-1))

    def linear(self, name, x):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name, x):
        centred = x - x.mean(-1, keepdims=True)
        standard = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return standard * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]


def write_pytorch(path, arrays, archive):
    """Writes float32 arrays as PyTorch does, in an archive or, as before 1.6, in a stream."""

    def text(value):
        return b"X" + struct.pack("<I", len(value.encode())) + value.encode()

    def numbers(values):
        return b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"t"

    def tensor(key, array):
        view = b"" if archive else b"N"
        storage = text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu")
        storage = b"(" + storage + b"J" + struct.pack("<i", array.size) + view + b"tQ"
        strides = [by // 4 for by in array.strides]
        place = b"K\0" + numbers(array.shape) + numbers(strides)
        return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + place + b"\x89NtR"

    keyed = {
        str(key): np.ascontiguousarray(array, "<f4") for key, array in enumerate(arrays.values())
    }
    items = (text(name) + tensor(*one) for name, one in zip(arrays, keyed.items(), strict=True))
    pickled = b"\x80\x02}(" + b"".join(items) + b"u."
    if archive:
        with zipfile.ZipFile(path, "w") as written:
            written.writestr("archive/data.pkl", pickled)
            for key, array in keyed.items():
                written.writestr(f"archive/data/{key}", array.tobytes())
        return
    with open(path, "wb") as file:
        for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
            pickle.dump(value, file, protocol=2)
        file.write(pickled)
        pickle.dump([*keyed], file, protocol=2)
        for array in keyed.values():
            file.write(struct.pack("<q", array.size) + array.tobytes())
