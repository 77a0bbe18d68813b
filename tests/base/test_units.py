"""Every public argument with a unit takes numbers, quantities, and arrays and lists of them."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from openmm import Vec3, unit

from openmm_density import DensityMap, InputError, restraints
from openmm_density.base.units import in_unit
from openmm_density.models import Model, SymmetryOperators, prepare
from openmm_density.models.merging import displacements_apart
from openmm_density.restraints import Restraint

from ..fragments import fragment

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
# A unit in what a docstring says of an argument, and names that mean an argument with one where it says nothing.
UNITS = re.compile(
    r"Quantity|Å|\bkJ/mol|\bin nm\b|^nm\b|\bin K\b|^K\.|\b1/ps\b|\bin fs\b|\bin bar\b|^Da\b|degrees|°"
)
NAMES = """
positions reference_positions points around resolution cutoff margin voxel_size origin b_factors temperature temperatures
timestep friction displacements pressure gap rise
"""
# What the package returns, and nobody builds: numbers of plain arrays.
RESULTS = """
Scores BFactors Occupancies FitResult Confidence MergedSystem SeriesResult Accuracy LigandPotential Prepared AllConformers
Cycle ShellCorrelation Phased AssemblySymmetry Violation Consensus HelixPlace FoundSymmetry MapAgreement StrengthScan
"""
# Numbers, words and objects that stand in a sentence about something with a unit; what has two units, or one by its class.
NO_UNITS = """
DensityFit.occupancies DensityFit.operators DensityFit.parameter_name DensityMap.simulate.noise PlanarityRestraint.constants
BFactorRefinement.level ShellCorrelation.crossing.dips Protocol.b_factors write_model_cif.occupancies write_pdb.occupancies
InputError.problem InputError.remedy map_agreement.rotations write_assembly.rotations Stage.strength CudaGraphForce.module
Model.occupancies Ladder.rungs DistillationSettings.features DistillationSettings.layers DistillationSettings.n_radial
Model.cell SymmetryOperators.cell
SymmetryOperators.crystal.cell DistanceRestraint.expected_error Restraint.violations.positions
"""


def _found(name: str) -> Any:
    """Return the object that a dotted name means."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


def _said(doc: str | None) -> dict[str, str]:
    """Return what a docstring says of each argument, its type before it."""
    said = {}
    for section in re.findall(
        r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}|\Z)",
        inspect.cleandoc(doc or ""),
        re.M | re.S,
    ):
        for entry in re.split(r"\n(?=\S)", section):
            head, _, text = entry.partition("\n")
            names, _, kind = head.partition(" : ")
            for name in names.split(","):
                said.setdefault(name.strip(), (kind, " ".join(text.split())))
    return said


def _callables() -> Iterator[tuple[str, Any, str | None]]:
    """Yield the short name, the function and the docstring of everything public that can be called."""
    for name in re.findall(r"^   (openmm_density[\w.]+)$", REFERENCE.read_text(), re.M):
        if name.split(".")[1] == "extensions" and not find_spec(".".join(name.split(".")[:3])):
            continue  # one that was deleted
        found = _found(name)
        if ".kernels." in name or not (inspect.isclass(found) or inspect.isfunction(found)):
            continue
        short = name.rsplit(".", 1)[1]
        if not inspect.isclass(found):
            yield short, found, found.__doc__
            continue
        if short not in RESULTS.split():
            yield short, found.__init__, found.__doc__
        # TorchScript reads the methods of modules, which work on tensors.
        for method in () if issubclass(found, torch.nn.Module) else dir(found):
            bound = inspect.getattr_static(found, method)
            bound = getattr(bound, "__func__", bound)
            if inspect.isfunction(bound) and not method.startswith("_"):
                yield f"{short}.{method}", bound, bound.__doc__


def _with_units() -> list[tuple[str, Any, str]]:
    cases = []
    for short, function, doc in _callables():
        said = _said(doc)
        for name in list(inspect.signature(function).parameters):
            kind, text = said.get(name, ("", ""))
            if f"{short}.{name}" in NO_UNITS.split() or name == "force_constant":
                continue
            if (
                name in NAMES.split()
                or UNITS.search(kind)
                or any(map(UNITS.search, re.split(r"(?<=[.;:,]) ", text)))
            ):
                cases.append(pytest.param(function, name, id=f"{short}-{name}"))
    return cases


