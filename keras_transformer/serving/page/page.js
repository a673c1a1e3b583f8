"use strict";
// The page of the server: what is typed is translated as typing stops, by one model or by two.

const TYPING_MS = 300, POINTING_MS = 100;
const AT_ONCE = 16, MOST = 200;  // lines in a request, and in the page
// Those of the source's direction, which a translation does not have: INVISIBLE of plain_text.py.
const DIRECTION_MARKS = /[\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]/g;
const MOST_WORDS = 400;  // of a sentence whose attention can be shown
const DOWN_SECONDS = 3;  // until a server that does not answer is asked again
const NO_HYPOTHESIS = -1e9;
const OPTIONS = [
  ["beam_size", "Beam size", "Live beams for each sentence; 1 is greedy decoding"],
  ["n_best", "N-best", "How many to return for each sentence, at most the beam size"],
  ["alpha", "Length penalty", "Exponent of the length penalty; 0 ranks by probability alone"],
  ["min_length", "Minimum length", "Least tokens of a translation"],
  ["max_length", "Maximum length", "Most tokens of a translation"],
  ["extra_length", "Extra length", "Most tokens beyond those of the source"],
  ["no_repeat_ngram", "No repeated n-gram", "Tokens in a row that may not occur twice; 0: any"],
];

const $ = (selector) => document.querySelector(selector);
let models = [], panels = [], rows = [];

// Asking the server.

class Failure extends Error {
  // `retry`: seconds after which it is worth to ask again, or null; `isRefusal`: of what was asked.
  constructor(message, { retry = null, isRefusal = false } = {}) {
    super(message);
    Object.assign(this, { retry, isRefusal });
  }
}

async function ask(path, body = null, signal = null) {
  const headers = {};
  const key = sessionStorage.getItem("key");
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers["Content-Type"] = "application/json";
  const method = body ? "POST" : "GET";
  let response, answer;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal });
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (!response || response.ok) {
      throw new Failure("The server does not answer. Trying again …", { retry: DOWN_SECONDS });
    }
  }
  const { status } = response;
  $("#key").hidden = status !== 401;
  if (response.ok) return answer;
  if (status === 401) {
    throw new Failure(key ? "The server does not know this API key."
                          : "This server asks for an API key.");
  }
  if (status === 429 || status === 503) {
    const retry = Number(response.headers.get("Retry-After")) || 1;
    const why = status === 503 ? "The model is being loaded" : "The server is busy";
    throw new Failure(`${why}. Trying again …`, { retry });
  }
  throw new Failure(answer?.error ?? `The server answered with status ${status}.`,
    { isRefusal: status === 400 || status === 413 });
}

// A panel: a model, the options of its search, and what it answered.

class Panel {
  constructor(model) {
    this.answers = new Map();  // by line
    this.element = make($("#panels"), "section", { class: "panel" });
    this.choose(model);
  }

  choose(model) {
    this.model = model;
    this.changed = {};  // options that differ from the model's own
    this.isSplit = model.task === "translation";  // into sentences, each line
    this.languages = firstLanguages(model);  // of a model for several, those chosen
    this.element.setAttribute("aria-label", model.name);
    this.showHead();
    this.forget();
  }

  showHead() {
    const { model, element } = this;
    element.replaceChildren();
    const bar = make(element, "div", { class: "bar" });
    const title = make(bar, "div");
    if (models.length > 1) {
      const select = make(title, "select", { class: "name", "aria-label": "Model" });
      for (const { name } of models) make(select, "option", { value: name }, name);
      select.value = model.name;
      select.addEventListener("change", () => {
        this.choose(models.find(({ name }) => name === select.value));
        element.querySelector("select").focus();
        translate();
      });
    } else {
      make(title, "span", { class: "name" }, model.name);
    }
    make(title, "span", { class: "about" }, about(model));
    if (model.languages) this.showLanguages(make(title, "div"));
    const buttons = make(bar, "div");
    const options = make(buttons, "button", { type: "button", "aria-expanded": false }, "Options");
    const copyText = make(buttons, "button", { type: "button" }, "Copy text");
    copyText.addEventListener("click", () => this.copy("copied text", this.text()));
    const copyCurl = make(buttons, "button", { type: "button" }, "Copy as curl");
    copyCurl.addEventListener("click", () => this.copy("curl command", this.curl()));
    const fields = this.showOptions();
    options.addEventListener("click", () => {
      fields.hidden = !fields.hidden;
      options.setAttribute("aria-expanded", !fields.hidden);
    });
    this.failure = make(element, "p", { class: "failure", role: "alert", hidden: "" });
  }

