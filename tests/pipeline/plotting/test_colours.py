"""Colours of classes: told apart with and without colour blindness, and different in neighbours."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import matplotlib
import numpy as np
import pytest
from skimage.color import deltaE_ciede2000, rgb2lab

import orograph as og
from orograph.plotting.colours import COMPASS, PALETTE, as_rgb, spread_colours

matplotlib.use("agg")
LEAST = 15.0
# full loss of one kind of cone, on linear RGB: Machado, Oliveira and Fernandes 2009, table 1
SIGHT = {
    "normal": np.eye(3),
    "deuteranope": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "protanope": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
}


def seen(colours: Any, sight: str) -> Any:
    """CIE Lab of sRGB colours as someone sees them."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    linear = np.clip(linear @ SIGHT[sight].T, 0, 1)
    simulated = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return rgb2lab(simulated)


def apart(first: Any, second: Any, sight: str) -> Any:
    """CIEDE2000 between colours."""
    return deltaE_ciede2000(seen(first, sight), seen(second, sight))


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("palette", [PALETTE, (*COMPASS, "#000000")], ids=["classes", "compass"])
def test_all_classes_can_be_told_apart(palette: tuple[str, ...], sight: str) -> None:
    colours = as_rgb(palette)
    pairs = np.array(list(combinations(range(len(colours)), 2)))
    assert apart(colours[pairs[:, 0]], colours[pairs[:, 1]], sight).min() >= LEAST


@pytest.mark.parametrize("sight", ["normal", "deuteranope"])
def test_no_class_looks_like_the_empty_ground(sight: str) -> None:
    assert apart(as_rgb(PALETTE), np.ones((len(PALETTE), 3)), sight).min() >= LEAST


def noise() -> Any:
    """Thousands of small regions."""
    return np.random.default_rng(0).integers(0, 2, (150, 200))


def watersheds() -> Any:
    """Hundreds of regions, some within others."""
    heights = np.random.default_rng(5).random((90, 120)).cumsum(0).cumsum(1)
    heights = np.sin(heights / 300) + np.random.default_rng(6).random((90, 120))
    return og.watersheds(og.flow_direction(heights))["watershed"]


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize(
    "regions",
    [
        pytest.param(
            lambda: og.connected_components(noise() > 0, connectivity=4)["labels"],
            id="components of noise",
        ),
        pytest.param(
            lambda: og.cost_distance(
                np.ones((90, 120)), np.random.default_rng(1).integers(0, 90, (300, 2)),
                outputs="allocation",
            )["allocation"],
            id="an allocation of 300 points",
        ),
        pytest.param(watersheds, id="watersheds"),
    ],
)  # fmt: skip
def test_neighbours_in_a_picture_can_be_told_apart(regions: Any, sight: str) -> None:
    labels = regions()
    assert np.unique(labels).size > 80
    drawn = og.plot(labels).images[0].get_array()
    matplotlib.pyplot.close("all")
    assert drawn.shape[:2] == labels.shape
    for one, other in ((np.s_[:-1], np.s_[1:]), (np.s_[:, :-1], np.s_[:, 1:])):
        beside = (labels.values[one] != labels.values[other]) & (drawn[one][..., 3] == 1)
        beside &= drawn[other][..., 3] == 1
        first, second = drawn[one][..., :3][beside], drawn[other][..., :3][beside]
        assert not len(first) or apart(first, second, sight).min() >= LEAST


def test_regions_over_a_gap_have_different_colours() -> None:
    cells = np.zeros((40, 40), int)
    cells[::3, ::3] = np.arange(1, 197).reshape(14, 14)  # none of them touch
    drawn = og.plot(og.connected_components(cells)["labels"]).images[0].get_array()
    matplotlib.pyplot.close("all")
    dots = drawn[::3, ::3, :3]
    assert np.abs(dots[1:] - dots[:-1]).max(axis=-1).min() > 0.1
    assert np.abs(dots[:, 1:] - dots[:, :-1]).max(axis=-1).min() > 0.1


@pytest.mark.parametrize("seed", range(5))
def test_regions_of_random_maps_are_coloured(seed: int) -> None:
    """Planar maps, the hub of a wheel, and a chain that clashes everywhere at first."""
    from scipy.spatial import Delaunay

    count = 2000
    mesh = Delaunay(np.random.default_rng(seed).random((count, 2)))
    pairs = np.concatenate([mesh.simplices[:, at].T for at in ([0, 1], [1, 2], [2, 0])], axis=1)
    wheel = np.stack([np.zeros(count - 1, int), np.arange(1, count)])
    chain = np.stack([np.arange(count - 12), np.arange(12, count)])
    for given in (pairs, wheel, chain):
        colour = spread_colours(count, given)
        assert (colour[given[0]] != colour[given[1]]).all()
        assert colour.min() >= 0
        assert colour.max() < len(PALETTE)
    assert np.unique(spread_colours(12, pairs[:, :0])).size == 12
