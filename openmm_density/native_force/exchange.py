"""Positions out of OpenMM's memory on a GPU, and forces and energy into it.

OpenMM keeps particles in slots whose order it changes as they move: positions as x, y, z and charge, forces as 64-bit integers in
units of 2⁻³² kJ/mol/nm, all x before all y before all z. Its memory belongs to another CUDA context than torch's and is known
here by its address.
"""

# No annotations from __future__: Triton reads those of its kernels.
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

    Parameters
    ----------
    positions : int
        Address of four numbers for each slot.
    position_bytes : int
        Of such a number, 4 or 8.
    particle_of_slot : int
        Address of the int32 numbers of the particles.
    row_of_particle : Tensor, shape (N,), int32
        The row of ``taken`` to which a particle's position goes; -1 for none.
    taken : Tensor, shape (M, 3)
        What is written.
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


def give_forces(
    forces: Tensor,
    energy: Tensor,
    wanted: Tensor,
    row_of_particle: Tensor,
    particle_of_slot: int,
    force_sums: int,
    n_padded: int,
    energy_sum: int,
    energy_bytes: int,
) -> None:
    """Add forces and an energy to OpenMM's sums.

    The sums are integers, to which OpenMM may be adding in other streams meanwhile: the order makes no difference.

    Parameters
    ----------
    forces : Tensor, shape (M, 3)
        In kJ/mol/nm.
    energy : Tensor, shape (), float64
        In kJ/mol.
    wanted : Tensor, shape (2,), float64
        Whether forces are wanted, and whether the energy is.
    row_of_particle : Tensor, shape (N,), int32
        The row of ``forces`` that holds a particle's force; -1 for none.
    particle_of_slot : int
        Address of the int32 numbers of the particles.
    force_sums : int
        Address of the sums of the forces.
    n_padded : int
        From one component of the sums to the next.
    energy_sum : int
        Address of the sum of the energies.
    energy_bytes : int
        Of that sum, 4 or 8.
    """
    n_slots = row_of_particle.numel()
    _give_kernel[(triton.cdiv(n_slots, _BLOCK),)](
        forces,
        energy,
        wanted,
        row_of_particle,
        n_slots,
        particle_of_slot,
        force_sums,
        n_padded,
        energy_sum,
        WORD=_TYPES[energy_bytes],
        BLOCK=_BLOCK,
    )


def give_derivatives(slopes: Tensor, slot_of_slope: Tensor, derivative_sums: int, sum_bytes: int) -> None:
    """Add derivatives of an energy to OpenMM's sums, to which nothing else may be adding meanwhile.

    Parameters
    ----------
    slopes : Tensor, shape (S,), float64
        With respect to each strength.
    slot_of_slope : Tensor, shape (S,), int32
        The sum of each; -1 for none.
    derivative_sums : int
        Address of the sums.
    sum_bytes : int
        Of one of them, 4 or 8.
    """
    n = slopes.numel()
    _derivative_kernel[(triton.cdiv(n, _BLOCK),)](
        slopes, slot_of_slope, n, derivative_sums, WORD=_TYPES[sum_bytes], BLOCK=_BLOCK
    )


@triton.jit
def _row_of_slot(slot, asked, particle_of_slot, row_of_particle):
    """Return the rows of the particles in the slots that are asked for; -1 for none.

    ``particle_of_slot`` is an address.
    """
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
    wanted,
    row_of_particle,
    n_slots,
    particle_of_slot,
    force_sums,
    n_padded,
    energy_sum,
    WORD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add forces and an energy to OpenMM's sums, in fixed point.

    Launch grid: ``(cdiv(n_slots, BLOCK),)``: a lane to a slot; program 0 adds the energy.

    ================  =============  ===========  ==========================================
    argument          shape          dtype        what it is
    ================  =============  ===========  ==========================================
    forces            (M, 3)         float32/64   kJ/mol/nm
    energy            ()             float64      kJ/mol
    wanted            (2,)           float64      whether forces and energy are wanted
    row_of_particle   (N,)           int32        row of ``forces``; -1 for none
    n_slots           scalar         int32        N, the number of particles
    particle_of_slot  (slots,)       int32        address
    force_sums        (3, n_padded)  int64        address; in FORCE_UNITS, added to
    n_padded          scalar         int32
    energy_sum        ()             WORD         address; added to
    WORD, BLOCK       constant                    WORD: the type of the energies' sum
    ================  =============  ===========  ==========================================
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


@triton.jit
def _derivative_kernel(
    slopes, slot_of_slope, n_slopes, derivative_sums, WORD: tl.constexpr, BLOCK: tl.constexpr
):
    """Add derivatives of an energy to OpenMM's sums.

    Launch grid: ``(cdiv(n_slopes, BLOCK),)``: a lane to a strength, of which no two share a sum.

    ================  ============  ===========  ==========================================
    argument          shape         dtype        what it is
    ================  ============  ===========  ==========================================
    slopes            (S,)          float64      of the energy by each strength
    slot_of_slope     (S,)          int32        its sum; -1 for none
    n_slopes          scalar        int32        S
    derivative_sums   (sums,)       WORD         address; added to
    ================  ============  ===========  ==========================================
    """
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slot_of_slope + lane, mask=lane < n_slopes, other=-1)
    there = slot >= 0
    target = derivative_sums.to(tl.int64).to(tl.pointer_type(WORD)) + slot
    before = tl.load(target, mask=there, other=0.0)
    tl.store(target, before + tl.load(slopes + lane, mask=there, other=0.0).to(WORD), mask=there)
