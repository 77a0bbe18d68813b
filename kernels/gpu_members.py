"""The atoms' gradients out of those of the members of groups of atoms, on the GPU, and the sum of the groups' energies.

Every member of a group (a plane, a term of two torsions) has a gradient of its own in a buffer. An atom adds its members' in the
order of a table, and one program adds the energies in double precision: every sum has one order, so that the same input gives the
same bits.
"""

# No annotations from __future__: Triton reads those of its kernels.
import triton
import triton.language as tl
from torch import Tensor

from .table_checks import check_scale

_ATOMS = 128
_ENERGIES = 1024


def add_to_atoms(
    member_gradient: Tensor,
    atom_offsets: Tensor,
    atom_members: Tensor,
    energies: Tensor,
    scale: Tensor | None,
    gradient: Tensor,
    energy: Tensor,
) -> None:
    """Write gradient and energy of all atoms.

    `member_gradient` float32 (M, 3); `atom_offsets` int32 (A + 1,): atom a has the entries of ``atom_members`` from
    ``atom_offsets[a]`` up to ``atom_offsets[a + 1]``; `atom_members` int32 (M,): rows of ``member_gradient``;
    `energies` float64 (E,): what is added up; `scale` float64 (): what the gradient is multiplied with; `gradient` (N,
    3): is written; `energy` float64 (): is written.
    """
    check_scale(scale)
    n_atoms = gradient.shape[0]
    _atoms_kernel[(1 + triton.cdiv(n_atoms, _ATOMS),)](
        member_gradient,
        atom_offsets,
        atom_members,
        gradient,
        energies,
        energy,
        energies if scale is None else scale,
        n_atoms,
        atom_offsets.numel() - 1,
        energies.numel(),
        SCALED=scale is not None,
        ATOMS=_ATOMS,
        ENERGIES=_ENERGIES,
        num_warps=4,
    )


@triton.jit
def _atoms_kernel(
    member_gradient,
    atom_offsets,
    atom_members,
    gradient,
    energies,
    energy,
    scale,
    n_atoms,
    n_listed,
    n_energies,
    SCALED: tl.constexpr,
    ATOMS: tl.constexpr,
    ENERGIES: tl.constexpr,
):
    """Add the members' gradients to their atoms, and by the first program the energies.

    Launch grid: ``(1 + cdiv(n_atoms, ATOMS),)``: a lane to an atom in all but the first program.

    =================  ===============  ==========  =====================================================================
    argument           shape            dtype       what it is
    =================  ===============  ==========  =====================================================================
    member_gradient    (n_members, 3)   float32     of each member
    atom_offsets       (n_listed + 1,)  int32       atom a has the entries from atom_offsets[a] up to atom_offsets[a + 1]
    atom_members       (n_members,)     int32       where each atom stands in members
    gradient           (n_atoms, 3)     float32/64  out
    energies           (n_energies,)    float64     what is added up
    energy             ()               float64     out
    scale              ()               float64     what the gradient is multiplied with, where SCALED
    n_atoms, n_listed  scalar           int32       rows of gradient; atoms that may be members
    n_energies         scalar           int32
    SCALED             constant
    ATOMS, ENERGIES    constant                     atoms of a program; energies that are read at once
    =================  ===============  ==========  =====================================================================
    """
    program = tl.program_id(0)
    if program == 0:
        total = tl.zeros((ENERGIES,), tl.float64)
        start = 0
        while start < n_energies:
            index = start + tl.arange(0, ENERGIES)
            total += tl.load(energies + index, mask=index < n_energies, other=0.0)
            start += ENERGIES
        tl.store(energy, tl.sum(total, axis=0))
    else:
        atom = (program - 1).to(tl.int64) * ATOMS + tl.arange(0, ATOMS)
        listed = atom < n_listed
        entry = tl.load(atom_offsets + atom, mask=listed, other=0)
        count = tl.load(atom_offsets + atom + 1, mask=listed, other=0) - entry
        x = tl.zeros((ATOMS,), tl.float32)
        y = tl.zeros((ATOMS,), tl.float32)
        z = tl.zeros((ATOMS,), tl.float32)
        most = tl.max(count, axis=0)
        k = 0
        while k < most:
            here = k < count
            member = tl.load(atom_members + entry + k, mask=here, other=0).to(tl.int64)
            x += tl.load(member_gradient + 3 * member, mask=here, other=0.0)
            y += tl.load(member_gradient + 3 * member + 1, mask=here, other=0.0)
            z += tl.load(member_gradient + 3 * member + 2, mask=here, other=0.0)
            k += 1
        exists = atom < n_atoms
        type = gradient.dtype.element_ty
        factor = tl.load(scale).to(type) if SCALED else tl.full((), 1.0, type)
        tl.store(gradient + 3 * atom, x.to(type) * factor, mask=exists)
        tl.store(gradient + 3 * atom + 1, y.to(type) * factor, mask=exists)
        tl.store(gradient + 3 * atom + 2, z.to(type) * factor, mask=exists)
