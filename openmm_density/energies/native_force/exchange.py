"""Positions out of OpenMM's memory on a GPU, and forces and energy into it.

OpenMM keeps particles in slots whose order it changes as they move: positions as x, y, z and charge, forces as 64-bit integers in
units of 2⁻³² kJ/mol/nm, all x before all y before all z. Its memory belongs to another CUDA context than torch's and is known
here by its address.
"""

# No annotations from __future__: Triton reads those of its kernels.
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 256
# OpenMM's integers in 1 kJ/mol/nm.
FORCE_UNITS = tl.constexpr(2.0**32)
_TYPES = {4: tl.float32, 8: tl.float64}


def take_positions(
    positions: int, position_bytes: int, particle_of_slot: int, row_of_particle: Tensor, taken: Tensor
) -> None:
    """Copy positions, each to its particle's row.

    `row_of_particle` int32 (N,): the row of ``taken`` to which a particle's position goes; -1 for none. `taken` (M, 3):
    what is written.
    """
    n_slots = row_of_particle.numel()
    _take_kernel[(triton.cdiv(n_slots, _BLOCK),)](
        positions,
        particle_of_slot,
        n_slots,
        row_of_particle,
        taken,
        WORD=_TYPES[position_bytes],
        BLOCK=_BLOCK,
    )


class Sums(NamedTuple):
    """What OpenMM adds up in an evaluation."""

    forces: int  # Address of the sums of the forces
    n_padded: int  # From one component of these to the next
    energy: int  # Address of the sum of the energies
    energy_bytes: int  # Of that, and of each of the next, 4 or 8
    derivatives: int = 0  # Address of the sums of the energy's derivatives


class Derivatives(NamedTuple):
    """Derivatives of an energy on their way to OpenMM's sums, of which no two share one."""

    values: Tensor  # float64 (S,), with respect to each strength
    sums: Tensor  # int32 (S,), the number of the sum of each; -1 for none


def give(
    forces: Tensor,
    energy: Tensor,
    derivatives: Derivatives | None,
    wanted: Tensor,
    row_of_particle: Tensor,
    particle_of_slot: int,
    sums: Sums,
) -> None:
    """Add forces, an energy and its derivatives to OpenMM's sums.

    Those of the forces are integers, to which OpenMM may be adding in other streams meanwhile: the order makes no difference.
    Nothing else may be adding to the sum of the energies where one is wanted, nor to those of the derivatives. `forces` (M, 3)
    in kJ/mol/nm. `energy` float64 () in kJ/mol. `row_of_particle` int32 (N,): the row of ``forces`` that holds a particle's
    force; -1 for none.
    """
    n_slots = row_of_particle.numel()
    n_values = 0 if derivatives is None else derivatives.values.numel()
    _give_kernel[(triton.cdiv(max(n_slots, n_values), _BLOCK),)](
        forces,
        energy,
        wanted if derivatives is None else derivatives.values,
        row_of_particle if derivatives is None else derivatives.sums,
        n_values,
        wanted,
        row_of_particle,
        n_slots,
        particle_of_slot,
        sums.forces,
        sums.n_padded,
        sums.energy,
        sums.derivatives,
        DERIVATIVES=derivatives is not None,
        WORD=_TYPES[sums.energy_bytes],
        BLOCK=_BLOCK,
    )


@triton.jit
def _row_of_slot(slot, asked, particle_of_slot, row_of_particle):
    """Return the rows of the particles in the slots that are asked for; -1 for none. ``particle_of_slot`` is an address."""
    particles = particle_of_slot.to(tl.int64).to(tl.pointer_type(tl.int32))
    particle = tl.load(particles + slot, mask=asked, other=0)
    return tl.load(row_of_particle + particle, mask=asked, other=-1)


