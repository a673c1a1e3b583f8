"""A run of OpenNMT-tf: a folder with a checkpoint of random weights, its files, and in NumPy.

The formulas and the names of weights are those of OpenNMT-tf 2.32; they share no code with the
package. `compare_opennmt.py` compares with OpenNMT-tf itself.
"""

import json
import math

import numpy as np
import tensorflow as tf
from marian_folder import SOURCE_TEXT, TARGET_TEXT, sentencepiece_model
from sentencepiece import SentencePieceProcessor

SPECIAL = ["<blank>", "<s>", "</s>"]
SOURCE_EMBEDDING = "examples_inputter/features_inputter/embedding"
TARGET_EMBEDDING = "examples_inputter/labels_inputter/embedding"
OUTPUT = "decoder/output_layer"

# What `Transformer` of OpenNMT-tf takes, in a small size; `share` is an EmbeddingsSharingLevel.
DEFAULTS = {
    "num_layers": (2, 2),
    "num_units": 16,
    "num_heads": 4,
    "ffn_inner_dim": 24,
    "ffn_activation": "tf.nn.relu",
    "mha_bias": True,
    "maximum_position": None,  # of a PositionEmbedder; None: sinusoids
    "share": "NONE",
    "pre_norm": True,
    "output_layer_bias": True,
    "source_end": False,  # in `source_sequence_controls`
}


def write_run(folder, seed=0, **options):
    """Writes the whole run; returns its `NumpyOpenNMT`."""
    options = {**DEFAULTS, **options}
    folder.mkdir(parents=True, exist_ok=True)
    share_inputs = options["share"] in ("SOURCE_TARGET_INPUT", "ALL")
    texts = [SOURCE_TEXT + TARGET_TEXT] * 2 if share_inputs else [SOURCE_TEXT, TARGET_TEXT]
    sizes = []
    for side, text in zip(("source", "target"), texts, strict=True):
        model = sentencepiece_model(text, 60)
        processor = SentencePieceProcessor(model_proto=model)
        pieces = [processor.id_to_piece(id_) for id_ in range(3, processor.vocab_size())]
        # In another order than the model's, and without some pieces.
        tokens = [*SPECIAL, *sorted(pieces)[2:]]
        (folder / f"{side}.model").write_bytes(model)
        (folder / f"{side}.vocab").write_text("".join(f"{token}\n" for token in tokens), "utf-8")
        sizes.append(len(tokens) + 1)
    write_config(folder, source_sequence_controls={"end": options["source_end"]})
    (folder / "model_description.py").write_text(
        "from opennmt import models\n"
        f"model = lambda: models.Transformer(num_heads={options['num_heads']}, "
        f"ffn_activation={options['ffn_activation']})\n"
    )
    weights = random_weights(options, *sizes, np.random.default_rng(seed))
    write_checkpoint(folder, weights)
    return NumpyOpenNMT(options, weights)


def write_config(folder, **data):
    """Writes `data.yml`; JSON is YAML too. A value of None leaves an entry out."""
    usual = {}
    for side in ("source", "target"):
        usual[f"{side}_vocabulary"] = f"{side}.vocab"
        usual[f"{side}_tokenization"] = {
            "type": "SentencePieceTokenizer",
            "params": {"model": f"{side}.model"},
        }
    found = {name: value for name, value in {**usual, **data}.items() if value is not None}
    (folder / "data.yml").write_text(json.dumps({"data": found}))


def random_weights(options, source_size, target_size, rng):
    d_model, weights = options["num_units"], {}

    def dense(name, inputs, outputs, bias=True):
        weights[f"{name}/kernel"] = rng.normal(scale=inputs**-0.5, size=(inputs, outputs))
        if bias:
            weights[f"{name}/bias"] = rng.normal(scale=0.2, size=outputs)

    def norm(name):
        weights[f"{name}/gamma"] = 1 + rng.normal(scale=0.2, size=d_model)
        weights[f"{name}/beta"] = rng.normal(scale=0.2, size=d_model)

    for side, layers in zip(("encoder", "decoder"), options["num_layers"], strict=True):
        attentions = ["self_attention", "attention/0"][: 1 + (side == "decoder")]
        for number in range(layers):
            layer = f"{side}/layers/{number}"
            for attention in attentions:
                for part in ("queries", "keys", "values", "output"):
                    name = f"{layer}/{attention}/layer/linear_{part}"
                    dense(name, d_model, d_model, options["mha_bias"])
            dense(f"{layer}/ffn/layer/inner", d_model, options["ffn_inner_dim"])
            dense(f"{layer}/ffn/layer/outer", options["ffn_inner_dim"], d_model)
            for wrapped in (*attentions, "ffn"):
                norm(f"{layer}/{wrapped}/{'input' if options['pre_norm'] else 'output'}_layer_norm")
        if options["pre_norm"]:
            norm(f"{side}/layer_norm")
        if options["maximum_position"]:
            shape = (options["maximum_position"] + 1, d_model)
            weights[f"{side}/position_encoder/position_embedding"] = rng.normal(size=shape)
    scale = d_model**-0.5
    weights[SOURCE_EMBEDDING] = rng.normal(scale=scale, size=(source_size, d_model))
    if options["share"] in ("NONE", "TARGET"):
        weights[TARGET_EMBEDDING] = rng.normal(scale=scale, size=(target_size, d_model))
    if options["share"] in ("NONE", "SOURCE_TARGET_INPUT"):
        weights[f"{OUTPUT}/kernel"] = rng.normal(scale=scale, size=(d_model, target_size))
    if options["output_layer_bias"]:
        weights[f"{OUTPUT}/bias"] = rng.normal(scale=0.2, size=target_size)
        weights[f"{OUTPUT}/bias"][:3] = -9, -9, 1.5  # so that translations end
    return {name: array.astype("float32") for name, array in weights.items()}


