"""The site builds from the tree without a warning, and its links lead somewhere."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import orograph
from orograph.cli.main import _parser
from orograph.cli.parser import subcommands

ROOT = Path(__file__).resolve().parents[1]
# What takes minutes, the pages' and the gallery's code, other tests run; `make site` does it all.
WITHOUT_RUNNING = [
    *("-D", "run_pages=0"),
    *("-D", "plot_gallery=0"),
    *("-D", "suppress_warnings=image.not_readable"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built of a copy of the tree without what an earlier build has left in it."""
    folder = tmp_path_factory.mktemp("site")
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "docs", "examples", "*.md", "*.cff"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in tracked.stdout.splitlines():
        copy = folder / "tree" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going"),
            *(*WITHOUT_RUNNING, folder / "tree/docs", folder / "html"),
        ],
        env={**os.environ, "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return folder / "html"


class Page(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep links and anchors."""
        for name, value in attrs:
            if name == "href" and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def broken_links(site: Path) -> Iterator[str]:
    """Links of the site's pages to files and anchors that it does not have."""
    files = [path for path in site.rglob("*.html") if "_static" not in path.parts]  # templates
    pages = {path: Page(path) for path in files}
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path
            if parts.path:
                target = Path(os.path.normpath(path.parent / unquote(parts.path)))
            known = pages[target].anchors if target in pages else set()
            if not target.exists() or (
                parts.fragment and target in pages and unquote(parts.fragment) not in known
            ):
                yield f"{path.relative_to(site)}: {link}"


def test_links_inside_the_site_lead_somewhere(site: Path) -> None:
    assert list(broken_links(site)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    text = '<a href="b.html#there"></a> <a href="b.html#gone"></a> <a href="c.html"></a>'
    (tmp_path / "a.html").write_text(text)
    (tmp_path / "b.html").write_text('<p id="there"></p>')
    assert list(broken_links(tmp_path)) == ["a.html: b.html#gone", "a.html: c.html"]


def test_every_public_name_has_a_page_with_its_docstring(site: Path) -> None:
    for name in orograph.__all__:
        text = (site / f"generated/orograph.{name}.html").read_text(encoding="utf-8")
        assert f'id="orograph.{name}"' in text, f"{name}: its page does not describe it"


def test_parameters_stand_under_headings_with_the_options_of_the_run_folded(site: Path) -> None:
    text = (site / "generated/orograph.cost_distance.html").read_text(encoding="utf-8")
    headings = re.findall(r"<dt[^>]*>(.*?)<span class=\"colon\">:", text)
    assert headings[:4] == ["Parameters", "Sources", "Steps", "Other Parameters"]
    folded = text.partition("<details><summary>Options of the run</summary>")[2]
    assert "<strong>tile</strong>" in folded.partition("</details>")[0]


def test_the_reference_links_each_public_name_and_leads_to_all_of_them(site: Path) -> None:
    links = Page(site / "api.html").links
    for name in orograph.__all__:
        assert f"generated/orograph.{name}.html#orograph.{name}" in links, name
        assert f"generated/orograph.{name}.html" in links, f"{name} is not in the navigation"


def test_no_page_shows_markup(site: Path) -> None:
    for path in site.rglob("*.html"):
        if "_static" not in path.parts:
            text = re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8"))
            shown = re.findall(r":(?:py:)?(?:obj|class|doc|ref):|\{eval-rst\}", text)
            assert not shown, f"{path.relative_to(site)}: {shown}"


PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_guides_and_gallery_link_the_functions_that_they_use_and_are_linked_from_them(
    site: Path,
) -> None:
    for folder, scripts in ("guides", "docs/guides/*.md"), ("gallery", "examples/gallery/*.py"):
        for script in ROOT.glob(scripts):
            page = f"{folder}/{script.stem}.html"
            links = {link.partition("#")[0] for link in Page(site / page).links}
            text = script.read_text(encoding="utf-8")
            code = "".join(PYTHON.findall(text)) if script.suffix == ".md" else text
            for name in orograph.__all__:
                reference = f"generated/orograph.{name}.html"
                if re.search(rf"\bog\.{name}\b", text):
                    assert f"../{reference}" in links, f"{page} does not link {name}"
                if re.search(rf"\bog\.{name}\b", code):
                    assert f"../{page}" in Page(site / reference).links, f"{name}: {page}"


def test_the_first_mention_in_a_text_is_a_link(site: Path) -> None:
    text = (site / "guides/flow.html").read_text(encoding="utf-8")
    mention = r'(<a class="reference internal"[^>]*>)?<code[^>]*><span class="pre">og\.streams<'
    links = re.findall(mention, text)
    assert [bool(link) for link in links] == [True, False]


def test_the_page_of_commands_shows_the_help_of_each(site: Path) -> None:
    text = html.unescape((site / "commands.html").read_text(encoding="utf-8"))
    for name, command in subcommands(_parser()):
        assert f'id="{re.sub("[ _]", "-", name)}"' in text
        assert f"usage: orograph {name} [-h]" in text
        for action in command._actions:
            assert all(option in text for option in action.option_strings)


def test_the_start_page_links_gallery_repository_issues_and_citation(site: Path) -> None:
    links = Page(site / "index.html").links
    repository = "https://github.com/orograph/orograph"
    wanted = ("gallery/index.html", "commands.html", "citing.html", f"{repository}/issues")
    assert not {*wanted, repository} - set(links)


PRINTING = """# Page

```python
import os
print("one")
open("file.txt", "w").close()
```

```python
silent = 1
```

```python
print(os.path.abspath("file.txt"))
```
"""


def test_pages_show_what_their_blocks_print(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'docs/extensions')!r})\n"
        "extensions = ['myst_parser', 'run_pages']\nexclude_patterns = ['out']\n"
    )
    (tmp_path / "index.md").write_text(PRINTING)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "text", str(tmp_path), "out"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    blocks = (tmp_path / "out/index.txt").read_text(encoding="utf-8").split("\n\n")
    assert [block.strip() for block in blocks[2:]] == [
        *("one", "silent = 1", 'print(os.path.abspath("file.txt"))', "file.txt"),
    ]
