from __future__ import annotations

import csv
import io
import warnings

import numpy as np
import openmm
import pytest
from openmm import app, unit

from openmm_density import DensityFit, InputError
from openmm_density.energies.forces import backend_problem
from openmm_density.energies.measures import SIMILARITIES
from openmm_density.models import read_model
from openmm_density.reporters import DensityReporter
from openmm_density.validation.correlation import MapCorrelation
from tests.contexts import system_of
from tests.small_models import fragment_lines, written

pytestmark = pytest.mark.skipif(
    backend_problem("TorchForce") is not None,
    reason=f"TorchForce does not work: {backend_problem('TorchForce')}",
)


@pytest.fixture(scope="module")
def peptide(small_data, tmp_path_factory):
    return read_model(written(tmp_path_factory.mktemp("peptide") / "peptide.pdb", fragment_lines(small_data)))


def simulation_of(fit, peptide, *, derivative=None, bonds_in_group=1, strength=None):
    """Return a simulation of the peptide with springs for bonds and the density."""
    springs = openmm.HarmonicBondForce()
    springs.setForceGroup(bonds_in_group)
    for a, b in peptide.topology.bonds():
        length = np.linalg.norm(peptide.positions[a.index] - peptide.positions[b.index])
        springs.addBond(a.index, b.index, length / 10, 50000.0)
    system = system_of(len(peptide.positions), springs)
    if fit is not None:
        system.addForce(fit.create_force(parameter_derivative=derivative))
    integrator = openmm.LangevinMiddleIntegrator(300, 1, 0.001)
    integrator.setRandomNumberSeed(1)
    simulation = app.Simulation(
        peptide.topology, system, integrator, openmm.Platform.getPlatformByName("Reference")
    )
    simulation.context.setPositions(peptide.positions / 10)
    simulation.context.setVelocitiesToTemperature(300, 1)
    if strength is not None:
        simulation.context.setParameter(fit.parameter_name, strength)
    return simulation


def fit_of(map5925, peptide, **options):
    return DensityFit(map5925, peptide.topology, 3.64, positions=peptide.positions, **options)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def positions_of(simulation):
    state = simulation.context.getState(positions=True)
    return state.getPositions(asNumpy=True).value_in_unit(unit.angstrom)


@pytest.mark.parametrize("derivative", [True, False])
@pytest.mark.parametrize("measure", SIMILARITIES)
def test_similarity_is_that_of_the_energy(map5925, peptide, measure, derivative):
    fit = fit_of(map5925, peptide, similarity=measure)
    simulation = simulation_of(fit, peptide, derivative=derivative)
    table = io.StringIO()
    simulation.reporters.append(DensityReporter(table, 3, fit))
    simulation.step(3)
    (row,) = rows_of(table.getvalue())
    assert list(row) == ["step", "time", "similarity", "density_energy", "strength"]
    assert (row["step"], float(row["strength"])) == ("3", 10.0)
    assert float(row["time"]) == pytest.approx(0.003)
    assert float(row["similarity"]) == pytest.approx(fit.similarity(positions_of(simulation)), rel=1e-5)
    state = simulation.context.getState(energy=True, groups={0})
    energy = state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
    assert float(row["density_energy"]) == pytest.approx(energy, rel=1e-5)


@pytest.mark.parametrize("derivative", [True, False])
def test_strength_of_zero(map5925, peptide, derivative):
    fit = fit_of(map5925, peptide)
    simulation = simulation_of(fit, peptide, derivative=derivative, strength=0.0)
    table = io.StringIO()
    simulation.reporters.append(DensityReporter(table, 2, fit))
    simulation.step(2)
    (row,) = rows_of(table.getvalue())
    assert float(row["similarity"]) == pytest.approx(fit.similarity(positions_of(simulation)), rel=1e-5)
    assert float(row["similarity"]) > 0.3
    assert float(row["density_energy"]) == float(row["strength"]) == 0
    assert simulation.context.getParameter(fit.parameter_name) == 0


def test_reports_do_not_change_the_simulation(map5925, peptide):
    fit = fit_of(map5925, peptide)
    ends = []
    for reports in (False, True):
        simulation = simulation_of(fit, peptide, derivative=False, strength=0.0)
        if reports:
            simulation.reporters.append(DensityReporter(io.StringIO(), 1, fit, density_map=map5925))
        simulation.step(5)
        ends.append(positions_of(simulation))
    np.testing.assert_array_equal(*ends)


def test_a_force_is_known_by_its_parameter(map5925, peptide):
    fit = fit_of(map5925, peptide)
    simulation = simulation_of(fit, peptide, derivative=False)
    force = simulation.system.getForce(1)
    force.setName("cryo-EM")
    force.setForceGroup(5)
    simulation.context.reinitialize(preserveState=True)
    table = io.StringIO()
    simulation.reporters.append(DensityReporter(table, 1, fit))
    simulation.step(1)
    similarity = float(rows_of(table.getvalue())[0]["similarity"])
    assert similarity == pytest.approx(fit.similarity(positions_of(simulation)), rel=1e-5)


def test_our_own_force_is_known_by_its_parameter(map5925, peptide):
    pytest.importorskip("triton")
    from openmm_density.energies.native_force import Computation, make_force

    fit = fit_of(map5925, peptide)
    force = make_force(Computation(fit.create_module(), None, False), fit.parameter_name, 300.0)
    force.setForceGroup(3)
    simulation = simulation_of(None, peptide)
    simulation.system.addForce(force)
    simulation.context.reinitialize(preserveState=True)
    file = io.StringIO()
    simulation.reporters.append(DensityReporter(file, 1, fit))
    simulation.step(1)
    similarity = float(rows_of(file.getvalue())[-1]["similarity"])
    assert similarity == pytest.approx(fit.similarity(positions_of(simulation)), rel=1e-5)