def _is_restraint(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Restraint) and not inspect.isabstract(thing)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return fragment(tmp_path_factory.mktemp("units") / "model.pdb", residues=12)


@pytest.mark.parametrize("function, name", _with_units())
def test_a_public_argument_with_a_unit_is_converted(function: Any, name: str) -> None:
    assert name in getattr(function, "units", {}), "name its unit in takes_units"
    # Alone: it is looked at before the others are missed.
    of_class = next(iter(inspect.signature(function).parameters)) in ("self", "cls")
    with pytest.raises(InputError, match=f"^{name} must be in ") as caught:
        function(*[None] * of_class, **{name: [1.0 * unit.coulomb]})
    assert caught.value.argument == name


@pytest.mark.parametrize(
    "kind", filter(_is_restraint, (getattr(restraints, name) for name in dir(restraints)))
)
def test_force_constants_are_in_the_unit_of_their_restraint(kind: type[Restraint], model: Model) -> None:
    restraint = kind(model.topology, model.positions, 2.0 * kind.force_constant_unit)
    assert restraint.force_constant == 2.0
    with pytest.raises(InputError, match=r"^positions must be in Å"):
        restraint.violations([1.0 * unit.coulomb])
    with pytest.raises(InputError, match=r"^force_constant must be in "):
        kind(model.topology, model.positions, 2.0 * unit.coulomb)


@pytest.mark.parametrize(
    "given",
    [
        [10.0, 20.0, 30.0],
        np.array([1.0, 2.0, 3.0]) * unit.nanometer,
        [1.0, 2.0, 3.0] * unit.nanometer,
        Vec3(1.0, 2.0, 3.0) * unit.nanometer,
        [1.0 * unit.nanometer, 20.0 * unit.angstrom, 3000.0 * unit.picometer],
        np.array([1.0 * unit.nanometer, 20.0, 3.0 * unit.nanometer], dtype=object),
    ],
    ids=["plain", "array", "list", "Vec3", "quantities", "objects"],
)
def test_whatever_the_form_the_lengths_are_the_same(given: Any) -> None:
    np.testing.assert_allclose(in_unit(given, "Å", "x"), [10.0, 20.0, 30.0])
    np.testing.assert_allclose(in_unit([given, given], "Å", "x"), [[10.0, 20.0, 30.0]] * 2)
    density_map = DensityMap(np.zeros((2, 2, 2)), np.eye(3) * 0.1 * unit.nanometer, given)
    np.testing.assert_allclose(density_map.origin, [10.0, 20.0, 30.0])
    np.testing.assert_allclose(density_map.matrix, np.eye(3))
    np.testing.assert_allclose(density_map.to_index([given]), [[0.0, 0.0, 0.0]], atol=1e-12)


def test_a_cell_has_lengths_and_angles() -> None:
    lengths, right = [3.0 * unit.nanometer, 40.0, 50.0 * unit.angstrom], np.pi / 2 * unit.radian
    found = SymmetryOperators.crystal([*lengths, right, 90.0, right], "P 21 21 21")
    np.testing.assert_allclose(found.cell, (30.0, 40.0, 50.0, 90.0, 90.0, 90.0))


def test_models_are_put_apart_whatever_their_unit() -> None:
    places = np.random.default_rng(1).normal(size=(2, 5, 3))
    expected = displacements_apart(list(places), 3.0)
    np.testing.assert_allclose(
        displacements_apart([each * 10 * unit.angstrom for each in places], 30 * unit.angstrom), expected
    )


def test_a_misspelt_keyword_is_answered_with_the_one_that_is_meant(model: Model) -> None:
    with pytest.raises(
        TypeError, match=r"^DensityMap.from_array has no argument voxelsize: did you mean voxel_size\?$"
    ):
        DensityMap.from_array(np.ones((4, 4, 4)), voxelsize=1.0)
    with pytest.raises(
        TypeError, match=r"^PlanarityRestraint has no argument postions: did you mean positions\?$"
    ):
        restraints.PlanarityRestraint(model.topology, postions=model.positions)
    with pytest.raises(InputError, match=r"^model must be a Model, found a str: read one with"):
        prepare("model.pdb")
