"""The quick suite has each value of each parameter, and some examples of each property."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import diagonal, draw_fewer_examples, part_of


@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (4, 4), (5, 2, 3), (2, 2, 2, 7)])
def test_a_diagonal_has_each_value_and_no_more_cases_than_the_longest_axis(
    sizes: tuple[int, ...],
) -> None:
    cases = [tuple(zip("abcd", case)) for case in product(*map(range, sizes))]
    kept = [cases[place] for place in diagonal(cases)]
    assert {value for case in kept for value in case} == {v for case in cases for v in case}
    assert len(kept) == max(sizes)


def test_a_diagonal_of_a_part_of_a_product_has_each_value() -> None:
    cases = [(("a", 0), ("b", 0)), (("a", 0), ("b", 1)), (("a", 1), ("b", 1)), (("b", 2),)]
    assert diagonal(cases) == {0, 2, 3}


@pytest.mark.parametrize("places", [1, 2, 5, 30])
@pytest.mark.parametrize("count", [1, 4, 40])
def test_values_are_parted_between_the_places_that_share_them(count: int, places: int) -> None:
    parts = [part_of(range(count), place, places) for place in range(places)]
    assert all(parts)
    if places >= count or places >= 5:
        assert max(map(len, parts)) <= max(1, -(-count // min(places, 5)))
    assert set().union(*parts) == set(range(count))


@pytest.mark.parametrize(("drawn", "few"), [(100, 20), (12, 5), (3, 3)])
def test_a_part_of_the_examples_is_drawn(drawn: int, few: int) -> None:
    seen = []

    @given(st.integers())
    @settings(max_examples=drawn, database=None)
    def collect(number: int) -> None:
        seen.append(number)

    draw_fewer_examples([SimpleNamespace(obj=collect)] * 2)
    collect()
    assert len(seen) == few
