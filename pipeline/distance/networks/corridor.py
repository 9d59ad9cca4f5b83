"""Compute corridors: the cost of a path between two sources through each cell."""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.arguments.grids import check_same_place
from orograph.distance.strengths.attributes import COSTS_ADD_UP
from orograph.kernels.relax.models import EXTRA, MODELS
from orograph.results.costs import cost_variable, costs_of
from orograph.results.opening import ResultLike, open_result
from orograph.tiles.arguments import check_flag, check_integer, check_number, shown
from orograph.tiles.errors import InputError, own_errors
from orograph.tiles.grid.cf import encoding_of_place, georeference_of
from orograph.tiles.raster.wrap import WRAPS

if TYPE_CHECKING:
    import xarray as xr


@own_errors
def corridor(
    a: ResultLike | Sequence[ResultLike] | Mapping[Hashable, ResultLike],
    b: ResultLike | None = None,
    *,
    pairs: Iterable[tuple[Hashable, Hashable]] | None = None,
    normalize: bool = False,
    threshold: float | None = None,
) -> xr.DataArray:
    """Return the least cost of a path between two sets of sources through each cell.

    With several sets, such as patches of habitat, the least cost over all pairs of them.

    Parameters
    ----------
    a, b : Dataset or path
        Results of `cost_distance`, or both of `walking_time`, from the two sets of sources, on one
        grid and with one cost model, or the paths of their stores or files. For walking times, one
        result must be ``"from"`` the sources where paths begin, and the other ``"to"`` the sources
        where they end. Alternatively, ``a`` is a list of two or more results, or a mapping of
        labels to results, and ``b`` is omitted.
    pairs : sequence of pairs, optional
        Which of several results are connected: labels of a mapping, such as those in the columns
        ``from`` and ``to`` of `region_network`; or positions in a list, from 0. By default all
        pairs.
    normalize : bool
        Subtract the least cost of each pair of results, as Linkage Mapper does. The value is then 0
        along the least-cost path of a pair, and elsewhere the extra cost of a path through the
        cell. Without it, the pair with the cheapest path hides the others.
    threshold : float, optional
        Leave out cells with a greater value.

    Returns
    -------
    xarray.DataArray
        The sum of the two costs, shape (y, x); with several pairs, the minimum over the pairs. It
        is least along the least-cost path, and NaN (integers: -1) where either result is unreached.
        Lazy if the results are.

    Raises
    ------
    InputError
        If pairs of a list are also labels of the sources of other results in it, if the results
        differ in grid, cost model, coefficients, greatest slope, penalties, connectivity or
        cell size, if only one of them has integer costs, if ``travel`` is the same for both where
        it matters, or if one was computed with multipliers or rates in ``source_cost``.

    References
    ----------
    B. H. McRae, D. M. Kavanagh, "Linkage Mapper connectivity analysis software", The Nature
    Conservancy, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> friction = np.array([[1.0, 1.0, 1.0], [1.0, 3.0, 1.0]])
    >>> west = og.cost_distance(friction, [(0, 0)], connectivity=4)
    >>> east = og.cost_distance(friction, [(2, 0)], connectivity=4)
    >>> og.corridor(west, east).values
    array([[2., 2., 2.],
           [4., 6., 4.]])
    >>> south = og.cost_distance(friction, [(0, 1)], connectivity=4)
    >>> og.corridor([west, east, south], normalize=True, threshold=1).values
    array([[ 0.,  0.,  0.],
           [ 0., nan, nan]])
    """
    labels, results = _results_of(a, b)
    check_flag("normalize", normalize)
    if threshold is not None:
        threshold = check_number("threshold", threshold, 0)
    chosen = _pairs_of(pairs, labels, results)
    for one, other in chosen:
        _check_pair(results[one], results[other])
        _check_place(results[chosen[0][0]], results[other])
    first = costs_of(results[chosen[0][0]])
    # the data alone, as coordinates may differ in the last bit
    costs = {n: first.copy(data=costs_of(results[n]).data) for pair in chosen for n in pair}
    integers = all(cost.dtype.kind == "i" for cost in costs.values())
    # no sum of two costs is as great; minima are exact
    nothing: Any = np.uint64(2**64 - 1) if integers else math.inf
    found: Any = None
    for one, other in chosen:
        total = _sum_of(costs[one], costs[other], nothing)
        if normalize:
            least = total.min()
            least = least.where(least < nothing, total.dtype.type(0))
            total = (total - least).where(total < nothing, nothing)
        found = total if found is None else np.minimum(found, total)
    kept = found < nothing
    if threshold is not None:
        kept &= found <= (math.floor(threshold) if integers else threshold)
    words = "extra cost" if normalize else "cost"
    attrs: dict[str, Any] = {"long_name": f"{words} of the best path"}
    attrs |= {name: first.attrs[name] for name in ("units", *WRAPS) if name in first.attrs}
    if integers:
        attrs["_FillValue"] = -1
        found = found.astype(np.int64).where(kept, -1)
    else:
        found = found.where(kept)
    # only its own: those of coordinates tell the CRS
    raster: xr.DataArray = found.rename("corridor").drop_attrs(deep=False).assign_attrs(attrs)
    gap = {} if integers else {"_FillValue": np.nan}
    raster.encoding = {**encoding_of_place(raster), **gap}
    return raster


