"""Geometries of a molecule: conformers, displacements along normal modes, and dynamics of many copies at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.units import ANGSTROM_PER_NANOMETER
from .accuracy import KJ_PER_KCAL

if TYPE_CHECKING:
    from rdkit.Chem import Mol

    from .ligand import Ligand


# Å: displacements of the numerical Hessian.
_STEP = 0.01


class Springs:
    """Forces between the atoms of a molecule. `molecule` with hydrogens and one set of positions."""

    def __init__(self, molecule: Mol) -> None:
        from rdkit.Chem import AllChem

        properties = AllChem.MMFFGetMoleculeProperties(molecule)
        self.name = "UFF" if properties is None else "MMFF94"
        self._field: Any = (
            AllChem.UFFGetMoleculeForceField(molecule)
            if properties is None
            else AllChem.MMFFGetMoleculeForceField(molecule, properties)
        )

    def forces(self, positions: np.ndarray) -> np.ndarray:
        """Return forces in kJ/mol/nm on each of B geometries in nm, both of the shape (B, n, 3)."""
        return np.stack([self._of_one(each) for each in positions])

    def hessian(self, positions: np.ndarray) -> np.ndarray:
        """Return the second derivatives (3n, 3n) in kJ/mol/nm² at positions (n, 3) in nm, by central differences."""
        step = _STEP / ANGSTROM_PER_NANOMETER
        moves = np.eye(positions.size).reshape(-1, *positions.shape) * step
        found = (self.forces(positions - moves) - self.forces(positions + moves)) / (2 * step)
        found = found.reshape(positions.size, positions.size)
        return (found + found.T) / 2

    def _of_one(self, positions: np.ndarray) -> np.ndarray:
        # Without it RDKit takes the distances of the call before.
        self._field.Initialize()
        gradient = self._field.CalcGrad((positions.ravel() * ANGSTROM_PER_NANOMETER).tolist())
        return -np.asarray(gradient).reshape(positions.shape) * (KJ_PER_KCAL * ANGSTROM_PER_NANOMETER)


# kJ/mol/K
BOLTZMANN = 0.00831446261815324
# Positions at a temperature do not depend on masses: one mass for all, in Da, lets all modes move at one pace.
MASS = 12.0
STEP = 0.002
"""ps: with `MASS`, an eighth of the period of the stiffest bond."""
FRICTION = 10.0
"""1/ps."""
# A soft mode's amplitude is limited to that of this force constant, in kJ/mol/nm²: along a straight line bonds would break.
_SOFTEST = 3000.0
# nm, of an atom's coordinate in a step of a minimisation.
_LONGEST_MOVE = 0.01
# In sums of covalent radii: a bond longer than the first, or two other atoms nearer than the second, is broken chemistry.
_LONGEST, _SHORTEST, _NEAREST = 1.5, 0.6, 0.8

Forces = Callable[[np.ndarray], np.ndarray]


def conformers(molecule: Mol, most: int, seed: int) -> np.ndarray:
    """Return geometries of RDKit's ETKDG in nm, relaxed by its force field, shape (C, n, 3); the first is the molecule's own."""
    from rdkit import Chem
    from rdkit.Chem import AllChem

    own = Chem.Mol(molecule)
    made = Chem.Mol(molecule)
    found = len(AllChem.EmbedMultipleConfs(made, most, randomSeed=seed))
    # RDKit takes Ctrl-C for itself meanwhile: it then returns fewer, and does not say why.
    if found < most and len(AllChem.EmbedMultipleConfs(made, most, randomSeed=seed)) != found:
        raise KeyboardInterrupt
    for each in (own, made):
        if not each.GetNumConformers():
            continue
        if AllChem.MMFFHasAllMoleculeParams(each):
            AllChem.MMFFOptimizeMoleculeConfs(each, maxIters=500)
        else:
            AllChem.UFFOptimizeMoleculeConfs(each, maxIters=500)
    positions = [conformer.GetPositions() for each in (own, made) for conformer in each.GetConformers()]
    return np.stack(positions) / ANGSTROM_PER_NANOMETER


def normal_mode_displacements(
    springs: Springs, positions: np.ndarray, temperatures: np.ndarray, seed: int
) -> np.ndarray:
    """Draw geometries (B, n, 3) around one (n, 3) in nm, harmonic along its normal modes, each at its temperature (B,) in K."""
    constants, modes = np.linalg.eigh(springs.hessian(positions))
    # Six modes move and turn the whole molecule, which no energy depends on.
    order = np.argsort(np.abs(constants))[6:]
    widths = np.sqrt(BOLTZMANN * temperatures[:, None] / np.maximum(constants[order], _SOFTEST))
    drawn = np.random.default_rng(seed).normal(size=widths.shape) * widths
    return positions + (drawn @ modes[:, order].T).reshape(-1, *positions.shape)


def dynamics(
    forces: Forces,
    start: np.ndarray,
    temperatures: np.ndarray,
    n_steps: int,
    every: int,
    seed: int,
    is_sound: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Run Langevin dynamics (BAOAB) of B copies at once; copies that break end, and what they were just before stays.

    Source: Leimkuhler and Matthews, Appl. Math. Res. eXpress 2013, 34. `forces` from positions in nm to forces in kJ/mol/nm,
    both of the shape (B, n, 3); `start` (B, n, 3); `temperatures` (B,) in K; `is_sound`: which of (B, n, 3) are whole
    molecules: `Soundness`. Returns `geometries` (M, n, 3); `which` (M,): the copy that each is of.
    """
    generator = np.random.default_rng(seed)
    thermal = np.sqrt(BOLTZMANN * temperatures / MASS)[:, None, None]
    kept = np.exp(-FRICTION * STEP)
    positions, velocities = start.copy(), generator.normal(size=start.shape) * thermal
    alive = np.ones(len(start), dtype=bool)
    acceleration = forces(positions) / MASS
    found, which = [], []
    for step in range(1, n_steps + 1):
        velocities += STEP / 2 * acceleration
        positions += STEP / 2 * velocities
        velocities = kept * velocities + np.sqrt(1 - kept**2) * thermal * generator.normal(size=start.shape)
        positions += STEP / 2 * velocities
        # Those that broke wait at their start: their forces are no longer of use.
        positions[~alive], velocities[~alive] = start[~alive], 0.0
        acceleration = forces(positions) / MASS
        velocities += STEP / 2 * acceleration
        if step % every == 0:
            alive &= is_sound(positions)
            found.append(positions[alive].copy())
            which.append(np.flatnonzero(alive))
    return np.concatenate(found), np.concatenate(which)


