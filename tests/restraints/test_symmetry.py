from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from openmm import app

from openmm_density.base.errors import InputError
from openmm_density.models import Model, read_model
from openmm_density.restraints import SymmetryRestraint

from .single_forces import context_with, copies_of, energy_at


def test_haemoglobin_has_two_pairs_of_copies(small_data: Path) -> None:
    model = read_model(small_data / "emd3488_5ni1/5me2.pdb")
    restraint = SymmetryRestraint(model.topology, model.positions)
    assert sorted(restraint.groups) == [("A", "C"), ("B", "D")] and restraint.notes == []
    atoms = list(model.topology.atoms())
    for site in restraint.sites:
        first, second = ([atoms[i] for i in pair] for pair in site)
        assert [(a.name, a.residue.id) for a in first] == [(a.name, a.residue.id) for a in second]
    # α and β are alike, but no copies.
    assert {atoms[i].residue.chain.id for i in restraint.sites[0].ravel()} in ({"A", "C"}, {"B", "D"})


@pytest.mark.parametrize("count", [2, 3, 7])
def test_copies_that_are_alike_are_free_wherever_they_are(emd5925: Model, count: int) -> None:
    topology, positions = copies_of(emd5925, count)
    restraint = SymmetryRestraint(topology, positions)
    assert restraint.groups == [tuple("ABCDEFG"[:count])]
    context = context_with(restraint.create_force(), len(positions))
    assert energy_at(context, positions) == pytest.approx(0, abs=1e-9)
    assert restraint.violations(positions) == []
    atoms = list(topology.atoms())
    assert {atoms[i].name for site in restraint.sites for i in site.ravel()} >= {
        "CA",
        "CG",
        "CD1",
        "NZ",
        "OG",
    }


def test_the_energy_is_that_of_the_deviations_from_the_mean(emd5925: Model) -> None:
    topology, positions = copies_of(emd5925, 3)
    restraint = SymmetryRestraint(topology, positions, 600.0, width=None)
    shaken = positions + np.random.default_rng(0).normal(scale=0.5, size=positions.shape)
    sites = np.stack(restraint.sites)
    lengths = np.linalg.norm(shaken[sites[..., 0]] - shaken[sites[..., 1]], axis=2)
    deviations = lengths - lengths.mean(axis=1, keepdims=True)
    energy = energy_at(context_with(restraint.create_force(), len(shaken)), shaken)
    assert energy == pytest.approx(0.5 * 6.0 * (deviations**2).sum(), rel=1e-6)
    violations = restraint.violations(shaken)
    assert len(violations) == (np.abs(deviations) > 1).sum() > 0
    assert violations[0].deviation == pytest.approx(np.abs(deviations).max())
    soft = SymmetryRestraint(topology, positions, 600.0, width=2.0)
    apart = lengths[:, [0, 0, 1]] - lengths[:, [1, 2, 2]]
    expected = 0.5 * 6.0 * (apart**2 / (1 + (apart / 2) ** 2)).sum() / 3
    assert energy_at(context_with(soft.create_force(), len(shaken)), shaken) == pytest.approx(
        expected, rel=1e-6
    )


def test_gaps_missing_atoms_and_other_numbers(emd5925: Model) -> None:
    topology, positions = copies_of(emd5925, 3)
    changed = app.Topology()
    kept, chains = [], {}
    for residue in topology.residues():
        number = int(residue.id)
        chain = residue.chain.id
        if chain == "B" and 30 <= residue.index - 97 < 45:
            continue
        if chain not in chains:
            chains[chain] = changed.addChain(chain)
        other = str(number + 500) if chain == "C" else residue.id
        copy = changed.addResidue(residue.name, chains[chain], other)
        for atom in residue.atoms():
            if chain == "A" and residue.index == 20 and atom.name not in ("N", "CA", "C", "O"):
                continue
            changed.addAtom(atom.name, atom.element, copy)
            kept.append(atom.index)
    restraint = SymmetryRestraint(changed, positions[kept])
    assert restraint.groups == [("A", "B", "C")]
    sizes = [len(site) for site in restraint.sites]
    assert set(sizes) == {2, 3}
    assert energy_at(context_with(restraint.create_force(), len(kept)), positions[kept]) == pytest.approx(
        0, abs=1e-9
    )


def test_one_chain_has_no_copies(emd5925: Model) -> None:
    restraint = SymmetryRestraint(emd5925.topology, emd5925.positions)
    assert restraint.n_terms == 0 and "nothing to keep alike" in restraint.notes[0]
    assert restraint.violations(emd5925.positions) == []
    assert energy_at(context_with(restraint.create_force(), len(emd5925.positions)), emd5925.positions) == 0


def test_bad_width(emd5925: Model) -> None:
    with pytest.raises(InputError, match="width"):
        SymmetryRestraint(emd5925.topology, emd5925.positions, width=0.0)
