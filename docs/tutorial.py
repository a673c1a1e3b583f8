# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Tutorial: from the paper's equations to a translator
#
# This notebook puts each equation of ["Attention Is All You Need"](https://arxiv.org/abs/1706.03762)
# beside the code that computes it, and checks that code against the layers of `keras_transformer`.
# Then it stacks the layers, trains them with `model.fit`, looks at what the model attends to,
# follows a beam search step by step, and saves and exports the result.
#
# You need to know Keras and the paper. The notebook downloads nothing and needs no GPU: on two CPU
# cores it runs in about three minutes. `docs/tutorial.py` is the same as a plain Python script,
# which needs the package alone: `python docs/tutorial.py`.

# %%
import dataclasses
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from keras import ops

import keras_transformer as kt
from keras_transformer.layers.attention import scaled_dot_product_attention
from keras_transformer.report import pair_attention
from keras_transformer.text import END_ID, PAD_ID, START_ID

keras.utils.set_random_seed(1)
plt.rcParams.update({"figure.figsize": (6.4, 3.2), "figure.dpi": 80})
tf.get_logger().setLevel("ERROR")


def check(ours, theirs):
    """Two ways to compute something must agree."""
    ours, theirs = ops.convert_to_numpy(ours), ops.convert_to_numpy(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


# %% [markdown]
# ## Sentences become ids
#
# The package has a built-in corpus: a grammar generates English sentences with their German
# translations. The corpus is simple, but word-by-word translation would fail: German verbs move to
# the second or the last place, and articles and adjectives agree in case and gender.

# %%
pairs = list(kt.data.BuiltinPairs("train", num_pairs=40_000))
for english, german in pairs[:3]:
    print(english, german, sep="\n", end="\n\n")

# %% [markdown]
# Both languages share one vocabulary of subwords (section 5.1). A frequent word is one subword, and
# a rare word is several. `▁` marks the beginning of a word.

# %%
sentences = [sentence for pair in pairs[:10_000] for sentence in pair]
tokenizer = kt.SubwordTokenizer.train_from_sentences(sentences, vocab_size=1000)

english, german = pairs[0]
for sentence in (english, german):
    print(*(tokenizer.pieces[id_] for id_ in tokenizer(sentence).numpy()))

# %% [markdown]
# The model reads two sequences: the source, and the target shifted right by one position, which
# begins with the start symbol. It predicts the labels: the target, which ends with the end symbol.
# Short sentences are padded on the right.
#
# To save time, this notebook keeps only sentences of fewer than 16 subwords, and pads all of them
# to 16. For text files with sentences of any length, `kt.data.translation_dataset` puts sentences
# of similar length into one batch.

# %%
LENGTH = 16


def arrays(pairs, count):
    """Inputs and labels of the first `count` pairs that are short enough."""
    source, target = (tokenizer(list(side)).to_list() for side in zip(*pairs, strict=True))
    short = [both for both in zip(source, target, strict=True) if max(map(len, both)) < LENGTH]
    assert len(short) >= count
    source, target = zip(*short[:count], strict=True)

    def padded(rows):
        return keras.utils.pad_sequences(rows, LENGTH, padding="post", value=PAD_ID)

    inputs = {
        "source_ids": padded([[*ids, END_ID] for ids in source]),
        "target_ids": padded([[START_ID, *ids] for ids in target]),
    }
    return inputs, padded([[*ids, END_ID] for ids in target])


inputs, labels = arrays(pairs, 6400)
validation = arrays(list(kt.data.BuiltinPairs("validation", 2000)), 256)
print(inputs["source_ids"][0], inputs["target_ids"][0], labels[0], sep="\n")

# %% [markdown]
# ## Embeddings and positions (sections 3.4 and 3.5)
#
# An id becomes a row of the embedding matrix $E$, multiplied by $\sqrt{d_{\text{model}}}$:
#
# $$x_{pos} = \sqrt{d_{\text{model}}} \; E_{id_{pos}}$$

# %%
d_model = 64
embedding = kt.layers.TokenEmbedding(tokenizer.vocab_size, d_model)
ids = inputs["source_ids"][:2]
embedded = embedding(ids)

by_hand = np.sqrt(d_model) * ops.convert_to_numpy(embedding.weights[0])[ids]
check(by_hand, embedded)

# %% [markdown]
# Attention by itself ignores the order of tokens. So a vector that depends on the position is added
# to each embedding:
#
# $$PE_{(pos,\,2i)} = \sin\left(pos / 10000^{2i/d_{\text{model}}}\right) \qquad
# PE_{(pos,\,2i+1)} = \cos\left(pos / 10000^{2i/d_{\text{model}}}\right)$$

# %%
position = np.arange(100)[:, None]
angle = position / 10000 ** (np.arange(0, d_model, 2) / d_model)  # (position, d_model / 2)
encoding = np.empty((100, d_model))
encoding[:, 0::2] = np.sin(angle)
encoding[:, 1::2] = np.cos(angle)

check(encoding, kt.layers.PositionalEncoding(d_model)(np.zeros((1, 100, d_model)))[0])

# %% [markdown]
# Each pair of dimensions rotates at its own speed, from one turn in six positions to one turn in
# tens of thousands. The dot products show that neighbouring positions have similar encodings,
# wherever they are.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
left.imshow(encoding, cmap="RdBu", aspect="auto")
left.set(title="Positional encoding", xlabel="dimension", ylabel="position")
right.imshow(encoding @ encoding.T, cmap="RdBu", vmin=-32, vmax=32)
right.set(title="Dot product of two positions", xlabel="position", ylabel="position")
plt.show()

# %% [markdown]
# ## Attention (section 3.2.1)
#
# Each query is compared with all keys. The softmax turns the results into weights, and the output
# is the weighted mean of the values:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V$$


# %%
def attention(queries, keys, values, mask=True):
    """Equation 1. Queries, keys and values are (..., length, width)."""
    scores = queries @ np.swapaxes(keys, -1, -2) / np.sqrt(keys.shape[-1])
    weights = np.exp(np.where(mask, scores, -np.inf))
    weights = weights / weights.sum(axis=-1, keepdims=True)  # softmax: each row sums to one
    return weights @ values, weights


rng = np.random.default_rng(0)
q, k, v = rng.normal(size=(3, 1, 1, 8, 16)).astype("float32")  # (batch, heads, length, width) each
output, _ = attention(q, k, v)
check(output, scaled_dot_product_attention(q, k, v))

# %% [markdown]
# A mask removes keys before the softmax. The decoder's causal mask (section 3.2.3) hides all later
# positions. So all positions can train at the same time, and none sees its own label.

# %%
causal = np.tri(8, dtype=bool)  # (query, key), true where key <= query
output, weights = attention(q, k, v, causal)
check(output, scaled_dot_product_attention(q, k, v, kt.layers.causal_mask(8)))

figure, axes = plt.subplots(figsize=(3.4, 2.8), layout="constrained")
image = axes.imshow(weights[0, 0], cmap="Blues")
axes.set(title="Attention weights, causal", xlabel="key", ylabel="query")
figure.colorbar(image)
plt.show()

# %% [markdown]
# ## Several heads (section 3.2.2)
#
# Each head has its own projection matrices, so different heads can attend to different tokens:
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(head_1, \ldots, head_h)\, W^O \qquad
# head_i = \mathrm{Attention}(Q W_i^Q, K W_i^K, V W_i^V)$$
#
# The layer stores the matrices of all heads side by side, so one product computes all heads.

# %%
num_heads = 4
layer = kt.layers.MultiHeadAttention(d_model, num_heads)
x = rng.normal(size=(2, 8, d_model)).astype("float32")
expected = layer(x, x)  # self-attention: queries, keys and values of the same tokens

heads = []
for i in range(num_heads):
    columns = slice(i * layer.d_k, (i + 1) * layer.d_k)  # of head i
    w_q, w_k, w_v = (
        dense.kernel.numpy()[:, columns] for dense in (layer.query, layer.key, layer.value)
    )
    heads.append(attention(x @ w_q, x @ w_k, x @ w_v)[0])
check(np.concatenate(heads, axis=-1) @ layer.output_projection.kernel.numpy(), expected)

# %% [markdown]
# ## The feed-forward network (section 3.3)
#
# After attention, the same two-layer network transforms each position separately:
#
# $$\mathrm{FFN}(x) = \max(0,\, x W_1 + b_1)\, W_2 + b_2$$

# %%
network = kt.layers.FeedForward(d_model, d_ff=256)
expected = network(x)

w_1, b_1, w_2, b_2 = (weight.numpy() for weight in network.weights)
check(np.maximum(0, x @ w_1 + b_1) @ w_2 + b_2, expected)

# %% [markdown]
# ## The model (section 3.1)
#
# A `Transformer` is made of these layers. The preset `demo` is small: two encoder layers and two
# decoder layers, width 128, four heads. One matrix serves as both embeddings and, transposed, as
# the output projection.

# %%
config = kt.TransformerConfig.from_preset("demo", vocab_size=tokenizer.vocab_size)
model = kt.Transformer(config)
logits = model({name: rows[:2] for name, rows in inputs.items()})

print("logits", tuple(logits.shape))
print(f"{model.count_params():,} parameters")

# %% [markdown]
# A residual connection surrounds each sub-layer, and layer normalisation follows it:
#
# $$\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))$$
#
# These lines are the whole encoder. Its output is called the memory:

# %%
mask = kt.layers.padding_mask(ids)  # true at real tokens
x = model.source_embedding(ids)
x = model.source_positions(x)
for layer in model.encoder.layers:
    x = layer.self_attention_norm(x + layer.self_attention(x, attention_mask=mask))
    x = layer.feed_forward_norm(x + layer.feed_forward(x))

memory, _ = model.encode(ids)
check(x, memory)

# %% [markdown]
# Padding changes nothing: with five more columns of padding, the memory of all real tokens is the
# same.

# %%
longer, _ = model.encode(np.pad(ids, ((0, 0), (0, 5))))
real = ids != PAD_ID
check(longer[:, :LENGTH][real], memory[real])

# %% [markdown]
# A decoder layer has a third sub-layer, cross-attention: its queries come from the target, its keys
# and values from the memory. The decoder's self-attention is causal. The transposed embedding
# matrix computes the logits.

# %%
target_ids = inputs["target_ids"][:2]
x = model.target_positions(model.target_embedding(target_ids))
for layer in model.decoder.layers:
    x = layer.self_attention_norm(x + layer.self_attention(x))
    x = layer.memory_attention_norm(x + layer.memory_attention(x, memory, attention_mask=mask))
    x = layer.feed_forward_norm(x + layer.feed_forward(x))

check(ops.matmul(x, ops.transpose(model.target_embedding.weights[0])), logits)

# %% [markdown]
# ## The learning rate (section 5.3)
#
# The rate rises linearly for `warmup_steps` updates, and then falls with the inverse square root of
# the step:
#
# $$lrate = d_{\text{model}}^{-0.5} \cdot
# \min\left(step^{-0.5},\; step \cdot warmup\_steps^{-1.5}\right)$$
#
# Keras passes the number of updates already made, which starts at 0. The paper's step starts at 1.

# %%
step = np.arange(1, 20_001)
rate = 512**-0.5 * np.minimum(step**-0.5, step * 4000**-1.5)
check(rate, kt.InverseSquareRootSchedule(d_model=512, warmup_steps=4000)(step - 1))

# %% [markdown]
# Our run is short, so its warm-up is short too. `with_peak` keeps the form of the curve and sets
# its maximum.

# %%
EPOCHS, BATCH = 8, 128
schedule = kt.InverseSquareRootSchedule.with_peak(0.005, config.d_model, warmup_steps=200)

step = np.arange(EPOCHS * len(labels) // BATCH)
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.6), layout="constrained")
left.plot(np.arange(1, 20_001), rate)
left.set(title="The paper's base model", xlabel="step", ylabel="learning rate")
right.plot(step + 1, schedule(step))
right.set(title="This notebook", xlabel="step")
plt.show()