def _results_of(a: object, b: object) -> tuple[list[Hashable] | None, list[xr.Dataset]]:
    """Return the labels of the results, if they have some, and the results."""
    import xarray as xr

    labels: list[Hashable] | None = None
    if b is None and isinstance(a, Mapping) and not isinstance(a, xr.Dataset):
        if len(a) < 2:
            raise InputError(f"a: a mapping of {len(a)} results; give two or more, or a and b")
        labels = list(a)
        named = [("a", f"{shown(given)} of {shown(label)}", given) for label, given in a.items()]
    elif b is None and isinstance(a, Sequence) and not isinstance(a, str | bytes):
        if len(a) < 2:
            raise InputError(f"a: a list of {len(a)} results; give two or more, or a and b")
        named = [("a", f"{shown(given)} at {place}", given) for place, given in enumerate(a)]
    else:
        named = [("a", shown(a), a), ("b", shown(b), b)]
    results = []
    for name, words, given in named:
        if not isinstance(given, xr.Dataset | xr.DataArray | str | os.PathLike):
            raise InputError(f"{name}: {words}; give what cost_distance returns, or its path")
        is_read = not isinstance(given, xr.Dataset)
        result = open_result(given, "cost_distance", name)
        if cost_variable(result) is None:
            raise InputError(f"{name}: {words}; give what cost_distance returns")
        if is_read and "cost_model" not in result.attrs:
            raise InputError(
                f"{name}: {words} does not say its cost model; give all that cost_distance "
                "returned, not one variable, or a file written by out= or from all of it"
            )
        results.append(result)
    return labels, results


def _pairs_of(
    pairs: object, labels: list[Hashable] | None, results: list[xr.Dataset]
) -> list[tuple[int, int]]:
    """Return which of several results are connected, by position; by default each with each."""
    if pairs is None:
        return list(combinations(range(len(results)), 2))
    what = "positions of results in the list" if labels is None else "labels of the mapping"
    if isinstance(pairs, str | bytes | Mapping) or not isinstance(pairs, Iterable):
        raise InputError(f"pairs: {shown(pairs)}; give a list of pairs of {what}")
    chosen = []
    for pair in pairs:
        ends = list(pair) if isinstance(pair, Iterable) and not isinstance(pair, str) else []
        if len(ends) != 2:
            raise InputError(f"pairs: {shown(pair)}; give a list of pairs of {what}")
        one, other = (_place_of(end, labels, len(results)) for end in ends)
        if one == other:
            raise InputError(
                f"pairs: ({ends[0]}, {ends[1]}) connects a result with itself; leave it out"
            )
        chosen.append((one, other))
    if not chosen:
        raise InputError("pairs: there are none; give one or more, or leave them out")
    if labels is None:
        _refuse_labels(chosen, results)
    return chosen


def _place_of(end: object, labels: list[Hashable] | None, count: int) -> int:
    """Return the position of the result that an end of a pair names."""
    if labels is None:
        if isinstance(end, str):
            raise InputError(
                f"pairs: {shown(end)}, but results of a list have positions; give a mapping of "
                "labels to results"
            )
        return check_integer("pairs", end, 0, count - 1)
    if end not in labels:
        listed = ", ".join(map(str, labels[:10])) + (", ..." if len(labels) > 10 else "")
        raise InputError(
            f"pairs: {shown(end)} is not a label of the mapping, whose labels are {listed}"
        )
    return labels.index(end)


