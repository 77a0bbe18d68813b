"""Several models in one mmCIF file."""

from __future__ import annotations

import gemmi
import mdtraj
import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.ensemble.output import write_ensemble_cif

from ...fragments import fragment


def test_models_and_weights_are_read_again(tmp_path):
    model = fragment(tmp_path / "model.pdb", residues=8)
    models = [model.positions, model.positions + 1.5, model.positions - 2.0]
    path = tmp_path / "ensemble.cif"
    write_ensemble_cif(path, model.topology, models, [0.5, 0.3, 0.2], [1, 2, 2])
    found = gemmi.read_structure(str(path))
    assert [each.num for each in found] == [1, 2, 3]
    for written, expected in zip(found, models):
        atoms = [atom.pos.tolist() for chain in written for residue in chain for atom in residue]
        assert np.array(atoms) == pytest.approx(expected, abs=1e-3)
    block = gemmi.cif.read(str(path)).sole_block()
    table = block.find("_openmm_density_replica.", ["model_number", "weight", "conformation"])
    assert [list(row) for row in table] == [
        ["1", "0.50000", "1"],
        ["2", "0.30000", "2"],
        ["3", "0.20000", "2"],
    ]
    states = block.find("_ihm_multi_state_modeling.", ["state_id", "population_fraction"])
    assert [list(row) for row in states] == [["1", "0.50000"], ["2", "0.50000"]]
    assert mdtraj.load(str(path)).n_atoms == len(model.positions)


def test_weights_of_other_models_are_refused(tmp_path):
    model = fragment(tmp_path / "model.pdb", residues=4)
    with pytest.raises(InputError, match="weights must be one for each model"):
        write_ensemble_cif(tmp_path / "e.cif", model.topology, [model.positions], [0.5, 0.5], [1, 2])
