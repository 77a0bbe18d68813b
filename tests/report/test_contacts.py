"""What a fit says of contacts that it does not see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gemmi
import numpy as np

from openmm_density import DensityMap, SymmetryOperators
from openmm_density.models import Model, prepare, read_model
from openmm_density.models.chemistry.planes import PlaneSet
from openmm_density.report.contacts import contact_doubts, contact_report
from openmm_density.report.local_geometry import worse_doubts, worse_of_models

from ..small_models import hetatm, written

CRYSTAL = "xray_1g8a_P21"


def _reported(model: Model, density_map: DensityMap, final: np.ndarray, operators=None) -> dict:
    prepared = SimpleNamespace(model=model, input_positions=lambda positions: positions)
    result = SimpleNamespace(prepared=prepared, initial=model.positions, relaxed=model.positions, final=final)
    return contact_report(
        SimpleNamespace(density_map=density_map, density=SimpleNamespace(operators=operators)), result
    )


def test_an_atom_driven_into_a_mate_is_counted_and_doubted(small_data: Path) -> None:
    model = read_model(small_data / CRYSTAL / "1G8A_refined.pdb")
    density_map = DensityMap.from_file(small_data / CRYSTAL / "composite_omit_map.mtz")
    assert density_map.periodic
    unchanged = _reported(model, density_map, model.positions)
    before = unchanged["mate_contacts_initial"]
    assert before == unchanged["mate_contacts_relaxed"] == unchanged["mate_contacts_final"]
    assert unchanged["worse_mate_contacts"] == [] and contact_doubts(unchanged) == []
    # A methionine's CE lands 0.99 Å from the copy of another atom.
    methionine = next(k for k, record in enumerate(model.records) if record.describe().endswith("CE"))
    cell, group = gemmi.UnitCell(*model.cell), gemmi.find_spacegroup_by_name(model.space_group)
    fractional = cell.fractionalize(gemmi.Position(*model.positions[0])).tolist()
    copy = gemmi.Fractional(*list(group.operations())[1].apply_to_xyz(fractional))
    final = model.positions.copy()
    final[methionine] = np.array(cell.orthogonalize(copy).tolist()) + np.array([0.0, 0.99, 0.0])
    found = _reported(model, density_map, final)
    assert found["mate_contacts_final"] > before
    (doubt,) = contact_doubts(found)
    assert "driven into copies of the model in the crystal" in doubt.sentence
    names = sorted((0, methionine))
    assert (
        " - ".join(model.records[k].describe() for k in names) + " (0.99 Å, no clash before)"
        in doubt.sentence
    )
    assert (model.records[names[0]].describe(),) in [place.members for place in doubt.places]
    # What is no crystal, or not this one, has no mates.
    for each in (replace(model, space_group=""), replace(model, cell=(90.0, 41.0, 54.0, 90.0, 98.0, 90.0))):
        assert _reported(each, density_map, final)["mate_contacts_final"] is None
    # Operators say the same as the file, and those of an assembly have no lattice.
    crystal = SymmetryOperators.crystal(model.cell, model.space_group)
    without = replace(model, space_group="")
    by_operators = _reported(without, density_map, final, crystal)
    assert by_operators == found | {"mates_fitted": True}
    assert "although the fit saw these" in contact_doubts(by_operators)[0].sentence
    assembly = SymmetryOperators(crystal.rotations, crystal.translations)
    assert _reported(without, density_map, final, assembly)["worse_mate_contacts"]
    alone = replace(density_map, periodic=False)
    assert _reported(model, alone, final)["mate_contacts_final"] is None


def test_a_contact_that_is_no_bond_is_doubted_and_not_written(small_data: Path, tmp_path: Path) -> None:
    places = np.array([[1.253 * k, 0.878 * (k % 2), 0.0] for k in range(6)])
    lines = [
        hetatm(k + 1, f" C{k % 3 + 1}", "LIG", 501 + k // 3, place, "C") for k, place in enumerate(places)
    ]
    model = read_model(written(tmp_path / "two.pdb", lines))
    prepared = prepare(model)
    assert prepared.links == [] and prepared.report.links == []
    final = model.positions.copy()
    final[3:] += [1.0, 0.0, 0.0]
    density_map = DensityMap.from_file(small_data / CRYSTAL / "composite_omit_map.mtz")
    (contact,) = _reported(model, density_map, final)["short_contacts"]
    assert contact["atoms"] == "A LIG 501 C3 - A LIG 502 C1"
    worse = worse_of_models(model, replace(model, positions=final), PlaneSet(()))
    (doubt,) = worse_doubts(each.as_dict() for each in worse)
    assert "A LIG 501 C3 - A LIG 502 C1 (1.53 to 2.42 Å, bonds are up to 1.66)" in doubt.sentence
    assert "moved apart" in doubt.sentence and "if there is a bond" in doubt.sentence
    assert [place.members for place in doubt.places] == [("A LIG 501 C3", "A LIG 502 C1")]
