"""Tables and figures of the documents that orograph follows, repeated, a subcommand a document.

    python benchmarks/papers gerritsen malison cuda-chapter tricella hellas
    python benchmarks/papers hellas --full

Each prints the printed figure, ours and their ratio, and writes docs/performance/papers_NAME.csv,
which docs/reproduction.md shows. What fits a laptop is run; ``--full`` runs the documents' sizes.
Rows that need a GPU, or a size that was not run, are there with the command that would run them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import import_module
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

NAMES = ("gerritsen", "malison", "cuda-chapter", "tricella", "hellas")


def main() -> None:
    """Repeat the documents that were asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("documents", nargs="*", metavar="document", help=", ".join(NAMES))
    parser.add_argument("--full", action="store_true", help="the documents' sizes; takes hours")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    unknown = set(options.documents) - set(NAMES)
    if unknown:
        parser.error(f"no document {unknown.pop()!r}; there are {', '.join(NAMES)}")
    from papers.rows import Paper

    for name in options.documents or NAMES:
        module = import_module(f"papers.{name.replace('-', '_')}")
        paper = Paper(name, full=options.full, folder=options.folder)
        try:
            module.repeat(paper)
        finally:
            paper.write()


if __name__ == "__main__":
    main()