# %% [markdown]
# ## The loss (section 5.4)
#
# Label smoothing takes a share $\epsilon = 0.1$ of the probability from the correct token $y$, and
# spreads it evenly over the other $V - 1$ tokens:
#
# $$L = -\sum_{k=1}^{V} q_k \log p_k \qquad
# q_k = \begin{cases} 1 - \epsilon & k = y \\ \epsilon / (V - 1) & k \neq y \end{cases}$$
#
# The loss is the mean over real tokens: padding does not count.

# %%
vocab_size, epsilon = 8, 0.1
some_labels = np.array([[5, 3, END_ID, PAD_ID]])
some_logits = rng.normal(size=(1, 4, vocab_size)).astype("float32")

q = np.full((1, 4, vocab_size), epsilon / (vocab_size - 1))
np.put_along_axis(q, some_labels[..., None], 1 - epsilon, axis=-1)
losses = -np.sum(q * ops.log_softmax(some_logits).numpy(), axis=-1)  # (1, 4)
check(losses[0, :3].mean(), kt.LabelSmoothedCrossEntropy(epsilon)(some_labels, some_logits))

# %% [markdown]
# ## One step of training (section 5.3)
#
# A step computes the loss of a batch and its gradients, and Adam, the paper's optimizer, updates
# the weights.


