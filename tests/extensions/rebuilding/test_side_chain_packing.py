"""Side chains in each other's places, which no change of one alone mends."""

from __future__ import annotations

import gemmi
import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.extensions.rebuilding import Rebuilding, side_chain_packing
from openmm_density.extensions.rebuilding.side_chain_packing import (
    LEAST_GAIN,
    PackingTrial,
    SideChainPacking,
    _EnergyTable,
)
from openmm_density.extensions.rebuilding.stretch_trial import BoundHydrogens, TrialPlace
from openmm_density.models import read_model
from openmm_density.models.preparation import prepare

from ...conftest import PROJECT
from .searched import RESOLUTION, Going, rebuilding_of

# ARG 206 can lie where PHE 19 is, beside it in the fold.
STRETCHES, ARGININE, PHENYLALANINE = ((15, 23), (202, 210)), "206", "19"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Rebuilding, np.ndarray]:
    structure = gemmi.read_structure(str(PROJECT / "examples" / "data" / "adk_closed.pdb"))
    chain = structure[0][0]
    for place in range(len(chain) - 1, -1, -1):
        if not any(first <= chain[place].seqid.num <= last for first, last in STRETCHES):
            del chain[place]
    path = tmp_path_factory.mktemp("two helices") / "model.pdb"
    structure.write_pdb(str(path))
    model = read_model(path)
    # Without noise, by which the best rotamers would differ.
    density_map = DensityMap.simulate(model.topology, model.positions, RESOLUTION, 0.9)
    return rebuilding_of(model, density_map), prepare(model).positions


def atom(rebuilding: Rebuilding, residue: str, name: str) -> int:
    atoms = rebuilding._molecule.topology.atoms()
    return next(each.index for each in atoms if each.residue.id == residue and each.name == name)


def packed_wrongly(rebuilding: Rebuilding, positions: np.ndarray) -> np.ndarray:
    """Return a model with the arginine in the phenylalanine's place, and that in the best one that is left, at rest."""
    chains = rebuilding._rotamers.free_side_chains(positions)
    table = _EnergyTable(rebuilding._molecule, rebuilding._density, rebuilding._rotamers, chains, positions)
    ids = [residue.id for residue in rebuilding._molecule.topology.residues()]
    first, second = (
        next(n for n, chain in enumerate(chains) if ids[chain.residue] == each)
        for each in (ARGININE, PHENYLALANINE)
    )
    ring = positions[chains[second].scored_atoms]
    with pytest.MonkeyPatch.context() as patched:
        # Of all rotamers, not of those that its own density favours.
        patched.setattr(side_chain_packing, "_ROTAMERS", 100)
        tips = table.places(first)[:, chains[first].scored]
    covered = np.linalg.norm(tips[:, :, None] - ring, axis=-1).min(axis=2) < 1.3
    into_ring = int(covered.sum(axis=1).argmax())
    energies = table.own(second) + table.pair(first, second)[into_ring]
    away = np.linalg.norm(table.places(second)[:, chains[second].scored] - ring, axis=-1).max(axis=1) > 3.5
    aside = int(np.where(away, energies, np.inf).argmin())
    wrong = positions.copy()
    for number, rotamer in ((first, into_ring), (second, aside)):
        wrong[chains[number].atoms] = table.places(number)[rotamer]
    residues = np.array(sorted(chains[number].residue for number in (first, second)))
    moving = np.flatnonzero(
        rebuilding._molecule.is_heavy & np.isin(rebuilding._molecule.residue_of, residues)
    )
    place = TrialPlace(rebuilding._tools, wrong, residues)
    soft = place.minimized(wrong[moving], soft=True)
    rested = place.whole(place.minimized(soft.places).places)
    return BoundHydrogens(rebuilding._molecule, moving).carried(wrong, rested)


def test_side_chains_in_each_others_places_change_together(built: tuple[Rebuilding, np.ndarray]) -> None:
    rebuilding, positions = built
    ends = [atom(rebuilding, ARGININE, "CZ"), atom(rebuilding, PHENYLALANINE, "CZ")]

    def off(model: np.ndarray) -> np.ndarray:
        return np.linalg.norm(model[ends] - positions[ends], axis=1)

    wrong = packed_wrongly(rebuilding, positions)
    assert (off(wrong) > 2.5).all()
    alone, _ = rebuilding._rotamers.improved(wrong, only_seen=True)
    assert (off(alone) > 2.5).all()
    found = rebuilding.with_fitted_rotamers(wrong, Going())
    assert (off(found) < 1.0).all()
    changed = {change.residue for change in rebuilding.changes.side_chains}
    assert {"A ARG 206", "A PHE 19"} <= changed
    # Hydrogens come along.
    hydrogen = atom(rebuilding, PHENYLALANINE, "HZ")
    bonds = [np.linalg.norm(each[hydrogen] - each[ends[1]]) for each in (positions, found)]
    assert bonds[1] == pytest.approx(bonds[0], abs=0.01)


def test_what_is_in_its_place_stays(built: tuple[Rebuilding, np.ndarray]) -> None:
    rebuilding, positions = built
    packing = SideChainPacking(rebuilding._molecule, rebuilding._density, rebuilding._rotamers)
    for change in packing.candidates(positions):
        trial = PackingTrial(rebuilding._molecule, rebuilding._registers, positions, change)
        assert rebuilding._workers.run(rebuilding._tools, positions, [trial], Going(), lambda _: None)
        assert change.least_gain == LEAST_GAIN * len(change.chains)
        assert trial.gain < change.least_gain
