"""Texts beyond sentences: paragraphs, HTML and Markdown, and what a translation copies."""
