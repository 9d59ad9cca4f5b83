"""One code of pairs for both backends: there and back, in the order of pairs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from orograph.kernels.shortest_path_tree.pair_code import NOBODY, PairCode, code_of_run

LABELS = np.array([-7, 3, 120])


@pytest.mark.parametrize(
    "code",
    [
        PairCode.of_tile(1000, LABELS),
        PairCode(12, LABELS),
        code_of_run(1000, LABELS, np.dtype("int64")),
        code_of_run(1000, None, np.dtype("int8")),
    ],
    ids=["of a tile", "of known labels", "of a run", "of all labels of a dtype"],
)
def test_pairs_are_read_as_they_were_written_and_keep_their_order(code: PairCode) -> None:
    labels, hops = (part.ravel() for part in np.meshgrid(LABELS, [0, 1, 999], indexing="ij"))
    pairs = code.pairs(labels, hops)
    assert (np.diff(pairs) > 0).all()
    assert_array_equal(np.stack(code.labels_and_hops(pairs)), [labels, hops])
    nobody = np.full(2, NOBODY)
    assert_array_equal(code.pairs(nobody, nobody), nobody)
    assert_array_equal(np.stack(code.labels_and_hops(nobody)), [nobody, nobody])
