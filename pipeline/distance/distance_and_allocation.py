"""Distances and allocation as one problem in two stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from orograph.distance.allocation import AllocationProblem
from orograph.distance.allocation_on_gpu import AllocationOnGpu, gpu_bytes_of_pairs
from orograph.distance.links import BACK_LINK, LINK_ENDS, link_table
from orograph.distance.problem import Distance
from orograph.engines.frontier.field import join_tiles
from orograph.engines.stages import Stage, StagedProblem, Stages
from orograph.kernels.backends import may_use_numba
from orograph.kernels.shortest_path_tree.pair_code import PairCode
from orograph.run.context import RunContext
from orograph.run.problem import Bytes, CellCounts
from orograph.run.run import ResultTable
from orograph.tiles.grid.orientation import NORTH_UP, Orientation
from orograph.tiles.store.create import Variable


@dataclass(frozen=True)
class DistanceAndAllocation(StagedProblem):
    """Distances, then allocation and back directions along the steps that attain them."""

    distance: Distance
    wanted: tuple[str, ...]
    """Names of the outputs."""
    backend: str = "numba"
    code: PairCode | None = None
    """Encoding of pairs (label, hops) on a GPU; None where CPUs do the allocation."""
    names: Sequence[str] | None = field(default=None, kw_only=True)
    """Names for which the integer labels stand; None: labels are plain numbers."""
    orientation: Orientation = field(default=NORTH_UP, kw_only=True)
    """Orientation of the grid, which turns back directions into those of the compass."""

    name = "cost-distance"
    main_stage = 0
    irrelevant: ClassVar[tuple[str, ...]] = ("backend", "code")

    formula = "frontier"  # in its two stages a run keeps the same tiles
    tiled_for_cpus = False

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory of a run, in which a cell of a tile also has its label and hops."""
        needs, itemsize = self.distance.bytes(cells), self.distance.dtype.itemsize
        pair = 0 if itemsize == 8 else 8  # it may lie in the memory of a cost of eight bytes
        return replace(needs, cell=needs.cell + 5 + pair)

    def gpu_bytes(self, cells: int) -> int:
        """Return the peak bytes of GPU memory of a tile in either stage."""
        return max(self.distance.gpu_bytes(cells), gpu_bytes_of_pairs(self.distance, cells))

    def tiled(self, context: RunContext) -> RunContext:
        """Return a run context with the tiles that hold both stages."""
        return join_tiles(context, self.gpu_bytes)

    def on_tiles(self, context: RunContext) -> DistanceAndAllocation:
        """Return the problem as the tiles of a run are computed quickest."""
        return replace(self, distance=self.distance.on_tiles(context))

    @property
    def leading(self) -> Distance:
        """The problem of the distances."""
        return self.distance

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the rasters of the distances."""
        return self.distance.inputs

    @property
    def allocation(self) -> AllocationProblem:
        """Problem of the second stage."""
        of_grid: dict[str, Any] = {"names": self.names, "orientation": self.orientation}
        if self.code is None or may_use_numba(self.backend):
            on_cpu = replace(self.distance, backend="numba")
            return AllocationProblem(on_cpu, self.wanted, **of_grid)
        on_gpu = replace(self.distance, backend="cuda")
        return AllocationOnGpu(on_gpu, self.wanted, self.code, **of_grid)

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages of distances and of allocation, which reads the cost too."""
        distance, allocation = replace(self.distance, backend=self.backend), self.allocation
        (cost,) = distance.outputs
        # a run that goes on elsewhere cannot read the states of another backend
        name = "allocation" if may_use_numba(allocation.backend) else "allocation-cuda"
        return Stage(distance, self.inputs), Stage(allocation, (*self.inputs, cost.name), name)

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Rasters of distances, back directions and allocation."""
        return self.distance.outputs + self.allocation.outputs

    @property
    def known_attributes(self) -> dict[str, Any]:
        """Dataset attributes that the arguments determine, before the run."""
        return self.distance.known_attributes

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table of links, if back directions go along links."""
        return LINK_ENDS if BACK_LINK in self.outputs else ()

    def table_of(self, stages: Stages) -> ResultTable:
        """Return the table of link ends if back directions go along links, else nothing."""
        links = self.distance.links
        if not self.columns or links is None:
            return {}
        return link_table(links, next(iter(stages.inputs.values())).georeference)
