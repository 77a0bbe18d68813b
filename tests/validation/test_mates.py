"""Clashes of a model with its copies in the crystal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gemmi
import numpy as np
import pytest

from openmm_density.models import Model, read_model
from openmm_density.models.model import Link
from openmm_density.validation.mates import MateContact, clashes_with_mates, worse_mate_contacts

from ..small_models import hetatm, written


def _atom(model: Model, name: str) -> int:
    return next(k for k, record in enumerate(model.records) if record.describe() == name)


def _waters(path: Path, places: list[list[float]], occupancies: list[float]) -> Model:
    """Read waters in a crystal of 30 Å with a twofold axis along y."""
    lines = [
        hetatm(k + 1, " O", "HOH", k + 1, np.array(place), "O").replace("  1.00 20", f"{occupancy:6.2f} 20")
        for k, (place, occupancy) in enumerate(zip(places, occupancies))
    ]
    crystal = "CRYST1   30.000   30.000   30.000  90.00  90.00  90.00 P 1 2 1       2"
    return read_model(written(path, [crystal, *lines]))


@pytest.mark.parametrize("name", ["xraymap_3pqr_R32/3pqr.pdb", "xray_1g8a_P21/1G8A_refined.pdb"])
def test_an_atom_driven_into_its_own_copy_is_found(small_data: Path, name: str) -> None:
    model = read_model(small_data / name)
    before = clashes_with_mates(model, model.positions)
    assert before is not None
    moving = next(
        k for k, record in enumerate(model.records) if record.name == "CE" and record.residue_name == "MET"
    )
    cell, group = gemmi.UnitCell(*model.cell), gemmi.find_spacegroup_by_name(model.space_group)
    # Onto what is nearest of the copies.
    positions = model.positions.copy()
    fractional = np.array(cell.fractionalize(gemmi.Position(*positions[moving])).tolist())
    copies = []
    for operation in group.operations():
        if operation.triplet() == "x,y,z":
            continue
        image = np.array(operation.apply_to_xyz(fractional.tolist()))
        image += np.round(fractional - image)
        copies.append(np.array(cell.orthogonalize(gemmi.Fractional(*image)).tolist()))
    target = min(copies, key=lambda place: np.linalg.norm(place - positions[moving]))
    other = _atom(model, model.records[moving].describe().replace(" CE", " SD"))
    positions[other] = target + np.array([0.99, 0.0, 0.0])
    worse = worse_mate_contacts(model, before, clashes_with_mates(model, positions))
    names = {model.records[moving].describe(), model.records[other].describe()}
    (found,) = [each for each in worse if set(each.atoms.split(" - ")) == names]
    assert found.separation_initial is None and found.separation_final == pytest.approx(0.99, abs=1e-6)


def test_special_positions_translations_and_turns_are_told_apart(tmp_path: Path) -> None:
    places = [[0.1, 4.0, 0.1], [29.5, 10.0, 6.0], [0.6, 10.0, -6.0], [5.0, 20.0, 0.4], [-5.0, 20.0, 1.0]]
    model = _waters(tmp_path / "waters.pdb", places, [0.5, 1.0, 1.0, 0.5, 0.5])
    found = clashes_with_mates(model, model.positions)
    # On the axis: none. Across the cell's face, by a translation and the axis: 1.10 Å. In turn: none.
    assert [(each.first, each.second) for each in found] == [(1, 2)]
    # One that comes to the axis in the course of a fit clashes with itself.
    positions = model.positions.copy()
    positions[1] = [0.2, 15.0, 0.0]
    (driven,) = [each for each in clashes_with_mates(model, positions) if each.first == each.second]
    assert (driven.first, driven.distance) == (1, pytest.approx(0.4))


def test_a_translation_alone_makes_a_copy_too(tmp_path: Path) -> None:
    model = _waters(tmp_path / "waters.pdb", [[0.2, 4.0, 7.0], [29.2, 4.0, 7.0]], [1.0, 1.0])
    (found,) = clashes_with_mates(replace(model, space_group="P 1"), model.positions)
    assert (found.first, found.second, found.distance) == (0, 1, pytest.approx(1.0))
    bound = replace(model, space_group="P 1", links=(Link(0, 1, True),))
    assert clashes_with_mates(bound, model.positions) == []
    assert clashes_with_mates(replace(model, space_group=""), model.positions) is None


def test_only_what_is_new_or_nearer_is_worse(tmp_path: Path) -> None:
    model = _waters(tmp_path / "waters.pdb", [[5.0, 5, 5], [9, 9, 9], [12, 12, 12]], [1.0] * 3)
    before = [MateContact(0, 1, 2.1), MateContact(1, 2, 2.2)]
    after = [MateContact(0, 2, 1.5), MateContact(1, 2, 1.8), MateContact(0, 1, 2.0)]
    assert [
        (each.atoms, each.separation_initial, each.separation_final)
        for each in worse_mate_contacts(model, before, after)
    ] == [
        ("A HOH 1 O - A HOH 3 O", None, 1.5),
        ("A HOH 2 O - A HOH 3 O", 2.2, 1.8),
    ]
