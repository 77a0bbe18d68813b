"""What users give by mistake: one clear sentence and status 2, or a good result."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import gemmi
import numpy as np
import pytest
from openmm import app

from openmm_density import DensityMap
from openmm_density.cli import main
from openmm_density.models import read_model

from .conftest import PROJECT
from .fragments import RESOLUTION, map_of, write_fragment

RESIDUES = 12
# As in density_map= or report_interval, which nobody types here but in a TOML file.
PYTHON_ARGUMENT = re.compile(r"(?<![-\w/])([a-z_]+=[\"'\d\s,.]|[a-z]+_(interval|map|mean|forcefield|to)\b)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make one of each kind of file that a user may come with."""
    folder = tmp_path_factory.mktemp("files")
    model = write_fragment(folder / "model.pdb", (0.5, -0.4, 0.3), RESIDUES)
    text = model.read_text()
    lines = [line for line in text.splitlines() if line.startswith("ATOM")]
    density_map = map_of(RESIDUES, 0.1, 0, folder)
    density_map.write(folder / "map.mrc")

    (folder / "noise.pdb").write_bytes(np.random.default_rng(0).bytes(3000))
    (folder / "folder.pdb").mkdir()
    (folder / "trace.pdb").write_text("\n".join(line for line in lines if line[12:16] == " CA ") + "\nEND\n")
    (folder / "water.pdb").write_text(
        "HETATM    1  O   HOH A   1       1.000   1.000   1.000  1.00  0.00           O\nEND\n"
    )
    (folder / "far.pdb").write_text(
        "\n".join(line[:30] + f"{float(line[30:38]) + 900:8.3f}" + line[38:] for line in lines) + "\nEND\n"
    )

    heap = [line[:30] + "   1.000   1.000   1.000" + line[54:] for line in lines]
    ligand = [*lines, "HETATM  900  C1  LIG A 900      30.000  30.000  30.000  1.00  0.00           C"]
    for name, kept in (
        ("heap.pdb", heap),
        ("twice.pdb", [*lines, *lines]),
        ("repeated.pdb", [*lines[:9], lines[8], *lines[9:]]),
        ("cut.pdb", [*lines[:5], lines[5][:40], *lines[6:]]),
        ("hydrogen.pdb", [lines[0][:12] + " H1 " + lines[0][16:76] + " H"]),
        ("ligand.pdb", ligand),
    ):
        (folder / name).write_text("\n".join([*kept, "END", ""]))
    (folder / "unreadable.pdb").symlink_to("unreadable.pdb")
    for name in ("pipe.pdb", "pipe.mrc", "pipe.toml", "pipe.xml", "pipe.cif"):
        os.mkfifo(folder / name)
    (folder / "endless.pdb").symlink_to("/dev/zero")
    stray_atom = lines[3][:30] + "9999.999" + lines[3][38:]
    (folder / "stray_atom.pdb").write_text("\n".join([*lines[:3], stray_atom, *lines[4:], "END", ""]))
    (folder / "utf16.pdb").write_bytes(text.encode("utf-16"))
    (folder / "beta_carbons.pdb").write_text(
        "\n".join(line for line in lines if line[12:16] == " CB ") + "\nEND\n"
    )

    (folder / "short.mrc").write_bytes((folder / "map.mrc").read_bytes()[:5000])
    (folder / "map.mrc.gz").write_bytes(b"not gzip at all")
    replace(density_map, data=density_map.data[:1]).write(folder / "slice.mrc")
    replace(density_map, data=density_map.data[:-1]).write(folder / "other_grid.mrc")

    (folder / "wrong.toml").write_text("[[stage]]\nstepz = 3\n")
    (folder / "brief.toml").write_text(
        "strength = 20\nminimize_first = 50\nminimize_last = 50\n[[stage]]\nname = 'a'\nsteps = 20\n"
    )
    (folder / "empty.xml").write_text("<ForceField/>")
    (folder / "dangling").symlink_to("nowhere/at/all")
    (folder / "circle").symlink_to("circle")
    (folder / "a_file").write_text("")
    (folder / "done").mkdir()
    (folder / "done" / "summary.json").write_text("{}")
    (folder / "stray").mkdir()
    (folder / "stray" / "unfinished").mkdir()
    (folder / "stray" / "unfinished" / "state.npz").write_bytes(b"half of a state")
    return folder


