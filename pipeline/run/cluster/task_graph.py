"""Names and keys of Dask tasks, all made here.

Dask's dashboard groups tasks by the words of a key before its token (``dask.utils.key_split``), so
a layer's name is made of lower-case words and hyphens only: digits or underscores in it would break
the grouping. So would a word that Dask takes for a hash, one of eight letters of which the first is
a to f: it is written in the plural.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orograph.tiles.grid.quadtree import Node

Key = tuple[str, int, int]

_LIKE_A_HASH = re.compile(r"(?<=-)[a-f][a-z]{7}(?=-)")


@dataclass(frozen=True)
class Layers:
    """Names of the Dask layers of one run.

    ``problem`` is in words, ``token`` a 32-digit hexadecimal hash.
    """

    problem: str
    token: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z]+(-[a-z]+)*", self.problem):
            raise ValueError(f"problem: {self.problem!r} is not lower-case words with hyphens")
        if not re.fullmatch(r"[0-9a-f]{32}", self.token):
            raise ValueError(f"token: {self.token!r} is not 32 hexadecimal digits")

    def name(self, stage: str) -> str:
        """Return the name of the layer whose tasks do ``stage``.

        Examples
        --------
        >>> Layers("cost-distance", "0" * 32).name("visit")
        'cost-distances-visit-00000000000000000000000000000000'
        """
        return _LIKE_A_HASH.sub(r"\g<0>s", f"{self.problem}-{stage}-{self.token}")

    def key(self, stage: str, node: Node) -> Key:
        """Return the key of the task that does ``stage`` for ``node``.

        Examples
        --------
        >>> Layers("forest", "0" * 32).key("merge", Node(3, 5))
        ('forest-merge-00000000000000000000000000000000', 3, 5)
        """
        return self.name(stage), node.level, node.z
