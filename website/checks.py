"""Checks of the built site: it must open from disk, and ask no other host for anything."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

# What a browser loads by itself, unlike a link that a reader follows.
LOADS = [
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\"'\s>]+",
    r"<link\b[^>]*\bhref=[\"']?(?:https?:)?//[^\"'\s>]+",
    r"url\([\"']?(?:https?:)?//[^)]+|@import\b[^;]+",
    r"class=[\"']?mermaid\b",  # whose script Material takes from another host
]


def on_post_build(config: MkDocsConfig, **_) -> None:
    """Refuses pages and styles that load something from another host."""
    site = Path(config.site_dir)
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        text = path.read_text(encoding="utf-8")
        for found in (match for load in LOADS for match in re.finditer(load, text)):
            raise PluginError(f"{path}: expected no load from another host, found {found[0]}")