  showOptions() {
    const fields = make(this.element, "fieldset",
      { class: "options", "aria-label": "Options", hidden: "" });
    const defaults = this.model.options;
    fields.disabled = defaults === null;
    if (fields.disabled) make(fields, "p", {}, "Fixed when this model was exported.");
    for (const [name, title, help] of OPTIONS) {
      const label = make(fields, "label", { title: help }, title);
      const step = name === "alpha" ? 0.1 : 1;
      const input = make(label, "input",
        { type: "number", name, min: 0, step, placeholder: "–" });
      input.value = defaults?.[name] ?? "";
      input.addEventListener("input", () => {
        const value = input.value === "" ? defaults[name] : Number(input.value);
        if (value === defaults[name]) delete this.changed[name];
        else this.changed[name] = value;
        this.forget();
        soon(translate);
      });
    }
    if (this.isSplit) this.showSplit(fields);
    return fields;
  }

  showSplit(fields) {
    const title = "Translate each sentence of a line on its own; otherwise a line is a sentence";
    const label = make(fields, "label", { class: "check", title });
    const box = make(label, "input", { type: "checkbox", name: "split" });
    label.append("Split lines into sentences");
    box.checked = true;
    box.addEventListener("change", () => {
      this.isSplit = box.checked;
      this.forget();
      soon(translate);
    });
  }

  showLanguages(place) {
    for (const [name, title] of [["source_lang", "From"], ["target_lang", "To"]]) {
      if (!(name in this.languages)) continue;
      const select = make(make(place, "label", {}, `${title} `), "select", { name });
      for (const code of this.model.languages.codes) make(select, "option", { value: code }, code);
      select.value = this.languages[name];
      select.addEventListener("change", () => {
        this.languages[name] = select.value;
        this.forget();
        translate();
      });
    }
  }

  close() {
    this.asking?.abort();
    clearTimeout(this.again);
    this.element.remove();
  }

  // What was answered is out of date.
  forget() {
    this.answers.clear();
    for (const row of rows) row.show(this);
  }

  request(lines) {
    const options = Object.keys(this.changed).length ? { options: this.changed } : {};
    const split = this.isSplit ? { split: "sentences" } : {};
    return [pathOf(this.model, "translate"),
      { text: lines, ...this.languages, ...split, ...options }];
  }

  // Asks for lines that it has no answer to; what was being asked is given up.
  async translate(lines) {
    this.asking?.abort();
    clearTimeout(this.again);
    const asking = this.asking = new AbortController();
    const wanted = new Set(lines);
    for (const known of this.answers.keys()) if (!wanted.has(known)) this.answers.delete(known);
    const missing = [...wanted].filter((line) => !this.answers.has(line));
    this.element.classList.toggle("busy", missing.length > 0);
    let failure = null;
    try {
      while (missing.length) {
        await this.answer(missing.splice(0, AT_ONCE), asking.signal);
        for (const row of rows) row.show(this);
      }
    } catch (error) {
      failure = error;
    }
    if (asking.signal.aborted) return;
    this.element.classList.remove("busy");
    this.fail(failure);
    if (failure?.retry) {
      this.again = setTimeout(() => this.translate(lines), 1000 * failure.retry);
    }
    tell();
  }

  // Where the server refuses several lines, it is asked for each alone: most are answered then,
  // and a refusal is the answer to the others.
  async answer(some, signal) {
    try {
      const { translations, sources } = await ask(...this.request(some), signal);
      some.forEach((line, i) => this.answers.set(line,
        translations[i].map((one) => ({ ...one, source: sources?.[i] }))));
    } catch (error) {
      if (!error.isRefusal) throw error;
      if (some.length === 1) {
        error.message = error.message.replace(/ at index \d+$/, "");  // it stands below its line
        this.answers.set(some[0], error);
      } else for (const line of some) await this.answer([line], signal);
    }
  }

  fail(failure) {
    this.failure.hidden = failure === null;
    this.failure.textContent = failure?.message ?? "";
  }

