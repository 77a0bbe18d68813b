"""The file of an assembly: gemmi builds from it what numpy builds from the operators."""

import gemmi
import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.symmetry import helix, point_group
from openmm_density.extensions.symmetry.assembly_file import write_assembly, write_expanded, write_unit
from openmm_density.extensions.symmetry.groups import about

from ...conftest import PROJECT


@pytest.fixture(scope="module")
def unit(tmp_path_factory):
    path = tmp_path_factory.mktemp("unit") / "unit.cif"
    structure = gemmi.read_structure(str(PROJECT / "examples" / "data" / "adk_closed.pdb"))
    structure.setup_entities()
    structure.make_mmcif_document().write_file(str(path))
    return path


def coordinates(structure):
    return np.array([atom.pos.tolist() for chain in structure[0] for residue in chain for atom in residue])


@pytest.mark.parametrize("is_helical", [False, True])
@pytest.mark.parametrize(
    "operators",
    [
        about(point_group("D2"), np.zeros((4, 3)), point_group("T")[1], np.array([5.0, -7.0, 30.0])),
        helix(1.41, 22.03, -1, 2),
    ],
)
def test_programs_build_the_assembly_from_its_file(tmp_path, unit, operators, is_helical):
    write_assembly(unit, *operators, tmp_path / "assembly.cif", is_helical=is_helical)
    structure = gemmi.read_structure(str(tmp_path / "assembly.cif"))
    own = coordinates(structure)
    np.testing.assert_allclose(own, coordinates(gemmi.read_structure(str(unit))))
    built = gemmi.make_assembly(structure.assemblies[0], structure[0], gemmi.HowToNameCopiedChain.AddNumber)
    found = np.array([atom.pos.tolist() for chain in built for residue in chain for atom in residue])
    expected = np.concatenate([own @ r.T + t for r, t in zip(*operators)])
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert write_expanded(tmp_path / "assembly.cif", tmp_path / "expanded.cif") == len(expected)
    expanded = gemmi.read_structure(str(tmp_path / "expanded.cif"))
    np.testing.assert_allclose(coordinates(expanded), expected, atol=2e-3)
    assert len({chain.name for chain in expanded[0]}) == len(operators[0])


def test_what_else_the_file_says_stays(tmp_path, unit):
    document = gemmi.cif.read(str(unit))
    document[0].set_mmcif_category("_citation.", {"id": ["primary"], "title": ["A paper; on 'kinases'"]})
    document.write_file(str(tmp_path / "cited.cif"))
    write_assembly(
        tmp_path / "cited.cif", *helix(5.0, 30.0, 0, 1), tmp_path / "assembly.cif", is_helical=True
    )
    block = gemmi.cif.read(str(tmp_path / "assembly.cif")).sole_block()
    assert block.get_mmcif_category("_citation.")["title"] == ["A paper; on 'kinases'"]
    assert block.get_mmcif_category("_pdbx_struct_oper_list.")["type"] == [
        "identity operation",
        "helical symmetry operation",
    ]


def test_a_unit_is_cut_out_with_its_own_bonds(tmp_path, small_data):
    model = small_data / "emd3488_5ni1" / "5ni1_updated.cif"
    structure = gemmi.read_structure(str(model))
    names = [chain.name for chain in structure[0]]
    left_out = write_unit(model, names[:1], tmp_path / "unit.cif")
    assert set(left_out) == set(names) - set(names[:1])
    unit = gemmi.read_structure(str(tmp_path / "unit.cif"))
    assert [chain.name for chain in unit[0]] == names[:1]
    assert unit[0].count_atom_sites() == structure[0][0].count_atom_sites()


def test_a_file_without_atoms_is_refused(tmp_path):
    (tmp_path / "empty.cif").write_text("data_x\n_cell.length_a 1\n")
    with pytest.raises(InputError, match=r"empty\.cif: has no atoms"):
        write_assembly(tmp_path / "empty.cif", *helix(5.0, 30.0, 0, 1), tmp_path / "out.cif")
