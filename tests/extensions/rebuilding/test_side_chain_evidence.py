"""What the density beside a backbone says about its residues."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from openmm import app
from scipy.spatial.transform import Rotation

from openmm_density import DensityMap
from openmm_density.extensions.rebuilding.register_search import RegisterSearch
from openmm_density.extensions.rebuilding.side_chain_evidence import (
    AMINO_ACIDS,
    FREQUENCIES,
    SideChainEvidence,
)
from openmm_density.models import Model, read_model

REAL = {
    "emd5925_frag": ("5925_native.pdb", "emd5925.mrc.gz", 3.64),
    "emd6374_frag": ("6374_native.pdb", "emd6374.mrc.gz", 2.9),
}


def in_register(odds: np.ndarray, length: int) -> tuple[int, int]:
    """Return how many windows of a chain fit best in their own place, of all that are up to four on or back; and of how many."""
    right = []
    for first in range(4, len(odds) - length - 3):
        residues = np.arange(first, first + length)
        sums = {by: odds[residues, residues + by].sum() for by in range(-4, 5)}
        right.append(max(sums, key=sums.__getitem__) == 0)
    return sum(right), len(right)


@pytest.mark.parametrize("folder", REAL)
def test_ten_residues_of_a_deposited_model_tell_their_register_in_its_map(
    folder: str, small_data: Path
) -> None:
    name, map_name, resolution = REAL[folder]
    model = read_model(small_data / folder / name)
    density_map = DensityMap.from_file(small_data / folder / map_name)
    evidence = SideChainEvidence(model.topology, density_map, resolution)
    (chain,) = RegisterSearch(model.topology).chains
    odds = evidence.log_odds(model.positions, chain)
    right, windows = in_register(odds, 10)
    assert right >= 0.9 * windows
    right, windows = in_register(odds, 15)
    assert right == windows
    assert evidence.total(model.positions, [chain]) == pytest.approx(np.trace(odds))
    assert np.trace(odds) > 20.0


def test_at_4_angstrom_twenty_residues_do(emd6374: Model) -> None:
    # Nothing was learnt from this model.
    simulated = DensityMap.simulate(emd6374.topology, emd6374.positions, 4.0, 1.0, noise=0.5, seed=11)
    (chain,) = RegisterSearch(emd6374.topology).chains
    odds = SideChainEvidence(emd6374.topology, simulated, 4.0).log_odds(emd6374.positions, chain)
    right, windows = in_register(odds, 20)
    assert right == windows


def small_model() -> tuple[app.Topology, np.ndarray, np.ndarray]:
    """Return a chain of all amino acids and one that is none, with the backbone of a helix, and its residues."""
    topology = app.Topology()
    chain = topology.addChain()
    positions, before = [], None
    for place, name in enumerate((*AMINO_ACIDS, "UNK")):
        residue = topology.addResidue(name, chain)
        turn, rise = np.radians(100.0) * place, 1.5 * place
        made = {}
        for atom, radius, angle, up in (
            ("N", 1.55, -0.48, -0.9),
            ("CA", 2.28, 0.0, 0.0),
            ("C", 1.66, 0.46, 1.1),
        ):
            made[atom] = topology.addAtom(atom, app.Element.getBySymbol(atom[0]), residue)
            positions.append([radius * np.cos(turn + angle), radius * np.sin(turn + angle), rise + up])
        topology.addBond(made["N"], made["CA"])
        topology.addBond(made["CA"], made["C"])
        if before is not None:
            topology.addBond(before, made["N"])
        before = made["C"]
    return topology, np.array(positions), np.arange(len(AMINO_ACIDS) + 1)


def noise_map(seed: int = 0) -> DensityMap:
    data = np.random.default_rng(seed).normal(1.0, 0.3, (60, 40, 40)).astype(np.float32)
    return DensityMap(data, np.eye(3), np.array([-20.0, -20.0, -15.0]))


def test_odds_are_of_each_residue_against_all_by_their_frequency() -> None:
    topology, positions, chain = small_model()
    odds = SideChainEvidence(topology, noise_map(), 3.6).log_odds(positions, chain)
    assert odds.shape == (21, 21)
    frequencies = FREQUENCIES / FREQUENCIES.sum()
    np.testing.assert_allclose(frequencies @ np.exp(odds[:20]), 1.0)
    assert not odds[20].any()


def test_evidence_moves_and_turns_with_model_and_map() -> None:
    topology, positions, chain = small_model()
    density_map = noise_map()
    odds = SideChainEvidence(topology, density_map, 3.6).log_odds(positions, chain)
    turn = Rotation.from_rotvec([0.4, -1.0, 0.7]).as_matrix()
    move = np.array([31.0, -4.0, 2.5])
    turned = DensityMap(density_map.data, turn @ density_map.matrix, turn @ density_map.origin + move)
    again = SideChainEvidence(topology, turned, 3.6).log_odds(positions @ turn.T + move, chain)
    np.testing.assert_allclose(again, odds, atol=1e-6)
    # Nor does the scale of the map matter.
    brighter = replace(density_map, data=3 * density_map.data)
    np.testing.assert_allclose(
        SideChainEvidence(topology, brighter, 3.6).log_odds(positions, chain), odds, atol=1e-5
    )
