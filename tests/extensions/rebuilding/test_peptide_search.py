"""Peptides that are turned over, and turned back."""

from __future__ import annotations

import numpy as np

from openmm_density import DensityMap
from openmm_density.extensions.rebuilding import Rebuilding
from openmm_density.extensions.rebuilding.peptide_search import LEAST_GAIN, PeptideSearch, is_flipped
from openmm_density.models import Model

from .searched import Going, rebuilding_of, turned_over

RESIDUES = 24

# Between LYS 13 and GLY 14, of a loop.
FLIPPED = 12


def search_of(rebuilding: Rebuilding) -> PeptideSearch:
    return rebuilding._peptides


def test_a_flipped_peptide_is_turned_back(positions: np.ndarray, rebuilding: Rebuilding) -> None:
    search = search_of(rebuilding)
    peptide = next(each for each in search.peptides if each.residue == FLIPPED)
    wrong = turned_over(rebuilding, positions, peptide)
    assert [each.residue for each in search.peptides if is_flipped(each, positions, wrong)] == [FLIPPED]
    found = rebuilding.with_flipped_peptides(wrong, Going())
    assert not any(is_flipped(each, positions, found) for each in search.peptides)
    (change,) = rebuilding.changes.peptides
    assert (change.residue, change.row) == ("A LYS 13", FLIPPED) and change.gain > LEAST_GAIN
    oxygen = peptide.atoms[1]
    off = np.linalg.norm([each[oxygen] - positions[oxygen] for each in (wrong, found)], axis=1)
    assert off[0] > 2.5 and off[1] < 0.6


def test_peptides_that_the_map_shows_stay(
    native: Model, positions: np.ndarray, density_map: DensityMap
) -> None:
    rebuilding = rebuilding_of(native, density_map)
    assert rebuilding.with_flipped_peptides(positions, Going()) is positions
    assert not rebuilding.changes.peptides


def test_peptides_before_proline_and_cis_ones_stay(positions: np.ndarray, rebuilding: Rebuilding) -> None:
    search = search_of(rebuilding)
    residues = list(rebuilding._molecule.topology.residues())
    before_proline = {r.index - 1 for r in residues if r.name == "PRO"}
    assert before_proline and not before_proline & {each.residue for each in search.peptides}
    assert len(search.peptides) == RESIDUES - 1 - len(before_proline)
    # C and O turned about the bond from Cα to the N of a cis peptide: nothing else of it is looked at.
    slopes = rebuilding._density.slopes(positions)
    numbers = search._shown(positions, slopes, np.inf)
    assert len(numbers) == len(search.peptides)
    peptide = search.peptides[5]
    cis = positions.copy()
    c, _, n = peptide.atoms
    axis = cis[n] - cis[c]
    axis /= np.linalg.norm(axis)
    from_bond = cis[peptide.alphas[1]] - cis[n]
    cis[peptide.alphas[1]] = cis[n] + 2 * (from_bond @ axis) * axis - from_bond
    assert {*numbers} - {*search._shown(cis, slopes, np.inf)} == {5}


def test_what_is_not_fitted_is_not_flipped(positions: np.ndarray, rebuilding: Rebuilding) -> None:
    density = rebuilding._density
    weights = density.weights.copy()
    weights[rebuilding._molecule.residue_of < 10] = 0.0
    blind = type(density)(density.target, weights, density.sigma, density.strength)
    search = PeptideSearch(rebuilding._molecule, blind, rebuilding._registers)
    assert min(each.residue for each in search.peptides) == 10
    # Without any density there is nothing to look for.
    none = type(density)(density.target, np.zeros_like(weights), density.sigma, density.strength)
    assert PeptideSearch(rebuilding._molecule, none, rebuilding._registers).candidates(positions) == []