def fit(folder, monkeypatch, model="model.pdb", density_map="map.mrc", **options):
    monkeypatch.chdir(folder)
    options = {"resolution": RESOLUTION, "output": "out", "steps": 8, "threads": 1, **options}
    arguments = [] if model is None else [model, density_map]
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            arguments += [] if each is None else [f"--{name.replace('_', '-')}={each}"]
    try:
        return main(["fit", *arguments])
    except SystemExit as stop:  # argparse
        return stop.code


@pytest.mark.parametrize(
    ("named", "changes"),
    [
        ("missing.pdb", {"model": "missing.pdb"}),
        ("noise.pdb", {"model": "noise.pdb"}),
        ("folder.pdb", {"model": "folder.pdb"}),
        ("trace.pdb", {"model": "trace.pdb"}),
        ("only water and ions", {"model": "water.pdb"}),
        ("inside the map", {"model": "far.pdb", "place": "off"}),
        ("missing.mrc", {"density_map": "missing.mrc"}),
        ("short.mrc", {"density_map": "short.mrc"}),
        ("model.pdb", {"density_map": "model.pdb"}),
        ("map.mrc.gz", {"density_map": "map.mrc.gz"}),
        ("--resolution", {"resolution": "nan"}),
        ("--resolution", {"resolution": "inf"}),
        ("--resolution", {"resolution": "high"}),
        ("--resolution", {"resolution": None}),
        ("--output", {"output": None}),
        ("MODEL", {"model": None}),
        ("a_file", {"output": "a_file"}),
        ("a_file", {"output": "a_file/inside"}),
        ("/proc/none", {"output": "/proc/none"}),
        ("done: it already holds", {"output": "done"}),
        ("unfinished fit", {"output": "stray"}),
        ("--steps", {"steps": "many"}),
        ("--strength", {"strength": -1}),
        ("--strength", {"strength": "strong"}),
        ("--strength", {"strength": "nan"}),
        ("--final-strength", {"final_strength": "nan"}),
        ("--temperature", {"temperature": -5}),
        ('--platform must be a platform of this OpenMM, found "Abacus"', {"platform": "Abacus"}),
        ("--atoms", {"atoms": "name nothing"}),
        ("--atoms", {"atoms": "name name ((("}),
        ("--save-interval", {"save_interval": 0}),
        ("--density-interval", {"density_interval": 3}),
        ("missing.toml", {"protocol": "missing.toml"}),
        ("wrong.toml", {"protocol": "wrong.toml"}),
        ("--half-map", {"half_map": "map.mrc"}),
        ("missing.mrc", {"half_map": ["map.mrc", "missing.mrc"]}),
        ("halves", {"half_map": ["map.mrc", "other_grid.mrc"]}),
        ("--strength", {"half_map": ["map.mrc", "map.mrc"], "strength": 10}),
        ("--final-strength", {"half_map": ["map.mrc", "map.mrc"], "final_strength": 10}),
        ("missing.xml", {"forcefield": "missing.xml"}),
        ("--place", {"place": "somewhere"}),
        ("missing.pdb", {"reference": "missing.pdb"}),
        ("water.pdb: the models have", {"reference": "water.pdb"}),
        ("missing.pdb", {"restrain_to": "missing.pdb"}),
        ("water.pdb: the models have", {"restrain_to": "water.pdb"}),
        (
            "conda-forge openmmforcefields",
            {"ligand_forcefield": "openff", "model": "ligand.pdb", "ligand": "LIG=C"},
        ),
        ("found XYZ: give SMILES", {"ligand_forcefield": "gaff", "ligand": "XYZ=C"}),
        ("NAME=SMILES", {"ligand": "benzene"}),
        ("--ligand-forcefield", {"ligand_forcefield": "guess"}),
        ("hydrogen.pdb", {"model": "hydrogen.pdb"}),
        ("heap.pdb", {"model": "heap.pdb"}),
        ("twice.pdb", {"model": "twice.pdb"}),
        ("repeated.pdb", {"model": "repeated.pdb"}),
        ("cut.pdb: line 6", {"model": "cut.pdb"}),
        (
            "map.mrc: it is a density map, and model.pdb a model",
            {"model": "map.mrc", "density_map": "model.pdb"},
        ),
        (
            '--columns must be the labels of amplitude and phase, as in FWT,PHWT, found "FWT"',
            {"columns": "FWT"},
        ),
        (
            '--amplitudes must be the labels of amplitudes or intensities and their deviations, as in F,SIGF, found "F"',
            {"amplitudes": "F"},
        ),
        ("can only be chosen in an .mtz file", {"columns": "FWT,PHWT"}),
        ("MODEL is empty", {"model": ""}),
        ("--output is empty", {"output": ""}),
        ("--restrain is empty", {"restrain": ""}),
        ("--threads", {"threads": 100000}),
        ("--steps", {"steps": 2.5}),
        ("File name too long", {"output": "x" * 300}),
        ("unreadable.pdb", {"model": "unreadable.pdb"}),
        ("pipe.pdb: cannot be read (it is a pipe", {"model": "pipe.pdb"}),
        ("endless.pdb: cannot be read (it is a pipe or a device", {"model": "endless.pdb"}),
        ("pipe.mrc", {"density_map": "pipe.mrc"}),
        ("pipe.toml: it is a pipe", {"protocol": "pipe.toml"}),
        ("pipe.xml", {"forcefield": "pipe.xml"}),
        ("pipe.cif", {"dictionary": "pipe.cif"}),
        ("pipe.pdb", {"reference": "pipe.pdb"}),
        ("A MET 1 has CB and CG, which are bonded", {"model": "stray_atom.pdb", "place": "off"}),
        ("utf16.pdb: no atoms were found", {"model": "utf16.pdb"}),
        ("lack backbone atoms", {"model": "beta_carbons.pdb"}),
        ("inside the map", {"density_map": "slice.mrc"}),
        ("--resolution must not be finer than the map's voxels", {"resolution": 0.3}),
        ("--resolution must not be coarser than the map is wide", {"resolution": 100}),
        ("--temperature must be at most", {"temperature": 1e9}),
        ("--steps must be a whole number up to", {"steps": 10**20}),
        ("--forcefield describes none of the 12 amino acids", {"forcefield": "empty.xml"}),
        ("dangling: it is a symbolic link to nowhere/at/all, which leads nowhere", {"output": "dangling"}),
        ("dangling: it is a symbolic link", {"output": "dangling/inside"}),
        ("circle: it is a symbolic link to circle, which leads nowhere", {"output": "circle"}),
        ("/dev/null", {"output": "/dev/null"}),
        ("--strength", {"strength": "inf"}),
        ("--planarity", {"planarity": "nan"}),
        ('--restrain must hold known names, found "none"', {"restrain": "none,ss"}),
        ('--platform must be a platform of this OpenMM, found "cpu"', {"platform": "cpu"}),
        ("map.mrc: it is a map or its structure factors (MRC), not a model", {"reference": "map.mrc"}),
        ("map.mrc: cannot be read as mmCIF", {"dictionary": "map.mrc"}),
        ("--report-interval must be a multiple", {"density_interval": 4, "report_interval": 3}),
        ("--color", {"color": "red"}),
    ],
)
def test_a_clear_sentence_and_status_2(folder, tmp_path, monkeypatch, capsys, named, changes):
    changes = {"output": tmp_path / "out", **changes}
    assert fit(folder, monkeypatch, **changes) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (sentence,) = captured.err.splitlines()
    assert sentence.startswith("openmm-density fit: error: ") and named in sentence
    assert ".toml: " in sentence or not PYTHON_ARGUMENT.search(sentence)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("named", "arguments"),
    [
        ("--voxel-size must be a positive length, found nan", ["--resolution=5", "--voxel-size=nan"]),
        ("more than fits in memory", ["--resolution=5", "--voxel-size=1e-4"]),
        (
            "--voxel-size must not be larger than the resolution of 0.1 Å",
            ["--resolution=0.1", "--voxel-size=1"],
        ),
        ("more than fits in memory", ["--resolution=5", "--voxel-size=1", "--margin=1e6"]),
        ("--margin", ["--resolution=5", "--voxel-size=1", "--margin=-100"]),
        ("--noise", ["--resolution=5", "--voxel-size=1", "--noise=-1"]),
        (
            "--seed must be 0 or more, found -1",
            ["--resolution=5", "--voxel-size=1", "--noise=1", "--seed=-1"],
        ),
        ("--resolution", ["--resolution=0", "--voxel-size=1"]),
        (
            "adir/new.mrc: the folder adir does not exist",
            ["--resolution=5", "--voxel-size=1", "--output=adir/new.mrc"],
        ),
        ("its suffix is not a density map's", ["--resolution=5", "--voxel-size=1", "--output=new.pdb"]),
    ],
)
def test_what_cannot_be_simulated(folder, tmp_path, monkeypatch, capsys, named, arguments):
    monkeypatch.chdir(folder)
    assert main(["simulate", "model.pdb", f"--output={tmp_path / 'new.mrc'}", *arguments]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith("openmm-density simulate: error: ") and named in sentence
    assert not (tmp_path / "new.mrc").exists()


@pytest.mark.parametrize(
    ("named", "arguments"),
    [
        ("pipe.pdb", ["pipe.pdb", "map.mrc"]),
        ("noise.dcd", ["noise.dcd", "map.mrc", "--topology=model.pdb"]),
        ("does not name its atoms", ["noise.dcd", "map.mrc"]),
        ("--topology", ["noise.dcd", "map.mrc"]),
        ("--sigma", ["model.pdb", "map.mrc", "--q-score", "--sigma=0"]),
        ("--atoms", ["model.pdb", "map.mrc", "--atoms=name ZZ"]),
        ("--atoms", ["model.pdb", "map.mrc", "--atoms=__import__('os')"]),
        ("chainid 0", ["model.pdb", "map.mrc", "--atoms=chain A"]),
        ("counted from 0: 0 is A (", ["model.pdb", "map.mrc", "--atoms=chainid 7"]),
        ("give the model first, then the map", ["map.mrc", "model.pdb"]),
        ("--half-map", ["model.pdb", "map.mrc", "--half-map=map.mrc"]),
        ("no residue of model.pdb lies in the density of slice.mrc", ["model.pdb", "slice.mrc", "--fsc"]),
        ("no residue of far.pdb lies in the density of map.mrc", ["far.pdb", "map.mrc"]),
        (
            "--resolution must not be finer than the map's voxels",
            ["model.pdb", "map.mrc", "--resolution=0.36"],
        ),
    ],
)
def test_what_cannot_be_scored(folder, monkeypatch, capsys, named, arguments):
    monkeypatch.chdir(folder)
    (folder / "noise.dcd").write_bytes(np.random.default_rng(2).bytes(3000))
    assert main(["score", "--resolution=5", *arguments]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith("openmm-density score: error: ") and named in sentence
    assert len(sentence) < 450


def test_a_shell_that_closed_the_output_and_a_folder_that_is_gone(folder, tmp_path):
    """As with ``>&-``, and after the folder has been removed from elsewhere."""
    command = f"{sys.executable} -m openmm_density score {folder}/model.pdb {folder}/map.mrc --resolution 5"
    (tmp_path / "gone").mkdir()
    commands = f"{command} >&-", f"cd {tmp_path}/gone && rmdir {tmp_path}/gone && {command}"
    closed, gone = (
        subprocess.Popen(each, shell=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for each in commands
    )
    assert closed.communicate()[1] == "" and closed.returncode == 0
    (sentence,) = gone.communicate()[1].splitlines()
    assert "is gone: change to another one" in sentence and gone.returncode == 2


@pytest.mark.parametrize(
    ("named", "options"),
    [
        ("holds no unfinished fit", ["--resume", "done"]),
        ("does not exist", ["--resume", "nowhere"]),
        ("cannot be read", ["--resume", "stray"]),
        ("leave out", ["--resume", "stray", "--steps", "5"]),
        ("leave out", ["model.pdb", "map.mrc", "--resume", "stray"]),
    ],
)
def test_what_cannot_be_resumed(folder, monkeypatch, capsys, named, options):
    monkeypatch.chdir(folder)
    assert main(["fit", *options]) == 2
    assert named in capsys.readouterr().err


def edited(folder, name, change):
    """Write the model as gemmi changes it."""
    structure = gemmi.read_structure(str(folder / "model.pdb"))
    structure.setup_entities()
    change(structure)
    path = folder / name
    if name.endswith(".cif"):
        structure.make_mmcif_document().write_file(str(path))
    else:
        structure.write_pdb(str(path))
    return name


def high_numbers_unoccupied(structure):
    for number, residue in enumerate(structure[0][0]):
        residue.seqid = gemmi.SeqId(number + 1_000_000, " ")
        for atom in residue:
            atom.occ, atom.b_iso = 0.0, -5.0


def backbone_only(structure):
    """Leave N, CA, C and O: all side chains are to be built."""
    for residue in structure[0][0]:
        for name in [atom.name for atom in residue if atom.name not in ("N", "CA", "C", "O")]:
            residue.remove_atom(name, "\0")


def coincident(structure):
    """Put two side chain atoms of different residues into one place."""
    residues = list(structure[0][0])
    residues[2]["CB"][0].pos = residues[8]["CB"][0].pos


def one_residue(structure):
    del structure[0][0][1:]


def negative_numbers(structure):
    for number, residue in enumerate(structure[0][0]):
        residue.seqid = gemmi.SeqId(number - 6, " ")


def alternatives(structure):
    """Return one residue a second conformer."""
    residue = structure[0][0][3]
    others = [atom.clone() for atom in residue]
    for atom in residue:
        atom.altloc, atom.occ = "A", 0.6
    for other in others:
        other.altloc, other.occ = "B", 0.4
        other.pos += gemmi.Position(0.3, 0.3, 0.0)
        residue.add_atom(other)


def many_chains(structure):
    """One residue of glycine in each of 63 chains."""
    model = structure[0]
    glycine = next(residue for residue in model[0] if residue.name == "GLY")
    names = [letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"] + ["AA"]
    for number, name in enumerate(names[1:]):
        chain = gemmi.Chain(name)
        residue = glycine.clone()
        for atom in residue:
            atom.pos += gemmi.Position(*(8.0 * np.array(np.unravel_index(number, (4, 4, 4)))))
        chain.add_residue(residue)
        model.add_chain(chain)


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("coincident.pdb", coincident),
        ("one_residue.pdb", one_residue),
        ("mödel ümlaut – 模型.pdb", negative_numbers),
        ("alternatives.pdb", alternatives),
        ("many_chains.cif", many_chains),
        ("a [red] million.cif", high_numbers_unoccupied),
        ("backbone.pdb", backbone_only),
    ],
)
def test_what_is_odd_but_good(folder, tmp_path, monkeypatch, name, change):
    output = tmp_path / "ergebnis – 結果"
    model = edited(folder, name, change)
    assert fit(folder, monkeypatch, model=model, steps=None, protocol="brief.toml", output=output) == 0
    summary = summary_of(output)
    given = read_model(folder / name)
    fitted = read_model(output / "fitted.cif")
    assert np.isfinite(fitted.positions).all()
    assert summary["n_fitted_atoms"] >= len(given.positions) - 10
    assert summary["cc_final"] > summary["cc_initial"] - 0.15
    if (output / "fitted.pdb").exists():
        assert len(read_model(output / "fitted.pdb").positions) == len(given.positions)
    if change is coincident:
        assert summary["geometry_final"]["clash_count"] <= summary["geometry_initial"]["clash_count"]
    if change is backbone_only:
        assert (
            summary["geometry_initial"]["wrong_centres"] == [] == summary["geometry_final"]["wrong_centres"]
        )
    if change is negative_numbers:
        first = next(iter(read_model(output / "fitted.pdb").topology.residues()))
        assert first.id == "-6"


def test_a_hundred_thousand_atoms(folder, monkeypatch, capsys):
    """More atoms and chains than PDB has numbers for."""
    structure = gemmi.read_structure(str(folder / "model.pdb"))
    chain = structure[0][0].clone()
    places = np.array([atom.pos.tolist() for residue in chain for atom in residue])
    copies = -(-100_000 // len(places))
    apart = np.ptp(places, axis=0) + 2.5
    for number in range(copies):
        copy = chain.clone()
        copy.name = f"C{number}"
        # Beyond the map, side by side.
        shift = gemmi.Position(*(60.0 + apart * np.unravel_index(number, (11, 11, 11))))
        for residue in copy:
            for atom in residue:
                atom.pos += shift
        structure[0].add_chain(copy)
    structure.setup_entities()
    structure.assign_subchains(force=True)
    structure.make_mmcif_document().write_file(str(folder / "large.cif"))
    monkeypatch.chdir(folder)
    assert main(["score", "large.cif", "map.mrc", "--resolution", "10", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["residue_labels"]) == RESIDUES * (copies + 1)
    assert found["cc_mask"][0] > 0.5


def test_the_map_of_another_protein_and_a_wrong_resolution_are_doubted(folder, tmp_path, monkeypatch):
    other = read_model(PROJECT / "examples" / "data" / "adk_open.pdb")
    chosen = np.arange(1200, 1290)
    there = read_model(folder / "model.pdb").positions.mean(axis=0)
    positions = other.positions[chosen] - other.positions[chosen].mean(axis=0) + there
    DensityMap.simulate(_subset(other, chosen), positions, 5.0, 1.2).write(folder / "other.mrc")
    output = tmp_path / "other"
    assert fit(folder, monkeypatch, density_map="other.mrc", output=output, strength=5) == 0
    assert any("correlation" in doubt for doubt in summary_of(output)["doubts"])
    output = tmp_path / "fine"
    assert fit(folder, monkeypatch, output=output, resolution=2.0, strength=5) == 0
    assert any("no detail finer than 2.4" in doubt for doubt in summary_of(output)["doubts"])


def _subset(model, atoms):
    modeller = app.Modeller(model.topology, model.positions)
    wanted = set(atoms.tolist())
    modeller.delete([atom for atom in model.topology.atoms() if atom.index not in wanted])
    return modeller.topology
