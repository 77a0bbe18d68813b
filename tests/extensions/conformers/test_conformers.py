"""Alternate conformers that a map tells apart are fitted, each to its part of the density."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import gemmi
import numpy as np
import pytest

from openmm_density.extensions.conformers import FittedConformers
from openmm_density.extensions.conformers.copies import conformer_copies
from openmm_density.extensions.conformers.last_stage import (
    fitted_conformers,
)
from openmm_density.extensions.conformers.output import conformer_doubts, conformer_notes
from openmm_density.fitting import FlexibleFit, fit_run
from openmm_density.fitting.engine import FitParts
from openmm_density.fitting.installed_extensions import extended
from openmm_density.fitting.written_atoms import input_b_factors, input_occupancies, written_alternates
from openmm_density.models import prepare, read_model
from openmm_density.models.model import Alternates
from openmm_density.models.structure_files import write_model_cif, write_pdb
from openmm_density.validation.geometry import geometry_report

from ...small_models import heavy_clashes
from .conftest import ABSENT, RESOLUTION, SHARES


def places(path):
    """Return position, occupancy and B factor of each heavy atom that alternates."""
    structure = gemmi.read_structure(str(path))
    return {
        (residue.seqid.num, atom.name, atom.altloc): (np.array(atom.pos.tolist()), atom.occ, atom.b_iso)
        for residue in structure[0][0]
        for atom in residue
        if atom.has_altloc() and not atom.is_hydrogen()
    }


@pytest.fixture(scope="module", params=["pdb", "cif"])
def written(request, two_conformers):
    result = two_conformers.result
    path = two_conformers.folder / f"written.{request.param}"
    write = write_pdb if request.param == "pdb" else write_model_cif
    positions = result.prepared.input_positions(result.final)
    refined = input_b_factors(result), input_occupancies(result), written_alternates(result)
    write(path, result.prepared.model, positions, *refined)
    return places(path)


def test_both_are_found_and_written(two_conformers, written):
    truth, start = places(two_conformers.folder / "truth.pdb"), places(two_conformers.folder / "start.pdb")
    assert {key for key in written if key[0] not in ABSENT} == truth.keys()
    for number, atoms in ((13, 4), (19, 6)):
        for label in SHARES:
            names = [key for key in truth if key[0] == number and key[2] == label]
            assert len(names) == atoms
            away, before = (
                np.sqrt(np.mean([np.sum((found[key][0] - truth[key][0]) ** 2) for key in names]))
                for found in (written, start)
            )
            assert away < 0.3 < 0.5 < before
            assert {round(written[key][1], 2) for key in names} == {round(written[names[0]][1], 2)}
            assert written[names[0]][1] == pytest.approx(SHARES[label], abs=0.1)
            assert np.mean([written[key][2] for key in names]) == pytest.approx(15, abs=10)


def test_they_explain_the_density_around_them(two_conformers):
    found = two_conformers.result.conformers.as_dict()
    assert found["cc_both"] > 0.97 > 0.93 > found["cc_major"]
    assert [each["residue"] for each in found["fitted"]] == ["A LYS 13", "A PHE 19"]
    assert all(sum(each["occupancies"].values()) == pytest.approx(1) for each in found["fitted"])
    (note,) = conformer_notes(two_conformers.result)
    assert note == (
        "All conformers of A LYS 13, A PHE 19 were fitted, each to its part of the density; 1 alternate conformer moves rigidly "
        "with the residue around."
    )


def test_a_conformer_without_density_is_not_shown_and_stays_as_the_input_has_it(two_conformers, written):
    (missing,) = two_conformers.result.conformers.not_shown
    assert (missing.residue, missing.label, missing.written) == ("A GLU 22", "B", False)
    assert missing.occupancy < 0.1
    assert {written[key][1] for key in written if key[0] in ABSENT} == {0.5}
    (doubt,) = conformer_doubts(two_conformers.result)
    assert str(missing) in doubt.sentence and doubt.places[0].members == ("A GLU 22",)
    assert two_conformers.result.conformers.as_dict()["not_shown"] == [missing.as_dict()]


@pytest.fixture(scope="module")
def kept_before(two_conformers):
    """The result of a fit that did not make the model better."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_run, "why_not_better", lambda *_: "for a reason")
        fit = two_conformers.fit
        return extended(fit, fit._run._better(two_conformers.result))


def test_a_model_that_is_kept_as_it_was_has_the_conformers_of_the_input(two_conformers, kept_before):
    assert not len(kept_before.conformers.copies)
    assert kept_before.as_simulated().conformers is two_conformers.result.conformers
    given, alternates = written_alternates(kept_before), kept_before.prepared.model.alternates
    assert given.occupancies.tolist() == alternates.occupancies.tolist()
    assert given.positions == pytest.approx(alternates.positions, abs=1e-3)


