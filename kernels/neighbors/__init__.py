"""Neighbour lists: the pairs of atoms nearer than a cut-off, in a periodic box of any shape or in none.

A pair is (i, j, S) where |x_j − x_i + S·box| is below the cut-off, S three whole numbers of lattice vectors: all images count,
also those of an atom with itself, so that boxes thinner than twice the cut-off are treated as they are. The list is in rows, one
for each atom, one after another:

    row i: entries offsets[i] … offsets[i + 1] of ``neighbors`` (j) and ``shifts`` (S, packed in one number each)

Every pair is listed once, in the row of one of its two atoms, or with ``both_ways`` twice, as (i, j, S) and (j, i, −S). Which of
the atoms has it, and the order within a row, follow from where the atoms are, and are the same at every run.

Membership is exact: distances are worked out in float32, and again in float64, from the given positions, where rounding could
matter. An atom that has no finite position, has a coordinate beyond 10¹⁸, or is more than 200 boxes away from the box, is in no
pair, and is counted.

Method: the box is turned so that its vectors are (a_x, 0, 0), (b_x, b_y, 0), (c_x, c_y, c_z). The lattice then has a rectangular
brick a_x × b_y × c_z as a unit cell, into which every atom is brought, and which is cut into rectangular cells whatever the box's
angles. Atoms are sorted by cell, x fastest. What an atom has to be compared with are runs of consecutive atoms, one for each
column of cells along x, as long as the chord that the cut-off's sphere cuts out of it; beyond the brick's faces the same columns
follow again, moved by lattice vectors. A row is counted and, after a prefix sum, filled; no order depends on atomics.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..library import LIBRARY, define
from . import reference

__all__ = ["NeighborList", "listed_pairs", "neighbors", "update_neighbors"]

_NEIGHBORS = define(
    "neighbors(Tensor positions, Tensor? box, float cutoff, bool both_ways=False, int? capacity=None) "
    "-> (Tensor offsets, Tensor neighbors, Tensor shifts, Tensor status)",
    "neighbors",
    reference.neighbors,
)

define(
    "update_neighbors(Tensor positions, Tensor? box, float cutoff, float skin, bool both_ways, Tensor(a!) offsets, "
    "Tensor(b!) neighbors, Tensor(c!) shifts, Tensor(d!) status, Tensor(e!) built_positions, Tensor(f!) built_box) -> ()",
    "neighbors",
    reference.update_neighbors,
)


def neighbors(
    positions: Tensor,
    box: Tensor | None,
    cutoff: float,
    both_ways: bool = False,
    capacity: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """List the pairs of atoms nearer than a cut-off; callable from TorchScript.

    The same input gives the same list, with any number of threads. It can be recorded in a CUDA graph if it has a capacity.

    Parameters
    ----------
    positions : Tensor, shape (N, 3), float32 or float64
        Atoms, in any unit of length, in the box or not.
    box : Tensor, shape (3, 3), float32 or float64, or None
        Lattice vectors, in rows, of any directions. None where nothing is periodic.
    cutoff : float
        Distances below it are listed.
    both_ways : bool
        Whether a pair is listed twice, in the rows of both its atoms.
    capacity : int, optional
        How many pairs there is room for. Without one there is room for those that are found, which on a GPU waits for the device.

    Returns
    -------
    offsets : Tensor, shape (N + 1,), int32
        Where each row begins and ends; never beyond the capacity.
    neighbors : Tensor, shape (capacity,), int32
        The second atom of each pair. Entries behind the last row are undefined.
    shifts : Tensor, shape (capacity,), int32
        S_x + 2¹⁰ S_y + 2²⁰ S_z, each from −511 to 511: `listed_pairs` unpacks it.
    status : Tensor, shape (3,), int64
        How many pairs there are: where this is more than the capacity the last rows are cut off, and the list is of no use;
        how many atoms are in no pair since their positions are not usable; 1.

    Raises
    ------
    ValueError
        If a shape, type or number is not as above, the box is flat, or the cut-off is more than 100 times its smallest height
        (on a GPU a box is not looked at: all atoms then count as not usable). Within TorchScript it is a RuntimeError.
    """
    return torch.ops.openmm_density.neighbors(positions, box, cutoff, both_ways, capacity)


def update_neighbors(
    positions: Tensor,
    box: Tensor | None,
    cutoff: float,
    skin: float,
    both_ways: bool,
    offsets: Tensor,
    neighbors: Tensor,
    shifts: Tensor,
    status: Tensor,
    built_positions: Tensor,
    built_box: Tensor,
) -> None:
    """Make a list anew, in place, if an atom has moved by half the skin or the box has changed; callable from TorchScript.

    The list has the pairs nearer than ``cutoff + skin`` when it was made, among which are all that are nearer than the cut-off
    until then. Nothing waits for a GPU: the call can be recorded in a CUDA graph, in which each replay decides anew.

    Parameters
    ----------
    positions, box, cutoff, both_ways
        As of `neighbors`.
    skin : float
        0 makes the list anew at every call.
    offsets, neighbors, shifts : Tensor
        The list, as `neighbors` returns it.
    status : Tensor, shape (3,), int64
        As `neighbors` returns it, with how often the list was made in the end; 0 there makes it now.
    built_positions : Tensor, shape (N, 3), of the positions' type
        The positions of which it was made.
    built_box : Tensor, shape (3, 3), float64
        The box of which it was made; zeros where there was none. Cut-off and ``both_ways`` of a list stay what they were.

    Raises
    ------
    ValueError
        As `neighbors`.
    """
    torch.ops.openmm_density.update_neighbors(
        positions,
        box,
        cutoff,
        skin,
        both_ways,
        offsets,
        neighbors,
        shifts,
        status,
        built_positions,
        built_box,
    )


def listed_pairs(offsets: Tensor, neighbors: Tensor, shifts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a list's pairs one by one. On a GPU this waits for the device.

    Parameters
    ----------
    offsets, neighbors, shifts : Tensor
        A list.

    Returns
    -------
    first, second : Tensor, shape (pairs,), int64
        i and j.
    steps : Tensor, shape (pairs, 3), int64
        S: ``positions[second] - positions[first] + steps @ box`` is the vector from i to its neighbour.
    """
    lengths = (offsets[1:] - offsets[:-1]).long()
    first = torch.repeat_interleave(torch.arange(lengths.numel(), device=lengths.device), lengths)
    return first, neighbors[: first.numel()].long(), reference.unpacked(shifts[: first.numel()])