# %%
def new_model():
    """A model in its first state: the same weights and the same dropout at each call."""
    keras.utils.set_random_seed(2)
    return kt.Transformer(config)


def new_optimizer(learning_rate):
    return keras.optimizers.Adam(learning_rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9)


ours, loss_function = new_model(), kt.LabelSmoothedCrossEntropy(config.label_smoothing)
optimizer = new_optimizer(0.001)
optimizer.build(ours.trainable_variables)


@tf.function
def train_step(inputs, labels):
    with tf.GradientTape() as tape:
        logits = ours(inputs, training=True)
        loss = loss_function(labels, logits)
    gradients = tape.gradient(loss, ours.trainable_variables)
    optimizer.apply(gradients, ours.trainable_variables)
    return loss


# %% [markdown]
# Keras's own steps are the same: after three of them, all weights are equal. The command
# `keras-transformer train` takes its steps in `training/step.py`, which can also compute a batch in
# parts, add R-Drop, keep a moving average of the weights, and skip updates that are not finite.

# %%
theirs = new_model()
theirs.compile(new_optimizer(0.001), loss_function, jit_compile=False)
for first in range(0, 96, 32):
    rows = slice(first, first + 32)
    batch = {name: ids[rows] for name, ids in inputs.items()}, labels[rows]
    check(train_step(*batch), theirs.train_on_batch(*batch))