def test_major_conformers_alone_and_a_model_without_others_fit_none(two_conformers):
    fit = two_conformers.fit
    without = replace(fit.prepared, model=replace(fit.prepared.model, alternates=Alternates()))
    running = SimpleNamespace(strength=1.0, positions=lambda: fit.prepared.positions)

    def found(conformers, prepared):
        engine = SimpleNamespace(systems=SimpleNamespace(prepared=prepared, operators=None))
        protocol = replace(two_conformers.protocol, conformers=conformers)
        parts = FitParts(engine, protocol, None, fit.fit_map, prepared, None)
        return fitted_conformers(parts, running, None, SimpleNamespace(requested=False))

    said = ["The model has no alternate conformers that could be fitted."]
    assert found("both", without).notes == said and found("auto", without) is None
    assert found("major", fit.prepared) is None
    alone = written_alternates(two_conformers.result.with_found(conformers=None)).occupancies
    assert alone.tolist() == fit.prepared.model.alternates.occupancies.tolist()


def test_geometry_of_each_is_that_of_a_model(two_conformers):
    found, topology = two_conformers.result.conformers, two_conformers.fit.solute.topology
    for label in ("", "B"):
        positions = found.copies.positions_of(found.positions, label)
        report = geometry_report(topology, positions)
        assert report.bond_rmsd < 0.03 and report.angle_rmsd < 4.0
        assert len(heavy_clashes(topology, positions)) == 0


def test_a_resumed_fit_has_the_same_bits(two_conformers):
    """Its states stay, as nothing was written; those of the end are found again from the last one."""
    given, model = two_conformers.result, read_model(two_conformers.folder / "start.pdb")
    options = {"threads": 1, "place": "off"}
    fit = FlexibleFit(model, two_conformers.map, RESOLUTION, two_conformers.protocol, **options)
    again = fit.run(two_conformers.output.run)
    assert again.conformers.positions.tobytes() == given.conformers.positions.tobytes()
    assert again.final.tobytes() == given.final.tobytes()
    assert again.conformers.as_dict() == given.conformers.as_dict()


def test_conformers_of_another_residue_are_left_and_named(two_conformers, tmp_path):
    structure = gemmi.read_structure(str(two_conformers.folder / "start.pdb"))
    chain = structure[0][0]
    number = next(k for k, residue in enumerate(chain) if residue.seqid.num == 13)
    copy = chain[number].clone()
    for residue, dropped in ((chain[number], "B"), (copy, "A")):
        for name in {atom.name for atom in residue if atom.altloc == dropped}:
            residue.remove_atom(name, dropped, residue[name][0].element)
        for atom in residue:
            atom.altloc, atom.occ = ("A", 0.6) if dropped == "B" else ("B", 0.4)
    copy.name = "ARG"
    chain.add_residue(copy, number + 1)
    path = tmp_path / "two_residues.pdb"
    structure.write_pdb(str(path))
    copies = conformer_copies(prepare(read_model(path)))
    assert [group.name for group in copies.groups] == ["A PHE 19", "A GLU 22"]
    (sentence,) = copies.left
    assert sentence.startswith("An alternate conformer that is another residue than the fitted one follows")


def test_a_hydrogen_without_a_label_beside_conformers_refuses_none(two_conformers, tmp_path):
    prepared = two_conformers.result.prepared
    structure = gemmi.read_structure(str(two_conformers.folder / "truth.pdb"))
    for atom in prepared.topology.atoms():
        if atom.residue.id in ("13", "19") and atom.name in ("HB2", "HB3"):
            made = gemmi.Atom()
            made.name, made.element = atom.name, gemmi.Element("H")
            made.pos = gemmi.Position(*two_conformers.result.final[atom.index])
            residue = next(each for each in structure[0][0] if str(each.seqid.num) == atom.residue.id)
            residue.add_atom(made)
    path = tmp_path / "hydrogens.pdb"
    structure.write_pdb(str(path))
    prepared = prepare(read_model(path))
    copies = conformer_copies(prepared)
    assert [group.name for group in copies.groups] == ["A LYS 13", "A PHE 19"] and not copies.left
    assert all(shares == pytest.approx(SHARES) for shares in copies.shares)
    found = FittedConformers(copies, np.zeros((copies.n_atoms + len(copies), 3)))
    occupancies = input_occupancies(SimpleNamespace(prepared=prepared, conformers=found, occupancies=None))
    records = prepared.model.records
    whole = [value for value, record in zip(occupancies, records) if record.name in ("HB2", "HB3")]
    assert whole == [1.0] * 4
    assert {round(value, 2) for value, record in zip(occupancies, records) if record.altloc} == {0.6}


def test_conformers_of_chains_of_one_name_and_of_no_atom_in_common(two_conformers, tmp_path):
    structure = gemmi.read_structure(str(two_conformers.folder / "truth.pdb"))
    copy = structure[0][0].clone()
    for atom in (atom for residue in copy for atom in residue):
        atom.pos += gemmi.Position(60, 0, 0)
    (phenylalanine,) = (residue for residue in structure[0][0] if residue.seqid.num == 19)
    for atom in phenylalanine:
        if atom.altloc == "B" and atom.name != "CG":
            atom.altloc = "C"
    structure[0].add_chain(copy)
    structure.write_pdb(str(tmp_path / "two.pdb"))
    copies = conformer_copies(prepare(read_model(tmp_path / "two.pdb")))
    names = [group.name for group in copies.groups]
    assert [name.split(" (")[0] for name in names] == ["A LYS 13", "A LYS 13", "A PHE 19"]
    assert len(set(names)) == 3
    assert np.isfinite(copies.occupancies()).all()
    (sentence,) = copies.left
    assert "no atom in common" in sentence and sentence.endswith("A PHE 19.")