def _refuse_labels(pairs: list[tuple[int, int]], results: list[xr.Dataset]) -> None:
    """Raise InputError if pairs of positions could be labels of the sources of other results."""
    known = [np.ravel(result.attrs.get("source_labels", ())).tolist() for result in results]
    ends = {end for pair in pairs for end in pair}
    # Numbers beside the labels of sources can only be positions.
    if not all(any(end in labels for labels in known) for end in ends):
        return
    for end in sorted(ends):
        if end not in known[end]:
            other = next(place for place, labels in enumerate(known) if end in labels)
            own = f"source {known[end][0]}" if len(known[end]) == 1 else "other sources"
            raise InputError(
                f"pairs: {end} is a position in the list, whose result there is that of {own}, but "
                f"source {end} is that of the result at {other}; give a mapping of labels to "
                "results, such as {label: result}, and pairs of labels"
            )


def _check_pair(a: xr.Dataset, b: xr.Dataset) -> None:
    """Raise InputError if two results cannot be added."""
    if "no" in (a.attrs.get(COSTS_ADD_UP), b.attrs.get(COSTS_ADD_UP)):
        raise InputError(
            "corridor: a result was computed with multipliers or rates in source_cost, so its "
            "costs and those of another result do not add up to the cost of a path; compute both "
            "without them"
        )
    _check_place(a, b)
    of_steps = "cost_model", "coefficients", *EXTRA, "connectivity", "cell_size", "links"
    for name in of_steps:
        _check_equal(name, *(_plain(result.attrs.get(name)) for result in (a, b)))
    for name in ("units", *WRAPS):
        _check_equal(name, *(costs_of(result).attrs.get(name) for result in (a, b)))
    kinds = [np.dtype(r.attrs.get("dtype", costs_of(r).dtype)).kind == "i" for r in (a, b)]
    _check_equal("dtype", *("int64" if integer else "float" for integer in kinds))
    ways = [result.attrs.get("travel") for result in (a, b)]
    model = MODELS.get(a.attrs.get("cost_model", ""))
    if model is not None and not model.symmetric and set(ways) != {"from", "to"}:
        raise InputError(
            f"corridor: travel is {ways[0]!r} and {ways[1]!r}; with the model "
            f"{a.attrs['cost_model']!r} compute one with travel='from', from where ways begin, "
            "and the other with travel='to'"
        )


def _check_place(a: xr.Dataset, b: xr.Dataset) -> None:
    """Raise InputError if two results have different grids."""
    first, second = costs_of(a), costs_of(b)
    ours, theirs = (georeference_of(cost) for cost in (first, second))
    shapes = [(cost.shape[0], cost.shape[1]) for cost in (first, second)]
    check_same_place("corridor", shapes[1], theirs, shapes[0], ours)


def _sum_of(first: xr.DataArray, second: xr.DataArray, nothing: Any) -> xr.DataArray:
    """Return the sum of two cost rasters, ``nothing`` where either is unreached."""
    one, other = first.data, second.data
    # Unreached cells are NaN, or -1 in integers: neither is 0 or more.
    reached = first.copy(data=(one >= 0) & (other >= 0))
    total = first.copy(data=one + other)
    if isinstance(nothing, np.unsignedinteger):
        # Costs are below 2**60, so the sum fits; unsigned numbers have room for ``nothing`` above
        # it.
        total = total.astype(np.uint64)
    return total.where(reached, nothing)


def _plain(value: Any) -> Any:
    """Return an attribute value as a scalar or a list, independent of its type in the file."""
    values = np.ravel(value).tolist()
    return values[0] if len(values) == 1 else values


def _check_equal(name: str, one: Any, other: Any) -> None:
    numbers = all(np.asarray(value).dtype.kind in "iuf" for value in (one, other))
    # the cell size of one grid may be known by a transform here and by coordinates there
    same = numbers and np.shape(one) == np.shape(other) and np.allclose(one, other, 1e-9, 0)
    if not same and one != other:
        raise InputError(f"corridor: {name} is {one!r} and {other!r}; compute both with the same")
