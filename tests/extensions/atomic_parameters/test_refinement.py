"""B factors and occupancies at the end of a fit: what is refined where something is odd or missing."""

from dataclasses import replace

import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.atomic_parameters.refinement import with_refined_atoms
from openmm_density.fitting.written_atoms import input_occupancies


def refined(fitted, result=None, **asked):
    fit, of_fit = fitted
    protocol = replace(fit.protocol, **{"b_factors": "residue", **asked})
    return with_refined_atoms(result or of_fit, fit.solute, fit.fit_map, protocol)


def test_b_factors_are_refined_where_occupancies_cannot_be(fitted):
    found = refined(fitted, occupancies="ligands")
    assert found.occupancies is None and found.b_factors.level == "residue"
    assert found.not_refined.startswith("Occupancies are not refined: occupancies the model has none of")


def test_occupancies_that_no_atom_can_have_stay_and_stop_nothing(fitted):
    _, result = fitted
    model = result.prepared.model
    occupancies = model.occupancies.copy()
    backbone = next(atom.index for atom in model.topology.atoms() if atom.name == "CA")
    inside = next(atom.index for atom in model.topology.atoms() if atom.name == "CG")
    occupancies[[backbone, inside]] = 1.5, -0.2
    odd = replace(result, prepared=replace(result.prepared, model=replace(model, occupancies=occupancies)))
    found = refined(fitted, odd, occupancies="side-chains")
    assert found.not_refined is None and np.isfinite(found.b_factors.b_factors).all()
    written = input_occupancies(found)
    assert written[backbone] == 1.5 and 0 <= written[inside] <= 1


def test_off_is_no_kind_among_others(fitted):
    fit, _ = fitted
    assert replace(fit.protocol, occupancies="ligands, waters").occupancies == "ligands, waters"
    for wrong in ("off,ligands", "", "ions"):
        with pytest.raises(InputError, match="occupancies must be one of"):
            replace(fit.protocol, occupancies=wrong)
