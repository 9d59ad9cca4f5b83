"""How Sphinx builds the site: `make site`. Nothing is fetched from the network."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sphinx.application import Sphinx

import orograph

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "extensions"))
os.environ.setdefault("MPLBACKEND", "agg")  # gallery scripts and pages draw into files

project = "orograph"
author = "the orograph developers"
copyright = author
version = release = orograph.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "commands",
    "name_links",
    "names",
    "operations",
    "records",
    "reproduced",
    "run_pages",
]
exclude_patterns = ["extensions", "**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]

# Markdown: anchors of headings as on a code host.
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

# Docstrings: `name` is a public name of orograph, types stand in the docstrings.
default_role = "py:obj"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # members are described once, by their own docstrings
napoleon_attr_annotations = False
napoleon_use_param = False  # each section of parameters keeps its heading
napoleon_custom_sections = [("Sources", "params_style"), ("Steps", "params_style")]
toc_object_entries = False

sphinx_gallery_conf = {
    "examples_dirs": [str(HERE.parent / "examples/gallery")],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"\.py$",
    "download_all_examples": False,
    "capture_repr": (),
    "show_memory": False,
    "show_signature": False,
    "abort_on_example_error": True,
    "min_reported_time": 1e9,
    "copyfile_regex": r".*\.rst",
    "nested_sections": False,
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "orograph"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "github_url": "https://github.com/orograph/orograph",
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "navigation_with_keys": False,
    "show_prev_next": True,
}
html_sidebars = {"index": []}

# The order of the parts. Not in index.md, which is plain Markdown for code hosts too.
PARTS = (
    *("install", "guides/index", "gallery/index", "api", "commands", "how", "performance"),
    *("glossary", "reproduction", "scaling", "project"),
)


def add_parts(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the table of contents to the first page, and link the gallery instead of its scripts."""
    if page == "index":
        source[0] = source[0].replace("(../examples/gallery)", "(gallery/index.rst)")
        source[0] += "\n".join(["\n```{toctree}", ":hidden:", "", *PARTS, "```\n"])


def setup(app: Sphinx) -> None:
    """Register with Sphinx."""
    app.connect("source-read", add_parts)
