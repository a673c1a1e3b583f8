"""Pages of the site that are not in docs/: README, changelog, examples and the notebook.

MkDocs calls the functions `on_...` as it builds the site: they are its hooks.
"""

import base64
import html
import json
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
NOTEBOOK = ROOT / "docs/tutorial.ipynb"


def on_config(config: MkDocsConfig) -> None:
    """Gives the notebook, if there is one, the second place in the navigation."""
    if NOTEBOOK.exists():
        config.nav.insert(1, {"Tutorial": "tutorial.md"})


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made of files outside docs/, and of the notebook."""
    made = {page: (ROOT / source).read_text() for source, page in PAGES.items()}
    made["examples.md"] = examples_page(sorted((ROOT / "examples").glob("*.py")))
    if NOTEBOOK.exists():
        page, pictures = notebook_page(json.loads(NOTEBOOK.read_text()))
        made |= {"tutorial.md": page, **pictures}
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_) -> str:
    """Points links to files of the repository, and the mention of a command's help, at pages."""
    if "/" in page.file.src_uri:  # made of code
        return markdown
    # The site has no pages of the code and its tests.
    code = r"\[([^\]]+)\]\(\.\./(?:keras_transformer|tests)/[^)]+\)"
    markdown = re.sub(code, r"`\1`", markdown)
    markdown = re.sub(r"(?<=\]\()[^)\s]+", lambda found: site_link(found[0]), markdown)
    return re.sub(r"(`keras-transformer ([a-z-]+) --help`)", r"[\1](reference/\2.md)", markdown)


def site_link(link: str) -> str:
    """The page of a link that is relative to docs/ or to the root of the repository.

    `docs/serving.md#limits` is `serving.md#limits`, `../examples/classifier.py` is
    `examples.md#classifier`.
    """
    if ":" in link:
        return link
    path, sign, anchor = link.removeprefix("../").removeprefix("docs/").partition("#")
    path = re.sub(r"^examples/(\w+)\.py$", r"examples.md#\1", path)
    path = "tutorial.md" if path == NOTEBOOK.name else PAGES.get(path, path)
    return path + sign + anchor


def on_page_content(content: str, **_) -> str:
    """Writes formulas as MathML, keeps flags in one piece, and mends lists of results."""
    content = re.sub(r"<code>[^<]*</code>", _with_whole_flags, content)
    # mkdocstrings puts a dash between a result's name, which our docstrings do not give, and text.
    content = re.sub(r"(<li[^>]*>)\s*\N{EN DASH}", r"\1", content)
    formula = r'(<(?:span|div) class="arithmatex">)\\([(\[])(.*?)\\[)\]]'
    return re.sub(formula, _mathml, content, flags=re.DOTALL)


def _with_whole_flags(code):
    """Code in which no line breaks after the dashes of a flag."""
    return re.sub(r"--[\w\[\]-]+", r'<span class="name">\g<0></span>', code[0])


def _mathml(found):
    start, kind, latex = found.groups()
    return start + convert(html.unescape(latex), display="block" if kind == "[" else "inline")


def examples_page(paths: list[Path]) -> str:
    """The page of all examples: their sources, one below the other."""
    parts = ["# Examples", "Short scripts that use the package from Python; tests run all of them."]
    for path in paths:
        parts.append(f"## {path.name} {{ #{path.stem} }}\n\n```python\n{path.read_text()}```")
    return "\n\n".join(parts) + "\n"


def notebook_page(notebook: dict) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by path."""
    parts, pictures = [], {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                path = f"tutorial/{len(pictures) + 1}.png"
                pictures[path] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![Output of the cell above]({path})")
            elif text := "".join(data["text/plain"]).rstrip():
                parts.append(f"``` {{ .text .output }}\n{text}\n```")
    return "\n\n".join(parts) + "\n", pictures
