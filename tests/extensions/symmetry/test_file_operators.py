"""The operators of a model's file are those that gemmi expands its assembly with."""

import gemmi
import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.symmetry import operators_of_file, point_group
from openmm_density.extensions.symmetry.assembly_file import write_assembly
from openmm_density.extensions.symmetry.groups import about

from ...conftest import PROJECT

OPERATORS = about(point_group("C3"), np.zeros((3, 3)), point_group("T")[1], np.array([5.0, -7.0, 30.0]))


@pytest.fixture
def structure():
    found = gemmi.read_structure(str(PROJECT / "examples" / "data" / "adk_closed.pdb"))
    found.setup_entities()
    return found


def written(structure, path):
    unit = path.with_name("unit.cif")
    structure.make_mmcif_document().write_file(str(unit))
    write_assembly(unit, *OPERATORS, path)
    return path


def test_of_an_mmcif_file(tmp_path, structure):
    rotations, translations = operators_of_file(written(structure, tmp_path / "assembly.cif"))
    np.testing.assert_allclose(rotations, OPERATORS[0], atol=1e-6)
    np.testing.assert_allclose(translations, OPERATORS[1], atol=1e-5)


def test_of_a_pdb_file(tmp_path, structure):
    assembly = gemmi.read_structure(str(written(structure, tmp_path / "assembly.cif")))
    assembly.write_pdb(str(tmp_path / "assembly.pdb"))
    assert "REMARK 350   BIOMT1   2" in (tmp_path / "assembly.pdb").read_text()
    rotations, translations = operators_of_file(tmp_path / "assembly.pdb")
    np.testing.assert_allclose(rotations, OPERATORS[0], atol=1e-5)
    np.testing.assert_allclose(translations, OPERATORS[1], atol=1e-4)


def test_files_without_copies_tell_none():
    assert operators_of_file(PROJECT / "examples" / "data" / "adk_closed.pdb") is None


def with_second_chain(structure):
    second = structure[0][0].clone()
    second.name = "B"
    for residue in second:
        residue.subchain = "Bxp"
    structure[0].add_chain(second)
    return structure


def test_operators_that_differ_from_chain_to_chain_are_refused(tmp_path, structure):
    with_second_chain(structure)
    path = written(structure, tmp_path / "assembly.cif")
    document = gemmi.cif.read(str(path))
    chains = document[0].find_values("_atom_site.label_asym_id")
    names = list(dict.fromkeys(chains))
    document[0].set_mmcif_category(
        "_pdbx_struct_assembly_gen.",
        {"assembly_id": ["1", "1"], "oper_expression": ["1,2,3", "1"], "asym_id_list": [names[0], names[1]]},
    )
    document.write_file(str(path))
    with pytest.raises(InputError, match="whose operators differ from chain to chain"):
        operators_of_file(path)


@pytest.mark.parametrize("suffix", ["cif", "pdb"])
def test_operators_of_one_chain_of_several_are_refused(tmp_path, structure, suffix):
    # As of a crystal with a dimer on an axis of its own for each chain: the axis of one is not that of the other.
    path = written(with_second_chain(structure), tmp_path / "assembly.cif")
    assert len(operators_of_file(path)[0]) == 3
    document = gemmi.cif.read(str(path))
    first = document[0].find_values("_atom_site.label_asym_id")[0]
    document[0].set_mmcif_category(
        "_pdbx_struct_assembly_gen.",
        {"assembly_id": ["1"], "oper_expression": ["1,2,3"], "asym_id_list": [first]},
    )
    document.write_file(str(path))
    if suffix == "pdb":
        path = path.with_suffix(".pdb")
        gemmi.read_structure(str(tmp_path / "assembly.cif")).write_pdb(str(path))
    with pytest.raises(InputError, match="make copies of a part of its chains, found chain B left out"):
        operators_of_file(path)
