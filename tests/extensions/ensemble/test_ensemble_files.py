"""Several models in one mmCIF file."""

from __future__ import annotations

import gemmi
import mdtraj
import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.ensemble.output import write_ensemble_cif
from openmm_density.models import read_model
from openmm_density.models.structure_files import header_of

from ...fragments import fragment
from ...models.test_kept_files import deposited  # noqa: F401


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


def test_models_of_an_ensemble_have_the_document_too(deposited, tmp_path):  # noqa: F811
    model = read_model(deposited)
    path = tmp_path / "ensemble.cif"
    models = [model.positions, model.positions + 1.0]
    write_ensemble_cif(path, model.topology, models, [0.6, 0.4], [1, 2], model.b_factors, header_of(model))
    found = gemmi.read_structure(str(path))
    assert len(found) == 2 and found[0].count_atom_sites() == found[1].count_atom_sites() == len(
        model.positions
    )
    first = [cra.atom.pos.x for cra in found[0].all()]
    np.testing.assert_allclose([cra.atom.pos.x for cra in found[1].all()], np.array(first) + 1, atol=2e-3)
    block = gemmi.cif.read(str(path)).sole_block()
    assert block.find_value("_my_lab.who") == '"d\'Alembert"' and block.find_values(
        "_openmm_density_replica.weight"
    )


def test_models_of_a_file_without_their_numbers_get_some(deposited, tmp_path):  # noqa: F811
    document = gemmi.cif.read(str(deposited))
    document.sole_block().find_loop("_atom_site.pdbx_PDB_model_num").get_loop().remove_column(
        "_atom_site.pdbx_PDB_model_num"
    )
    path = tmp_path / "in.cif"
    document.write_file(str(path))
    model = read_model(path)
    models = [model.positions, model.positions + 1.0]
    write_ensemble_cif(
        tmp_path / "out.cif", model.topology, models, [0.5, 0.5], [1, 1], header=header_of(model)
    )
    found = gemmi.read_structure(str(tmp_path / "out.cif"))
    assert [each.count_atom_sites() for each in found] == [len(model.positions)] * 2