for our_weight, their_weight in zip(ours.weights, theirs.weights, strict=True):
    check(our_weight, their_weight)

# %% [markdown]
# ## Training
#
# A `Transformer` is a Keras model, so it trains with `fit`. With `jit_compile=False`, XLA does not
# compile the whole step: compilation takes time, and it pays off on a GPU. For long runs use the
# command `keras-transformer train`, which also writes checkpoints, resumes, and uses all devices.

# %%
model.compile(
    optimizer=new_optimizer(schedule),
    loss=loss_function,
    metrics=[kt.Perplexity(), kt.TokenAccuracy()],
    jit_compile=False,
)
history = model.fit(inputs, labels, BATCH, EPOCHS, validation_data=validation, verbose=0).history

for epoch, (perplexity, accuracy) in enumerate(
    zip(history["val_perplexity"], history["val_token_accuracy"], strict=True), start=1
):
    print(f"epoch {epoch}: validation perplexity {perplexity:6.2f}, accuracy {accuracy:.1%}")

# %% [markdown]
# The model has not seen the validation sentences. Its perplexity on them is still lower than on the
# training set, because dropout is off in validation, and because the training perplexity is the
# mean over the epoch.

# %%
figure, axes = plt.subplots(layout="constrained")
for name in ("perplexity", "val_perplexity"):
    axes.plot(range(1, EPOCHS + 1), history[name], marker="o", label=name)