  // The best translation of the whole text, with its blank lines and indentation.
  text() {
    const best = (line) => this.answers.get(line)?.[0]?.text ?? line;
    return textLines().map((line) => line.replace(line.trim(), best)).join("\n");
  }

  // The request that translates what is in the page, for a shell.
  curl() {
    const [path, body] = this.request(wantedLines());
    return [
      `curl ${quoted(new URL(path, location.href).href)}`,
      ...(sessionStorage.getItem("key") ? [`-H "Authorization: Bearer $API_KEY"`] : []),
      `-H 'Content-Type: application/json'`,
      `-d ${quoted(JSON.stringify(body))}`,
    ].join(" \\\n  ");
  }

  async copy(name, text) {
    this.element.querySelector(".copied")?.remove();
    const shown = make(this.element, "textarea",
      { class: "copied", readonly: "", rows: 4, wrap: "off", "aria-label": name });
    shown.value = text;
    shown.select();
    shown.addEventListener("keydown", ({ key }) => { if (key === "Escape") shown.remove(); });
    // Only a page of this machine or of https may write to the clipboard.
    const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    say(isCopied ? "Copied." : "Press Ctrl+C to copy.");
  }
}

const pathOf = ({ name }, verb) => `api/models/${encodeURIComponent(name)}:${verb}`;
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// The languages to begin with: from English if there is a choice, into another one.
function firstLanguages({ languages }) {
  if (!languages) return {};
  const { codes, has_source: hasSource } = languages;
  const english = codes.find((code) => /^en(g_Latn)?$/.test(code));
  const source = english ?? codes[0];
  const target = codes.find((code) => code !== source) ?? codes[0];
  return hasSource ? { source_lang: source, target_lang: target } : { target_lang: codes[0] };
}

const about = ({ engine, versions }) => `${engine} · version ${versions.join(", ")}`;

// A row: a line, and below it a cell for each panel.

class Row {
  constructor() {
    this.element = document.createElement("li");
    this.source = make(this.element, "p", { class: "source", dir: "auto" });
    this.cells = make(this.element, "div", { class: "cells" });
    this.ofPanel = new Map();
  }

  set(line) {
    if (line === this.line) return;
    this.line = line;
    this.source.replaceChildren();
    this.words = showWords(this.source, line);
  }

  // The word at a position of the line.
  wordAt(position) {
    return this.words.findLast(({ start }) => start <= position)?.element;
  }

  arrange() {
    this.ofPanel = new Map(panels.map((panel) => [panel,
      this.ofPanel.get(panel) ?? make(this.cells, "div", { class: "cell", role: "group" })]));
    this.cells.replaceChildren(...this.ofPanel.values());
    for (const panel of panels) this.show(panel);
  }

  // Shows a panel's answer; until there is one the last one stays, pale.
  show(panel) {
    const cell = this.ofPanel.get(panel);
    if (!cell) return;
    const answer = panel.answers.get(this.line);
    cell.setAttribute("aria-label", panel.model.name);
    cell.classList.toggle("stale", !answer);
    if (!answer || cell.answer === answer) return;
    cell.answer = answer;
    cell.replaceChildren();
    if (answer instanceof Failure) {
      make(cell, "p", { class: "failure", role: "alert" }, answer.message);
      return;
    }
    const list = make(cell, "ol");
    for (const translation of answer) new Hypothesis(list, this, panel, translation);
  }
}

// Adds a text, of which each word is an element of its own, but for a text so long that nobody
// points at its words. Returns the words and where they start in the text.
function showWords(parent, text) {
  const found = [...text.matchAll(/\S+/g)];
  if (found.length > MOST_WORDS) {
    parent.append(text);
    return [];
  }
  let end = 0;
  const words = found.map(({ 0: word, index }) => {
    parent.append(text.slice(end, index));
    end = index + word.length;
    return { start: index, element: make(parent, "span", {}, word) };
  });
  parent.append(text.slice(end));
  return words;
}

// The sentences of a line and of its translation: where each starts in the line, what stands before
// it, and what after the last one.
function sentencePairs(line, text, sentences, source) {
  if (!source) return [[{ source: line, target: text, start: 0, before: "" }], ""];
  let start = 0;
  const gaps = source.gaps.map((gap) => gap.replaceAll(DIRECTION_MARKS, ""));
  const pairs = source.sentences.map((sentence, i) => {
    const pair = { source: sentence, target: sentences[i], before: gaps[i] };
    pair.start = start + source.gaps[i].length;
    start = pair.start + sentence.length;
    return pair;
  });
  return [pairs, gaps.at(-1)];
}

