"""Measured amplitudes of MTZ files: columns, flags, and what is refused."""

import gemmi
import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.extensions.crystals import crystal_structure, read_reflections

from ...base.test_file_kinds import refined  # noqa: F401
from .simulated import usual_columns, write_mtz


@pytest.fixture(scope="module")
def indices(protein):
    return np.ascontiguousarray(
        gemmi.make_miller_array(protein.cell, gemmi.SpaceGroup(protein.spacegroup_hm), 5.0)
    )


@pytest.fixture
def write(protein, indices, tmp_path):
    """Return a function that writes columns by label and type."""

    def written(columns, hkl=indices, structure=protein):
        return write_mtz(tmp_path / "data.mtz", structure, hkl, columns)

    return written


def values(n, seed=0):
    return np.random.default_rng(seed).gamma(2.0, 50.0, n) + 5.0


@pytest.mark.parametrize(
    "labels", [("FP", "SIGFP", "FREE"), ("F-obs", "SIGF-obs", "R-free-flags"), ("Fx", "SIGFx", "my_free")]
)
def test_usual_columns_are_found(write, indices, labels):
    n = len(indices)
    calculated = {"FC": ("F", values(n)), "PHIC": ("P", np.zeros(n))}
    found = read_reflections(
        write({**calculated, **usual_columns(values(n), np.arange(n) % 20 == 0, labels)})
    )
    assert found.columns.values == (labels[0],) and not found.columns.intensities
    absent = gemmi.SpaceGroup("P 1 21 1").operations().systematic_absences(indices).sum()
    assert len(found) == n - absent and found.free is not None
    assert found.resolution == pytest.approx(5.0, abs=0.1)


def test_flags_of_ccp4_and_phenix_say_the_same(write, indices):
    n = len(indices)
    free = np.arange(n) % 20 == 7
    ccp4 = read_reflections(write(usual_columns(values(n), free))).free
    for flags in (free.astype(float), 1 - free.astype(float)):
        columns = usual_columns(values(n), None) | {"R-free-flags": ("I", flags)}
        assert np.array_equal(read_reflections(write(columns)).free, ccp4)


@pytest.mark.parametrize(
    ("flags", "free", "said"),
    [
        (lambda n: n % 20, 0, "as CCP4 and REFMAC have it"),
        (lambda n: 1 + n % 20, 1, "the lowest of 20 sets"),
        (lambda n: n % 20 == 0, 1, "as Phenix and CNS have it"),
        (lambda n: np.where(n % 20, 1, -1), -1, "as SHELX has it"),
        (lambda n: np.where(n % 20, 4, 7), 7, "the less frequent value"),
    ],
)
def test_the_free_value_is_told_by_its_convention(write, indices, flags, free, said):
    numbers = np.arange(len(indices))
    columns = usual_columns(values(len(indices)), None) | {"FREE": ("I", flags(numbers).astype(float))}
    path, present = write(columns), _present(indices)
    found = read_reflections(path)
    assert np.array_equal(found.free, (flags(numbers) == free)[present])
    assert f"FREE = {free} is read as free ({said}" in found.notes[-1]


def test_the_free_value_can_be_given(write, indices):
    numbers = np.arange(len(indices))
    path = write(usual_columns(values(len(indices)), None) | {"FREE": ("I", 1.0 + numbers % 20)})
    found = read_reflections(path, free_value=20)
    assert np.array_equal(found.free, (numbers % 20 == 19)[_present(indices)])
    with pytest.raises(InputError, match="hold out 0% of the reflections if 0 means free"):
        read_reflections(path, free_value=0)
    with pytest.raises(InputError, match="no column of free flags"):
        read_reflections(write(usual_columns(values(len(indices)), None)), free_value=1)


def test_friedel_mates_are_merged(write, indices):
    n = len(indices)
    plus, minus = values(n, 1), values(n, 2)
    minus[::9] = np.nan
    columns = {
        "F(+)": ("G", plus),
        "SIGF(+)": ("L", np.full(n, 2.0)),
        "F(-)": ("G", minus),
        "SIGF(-)": ("L", np.full(n, 4.0)),
        "FREE": ("I", (np.arange(n) % 10 == 0).astype(float)),
    }
    found = read_reflections(write(columns))
    expected = np.where(np.isnan(minus), plus, (plus / 4 + np.nan_to_num(minus) / 16) / (1 / 4 + 1 / 16))
    assert np.allclose(np.sort(found.amplitudes), np.sort(expected[_present(indices)]), rtol=1e-5)
    assert any("merged" in note for note in found.notes)


def test_intensities_become_amplitudes(write, indices):
    n = len(indices)
    strong = values(n) ** 2
    strong[5] = -1.0
    columns = {"IMEAN": ("J", strong), "SIGIMEAN": ("Q", np.full(n, 30.0))}
    found = read_reflections(write(columns))
    assert found.free is None and found.columns.intensities and (found.amplitudes > 0).all()
    assert np.median(found.amplitudes) == pytest.approx(np.median(np.sqrt(np.abs(strong))), rel=0.02)