axes.set(xlabel="epoch", ylabel="perplexity", yscale="log")
axes.legend(frameon=False)
axes.grid(alpha=0.3)
plt.show()

# %% [markdown]
# ## Translating
#
# A `Translator` takes strings and returns strings. It tokenises, searches with the beam search of
# section 6.1, and detokenises. The test sentences are new to the model.

# %%
paper = kt.search.SearchOptions(beam_size=4, alpha=0.6, length_penalty="gnmt", patience=None)
translator = kt.Translator(model, tokenizer, paper)
test = [
    (english, german)
    for english, german in kt.data.BuiltinPairs("test", 1600)
    if max(len(tokenizer(english)), len(tokenizer(german))) < LENGTH
][:200]
sources, references = zip(*test, strict=True)
translations = translator(sources)

for source, translation in zip(sources[:5], translations, strict=False):
    print(source, translation, sep="\n", end="\n\n")

# %%
bleu = kt.evaluation.translation_scores(translations, references)["bleu"].value
exact = np.mean([t == r for t, r in zip(translations, references, strict=True)])
print(f"{bleu:.1f} BLEU; {exact:.0%} of {len(references)} sentences equal their reference")

# %% [markdown]
# ## What the model attends to
#
# Cross-attention relates the two languages.

# %%
source = "Last week, the clever teacher did not repair our car."
[translation] = translator([source])
print(translation)

# %% [markdown]
# Each row is a German subword at the moment it is predicted, and each column an English subword.
# The weights are the mean over the heads of the last layer.

# %%
maps = pair_attention(model, tokenizer, source, translation)
kt.report.heat_figure(maps["memory"], layer=1)

# %% [markdown]
# Different heads attend to different tokens. These are the four heads of the encoder's last layer,
# from each English subword (row) to all subwords (columns):

# %%
words = maps["encoder"].keys
figure, axes = plt.subplots(1, 4, figsize=(9, 3), sharey=True, layout="constrained")
for head, plot in enumerate(axes):
    plot.imshow(maps["encoder"].weights[1, head], cmap="Blues", vmin=0)
    plot.set_title(f"head {head + 1}", fontsize=10)
    plot.set_xticks(range(len(words)), words, rotation=90, fontsize=7)
    plot.set_yticks(range(len(words)), words, fontsize=7)
plt.show()

# %% [markdown]
# ## Beam search, step by step (section 6.1)
#
# Beam search looks for the translation $Y$ with the highest score. A longer translation has a lower
# probability, so a length penalty keeps the search from preferring short translations:
#
# $$s(Y) = \frac{\log P(Y \mid X)}{lp(Y)} \qquad lp(Y) = \left(\frac{5 + |Y|}{6}\right)^{\alpha}$$
#
# Each step extends every live hypothesis by every symbol, and keeps the best candidates. Those with
# the end symbol are finished; the others stay live. The search stops once no live hypothesis can
# still win.

# %%
BEAM, ALPHA, EXTRA = 3, 0.6, 50
source_ids = np.array([[*tokenizer("Will the clever teacher get up?").numpy(), END_ID]])
limit = source_ids.shape[1] + EXTRA


def penalty(length):
    return ((5 + length) / 6) ** ALPHA


def next_log_probs(hypotheses):
    """Log-probabilities of the symbol that follows each hypothesis, (hypotheses, vocab_size)."""
    sources = np.repeat(source_ids, len(hypotheses), axis=0)
    logits = model({"source_ids": sources, "target_ids": np.array(hypotheses)})
    return ops.log_softmax(logits[:, -1]).numpy()