class NeighborList(torch.nn.Module):
    """A neighbour list that is kept, and made anew when atoms have moved; scriptable, for a module in a simulation.

    Parameters
    ----------
    n_atoms : int
    cutoff : float
        In the unit of the positions.
    capacity : int
        For how many pairs there is room.
    skin : float, optional
        How much farther than the cut-off pairs are listed, in advance. The list is made anew when an atom has moved by half
        of it.
    both_ways : bool, optional
        Whether a pair is listed twice, in the rows of both its atoms.
    dtype : torch.dtype, optional
        Of the positions.

    Attributes
    ----------
    offsets, neighbors, shifts, status : Tensor
        See `neighbors`; ``status`` has the number of builds in the end.
    """

    def __init__(
        self,
        n_atoms: int,
        cutoff: float,
        capacity: int,
        skin: float = 0.0,
        both_ways: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.cutoff, self.skin, self.both_ways = float(cutoff), float(skin), both_ways
        self.register_buffer("offsets", torch.zeros(n_atoms + 1, dtype=torch.int32))
        self.register_buffer("neighbors", torch.zeros(capacity, dtype=torch.int32))
        self.register_buffer("shifts", torch.zeros(capacity, dtype=torch.int32))
        self.register_buffer("status", torch.zeros(3, dtype=torch.int64))
        self.register_buffer("built_positions", torch.zeros(n_atoms, 3, dtype=dtype))
        self.register_buffer("built_box", torch.zeros(3, 3, dtype=torch.float64))

    def forward(self, positions: Tensor, box: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return offsets, neighbours and shifts of a list that holds for these positions: tensors that the next call may change.

        Parameters
        ----------
        positions : Tensor, shape (N, 3)
        box : Tensor, shape (3, 3), optional
            Lattice vectors, in rows.
        """
        with torch.no_grad():
            torch.ops.openmm_density.update_neighbors(
                positions,
                box,
                self.cutoff,
                self.skin,
                self.both_ways,
                self.offsets,
                self.neighbors,
                self.shifts,
                self.status,
                self.built_positions,
                self.built_box,
            )
        return self.offsets, self.neighbors, self.shifts

    def overflowed(self) -> bool:
        """Return whether there were more pairs than the capacity. On a GPU this waits for the device."""
        return bool(self.status[0] > self.neighbors.numel())


@torch.library.register_fake(_NEIGHBORS, lib=LIBRARY)
def _shapes(
    positions: Tensor,
    box: Tensor | None,
    cutoff: float,
    both_ways: bool = False,
    capacity: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if capacity is None:
        capacity = torch.library.get_ctx().new_dynamic_size()
    return (
        positions.new_empty((positions.shape[0] + 1,), dtype=torch.int32),
        positions.new_empty((capacity,), dtype=torch.int32),
        positions.new_empty((capacity,), dtype=torch.int32),
        positions.new_empty((3,), dtype=torch.int64),
    )
