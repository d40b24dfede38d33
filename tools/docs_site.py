"""What the documentation site needs beyond the pages: the raw results of benchmarks, to which pages link.

In the repository such a link leads out of docs, to benchmarks/results; in the site it leads to a copy under data/.
A hook of mkdocs (mkdocs.yml).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

__all__ = ["on_files", "on_page_markdown"]

_RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
_LINK = re.compile(r"\]\((?:\.\./)+benchmarks/results/([\w.]+)\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the result files."""
    for path in sorted(_RESULTS.glob("*.jsonl")):
        files.append(File.generated(config, f"data/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Point links to result files to their copies."""
    depth = page.file.src_uri.count("/")
    return _LINK.sub(lambda match: f"]({'../' * depth}data/{match[1]})", markdown)