@pytest.mark.parametrize("nested", [False, True])
def test_a_force_within_a_collective_variable_is_found(map5925, peptide, nested):
    fit = fit_of(map5925, peptide)
    variable = openmm.CustomCVForce("energy")
    variable.addCollectiveVariable("energy", fit.create_force())
    simulation = simulation_of(None, peptide)
    system = simulation.system
    if nested:  # as a variable of Metadynamics is
        outer = openmm.CustomCVForce("0.5*variable")
        outer.addCollectiveVariable("variable", variable)
        variable = outer
    system.addForce(variable)
    system.addForce(openmm.CMMotionRemover())
    simulation.context.reinitialize(preserveState=True)
    file = io.StringIO()
    simulation.reporters.append(DensityReporter(file, 1, fit))
    with pytest.warns(UserWarning, match="CMMotionRemover"):
        simulation.step(2)
    row = rows_of(file.getvalue())[-1]
    assert float(row["similarity"]) == pytest.approx(fit.similarity(positions_of(simulation)), rel=1e-5)


def test_a_periodic_system_that_the_fit_was_not_given_is_told(map5925, peptide):
    simulation = simulation_of(fit_of(map5925, peptide), peptide)
    simulation.system.getForce(0).setUsesPeriodicBoundaryConditions(True)
    for fit, warned in (
        (fit_of(map5925, peptide), True),
        (fit_of(map5925, peptide, periodic=False), False),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit.warn_of_forces(simulation.system)
        assert [each for each in caught if "give DensityFit system=" in str(each.message)] or not warned
        assert warned or not caught


def test_two_maps_in_one_system(map5925, peptide):
    fits = [
        fit_of(map5925, peptide, parameter_name=name, force_group=group, atoms=atoms)
        for name, group, atoms in (("first", 3, "resid 0 to 5"), ("second", 4, "resid 6 to 11"))
    ]
    simulation = simulation_of(fits[0], peptide, derivative=False)
    simulation.system.addForce(fits[1].create_force(parameter_derivative=False))
    simulation.context.reinitialize(preserveState=True)
    tables = [io.StringIO(), io.StringIO()]
    simulation.reporters += [DensityReporter(table, 1, fit) for table, fit in zip(tables, fits)]
    simulation.step(1)
    found = [float(rows_of(table.getvalue())[0]["similarity"]) for table in tables]
    expected = [fit.similarity(positions_of(simulation)) for fit in fits]
    assert found == pytest.approx(expected, rel=1e-5)
    assert abs(found[0] - found[1]) > 1e-3


def test_residues(map5925, peptide):
    fit = fit_of(map5925, peptide)
    simulation = simulation_of(fit, peptide)
    table = io.StringIO()
    simulation.reporters.append(
        DensityReporter(table, 2, fit, time=False, density_energy=False, strength=False, density_map=map5925)
    )
    simulation.step(2)
    (row,) = rows_of(table.getvalue())
    overall, residues = MapCorrelation(map5925, peptide.topology, 3.64).evaluate(positions_of(simulation))
    assert list(row)[:3] == ["step", "similarity", "cc_mask"]
    assert float(row["cc_mask"]) == pytest.approx(overall, abs=1e-6)
    assert [float(value) for value in list(row.values())[3:]] == pytest.approx(residues.tolist(), abs=1e-6)
    first = next(peptide.topology.residues())
    assert list(row)[3] == f"{first.chain.id} {first.name} {first.id}"


def test_files_are_begun_continued_and_replaced(map5925, peptide, tmp_path):
    fit = fit_of(map5925, peptide)
    simulation = simulation_of(fit, peptide)
    path = tmp_path / "density.csv"

    def run(**options):
        simulation.reporters[:] = [DensityReporter(path, 1, fit, **options)]
        simulation.step(2)
        # While the reporter lives: rows are on the disk as soon as they are made.
        return rows_of(path.read_text())

    assert [row["step"] for row in run(append=True)] == ["1", "2"]
    assert [row["step"] for row in run(append=True)] == ["1", "2", "3", "4"]
    with pytest.raises(InputError, match="the columns to continue"):
        run(append=True, time=False)
    assert [row["step"] for row in run()] == ["5", "6"]


def test_errors(map5925, peptide, tmp_path):
    fit = fit_of(map5925, peptide)
    with pytest.raises(InputError, match="interval"):
        DensityReporter(io.StringIO(), 0, fit)
    with pytest.raises(InputError, match="no column"):
        DensityReporter(
            io.StringIO(),
            1,
            fit,
            step=False,
            time=False,
            similarity=False,
            density_energy=False,
            strength=False,
        )
    with pytest.raises(InputError, match="cannot be written"):
        DensityReporter(tmp_path / "none" / "density.csv", 1, fit)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="cannot be read as a table"):
        DensityReporter(binary, 1, fit, append=True)
    other = fit_of(map5925, peptide, parameter_name="other")
    simulation = simulation_of(fit, peptide)
    simulation.reporters.append(DensityReporter(io.StringIO(), 1, other))
    with pytest.raises(InputError, match='no force of the DensityFit with the parameter "other"'):
        simulation.step(1)
