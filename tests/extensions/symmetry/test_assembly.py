"""The unit and the operators of what is fitted: from chains, the file or the map, and what is refused."""

import gemmi
import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.extensions.symmetry import find_assembly, parse_symmetry, point_group, write_assembly
from openmm_density.maps.moved_maps import MapAgreement
from openmm_density.models import read_model
from openmm_density.models.assembly import clashes_with_copies

from .test_finding import assembly, farthest, operators, unit  # noqa: F401


@pytest.fixture(scope="module")
def ring(tmp_path_factory, unit):  # noqa: F811
    folder = tmp_path_factory.mktemp("ring")
    truth = operators("C4", (1.0, -2.0, 0.0))
    whole = assembly(folder / "whole.cif", unit, *truth)
    one = assembly(folder / "one.cif", unit, truth[0][:1], truth[1][:1])
    return whole, one, truth, DensityMap.simulate(whole.topology, whole.positions, 6.0, 2.5)


@pytest.mark.parametrize("word", ["auto", "C4"])
def test_a_model_of_all_copies_is_reduced_to_its_unit(ring, tmp_path, word):
    whole, one, _, density_map = ring
    found_unit, found = find_assembly(parse_symmetry(word), whole, density_map, tmp_path / "unit.cif")
    assert (found.name, found.source, found.units) == ("C4", "chains", (("A",), ("B",), ("C",), ("D",)))
    np.testing.assert_allclose(found_unit.positions, one.positions)
    np.testing.assert_allclose(
        found.operators.expanded(found_unit.positions).reshape(-1, 3), whole.positions, atol=5e-3
    )
    assert found.rmsd < 0.01 and found.agreement > 0.95 and found.n_clashes == 0
    assert "The unit is chain A; B, C, D follow from it" in " ".join(found.sentences())


def test_operators_of_the_models_file_are_taken(ring, tmp_path):
    _, one, truth, density_map = ring
    write_assembly(one.path, *truth, tmp_path / "with_operators.cif")
    model = read_model(tmp_path / "with_operators.cif")
    _, found = find_assembly(parse_symmetry("auto"), model, density_map, tmp_path / "unit.cif")
    assert (found.name, found.source, found.units) == ("C4", "file", ())
    np.testing.assert_allclose(found.operators.rotations, truth[0], atol=1e-6)


def test_where_the_files_operators_are_not_of_the_unit_the_map_has_the_axes(ring, tmp_path, monkeypatch):
    _, one, truth, density_map = ring
    in_map = {"C4": MapAgreement(*truth, np.ones(4))}
    monkeypatch.setattr(
        "openmm_density.extensions.symmetry.assembly_search.find_in_map", lambda _, group: in_map[group]
    )
    write_assembly(one.path, *truth, tmp_path / "of_another_chain.cif")
    document = gemmi.cif.read(str(tmp_path / "of_another_chain.cif"))
    names = {"assembly_id": ["1"], "oper_expression": ["1,2,3,4"], "asym_id_list": ["Z"]}
    document[0].set_mmcif_category("_pdbx_struct_assembly_gen.", names)
    document.write_file(str(tmp_path / "of_another_chain.cif"))
    model = read_model(tmp_path / "of_another_chain.cif")
    _, found = find_assembly(parse_symmetry("C4"), model, density_map, tmp_path / "unit.cif")
    assert (found.name, found.source) == ("C4", "map")
    with pytest.raises(InputError, match="or give the symmetry, such as C4"):
        find_assembly(parse_symmetry("auto"), model, density_map, tmp_path / "unit.cif")


def test_the_map_has_the_axes_of_a_model_of_one_unit(ring, tmp_path):
    _, one, truth, density_map = ring
    same, found = find_assembly(parse_symmetry("C4"), one, density_map, tmp_path / "unit.cif")
    assert same is one and found.source == "map" and not (tmp_path / "unit.cif").exists()
    degrees, away = farthest(found.operators, *truth)
    assert degrees < 0.1 and away < 0.1
    assert found.as_dict()["copies"] == 4 and found.as_dict()["map_correlation"] > 0.95


def test_chains_in_another_group_are_refused(ring, tmp_path):
    with pytest.raises(InputError, match=r"has chains in the symmetry C4, 0\.0 Å off it"):
        find_assembly(parse_symmetry("C3"), ring[0], ring[3], tmp_path / "unit.cif")


def test_more_copies_than_the_map_holds_are_refused(ring, tmp_path):
    _, one, _, density_map = ring
    last = int(density_map.to_index(one.positions)[:, 0].min())
    cut = DensityMap(
        density_map.data[:, :, last:],
        density_map.matrix,
        density_map.origin + density_map.matrix @ [last, 0, 0],
    )
    with pytest.raises(InputError, match=r"the map (holds \d of the 4 copies of C4|does not have)"):
        find_assembly(parse_symmetry("C4"), ring[0], cut, tmp_path / "unit.cif")


def test_clashes_with_copies_are_counted(ring):
    _, one, truth, _ = ring
    from openmm_density import SymmetryOperators

    towards = (truth[1][1] + truth[0][1] @ one.positions.mean(axis=0)) - one.positions.mean(axis=0)
    onto = SymmetryOperators.from_matrices([np.eye(3)] * 2, [np.zeros(3), [0.5, 0.0, 0.0]])
    n_atoms = one.topology.getNumAtoms()
    assert clashes_with_copies(one.topology, one.positions, onto) == n_atoms
    apart = SymmetryOperators.from_matrices([np.eye(3)] * 2, [np.zeros(3), 3 * towards])
    assert clashes_with_copies(one.topology, one.positions, apart) == 0


@pytest.mark.parametrize(
    "has, found",
    [
        ({"C2": 0.97, "C4": 0.96}, "C4"),
        ({"C2": 0.97, "C3": 0.95, "D3": 0.96}, "D3"),
        ({"C2": 0.97, "D2": 0.98, "T": 0.96}, "T"),
        ({"C2": 0.97, "C4": 0.98, "D4": 0.97, "T": 0.97, "O": 0.96}, "O"),
        ({"C2": 0.97, "D2": 0.98, "T": 0.97, "I": 0.95, "O": 0.6}, "I"),
    ],
)
def test_auto_takes_the_largest_group_that_a_map_has(ring, tmp_path, monkeypatch, has, found):
    def find(_, group):
        if group not in has:
            raise InputError("the map does not have the symmetry")
        rotations = point_group(group)
        return MapAgreement(
            rotations, np.zeros((len(rotations), 3)), np.array([1.0] + [has[group]] * (len(rotations) - 1))
        )

    monkeypatch.setattr("openmm_density.extensions.symmetry.assembly_search.find_in_map", find)
    monkeypatch.setattr("openmm_density.extensions.symmetry.assembly_search._check_room", lambda *_: None)
    told = []
    asked = parse_symmetry("auto"), ring[1], ring[3], tmp_path / "unit.cif"
    _, symmetry = find_assembly(*asked, lambda *progress: told.append(progress))
    assert (symmetry.name, symmetry.source) == (found, "map")
    # Seven rings, then the groups that hold the one found.
    assert [done for done, _ in told][:8] == [*range(8)] and told == sorted(told)
    assert {total for _, total in told} == {11} and told[-1][0] < 11