def test_made_flags_hold_out_a_twentieth_in_any_order(write, indices):
    found = read_reflections(write(usual_columns(values(len(indices)), None))).with_made_flags(3)
    turned = found.selected(np.arange(len(found))[::-1]).with_made_flags(3)
    assert np.array_equal(turned.free[::-1], found.free)
    assert found.free.mean() == pytest.approx(0.05, abs=0.005)


def _present(indices):
    return ~gemmi.SpaceGroup("P 1 21 1").operations().systematic_absences(indices)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda n: {"FC": ("F", values(n)), "PHIC": ("P", np.zeros(n))}, "no measured amplitudes"),
        (lambda n: usual_columns(np.full(n, np.nan), None), "no value with a deviation above 0"),
        (lambda n: usual_columns(values(n), np.zeros(n, bool)) | {"FREE": ("I", np.ones(n))}, "are the same"),
        (lambda n: usual_columns(values(n), None) | {"FREE": ("I", np.arange(n) % 2)}, "hold out 50%"),
    ],
)
def test_columns_that_cannot_be_used_are_refused(write, indices, changed, said):
    with pytest.raises(InputError, match=said):
        read_reflections(write(changed(len(indices))))


def test_chosen_columns_must_be_what_they_are_taken_for(write, indices):
    path = write(usual_columns(values(len(indices)), np.arange(len(indices)) % 20 == 0))
    with pytest.raises(InputError, match="FREE \\(I\\)"):
        read_reflections(path, ("FREE", "SIGFP"))
    with pytest.raises(InputError, match="type I"):
        read_reflections(path, free_flags="FP")
    with pytest.raises(InputError, match="no finer"):
        read_reflections(path).cut(2.0)
    assert read_reflections(path, ("FP", "SIGFP")).cut(7.0).resolution >= 7.0


def test_data_that_are_not_merged_are_refused(write, indices):
    twice = np.vstack([indices, -indices])
    with pytest.raises(InputError, match="not merged"):
        read_reflections(write(usual_columns(values(len(twice)), None), twice))


@pytest.mark.parametrize(
    ("cell", "group", "said"),
    [
        ((46.4, 41.1, 60.0, 90, 98.3, 90), "P 1 21 1", "unit cell is not that of the data"),
        (None, "P 1 2 1", "same rotations, and other screw axes"),
        (None, "P 1 1 21", "two settings of one group"),
        (None, "C 1 2 1", "same rotations"),
    ],
)
def test_another_crystal_is_refused(protein, write, indices, tmp_path, cell, group, said):
    data = read_reflections(write(usual_columns(values(len(indices)), None)))
    other = protein.clone()
    if cell is not None:
        other.cell = gemmi.UnitCell(*cell)
    other.spacegroup_hm = group
    other.make_mmcif_document().write_file(str(tmp_path / "other.cif"))
    with pytest.raises(InputError, match=said):
        crystal_structure(tmp_path / "other.cif", data)


def test_a_model_without_a_cell_may_be_in_any(protein, write, indices, tmp_path):
    data = read_reflections(write(usual_columns(values(len(indices)), None)))
    other = protein.clone()
    other.cell, other.spacegroup_hm = gemmi.UnitCell(1, 1, 1, 90, 90, 90), "P 1"
    other.write_pdb(str(tmp_path / "any.pdb"))
    assert "CRYST1    1.000" in (tmp_path / "any.pdb").read_text()
    assert crystal_structure(tmp_path / "any.pdb", data).cell == data.cell
    other.cell = data.cell
    other.write_pdb(str(tmp_path / "other.pdb"))
    with pytest.raises(InputError, match="they have other rotations"):
        crystal_structure(tmp_path / "other.pdb", data)


def test_enantiomorphs_are_told_apart(protein, tmp_path):
    structure = gemmi.Structure()
    structure.add_model(protein[0])
    structure.cell, structure.spacegroup_hm = gemmi.UnitCell(60, 60, 90, 90, 90, 90), "P 43 21 2"
    hkl = gemmi.make_miller_array(structure.cell, gemmi.SpaceGroup("P 41 21 2"), 6.0)
    mirrored = structure.clone()
    mirrored.spacegroup_hm = "P 41 21 2"
    data = read_reflections(
        write_mtz(tmp_path / "a.mtz", mirrored, hkl, usual_columns(values(len(hkl)), None))
    )
    structure.setup_entities()
    structure.make_mmcif_document().write_file(str(tmp_path / "a.cif"))
    with pytest.raises(InputError, match="enantiomorphs"):
        crystal_structure(tmp_path / "a.cif", data)


def test_map_coefficients_beside_measured_values_are_named(refined):  # noqa: F811
    said = "refined.mtz has measured values (FP), which are used, and map coefficients: for these give the columns FWT,PHWT."
    assert said in read_reflections(refined).notes
    assert said not in read_reflections(refined, ("FP", "SIGFP")).notes