class Soundness:
    """Tells whole molecules from broken ones: bonds are not torn, and atoms that are not bonded do not touch."""

    def __init__(self, ligand: Ligand) -> None:
        import gemmi

        radii = np.array([gemmi.Element(number).covalent_r for number in ligand.elements])
        sums = (radii[:, None] + radii) / ANGSTROM_PER_NANOMETER
        bonded = np.zeros(sums.shape, dtype=bool)
        for i, j, _ in ligand.bonds:
            bonded[i, j] = bonded[j, i] = True
        self._pairs = np.triu_indices(len(radii), 1)
        bonded, sums = bonded[self._pairs], sums[self._pairs]
        self._least = np.where(bonded, _SHORTEST, _NEAREST) * sums
        self._most = np.where(bonded, _LONGEST * sums, np.inf)

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return which of the geometries, shape (B, n, 3) in nm, are whole; shape (B,)."""
        first, second = self._pairs
        distances = np.linalg.norm(positions[:, first] - positions[:, second], axis=-1)
        # A comparison with what is no number is False.
        return ((distances > self._least) & (distances < self._most)).all(-1)


def relaxed(forces: Forces, start: np.ndarray, n_steps: int) -> np.ndarray:
    """Minimise geometries (B, n, 3) in nm at once by FIRE (Bitzek et al., Phys. Rev. Lett. 97 (2006) 170201)."""
    positions, velocities = start.copy(), np.zeros_like(start)
    count = len(start)
    steps, mixing, uphill_since = np.full(count, STEP), np.full(count, 0.1), np.zeros(count, dtype=int)

    def norm(vectors: np.ndarray) -> np.ndarray:
        return np.sqrt((vectors**2).sum((1, 2), keepdims=True))

    for _ in range(n_steps):
        force = forces(positions)
        downhill = (force * velocities).sum((1, 2)) > 0
        share = np.where(downhill, mixing, 0.0)[:, None, None]
        toward = force / np.maximum(norm(force), 1e-9) * norm(velocities)
        velocities = np.where(downhill[:, None, None], (1 - share) * velocities + share * toward, 0.0)
        uphill_since = np.where(downhill, uphill_since + 1, 0)
        faster = downhill & (uphill_since > 5)
        steps = np.where(faster, np.minimum(1.1 * steps, 5 * STEP), np.where(downhill, steps, 0.5 * steps))
        mixing = np.where(faster, 0.99 * mixing, np.where(downhill, mixing, 0.1))
        velocities += steps[:, None, None] * force / MASS
        # A network that was asked about what it does not know may pull without a limit.
        moves = steps[:, None, None] * velocities
        positions = positions + np.clip(moves, -_LONGEST_MOVE, _LONGEST_MOVE)
    return positions
