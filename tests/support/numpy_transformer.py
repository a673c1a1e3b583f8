"""A second Transformer, in NumPy and float64, from the paper's formulas alone.

It reads a model's weights by path, and shares no code with the package. It computes one sentence
pair without padding: a batch is right if each of its rows is.
"""

import math

import numpy as np

ACTIVATIONS = {
    "relu": lambda x: np.maximum(0, x),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2,
    "swish": lambda x: x / (1 + np.exp(-x)),
}


def logits_of(model, source_ids, target_ids):
    """Logits (target_length, vocab_size) of one sentence pair; ids are one-dimensional."""
    weights = {w.path.split("/", 1)[1]: w.numpy().astype("float64") for w in model.weights}
    return NumpyTransformer(model.config, weights).logits(source_ids, target_ids)


class NumpyTransformer:
    def __init__(self, config, weights):
        self.config = config
        self.weights = weights

    def logits(self, source_ids, target_ids):
        source_matrix = self.weights["source_embedding/embeddings"]
        target_matrix = (
            source_matrix
            if self.config.share_embeddings
            else self.weights["target_embedding/embeddings"]
        )
        if not self.config.source_end:
            source_ids = source_ids[source_ids != self.config.end_id]
        memory = self.embed(source_ids, source_matrix, "source_positions")
        for i in range(self.config.num_encoder_layers):
            memory = self.encoder_layer(f"encoder/layer_{i}", memory)
        x = self.embed(target_ids, target_matrix, "target_positions")
        if self.config.pre_norm:
            memory = self.norm("encoder/norm", memory)
        for i in range(self.config.num_decoder_layers):
            x = self.decoder_layer(f"decoder/layer_{i}", x, memory)
        if self.config.pre_norm:
            x = self.norm("decoder/norm", x)
        if self.config.tie_output:
            owner = "source" if self.config.share_embeddings else "target"
            logits, bias = x @ target_matrix.T, f"{owner}_embedding/bias"
        else:
            logits, bias = x @ self.weights["output_projection/kernel"], "output_projection/bias"
        return logits + self.weights[bias] if self.config.output_bias else logits

    def embed(self, ids, matrix, positions):
        x = matrix[ids] * (np.sqrt(self.config.d_model) if self.config.scale_embeddings else 1)
        if self.config.positions == "learned":
            return x + self.weights[f"{positions}/table"][: len(ids)]
        if self.config.positions == "rotary":
            return x
        pairs = self.config.d_model // 2
        for position in range(len(ids)):
            for i in range(pairs):
                angle = position / 10000 ** (i / pairs)
                first = {"sinusoidal_opennmt": 1, "sinusoidal_fairseq": 2}
                if self.config.positions in first:
                    number = position + first[self.config.positions]
                    angle = number / 10000 ** (i / (pairs - 1))
                is_split = self.config.positions in ("sinusoidal_split", *first)
                sine, cosine = (i, pairs + i) if is_split else (2 * i, 2 * i + 1)
                x[position, sine] += np.sin(angle)
                x[position, cosine] += np.cos(angle)
        return x

    def encoder_layer(self, path, x):
        everything = np.ones((len(x), len(x)), bool)
        x = self.residual(
            f"{path}/self_attention",
            x,
            lambda y: self.attention(f"{path}/self_attention", y, y, everything),
        )
        return self.residual(
            f"{path}/feed_forward", x, lambda y: self.feed_forward(f"{path}/feed_forward", y)
        )

    def decoder_layer(self, path, x, memory):
        past = np.tril(np.ones((len(x), len(x)), bool))
        everything = np.ones((len(x), len(memory)), bool)
        x = self.residual(
            f"{path}/self_attention",
            x,
            lambda y: self.attention(f"{path}/self_attention", y, y, past),
        )
        x = self.residual(
            f"{path}/memory_attention",
            x,
            lambda y: self.attention(f"{path}/memory_attention", y, memory, everything),
        )
        return self.residual(
            f"{path}/feed_forward", x, lambda y: self.feed_forward(f"{path}/feed_forward", y)
        )

    def residual(self, path, x, sublayer):
        if self.config.pre_norm:
            return x + sublayer(self.norm(f"{path}_norm", x))
        return self.norm(f"{path}_norm", x + sublayer(x))

    def norm(self, path, x):
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        standard = (x - mean) / np.sqrt(variance + self.config.layer_norm_epsilon)
        return standard * self.weights[f"{path}/gamma"] + self.weights[f"{path}/beta"]

    def attention(self, path, x, attended, may_look):
        d_k, d_v = self.config.d_k, self.config.d_v
        heads = []
        for h in range(self.config.num_heads):
            queries = self.project(f"{path}/query", x)[:, h * d_k : (h + 1) * d_k]
            keys = self.project(f"{path}/key", attended)[:, h * d_k : (h + 1) * d_k]
            values = self.project(f"{path}/value", attended)[:, h * d_v : (h + 1) * d_v]
            is_rotary = self.config.positions in ("rotary", "sinusoidal_rotary")
            if is_rotary and path.endswith("self_attention"):
                queries, keys = rotated(queries), rotated(keys)
            scores = np.where(may_look, queries @ keys.T / np.sqrt(d_k), -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(weights / weights.sum(-1, keepdims=True) @ values)
        return self.project(f"{path}/output", np.concatenate(heads, -1))

    def project(self, path, x):
        projected = x @ self.weights[f"{path}/kernel"]
        return projected + self.weights[f"{path}/bias"] if self.config.attention_bias else projected

    def feed_forward(self, path, x):
        w = self.weights
        hidden = x @ w[f"{path}/hidden/kernel"] + w[f"{path}/hidden/bias"]
        return (
            ACTIVATIONS[self.config.activation](hidden) @ w[f"{path}/output/kernel"]
            + w[f"{path}/output/bias"]
        )


def rotated(x):
    """Rotates each pair of columns, as a complex number, by the angle of its row's position."""
    length, width = x.shape
    angles = np.arange(length)[:, None] / 10000 ** (2 * np.arange(width // 2) / width)
    turned = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * angles)
    return np.stack([turned.real, turned.imag], axis=-1).reshape(length, width)