// A translation with its score. Who points at a word of it sees in the source what it attends to.

class Hypothesis {
  constructor(list, row, panel, { text, score, sentences, source }) {
    Object.assign(this, { row, panel, text, line: row.line });
    [this.pairs, this.after] = sentencePairs(row.line, text, sentences, source);
    this.element = make(list, "li", { class: "hypothesis" });
    const isParser = panel.model.task === "parsing";
    if (score <= NO_HYPOTHESIS || (isParser && !text)) {
      make(this.element, "p", { class: "words none" }, isParser ? "no tree" : "no translation");
      return;
    }
    if (isParser) this.showTree();
    else this.showText();
    if (!this.pairs.length) return;  // nothing was translated
    const aside = make(this.element, "div", { class: "aside" });
    const number = score.toFixed(2).replace("-", "−");
    const title = "log-probability / length penalty"
      + (this.pairs.length > 1 ? ", the sum of the sentences" : "");
    make(aside, "span", { title }, number);
    this.drawable = this.pairs.filter(({ source, target }) => source && target);
    if (panel.model.attention && this.drawable.length) this.offerDrawing(aside);
  }

  showTree() {
    drawTree(make(this.element, "div", { class: "tree", tabindex: 0 }), this.text);
    const details = make(this.element, "details", { class: "brackets" });
    make(details, "summary", {}, "In brackets");
    make(details, "code", {}, this.text);
  }

