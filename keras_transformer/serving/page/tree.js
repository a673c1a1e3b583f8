"use strict";
// The drawing of a syntax tree: words in a row at the bottom, brackets above them.

// Reads "(S (NP (NNS Dogs)) (VP (VBP bark)))"; nothing recurses, since trees may be of any depth.
// Nodes come parents first, each with its depth; those of words have `word` and no children.
function readTree(text) {
  const nodes = [], open = [];
  for (const token of text.match(/[()]|[^ ()]+/g) ?? []) {
    const node = open.at(-1);
    if (token === "(") {
      const child = { label: "", word: null, depth: open.length, children: [] };
      node?.children.push(child);
      open.push(child);
      nodes.push(child);
    } else if (token === ")") {
      open.pop();
    } else if (node && node.label === "") {
      node.label = token;
    } else if (node) {
      node.word = token;
    }
  }
  return nodes;
}

// Draws a tree into an element that is in the page already, for its letters are measured.
function drawTree(root, text) {
  const LEVEL = 46, GAP = 18, TOP = 16, NARROWEST = 34;
  const nodes = readTree(text);
  const bottom = TOP + LEVEL * Math.max(...nodes.map((node) => node.depth));
  const svg = make(root, "svg", { role: "img", "aria-label": text });
  const lines = make(svg, "g");

  let right = 0;
  for (const node of nodes) {
    node.y = node.word === null ? TOP + LEVEL * node.depth : bottom;
    const kind = node.word === null ? "label" : "tag";
    node.text = make(svg, "text", { class: kind, y: node.y }, node.label);
    if (node.word === null) continue;
    node.leaf = make(svg, "text", { y: bottom + 20 }, node.word);
    const widths = [node.text, node.leaf].map((drawn) => drawn.getComputedTextLength());
    const width = Math.max(NARROWEST, ...widths);
    node.x = right + width / 2;
    right += width + GAP;
  }
  // Children come behind their parents, so from behind each parent finds its children placed.
  for (const node of [...nodes].reverse()) {
    node.x ??= (node.children[0].x + node.children.at(-1).x) / 2;
    node.text.setAttribute("x", node.x);
    node.leaf?.setAttribute("x", node.x);
    for (const child of node.children) {
      const bend = node.y + 16;
      make(lines, "path", { d: `M${node.x} ${node.y + 7}V${bend}H${child.x}V${child.y - 14}` });
    }
  }
  const [width, height] = [Math.max(0, right - GAP), bottom + 28];
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.style.setProperty("--width", width);
}
