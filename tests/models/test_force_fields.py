"""The choice of force field and solvent."""

import io
from pathlib import Path

import numpy as np
import openmm
import pytest
from openmm import app, unit

from openmm_density.base.errors import InputError
from openmm_density.fitting.solvation import solvated
from openmm_density.models import Model, prepare
from openmm_density.models.force_field_xml import load_force_field
from openmm_density.models.force_fields import force_field_files, lasting_names
from openmm_density.models.preparation import prepared as prepared_models

from ..contexts import context_of, energy_of, forces_of
from ..fragments import fragment, map_of


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fragment")
    return fragment(folder / "model.pdb", residues=12), map_of(12, 0.0, 0, folder)


def energy_and_forces(system, positions, platform="Reference"):
    context = context_of(system, positions, platform)
    return energy_of(context), forces_of(context)


@pytest.mark.parametrize("method", [None, app.NoCutoff])
def test_the_fast_born_force_has_the_energy_of_the_custom_one(parts, monkeypatch, method):
    prepared = prepare(parts[0], solvent="obc")
    fast = prepared.system(nonbonded_method=method)
    monkeypatch.setattr(prepared_models, "use_native_gbsa", lambda system: None)
    custom = prepare(parts[0], solvent="obc").system(nonbonded_method=method)
    assert [
        any(isinstance(force, openmm.CustomGBForce) for force in each.getForces()) for each in (fast, custom)
    ] == [False, True]
    (energy, forces), (expected, expected_forces) = (
        energy_and_forces(system, prepared.positions) for system in (fast, custom)
    )
    assert energy == pytest.approx(expected, abs=0.01)
    assert np.abs(forces - expected_forces).max() < 1e-3


def test_generalised_born_of_the_second_kind(parts):
    system = prepare(parts[0], solvent="gbn2").system()
    kinds = {type(force).__name__ for force in system.getForces()}
    assert "CustomGBForce" in kinds and "CMMotionRemover" not in kinds


def test_water_surrounds_the_model_and_its_density(parts):
    model, density_map = parts
    shifted = Model(**{**vars(model), "positions": model.positions + np.array([8.0, 0.0, 0.0])})
    solute = prepare(shifted, solvent="water")
    prepared = solvated(solute, density_map)
    n = len(solute.positions)
    assert np.array_equal(prepared.positions[:n], solute.positions)
    assert np.array_equal(prepared.input_positions(prepared.positions), shifted.positions)
    assert (prepared.input_index[n:] == -1).all()
    box = np.array(prepared.topology.getUnitCellDimensions().value_in_unit(unit.angstrom))
    extent = np.ptp(solute.positions, axis=0)
    # Room for the density, 8 Å beside the model, on the one side and, as the box is centred, on the other.
    assert box[0] > extent[0] + 20 + 2 * 5 and (box >= extent + 19.9).all()
    others = [residue.name for residue in prepared.topology.residues()][model.topology.getNumResidues() :]
    assert set(others) == {"HOH", "NA", "CL"}
    volume = box.prod() - 20 * model.topology.getNumAtoms()
    assert others.count("HOH") == pytest.approx(volume / 30.0, rel=0.1)
    assert abs(others.count("NA") - volume * 6.022e-4 * 0.15) < 6
    system = prepared.system()
    charge = sum(
        system.getForce(1).getParticleParameters(i)[0]._value for i in range(system.getNumParticles())
    )
    assert system.usesPeriodicBoundaryConditions() and abs(charge) < 1e-6
    assert prepared.report.sentences[-1].startswith(f"{others.count('HOH')} waters and ")


def test_files_of_a_force_field(tmp_path, monkeypatch):
    shipped = Path(app.__file__).parent / "data"
    (tmp_path / "ligand.xml").write_text("<ForceField/>")
    monkeypatch.chdir(tmp_path)
    amber = tuple(shipped / name for name in ("amber14-all.xml", "amber14/tip3pfb.xml"))
    assert force_field_files("amber14") == amber
    assert force_field_files(["charmm36", Path("ligand.xml"), "amber14/tip3p.xml"], "gbn2") == (
        shipped / "charmm36.xml",
        shipped / "charmm36" / "water.xml",
        tmp_path / "ligand.xml",
        shipped / "amber14" / "tip3p.xml",
        shipped / "implicit" / "gbn2.xml",
    )
    assert lasting_names(["charmm36", "ligand.xml", "amber14/tip3p.xml"]) == [
        "charmm36",
        str(tmp_path / "ligand.xml"),
        "amber14/tip3p.xml",
    ]
    for names, solvent, named in (
        ("opls", "none", "opls"),
        ([], "none", "amber14"),
        ("amber14", "oil", "oil"),
        (["amber14", io.StringIO("<ForceField/>")], "none", "found StringIO"),
    ):
        with pytest.raises(InputError, match=named):
            force_field_files(names, solvent)


def test_a_planted_file_does_not_stand_in_for_one_of_openmms(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "amber14").mkdir()
    for name in ("amber14-all.xml", "amber14/tip3pfb.xml", "amber14/protein.ff14SB.xml"):
        (tmp_path / name).write_text("<ForceField/>")
    # A name that is no file is of OpenMM's own files only, with what these include.
    assert "ALA" in load_force_field(force_field_files("amber14"))._templates
    with pytest.raises(InputError, match=r"working folder.*\./amber14-all\.xml"):
        force_field_files("amber14-all.xml")
    assert force_field_files("./amber14-all.xml") == (tmp_path / "amber14-all.xml",)