def text(ids):
    return " ".join(tokenizer.pieces[id_] for id_ in ids[1:])


# %%
live, finished = [([START_ID], 0.0)], []  # hypotheses, and their log-probabilities
for length in range(1, limit + 1):
    log_probs = next_log_probs([ids for ids, _ in live])
    log_probs[:, PAD_ID] = -np.inf  # no hypothesis contains padding
    candidates = [
        ([*ids, symbol], total + row[symbol])
        for (ids, total), row in zip(live, log_probs, strict=True)
        for symbol in np.argsort(-row)[: 2 * BEAM].tolist()
    ]
    candidates = sorted(candidates, key=lambda candidate: -candidate[1])[: 2 * BEAM]
    finished += [
        (ids, total / penalty(length)) for ids, total in candidates[:BEAM] if ids[-1] == END_ID
    ]
    live = [candidate for candidate in candidates if candidate[0][-1] != END_ID][:BEAM]

    print(f"step {length}")
    for ids, total in live:
        print(f"  {total:7.2f}  {text(ids)}")
    best = max(finished, key=lambda hypothesis: hypothesis[1], default=(None, -np.inf))
    if best[1] >= live[0][1] / penalty(limit):  # no live hypothesis can become better
        break

# %%
for ids, score in sorted(finished, key=lambda hypothesis: -hypothesis[1]):
    print(f"{score:7.3f}  {text(ids)}")

# %% [markdown]
# The search of the package finds the same translation. It caches the keys and values of earlier
# positions instead of computing them again, and it searches many sentences at the same time.

# %%
options = dataclasses.replace(paper, beam_size=BEAM, alpha=ALPHA, extra_length=EXTRA)
found = kt.search.search(model, source_ids, options)

best_ids, best_score = best
assert found.ids[0, 0].numpy()[: len(best_ids) - 1].tolist() == best_ids[1:]
check(found.scores[0, 0], best_score)

# %% [markdown]
# ## Saving
#
# `model.save` works as for any Keras model, and the vocabulary is one file beside it. A program
# that only loads a model imports `keras_transformer.saving` first, so that Keras knows its classes.

# %%
folder = Path(tempfile.mkdtemp())
model.save(folder / "model.keras")
tokenizer.save(folder / "vocabulary.model")

loaded = kt.Translator(
    keras.saving.load_model(folder / "model.keras"),
    kt.SubwordTokenizer.load(folder / "vocabulary.model"),
    paper,
)
assert loaded(sources[:8]) == translations[:8]

# %% [markdown]
# A model_dir holds both. The commands take a model_dir: `keras-transformer translate
# --model_dir=en-de`, or `evaluate`, `serve`, `visualize` and `export`.

# %%
model_dir = kt.ModelDir(folder / "en-de")
model_dir.create_trained(model, tokenizer, target_lang="de", command="docs/tutorial.py")
print(*sorted(path.name for path in model_dir.path.iterdir()))

# %% [markdown]
# ## Exporting
#
# An export is a SavedModel of the whole translator: tokenizer, model, search and detokenizer in one
# graph. TensorFlow Serving finds the newest version in a folder and calls its signatures. Here we
# call one ourselves:

# %%
version = translator.export(folder / "served")
served = tf.saved_model.load(str(version))  # needs only TensorFlow and TensorFlow Text
answer = served.signatures["serving_default"](text=tf.constant(sources[:3]))

for translation, score in zip(answer["translation"].numpy(), answer["score"].numpy(), strict=True):
    print(f"{score:6.3f}  {translation.decode()}")
assert [text.decode() for text in answer["translation"].numpy()] == translations[:3]

# %% [markdown]
# ## Where to go from here
#
# - [Your own text files](own_files.md): train a translator with one command.
# - [The paper](paper.md), section by section, with the command for each of its results.
# - [The layers in your own Keras model](keras.md): classifiers and language models.
# - [Serving](serving.md) the translator over HTTP.
# - `examples/` in the repository: fine-tuning, a constraint on the search, back-translation.
