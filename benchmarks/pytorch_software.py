"""Trains PyTorch's own Transformer on software texts, to compare it with `keras-transformer train`.

  pip install torch==2.13.0    # in an environment that has this package
  python benchmarks/pytorch_software.py --corpus=software --minutes=60 --output=runs/pytorch
  keras-transformer evaluate --model_dir=runs/pytorch --source=software/test.en \\
      --reference=software/test.de

The model has the layers and the width of the preset `compact`, and sees the same batches. The loop
is what a PyTorch user would write: Adam with a linear warm-up, the inverse square root of the step,
and a rate that falls to zero over the last fifth of the time; matrix products in bfloat16, by
autocast. `torch.compile` made a step slower. The trained weights are copied into our model, whose
logits must be those of PyTorch, so that the same search translates with both.
"""

import math
import os
import time

import numpy as np
import torch
from absl import app, flags
from torch import nn

import keras_transformer as kt

flags.DEFINE_string("corpus", "software", "folder that benchmarks/software_corpus.py has made")
flags.DEFINE_string("target_lang", "de", "target language of the corpus")
flags.DEFINE_string("output", None, "model_dir of the copied model", required=True)
flags.DEFINE_float("minutes", 60, "minutes of the whole run")
flags.DEFINE_integer("seed", 1, "seed of the weights, the dropout and the batches")
flags.DEFINE_float("learning_rate", 0.0035, "peak of the learning rate")
flags.DEFINE_integer("warmup_steps", 1000, "updates until the peak")
flags.DEFINE_float("dropout", 0.05, "dropout of PyTorch's layers and of the embeddings")
flags.DEFINE_bool("bfloat16", True, "matrix products in bfloat16, by autocast")
FLAGS = flags.FLAGS

MAX_LENGTH = 256


class PyTorchTransformer(nn.Module):
    """An encoder-decoder model of PyTorch's layers, with the sizes of `config`."""

    def __init__(self, config, dropout):
        super().__init__()
        self.scale = math.sqrt(config.d_model)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.register_buffer("positions", sinusoids(MAX_LENGTH, config.d_model))
        self.dropout = nn.Dropout(dropout)
        options = {
            "d_model": config.d_model,
            "nhead": config.num_heads,
            "dim_feedforward": config.d_ff,
            "dropout": dropout,
            "batch_first": True,
            "norm_first": True,
        }
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**options),
            config.num_encoder_layers,
            norm=nn.LayerNorm(config.d_model),
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(**options),
            config.num_decoder_layers,
            norm=nn.LayerNorm(config.d_model),
        )
        for weight in [*self.encoder.parameters(), *self.decoder.parameters()]:
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)

    def embed(self, ids):
        return self.dropout(self.embedding(ids) * self.scale + self.positions[: ids.shape[1]])

    def forward(self, source, target):
        padding = torch.zeros(source.shape).masked_fill(source == 0, -math.inf)
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        memory = self.encoder(self.embed(source), src_key_padding_mask=padding)
        hidden = self.decoder(
            self.embed(target),
            memory,
            tgt_mask=causal,
            tgt_is_causal=True,
            memory_key_padding_mask=padding,
        )
        return nn.functional.linear(hidden, self.embedding.weight)


def sinusoids(length, width):
    """Positions (length, width): sines, then cosines."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def main(_):
    start = time.monotonic()
    end = start + 60 * FLAGS.minutes
    model_dir = kt.ModelDir(FLAGS.output)
    model_dir.check_new()
    torch.manual_seed(FLAGS.seed)
    torch.set_num_threads(os.cpu_count() or 1)
    source, target = (f"{FLAGS.corpus}/train.{lang}" for lang in ("en", FLAGS.target_lang))
    vocab_size = kt.PRESETS["compact"].model["vocab_size"]
    tokenizer = kt.SubwordTokenizer.train([source, target], vocab_size=vocab_size)
    config = kt.TransformerConfig.from_preset(
        "compact",
        vocab_size=tokenizer.vocab_size,
        positions="sinusoidal_split",
        attention_bias=True,
        layer_norm_epsilon=1e-5,
    )
    model = PyTorchTransformer(config, FLAGS.dropout)
    batches = kt.data.translation_dataset(
        source, target, tokenizer, tokens_per_batch=4096, max_length=MAX_LENGTH, seed=FLAGS.seed
    )
    train(model, batches, start, end)
    copied = kt.Transformer(config)
    copied.set_weights(weights_of(model))
    print(f"largest difference of the logits: {difference(model, copied, batches):.2g}")
    model_dir.create_trained(copied, tokenizer, FLAGS.target_lang, "pytorch_software.py", "en")


def train(model, batches, start, end):
    """Trains until `end`, a time of `time.monotonic`."""
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
    loss_of = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
    step = 0
    while True:
        for inputs, labels in batches.as_numpy_iterator():
            step += 1
            left = (end - time.monotonic()) / (end - start)
            if left <= 0:
                return
            peak = FLAGS.learning_rate * min(1, 5 * left)
            warm = FLAGS.warmup_steps
            adam.param_groups[0]["lr"] = peak * min(step / warm, math.sqrt(warm / step))
            source, target, labels = tensors(inputs["source_ids"], inputs["target_ids"], labels)
            adam.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=FLAGS.bfloat16):
                logits = model(source, target)
                loss = loss_of(logits.flatten(0, 1), labels.flatten())
            loss.backward()
            adam.step()
            if step % 100 == 0:
                minutes = (time.monotonic() - start) / 60
                print(f"step {step}, {minutes:.1f} min, loss {loss.item():.3f}", flush=True)


def tensors(*arrays):
    return [torch.from_numpy(ids.astype("int64")) for ids in arrays]


def weights_of(model):
    """The weights in the order of `kt.Transformer`'s."""

    def attention(part):
        biases = part.in_proj_bias.chunk(3)
        for weight, bias in zip(part.in_proj_weight.chunk(3), biases, strict=True):
            yield from (weight.T, bias)
        yield from (part.out_proj.weight.T, part.out_proj.bias)

    def norm(part):
        yield from (part.weight, part.bias)

    def feed_forward(layer):
        for part in (layer.linear1, layer.linear2):
            yield from (part.weight.T, part.bias)

    def ordered():
        yield model.embedding.weight
        for layer in model.encoder.layers:
            yield from (*attention(layer.self_attn), *norm(layer.norm1))
            yield from (*feed_forward(layer), *norm(layer.norm2))
        yield from norm(model.encoder.norm)
        for layer in model.decoder.layers:
            yield from (*attention(layer.self_attn), *norm(layer.norm1))
            yield from (*attention(layer.multihead_attn), *norm(layer.norm2))
            yield from (*feed_forward(layer), *norm(layer.norm3))
        yield from norm(model.decoder.norm)

    return [weight.detach().numpy() for weight in ordered()]


def difference(model, copied, batches):
    """The largest difference of the logits of both models, for a batch."""
    inputs, labels = next(batches.as_numpy_iterator())
    source, target = tensors(inputs["source_ids"], inputs["target_ids"])
    model.eval()
    with torch.no_grad():
        theirs = model(source, target).numpy()
    ours = np.array(copied(inputs, training=False))
    largest = np.abs(theirs - ours)[labels != 0].max()
    if largest > 1e-2:
        raise SystemExit(f"the copy has other logits: largest difference {largest:.2g}")
    return largest


if __name__ == "__main__":
    app.run(main)
