"""The Transformer once more, in NumPy and float64, from the paper's formulas alone.

It reads a model's weights by path and shares no code with the package. It is written for one
sentence pair without padding: a batch is right if each of its rows is.
"""

import numpy as np


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
            return x @ target_matrix.T
        return x @ self.weights["output_projection/kernel"]

    def embed(self, ids, matrix, positions):
        x = matrix[ids] * np.sqrt(self.config.d_model)
        if self.config.learned_positions:
            return x + self.weights[f"{positions}/table"][: len(ids)]
        for position in range(len(ids)):
            for j in range(self.config.d_model):
                angle = position / 10000 ** (2 * (j // 2) / self.config.d_model)
                x[position, j] += np.cos(angle) if j % 2 else np.sin(angle)
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
            queries = x @ self.weights[f"{path}/query/kernel"][:, h * d_k : (h + 1) * d_k]
            keys = attended @ self.weights[f"{path}/key/kernel"][:, h * d_k : (h + 1) * d_k]
            values = attended @ self.weights[f"{path}/value/kernel"][:, h * d_v : (h + 1) * d_v]
            scores = np.where(may_look, queries @ keys.T / np.sqrt(d_k), -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(weights / weights.sum(-1, keepdims=True) @ values)
        return np.concatenate(heads, -1) @ self.weights[f"{path}/output/kernel"]

    def feed_forward(self, path, x):
        w = self.weights
        hidden = np.maximum(0, x @ w[f"{path}/hidden/kernel"] + w[f"{path}/hidden/bias"])
        return hidden @ w[f"{path}/output/kernel"] + w[f"{path}/output/bias"]
