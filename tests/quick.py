"""What the quick suite, `make test`, leaves to `make test-all`.

Cases of products, examples of properties, and values that many places refuse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import is_hypothesis_test, settings

# Of the examples that Hypothesis draws for a property, the quick suite tries one in so many.
SHARE_OF_EXAMPLES = 5
FEWEST_EXAMPLES = 5
# Of values that many places have to refuse, each tries one in so many there.
SHARE_OF_VALUES = 5

Value = TypeVar("Value")


def is_quick(config: pytest.Config) -> bool:
    """Return whether the tests that are marked `long` are left out."""
    return bool(config.option.markexpr == "not long")


def part_of(values: Sequence[Value], place: int, places: int) -> Sequence[Value]:
    """Return the values to try at one of the places that share them: each is tried at one."""
    share = min(places, SHARE_OF_VALUES)
    return values[place % share :: share] or values[place % len(values) :][:1]


def mark_beside_diagonals(items: Sequence[Any]) -> None:
    """Mark cases of tests that are marked `diagonal` as long, unless they bring a new value.

    Cases differ by the parameters of a test and of its fixtures.
    """
    tests: dict[tuple[Any, ...], list[Any]] = {}
    for item in items:
        if item.get_closest_marker("diagonal") and not item.get_closest_marker("long"):
            tests.setdefault((item.path, item.cls, item.originalname), []).append(item)
    for cases in tests.values():
        kept = diagonal([values_of(case) for case in cases])
        for place, case in enumerate(cases):
            if place not in kept:
                case.add_marker("long")


def values_of(case: Any) -> list[Hashable]:
    """Return the parameters of a case with their values: by identity, those without a hash."""
    named: list[Hashable] = []
    for name, value in case.callspec.params.items():
        try:
            named.append((name, type(value), hash(value), value))
        except TypeError:
            named.append((name, id(value)))
    return named


def diagonal(cases: Sequence[Sequence[Hashable]]) -> set[int]:
    """Return the places of cases that have each value of each parameter between them.

    The next is always a case with most values that none has had, and of such the one whose values
    were had least often: of a product, (0, 0), (1, 1), (2, 0), (3, 1), ...
    """
    kept: set[int] = set()
    had: Counter[Hashable] = Counter()
    while len(had) < len({value for case in cases for value in case}):
        news = [sum(value not in had for value in case) for case in cases]
        ages = [sum(had[value] for value in case) for case in cases]
        best = max(range(len(cases)), key=lambda n: (news[n], -ages[n]))
        kept.add(best)
        had.update(cases[best])
    return kept


def draw_fewer_examples(items: Sequence[Any]) -> None:
    """Let Hypothesis draw a part of the examples of each property; those named are all tried."""
    tests: list[Any] = [getattr(item, "obj", None) for item in items]
    for test in {id(test): test for test in tests if is_hypothesis_test(test)}.values():
        of = test._hypothesis_internal_use_settings
        few = max(of.max_examples // SHARE_OF_EXAMPLES, min(of.max_examples, FEWEST_EXAMPLES))
        test._hypothesis_internal_use_settings = settings(of, max_examples=few)