def write_checkpoint(folder, weights, number=5, root="model", positions=True):
    """Writes `ckpt-5` as OpenNMT-tf does: weights by their place in the model, and an optimizer."""
    model = tf.Module()
    names = [*weights]
    if positions and not any("position_encoder" in name for name in names):
        names += ["encoder/position_encoder", "decoder/position_encoder"]  # without a weight
    for name in names:
        *path, last = name.split("/")
        parent = model
        for part in path:
            if not hasattr(parent, part):
                setattr(parent, part, tf.Module())
            parent = getattr(parent, part)
        leaf = tf.Variable(weights[name]) if name in weights else tf.Module()
        setattr(parent, last, leaf)
    optimizer = tf.Module()
    optimizer.iter = tf.Variable(number, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(**{root: model, "optimizer": optimizer})
    tf.train.CheckpointManager(checkpoint, folder, max_to_keep=None).save(number)


class NumpyOpenNMT:
    """OpenNMT-tf's forward pass for one sentence pair, in float64, with ids of its own."""

    ACTIVATIONS = {  # noqa: RUF012 (a constant)
        "tf.nn.relu": lambda x: np.maximum(0, x),
        "tf.nn.gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
        "tf.nn.swish": lambda x: x / (1 + np.exp(-x)),
    }

    def __init__(self, options, weights):
        self.options, self.weights = options, weights
        self.exact = {name: array.astype("float64") for name, array in weights.items()}

    def logits(self, source_ids, target_ids):
        """Logits (target length, size); a target begins with 1, a source may end in 2."""
        source = self.exact[SOURCE_EMBEDDING]
        target = self.exact.get(TARGET_EMBEDDING, source)
        memory = self.embed("encoder", source[source_ids])
        for number in range(self.options["num_layers"][0]):
            memory = self.layer(f"encoder/layers/{number}", memory)
        memory = self.last_norm("encoder", memory)
        x = self.embed("decoder", target[target_ids])
        for number in range(self.options["num_layers"][1]):
            x = self.layer(f"decoder/layers/{number}", x, memory)
        kernel = self.exact.get(f"{OUTPUT}/kernel", target.T)
        return self.last_norm("decoder", x) @ kernel + self.exact.get(f"{OUTPUT}/bias", 0)

    def embed(self, side, x):
        length, d_model = x.shape
        positions = np.arange(1, length + 1)
        if maximum := self.options["maximum_position"]:
            table = self.exact[f"{side}/position_encoder/position_embedding"]
            return x * math.sqrt(d_model) + table[np.minimum(positions, maximum)]
        increment = math.log(10000) / (d_model / 2 - 1)
        angles = positions[:, None] * np.exp(-increment * np.arange(d_model // 2))
        encoding = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        return x * math.sqrt(d_model) + encoding

    def layer(self, name, x, memory=None):
        past = None if memory is None else np.tri(len(x), dtype=bool)
        x = self.wrapped(f"{name}/self_attention", x, lambda n, y: self.attention(n, y, y, past))
        if memory is not None:
            x = self.wrapped(f"{name}/attention/0", x, lambda n, y: self.attention(n, y, memory))
        return self.wrapped(f"{name}/ffn", x, self.ffn)

    def wrapped(self, name, x, layer):
        if self.options["pre_norm"]:
            return x + layer(f"{name}/layer", self.norm(f"{name}/input_layer_norm", x))
        return self.norm(f"{name}/output_layer_norm", x + layer(f"{name}/layer", x))

    def ffn(self, name, x):
        activation = self.ACTIVATIONS[self.options["ffn_activation"]]
        return self.dense(f"{name}/outer", activation(self.dense(f"{name}/inner", x)))

    def attention(self, name, x, attended, mask=None):
        queries, keys, values = (
            np.stack(np.split(self.dense(f"{name}/linear_{part}", y), self.options["num_heads"], 1))
            for part, y in (("queries", x), ("keys", attended), ("values", attended))
        )
        scores = queries / math.sqrt(queries.shape[-1]) @ keys.swapaxes(1, 2)
        if mask is not None:
            scores = np.where(mask, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        heads = weights / weights.sum(-1, keepdims=True) @ values
        return self.dense(f"{name}/linear_output", np.concatenate([*heads], axis=1))

    def dense(self, name, x):
        return x @ self.exact[f"{name}/kernel"] + self.exact.get(f"{name}/bias", 0)

    def norm(self, name, x):
        centred = x - x.mean(-1, keepdims=True)
        standard = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)
        return standard * self.exact[f"{name}/gamma"] + self.exact[f"{name}/beta"]

    def last_norm(self, side, x):
        return self.norm(f"{side}/layer_norm", x) if self.options["pre_norm"] else x
