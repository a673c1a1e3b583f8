"""Times the training of PyTorch's own Transformer layers, as `benchmarks/train.py` times ours.

  python benchmarks/gpu/pytorch_training.py --size=base --batch=390x64

bfloat16 by autocast, `torch.compile`, scaled_dot_product_attention (flash attention on GPUs) and
fused Adam. Prints JSON: target tokens per second, and milliseconds a step.
"""

import argparse
import json
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {  # width, inner width, heads, layers, dropout, vocabulary
    "tiny": (128, 256, 4, 4, 0.3, 10_000),
    "base": (512, 2048, 8, 6, 0.1, 32_000),
    "big": (1024, 4096, 16, 6, 0.3, 32_000),
}
SMOOTHING = 0.1


class Transformer(nn.Module):
    """The paper's model: post-norm, sinusoidal positions, one matrix of embeddings for all."""

    def __init__(self, width, inner, heads, layers, dropout, vocabulary):
        super().__init__()
        options = dict(
            d_model=width, nhead=heads, dim_feedforward=inner, dropout=dropout, batch_first=True
        )
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**options), layers)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), layers)
        self.dropout, self.scale = nn.Dropout(dropout), math.sqrt(width)
        rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
        angles = torch.arange(512)[:, None] * rates
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], dim=-1))

    def embed(self, ids):
        return self.dropout(self.embedding(ids) * self.scale + self.positions[: ids.shape[1]])

    def forward(self, source, target, later):
        memory = self.encoder(self.embed(source))
        states = self.decoder(self.embed(target), memory, tgt_mask=later, tgt_is_causal=True)
        return F.linear(states, self.embedding.weight)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base", choices=SIZES)
    parser.add_argument("--batch", default="390x64", help="rows x length")
    parser.add_argument("--seconds", type=float, default=4, help="minimum of the timed window")
    options = parser.parse_args()
    rows, length = map(int, options.batch.split("x"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Transformer(*SIZES[options.size]).to(device)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    vocabulary = SIZES[options.size][-1]
    source, labels = torch.randint(4, vocabulary, (2, rows, length), device=device)
    target = torch.cat([torch.ones_like(labels[:, :1]), labels[:, :-1]], dim=1)
    later = nn.Transformer.generate_square_subsequent_mask(length, device=device)

    @torch.compile
    def loss_of():
        with torch.autocast(device, torch.bfloat16):
            logits = model(source, target, later)
            return F.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), label_smoothing=SMOOTHING
            )

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return float(loss)  # waits for the device, as our steps do

    for _ in range(3):
        step()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < options.seconds or count < 3:
        step()
        count += 1
    seconds = time.perf_counter() - start
    print(
        json.dumps(
            {"tokens/s": rows * length * count / seconds, "ms a step": 1000 * seconds / count}
        )
    )


if __name__ == "__main__":
    main()
