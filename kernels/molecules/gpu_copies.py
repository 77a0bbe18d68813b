"""Copies by symmetry operators, and their gradients on the atoms that they are copies of, on the GPU: a launch to each."""

# No annotations from __future__: Triton reads those of its kernels.
import torch
import triton
import triton.language as tl
from torch import Tensor

from ..table_checks import check_once
from . import reference

_ATOMS = 128
# Of a program that adds up copies: so many of so many atoms at once.
_FOLDED_ATOMS = 32
_FOLDED_COPIES = 8


def symmetry_copies(positions: Tensor, atoms: Tensor, rotations: Tensor, translations: Tensor) -> Tensor:
    """Return what the operator returns; new atoms are read and checked, with RuntimeError while a CUDA graph is captured."""
    reference.check_operators("symmetry_copies", positions, atoms, rotations, translations)
    _check_atoms("symmetry_copies", atoms, positions.shape[0])
    n_atoms, n_copies = atoms.numel(), rotations.shape[0]
    copies = positions.new_empty((n_copies * n_atoms, 3))
    if copies.numel() > 0:
        with torch.cuda.device_of(positions):
            _copies_kernel[(triton.cdiv(n_atoms, _ATOMS), n_copies)](
                positions.detach().contiguous(),
                atoms.contiguous(),
                rotations.contiguous(),
                translations.contiguous(),
                copies,
                n_atoms,
                ATOMS=_ATOMS,
            )
    return copies


def folded_copies(gradient: Tensor, atoms: Tensor, rotations: Tensor, count: int) -> Tensor:
    """Return what the operator returns; RuntimeError as `symmetry_copies`."""
    reference.check_operators("folded_copies", gradient, atoms, rotations)
    _check_atoms("folded_copies", atoms, count)
    n_atoms, n_copies = atoms.numel(), rotations.shape[0]
    # Where all particles have copies, every row is written.
    folded = gradient.new_empty((count, 3)) if n_atoms == count else gradient.new_zeros((count, 3))
    if n_atoms > 0:
        with torch.cuda.device_of(gradient):
            _fold_kernel[(triton.cdiv(n_atoms, _FOLDED_ATOMS),)](
                gradient.detach().contiguous(),
                atoms.contiguous(),
                rotations.contiguous(),
                folded,
                n_atoms,
                n_copies,
                ATOMS=_FOLDED_ATOMS,
                COPIES=min(_FOLDED_COPIES, triton.next_power_of_2(max(n_copies, 1))),
            )
    return folded


def _check_atoms(operator: str, atoms: Tensor, count: int) -> None:
    if not check_once(operator, lambda: reference.check_atoms(operator, atoms, count), (atoms,), count):
        raise RuntimeError(f"{operator}: evaluate once with these atoms before capturing a CUDA graph")


@triton.jit
def _copies_kernel(positions, atoms, rotations, translations, copies, n_atoms, ATOMS: tl.constexpr):
    """Turn and move atoms by an operator.

    Launch grid: ``(cdiv(n_atoms, ATOMS), n_copies)``: a lane to an atom.

    ============  =====================  ==========  ===========================
    argument      shape                  dtype       what it is
    ============  =====================  ==========  ===========================
    positions     (n_positions, 3)       float32/64
    atoms         (n_atoms,)             int64       rows of positions
    rotations     (n_copies, 3, 3)       float64
    translations  (n_copies, 3)          float64
    copies        (n_copies n_atoms, 3)  float32/64  out
    n_atoms       scalar                 int32
    ATOMS         constant                           of a program
    ============  =====================  ==========  ===========================
    """
    copy = tl.program_id(1).to(tl.int64)
    atom = tl.program_id(0) * ATOMS + tl.arange(0, ATOMS)
    here = atom < n_atoms
    row = tl.load(atoms + atom, mask=here, other=0)
    x = tl.load(positions + 3 * row, mask=here, other=0.0).to(tl.float64)
    y = tl.load(positions + 3 * row + 1, mask=here, other=0.0).to(tl.float64)
    z = tl.load(positions + 3 * row + 2, mask=here, other=0.0).to(tl.float64)
    type = copies.dtype.element_ty
    to = copies + 3 * (copy * n_atoms + atom)
    for axis in tl.static_range(3):
        turned = rotations + 9 * copy + 3 * axis
        moved = x * tl.load(turned) + y * tl.load(turned + 1) + z * tl.load(turned + 2)
        tl.store(to + axis, (moved + tl.load(translations + 3 * copy + axis)).to(type), mask=here)


@triton.jit
def _fold_kernel(
    gradient, atoms, rotations, folded, n_atoms, n_copies, ATOMS: tl.constexpr, COPIES: tl.constexpr
):
    """Sum the gradients by all copies of an atom, turned back.

    Launch grid: ``(cdiv(n_atoms, ATOMS),)``.

    =========  =====================  ==========  =====================================
    argument   shape                  dtype       what it is
    =========  =====================  ==========  =====================================
    gradient   (n_copies n_atoms, 3)  float32/64
    atoms      (n_atoms,)             int64       rows of folded
    rotations  (n_copies, 3, 3)       float64
    folded     (count, 3)             float32/64  out, where atoms are
    n_atoms    scalar                 int32
    n_copies   scalar                 int32
    ATOMS      constant                           of a program
    COPIES     constant                           that are added up side by side
    =========  =====================  ==========  =====================================
    """
    atom = tl.program_id(0) * ATOMS + tl.arange(0, ATOMS)
    here = atom < n_atoms
    sum_x = tl.zeros((COPIES, ATOMS), tl.float64)
    sum_y = tl.zeros((COPIES, ATOMS), tl.float64)
    sum_z = tl.zeros((COPIES, ATOMS), tl.float64)
    first = 0
    while first < n_copies:
        copy = (first + tl.arange(0, COPIES))[:, None].to(tl.int64)
        there = copy < n_copies
        both = there & here[None, :]
        source = gradient + 3 * (copy * n_atoms + atom[None, :])
        x = tl.load(source, mask=both, other=0.0).to(tl.float64)
        y = tl.load(source + 1, mask=both, other=0.0).to(tl.float64)
        z = tl.load(source + 2, mask=both, other=0.0).to(tl.float64)
        of = rotations + 9 * copy
        sum_x += x * tl.load(of, mask=there, other=0.0)
        sum_x += y * tl.load(of + 3, mask=there, other=0.0)
        sum_x += z * tl.load(of + 6, mask=there, other=0.0)
        sum_y += x * tl.load(of + 1, mask=there, other=0.0)
        sum_y += y * tl.load(of + 4, mask=there, other=0.0)
        sum_y += z * tl.load(of + 7, mask=there, other=0.0)
        sum_z += x * tl.load(of + 2, mask=there, other=0.0)
        sum_z += y * tl.load(of + 5, mask=there, other=0.0)
        sum_z += z * tl.load(of + 8, mask=there, other=0.0)
        first += COPIES
    type = folded.dtype.element_ty
    to = folded + 3 * tl.load(atoms + atom, mask=here, other=0)
    tl.store(to, tl.sum(sum_x, axis=0).to(type), mask=here)
    tl.store(to + 1, tl.sum(sum_y, axis=0).to(type), mask=here)
    tl.store(to + 2, tl.sum(sum_z, axis=0).to(type), mask=here)