@triton.jit
def _take_kernel(
    positions, particle_of_slot, n_slots, row_of_particle, taken, WORD: tl.constexpr, BLOCK: tl.constexpr
):
    """Copy the positions of some particles out of OpenMM's slots.

    Launch grid: ``(cdiv(n_slots, BLOCK),)``: a lane to a slot.

    ================  ============  ===========  ==========================================
    argument          shape         dtype        what it is
    ================  ============  ===========  ==========================================
    positions         (slots, 4)    WORD         address; x, y, z and charge of each slot
    particle_of_slot  (slots,)      int32        address
    n_slots           scalar        int32        N, the number of particles
    row_of_particle   (N,)          int32        row of ``taken``; -1 for none
    taken             (M, 3)        float32/64   out
    WORD, BLOCK       constant                   WORD: the type of OpenMM's numbers
    ================  ============  ===========  ==========================================
    """
    slot = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = _row_of_slot(slot, slot < n_slots, particle_of_slot, row_of_particle)
    here = row >= 0
    source = positions.to(tl.int64).to(tl.pointer_type(WORD)) + 4 * slot
    for axis in tl.static_range(3):
        tl.store(taken + 3 * row + axis, tl.load(source + axis, mask=here, other=0.0), mask=here)


@triton.jit
def _give_kernel(
    forces,
    energy,
    derivatives,
    sum_of_derivative,
    n_derivatives,
    wanted,
    row_of_particle,
    n_slots,
    particle_of_slot,
    force_sums,
    n_padded,
    energy_sum,
    derivative_sums,
    DERIVATIVES: tl.constexpr,
    WORD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add forces in fixed point, an energy and its derivatives to OpenMM's sums.

    Launch grid: ``(cdiv(max(n_slots, n_derivatives), BLOCK),)``: a lane to a slot and to a derivative; program 0 adds the energy.

    =================  =============  ===========  ==========================================
    argument           shape          dtype        what it is
    =================  =============  ===========  ==========================================
    forces             (M, 3)         float32/64   kJ/mol/nm
    energy             ()             float64      kJ/mol
    derivatives        (S,)           float64      of the energy by each strength
    sum_of_derivative  (S,)           int32        its sum; -1 for none
    n_derivatives      scalar         int32        S
    wanted             (2,)           float64      whether forces and energy are wanted
    row_of_particle    (N,)           int32        row of ``forces``; -1 for none
    n_slots            scalar         int32        N, the number of particles
    particle_of_slot   (slots,)       int32        address
    force_sums         (3, n_padded)  int64        address; in FORCE_UNITS, added to
    n_padded           scalar         int32
    energy_sum         ()             WORD         address; added to
    derivative_sums    (sums,)        WORD         address; added to
    DERIVATIVES        constant                    whether there are any
    WORD, BLOCK        constant                    WORD: the type of the energies' sum
    =================  =============  ===========  ==========================================
    """
    slot = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    asked = (slot < n_slots) & (tl.load(wanted).to(tl.int32) != 0)
    row = _row_of_slot(slot, asked, particle_of_slot, row_of_particle)
    here = row >= 0
    sums = force_sums.to(tl.int64).to(tl.pointer_type(tl.int64)) + slot
    for axis in tl.static_range(3):
        force = tl.load(forces + 3 * row + axis, mask=here, other=0.0)
        fixed = (force * FORCE_UNITS).to(tl.int64)
        tl.atomic_add(sums + axis * n_padded, fixed, mask=here, sem="relaxed")
    total = energy_sum.to(tl.int64).to(tl.pointer_type(WORD))
    adds = (tl.program_id(0) == 0) & (tl.load(wanted + 1).to(tl.int32) != 0)
    tl.store(total, tl.load(total, mask=adds) + tl.load(energy).to(WORD), mask=adds)
    if DERIVATIVES:
        number = tl.load(sum_of_derivative + slot, mask=slot < n_derivatives, other=-1)
        there = number >= 0
        target = derivative_sums.to(tl.int64).to(tl.pointer_type(WORD)) + number
        before = tl.load(target, mask=there, other=0.0)
        tl.store(target, before + tl.load(derivatives + slot, mask=there, other=0.0).to(WORD), mask=there)