  showText() {
    const line = make(this.element, "p", { class: "words", dir: "auto" });
    // Of each word: its element, its sentence, and its number in that.
    this.words = this.pairs.flatMap((pair) => {
      line.append(pair.before);
      return showWords(line, pair.target).map(({ element }, number) => ({ element, pair, number }));
    });
    line.append(this.after);
    if (!this.panel.model.attention || !this.words.length) return;
    line.classList.add("live");
    // One stop of the tabulator; arrows lead from word to word.
    const elements = this.words.map(({ element }) => element);
    elements.forEach((word, i) => {
      word.tabIndex = i ? -1 : 0;
      word.addEventListener("pointerenter", () => this.point(i));
      word.addEventListener("pointerleave", () => this.point(null));
      word.addEventListener("focus", () => this.point(i));
      word.addEventListener("blur", () => this.point(null));
    });
    line.addEventListener("keydown", (event) => {
      const ahead = getComputedStyle(line).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const next = elements[elements.indexOf(event.target) + (event.key === ahead ? 1 : -1)];
      if (!next) return;
      event.preventDefault();
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }

  offerDrawing(aside) {
    const button = make(aside, "button", { type: "button", "aria-expanded": false }, "attention");
    let drawn = null;
    button.addEventListener("click", async () => {
      drawn?.remove();
      const place = drawn = drawn ? null : make(this.element, "div", { class: "drawn" });
      button.setAttribute("aria-expanded", drawn !== null);
      if (!place) return;
      try {
        for (const pair of this.drawable) {
          const attention = await this.attention(pair);
          if (!place.isConnected) return;  // closed again
          drawAttention(make(place, "div"), attention, attention.kinds.at(-1));
        }
      } catch (error) {
        make(place, "p", { class: "failure" }, error.message);
      }
    });
  }

  // Asked for once, and again if that failed.
  attention(pair) {
    const body = { text: pair.source, translation: pair.target, ...this.panel.languages };
    pair.asked ??= ask(pathOf(this.panel.model, "attention"), body).then(readAttention);
    pair.asked.catch(() => { pair.asked = null; });
    return pair.asked;
  }

  // Tints the source by what a word of the translation attends to, once the pointer rests on it.
  point(index) {
    clearTimeout(Hypothesis.resting);
    for (const word of this.row.source.children) word.style.removeProperty("--share");
    if (index !== null) Hypothesis.resting = setTimeout(() => this.attend(index), POINTING_MS);
    Hypothesis.pointed = index === null ? null : this.words[index];
  }

  async attend(index) {
    const { element, pair, number } = this.words[index];
    const isOver = () => Hypothesis.pointed !== this.words[index] || this.row.line !== this.line;
    let attention;
    try {
      attention = await this.attention(pair);
    } catch (error) {
      if (!isOver()) say(error.message);
      return;
    }
    if (isOver()) return;
    const shares = wordShares(attention, number);
    const source = [...pair.source.matchAll(/\S+/g)];
    source.forEach(({ index: position }, i) =>
      this.row.wordAt(pair.start + position)?.style.setProperty("--share", shares[i] ?? 0));
    const best = source.map(([word], i) => [shares[i] ?? 0, word])
      .sort((a, b) => b[0] - a[0]).slice(0, 3).filter(([share]) => share >= 0.05)
      .map(([share, word]) => `${named(word)} ${percent(share)}`);
    say(`${named(element.textContent)} looks at ${best.join(", ")}`);
  }
}

// A word without the signs around it, unless it is nothing else.
const named = (word) => `“${isolated(word.replace(/^\p{P}+|\p{P}+$/gu, "") || word)}”`;

// How much a word of the translation attends to each word of the source: by all heads of the last
// layer but one, or of the last of two, which is nearest to what people align.
function wordShares({ kinds, colours, words }, index) {
  const cross = kinds.at(-1);
  const layer = Math.min(cross.layers - 1, Math.max(1, cross.layers - 2));
  const queries = [...words.target.keys()].filter((query) => words.target[query] === index);
  const shares = [];
  for (const query of queries) {
    words.source.forEach((word, key) => {
      for (const head of colours.keys()) {
        shares[word] = (shares[word] ?? 0)
          + cross.weight(layer, head, query, key) / colours.length / queries.length;
      }
    });
  }
  return shares;
}

// The page as a whole.

const textLines = () => $("#text").value.split("\n").slice(0, MOST);
const wantedLines = () => textLines().map((line) => line.trim()).filter(Boolean);

let typing = null;
function soon(action) {
  clearTimeout(typing);
  typing = setTimeout(action, TYPING_MS);
}

function say(text) {
  $("#status").textContent = text;
}

// Says when all panels have answered, mostly to those who do not see it.
function tell() {
  const wanted = wantedLines();
  const found = panels.flatMap(({ answers }) => wanted.map((one) => answers.get(one)));
  if (!found.length || !found.every(Array.isArray)) {
    say("");  // one is missing, or a refusal
  } else if ($("#text").value.split("\n").length > MOST) {
    say(`The first ${MOST} lines are translated; the command translates files.`);
  } else {
    say(wanted.length > 1 ? `${wanted.length} lines done.` : "Done.");
  }
}

function translate() {
  const wanted = wantedLines();
  arrangeRows(wanted);
  for (const panel of panels) panel.translate(wanted);
}

// A line keeps its row wherever it moves; one that was edited takes over the row at its place.
function arrangeRows(wanted) {
  const free = new Set(rows);
  const keep = (row) => free.delete(row) && row;
  const kept = wanted.map((line) =>
    keep(rows.find((row) => free.has(row) && row.line === line)));
  rows = wanted.map((line, i) => {
    const row = kept[i] || keep(rows[i]) || new Row();
    row.set(line);
    return row;
  });
  $("#rows").replaceChildren(...rows.map((row) => row.element));
  for (const row of rows) row.arrange();
}

function compare(isWanted) {
  if (isWanted) {
    panels.push(new Panel(models.find((model) => model !== panels[0].model)));
  } else {
    panels.pop().close();
  }
  document.body.classList.toggle("comparing", isWanted);
  $("#compare").textContent = isWanted ? "Stop comparing" : "Compare";
  translate();
}

// Asks what is served, until the server says so.
async function start() {
  try {
    models = await ask("api/models");
  } catch (error) {
    say(error.message);
    if (error.retry) setTimeout(start, 1000 * error.retry);
    else if (!$("#key").hidden) $("#key-value").focus();
    return;
  }
  document.title = models.map(({ name }) => name).join(", ");
  $("#compare").hidden = models.length < 2;
  panels = [new Panel(models[0])];
  translate();
}

$("#text").addEventListener("input", ({ isComposing }) => { if (!isComposing) soon(translate); });
$("#text").addEventListener("compositionend", () => soon(translate));
$("#compare").addEventListener("click", () => compare(panels.length === 1));
$("#key").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", $("#key-value").value);
  if (panels.length) translate();
  else start();
});
start();
