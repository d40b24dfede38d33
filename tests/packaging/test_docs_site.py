"""The documentation builds as a site without a warning, holds what its pages link to, and asks no other server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lowtide

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it in a folder of its own, as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    command = [str(Path(sys.executable).parent / "mkdocs"), "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_built(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        built = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / built.with_name(built.name.replace("README", "index"))).is_file(), page


@pytest.mark.slow
def test_raw_results_are_there_where_pages_link_to(site: Path) -> None:
    links = re.findall(r'href="(data/\w+\.jsonl)"', (site / "benchmarks.html").read_text(encoding="utf-8"))
    assert "data/training.jsonl" in links
    for link in links:
        assert (site / link).read_bytes() == (ROOT / "benchmarks" / "results" / Path(link).name).read_bytes()


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)\b[^>]*\bsrc=\"?([^\"\s>]+)", text)
        loaded += re.findall(
            r"<link\b[^>]*\brel=\"?(?:stylesheet|preconnect|preload)\"?[^>]*\bhref=\"?([^\"\s>]+)", text
        )
        assert loaded
        assert not [address for address in loaded if re.match(r"(https?:)?//", address)], page


@pytest.mark.slow
def test_the_reference_holds_every_public_name(site: Path) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html"))
    told = set(re.findall(r'<h\d id="[\w.]*?(\w+)"', text))
    assert not set(lowtide.__all__) - {"__version__"} - told
