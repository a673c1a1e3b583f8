"use strict";
// Draws attention, on pages on disk and on the server's page.

// The only place where text enters a page, always as plain text.
function make(parent, tag, attributes = {}, text = "") {
  const space = tag === "svg" ? "http://www.w3.org/2000/svg" : parent.namespaceURI;
  const element = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== "") element.textContent = text;
  return parent.appendChild(element);
}

// Adds `weight(layer, head, query, key)` to each kind of attention.
// Weights are encoded as 16-bit integers in base64, least significant byte first.
function readAttention(attention) {
  const { kinds, colours } = attention;
  for (const kind of kinds) {
    const bytes = Uint8Array.from(atob(kind.weights), (character) => character.charCodeAt(0));
    const integers = Uint16Array.from({ length: bytes.length / 2 },
      (_, i) => bytes[2 * i] + 256 * bytes[2 * i + 1]);
    kind.weight = (layer, head, query, key) => {
      const row = (layer * colours.length + head) * kind.queries.length + query;
      return integers[row * kind.keys.length + key] / 65535;
    };
  }
  return attention;
}

const percent = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)}%`;
// Isolates text, so that right-to-left text does not move the figures beside it.
const isolated = (text) => `\u2068${text}\u2069`;

// Draws the result of `readAttention` into an element: controls, words, and lines between them.
// It shows `kind` first.
function drawAttention(root, { kinds, colours }, kind = kinds[0]) {
  const ROW = 26, FAINT = 0.02, MOST = 5000;  // more lines slow a browser down
  const IDLE = "Point at a word, or click it to hold it.";
  // The current view: a kind of attention, a layer, heads, and the word pointed at or pinned.
  const state = { kind, layer: 0, heads: new Set(colours.keys()), word: null, pinned: null };

  root.classList.add("attention");
  root.style.setProperty("--heads", colours.length);
  const form = make(root, "form");
  form.addEventListener("submit", (event) => event.preventDefault());
  const controls = {};
  for (const [name, title] of [["kinds", "Attention"], ["layers", "Layer"], ["heads", "Heads"]]) {
    controls[name] = make(form, "fieldset", { class: name });
    make(controls[name], "legend", {}, title);
  }
  const says = make(root, "p", { class: "says", role: "status" });
  const drawing = make(root, "div", { class: "drawing" });
  const queries = column("queries", "looks");
  const svg = make(drawing, "svg",
    { role: "img", "aria-label": "lines between the words", preserveAspectRatio: "none" });
  const columns = { queries, keys: column("keys", "is looked at") };

  function column(side, title) {
    const element = make(drawing, "div", { class: `column ${side}` });
    make(element, "h2", {}, title);
    return make(element, "ol");
  }

  function choice(parent, type, name, text, isChecked, onChange, colour = null) {
    const label = make(parent, "label");
    const input = make(label, "input", { type, name });
    input.checked = isChecked;
    input.addEventListener("change", () => { onChange(input.checked); draw(); });
    if (colour) {
      paint(label, colour);
      make(label, "span", { class: "chip" });
    }
    label.append(text);
    return input;
  }

  function paint(element, colour) {
    element.classList.add("head");
    element.style.setProperty("--colour", colour);
  }

  function showControls() {
    for (const kind of kinds) {
      choice(controls.kinds, "radio", "kind", kind.title, kind === state.kind, () => {
        Object.assign(state, { kind, word: null, pinned: null });
        showLayers();
        showWords();
      });
    }
    const boxes = colours.map((colour, head) =>
      choice(controls.heads, "checkbox", "head", String(head + 1), true,
        (isChecked) => state.heads[isChecked ? "add" : "delete"](head), colour));
    for (const [text, wanted] of [["all", true], ["none", false]]) {
      make(controls.heads, "button", { type: "button" }, text).addEventListener("click", () => {
        boxes.forEach((box) => { box.checked = wanted; });
        state.heads = new Set(wanted ? colours.keys() : []);
        draw();
      });
    }
  }

  // Encoder and decoder may differ in their number of layers. Start at the last layer but one, as
  // in the paper.
  function showLayers() {
    for (const label of controls.layers.querySelectorAll("label")) label.remove();
    state.layer = Math.max(0, state.kind.layers - 2);
    for (let layer = 0; layer < state.kind.layers; layer++) {
      choice(controls.layers, "radio", "layer", String(layer + 1), layer === state.layer,
        () => { state.layer = layer; });
    }
  }

  function showWords() {
    for (const [side, list] of Object.entries(columns)) {
      list.replaceChildren();
      state.kind[side].forEach((text, index) => {
        const item = make(list, "li", { tabindex: 0 });
        make(item, "bdi", {}, text);
        make(item, "span", { class: "shares" });
        const word = { side, index };
        const point = (to) => () => { state.word = to; draw(); };
        item.addEventListener("mouseenter", point(word));
        item.addEventListener("mouseleave", point(null));
        item.addEventListener("focus", point(word));
        item.addEventListener("blur", point(null));
        const pin = () => { state.pinned = same(state.pinned, word) ? null : word; draw(); };
        item.addEventListener("click", pin);
        item.addEventListener("keydown", (event) => {
          if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pin(); }
          if (event.key === "Escape") { state.pinned = null; draw(); }
        });
      });
    }
  }

  function same(a, b) {
    return a !== null && b !== null && a.side === b.side && a.index === b.index;
  }

  function draw() {
    const { kind, layer } = state;
    const heads = [...state.heads].sort((a, b) => a - b);
    const word = state.word ?? state.pinned;
    const lines = [];
    for (const head of heads) {
      kind.queries.forEach((_, query) => kind.keys.forEach((_, key) => {
        const at = { queries: query, keys: key };
        const value = kind.weight(layer, head, query, key);
        if (value >= FAINT && (word === null || at[word.side] === word.index)) {
          lines.push({ head, query, key, value });
        }
      }));
    }
    lines.sort((a, b) => a.value - b.value);
    const hidden = lines.splice(0, lines.length - MOST).length;
    const beside = Math.min(2, 12 / heads.length);
    const height = ROW * Math.max(kind.queries.length, kind.keys.length);
    svg.style.height = `${height}px`;
    svg.setAttribute("viewBox", `0 0 1 ${height}`);
    svg.replaceChildren();
    for (const { head, query, key, value } of lines) {
      const shift = ROW / 2 + (heads.indexOf(head) - (heads.length - 1) / 2) * beside;
      const ends = { x1: 0, y1: ROW * query + shift, x2: 1, y2: ROW * key + shift };
      paint(make(svg, "line", { ...ends, "stroke-opacity": value.toFixed(3) }), colours[head]);
    }
    for (const [side, list] of Object.entries(columns)) {
      [...list.children].forEach((item, index) => {
        item.classList.toggle("chosen", same(word, { side, index }));
        item.classList.toggle("pinned", same(state.pinned, { side, index }));
        const shares = item.querySelector(".shares");
        shares.replaceChildren();
        if (word === null || word.side === side) return;
        for (const head of heads) {
          const value = between(head, word, index);
          const square = make(shares, "i", { title: `head ${head + 1}: ${percent(value)}` });
          paint(square, colours[head]);
          square.style.opacity = value;
        }
      });
    }
    says.textContent = (word === null || !heads.length ? IDLE : sentence(word, heads))
      + (hidden ? ` Not drawn: the ${hidden} faintest lines.` : "");
  }

  // The weight between a word and a word of the other side.
  function between(head, word, index) {
    const [query, key] = word.side === "queries" ? [word.index, index] : [index, word.index];
    return state.kind.weight(state.layer, head, query, key);
  }

  function sentence(word, heads) {
    const [other, verb] =
      word.side === "queries" ? ["keys", "looks at"] : ["queries", "is looked at by"];
    const mean = (index) =>
      heads.reduce((sum, head) => sum + between(head, word, index), 0) / heads.length;
    const best = state.kind[other].map((text, index) => [mean(index), text])
      .sort((a, b) => b[0] - a[0]).slice(0, 5).filter(([value]) => value >= 0.005)
      .map(([value, text]) => `${isolated(text)} ${percent(value)}`);
    return `${isolated(state.kind[word.side][word.index])} ${verb} ${best.join(", ")}`
      + (heads.length > 1 ? ` (mean of ${heads.length} heads)` : ` (head ${heads[0] + 1})`);
  }

  showControls();
  showLayers();
  showWords();
  draw();
}
