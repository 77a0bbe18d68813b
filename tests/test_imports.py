"""What is imported when: the command line answers at once, and what is read back finds its operators in any order."""

import json
import os
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import openmm
import pytest
import torch
from openmm import app

import openmm_density
from openmm_density import DensityMap, PlanarityRestraint
from openmm_density.energies.forces import backend_problem

from .conftest import PROJECT
from .fragments import fragment

SLOW = ("torch", "openmm", "mdtraj", "numpy", "scipy", "matplotlib", "gemmi", "rich")

# Each command in a process of its own, forked from one that has imported no more than the command line.
FORK = """
import contextlib, io, json, os, sys
from openmm_density.cli import main
for line in sys.stdin:
    folder, arguments = json.loads(line)
    if os.fork():
        os.wait()
        continue
    os.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            status = main(arguments)
        except SystemExit as stop:
            status = stop.code
    print(json.dumps([status, [*({slow} & sys.modules.keys())], said.getvalue()]), flush=True)
    os._exit(0)
"""
TELL = """
import sys
from openmm_density.cli import main
try:
    status = main({arguments})
except SystemExit as stop:
    status = stop.code
print("status", status, "loaded", *({slow} & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--help"], 0),
        (["fit", "--help"], 0),
        (["--version"], 0),
        (["fit", "model.pdb", "map.mrc", "--steps", "many"], 2),
        (["fit", "model.pdb"], 2),
        (["score", "model.pdb", "map.mrc"], 2),
        (["planes", ""], 2),
        (["planes", "none.pdb"], 2),
        (["fit", "none.pdb", "none.mrc", "--resolution", "5", "--output", "none"], 2),
        (["score", "model.dcd", "none.mrc", "--resolution", "5"], 2),
        (["mend"], 2),
    ],
)
def test_help_and_slips_of_the_keyboard_load_nothing_slow(quick, arguments, status):
    quick(arguments, status)


@pytest.mark.parametrize(
    ("command", "options", "named"),
    [
        ("fit", ["--resolution", "0"], "--resolution must be positive, found 0"),
        ("fit", ["--protocol", "nope"], "--protocol must be a known protocol"),
        ("fit", ["--protocol", "stages.toml"], "steps must be a whole number of at least 0"),
        ("fit", ["--steps", "0"], "--steps must be a whole number of at least 1"),
        ("fit", ["--restrain", "cis,wings"], '--restrain must hold known names, found "wings"'),
        ("fit", ["--planarity", "-1"], "--planarity must be positive, found -1"),
        ("fit", ["--similarity", "likeness"], "--similarity must be a known measure"),
        ("fit", ["--weights", "heavy"], "--weights must be known weights"),
        ("fit", ["--forcefield", "amber"], "--forcefield must be a known force field"),
        ("fit", ["--solvent", "ether"], "--solvent must be a known solvent"),
        ("fit", ["--ligand", "BNZ=c1ccccc1"], "--ligand can only be used with --ligand-forcefield"),
        ("fit", ["--dictionary", "none.cif"], "none.cif: there is no such file"),
        ("fit", ["--seed", "-1"], "--seed must be from 0"),
        ("fit", ["--threads", "0"], "--threads must be from 1"),
        ("fit", ["--report-interval", "0"], "--report-interval must be at least 1 step"),
        ("fit", ["--output", "model.pdb"], "model.pdb: it is a file"),
        ("fit", ["--output", "."], "it already holds log.csv of an earlier fit"),
        ("fit", ["--half-map", "model.pdb", "--half-map", "map.mrc"], "its suffix is not a density map's"),
        ("score", ["--resolution", "nan"], "--resolution must be positive, found nan"),
        ("score", ["--sigma", "0"], "--sigma must be a positive length"),
        ("simulate", ["--voxel-size", "0"], "--voxel-size must be a positive length"),
        ("simulate", ["--output", "map.pdb"], "its suffix is not a density map's"),
        ("simulate", ["--output", "map.mrc"], "map.mrc: it exists already"),
        ("planes", ["--dictionary", "none.cif"], "none.cif: there is no such file"),
    ],
)
def test_what_no_file_can_make_right_is_refused_before_anything_slow(
    quick, command, options, named, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("model.pdb", "map.mrc", "log.csv"):
        (tmp_path / name).write_text("")
    (tmp_path / "stages.toml").write_text("[[stage]]\nsteps = -1\n")
    (sentence,) = quick([command, *COMPLETE[command], *options], 2).splitlines()
    assert sentence.startswith(f"openmm-density {command}: error: ") and named in sentence
    assert not (tmp_path / "out").exists()


COMPLETE = {
    "fit": ["model.pdb", "map.mrc", "--resolution", "5", "--output", "out"],
    "score": ["model.pdb", "map.mrc", "--resolution", "5"],
    "simulate": ["model.pdb", "--resolution", "5", "--voxel-size", "1", "--output", "new.mrc"],
    "planes": ["model.pdb"],
}


@pytest.fixture(scope="module")
def quick():
    """Return what runs a command that ends with a status and loads nothing slow, and returns what it said."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", FORK.format(slow=set(SLOW))], **pipes) as process:

        def run(arguments, status):
            print(json.dumps([os.getcwd(), arguments]), file=process.stdin, flush=True)
            ended, loaded, said = json.loads(process.stdout.readline())
            assert (ended, loaded) == (status, []), said
            return said

        yield run


@pytest.mark.parametrize(
    "arguments",
    [
        ["score", "model.pdb", "map.mrc", "--resolution", "5", "--atoms", "name CA", "--q-score", "--fsc"],
        ["planes", "model.pdb"],
        [
            "simulate",
            "model.pdb",
            "--resolution",
            "5",
            "--voxel-size",
            "2",
            "--output",
            "map.mrc",
            "--overwrite",
        ],
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_simulates_nothing_does_without_torch_and_most_of_scipy(arguments, tmp_path, monkeypatch):
    """They are what most of the time went into: for a small model seconds, of which the work takes one."""
    monkeypatch.chdir(tmp_path)
    model = fragment(tmp_path / "model.pdb", residues=5)
    DensityMap.simulate(model.topology, model.positions, 5.0, 1.5).write(tmp_path / "map.mrc")
    script = TELL.format(
        arguments=arguments, slow={"torch", "matplotlib", "scipy.stats", "networkx", "pdbfixer"}
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1].strip() == "status 0 loaded", done.stderr


DEFERRED = """
import openmm_density
from openmm_density.base.plugins import defer_torch
defer_torch()
import sys, openmm
assert "torch" not in sys.modules
import openmm_density.energies.density_fit
"""

READ_BACK = """
{imports}
import sys, numpy as np, openmm, torch
positions = np.load(sys.argv[2])
system = openmm.XmlSerializer.deserialize(open(sys.argv[1]).read())
context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("CPU"))
context.setPositions(positions)
print(context.getState(energy=True).getPotentialEnergy()._value)
module = torch.jit.load(sys.argv[3])
print(float(module(torch.from_numpy(positions), torch.tensor(1.0))[0]))
"""
ORDERS = {
    "openmm after": "import openmm_density\nfrom openmm import app",
    "openmm before": "import openmm\nimport openmm_density",
    "openmm alone first": DEFERRED,
    "torch before": "import torch\nimport openmm_density\nimport openmm",
    "kernels first": "import openmm_density.kernels.library\nimport torch",
}


@pytest.mark.opencl
@pytest.mark.skipif(backend_problem("TorchForce") is not None, reason="TorchForce does not work")
def test_what_is_read_back_finds_its_operators_in_any_order_of_imports(tmp_path):
    model = app.PDBFile(str(PROJECT / "examples" / "data" / "adk_open.pdb"))
    positions = np.array(model.getPositions(asNumpy=True)._value)
    positions += np.random.default_rng(0).normal(scale=0.01, size=positions.shape)
    restraint = PlanarityRestraint(model.topology, positions=model.positions)
    system = openmm.System()
    for _ in positions:
        system.addParticle(12.0)
    system.addForce(restraint.create_force())
    files = [tmp_path / name for name in ("system.xml", "positions.npy", "module.pt")]
    files[0].write_text(openmm.XmlSerializer.serialize(system))
    np.save(files[1], positions)
    module = torch.jit.script(restraint.create_module())
    module.save(str(files[2]))
    expected = float(module(torch.from_numpy(positions), torch.tensor(1.0))[0])
    running = {
        name: subprocess.Popen(
            [sys.executable, "-c", READ_BACK.format(imports=imports), *files],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, imports in {**ORDERS, "without": ""}.items()
    }
    without = running.pop("without")
    _, err = without.communicate(timeout=200)
    assert without.returncode != 0 and ("openmm_density" in err or "TorchForce" in err)
    for name, process in running.items():
        out, err = process.communicate(timeout=200)
        assert process.returncode == 0, f"{name}: {err}"
        found = [float(line) for line in out.splitlines()[-2:]]
        assert found == pytest.approx([expected] * 2, rel=1e-6), name


def test_the_package_shows_its_public_names_and_nothing_else():
    script = "import openmm_density; print(*dir(openmm_density))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    modules = {"analysis", "energies", "extensions", "fitting", "kernels", "maps", "models", "reporters"}
    modules |= {"restraints", "validation"}
    assert set(done.stdout.split()) == {*openmm_density.__all__, *modules}, done.stderr
    for name in dir(openmm_density):
        assert getattr(openmm_density, name).__name__.endswith(name)


SHOW = """
import importlib, json, pkgutil, openmm_density
from openmm_density import kernels  # its folder is not below the others', but beside them in a clone
roots = (openmm_density, "openmm_density."), (kernels, "openmm_density.kernels.")
packages = [p.name for root, name in roots for p in pkgutil.walk_packages(root.__path__[:1], name) if p.ispkg]
shown = {}
for name in packages:
    package = importlib.import_module(name)
    public = set(getattr(package, "__all__", ()))
    shown[name] = [each for each in {*dir(package), *public} if not hasattr(package, each) or each in public - {*dir(package)}]
print(json.dumps(shown))
"""


def test_every_subpackage_shows_its_public_names_and_has_all_that_it_shows():
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout.splitlines()[-1])
    assert len(shown) > 18
    assert set(map(tuple, shown.values())) == {()}, shown


def test_the_package_gives_its_names_and_folders():
    assert openmm_density.__version__ == version("openmm-density")
    assert set(openmm_density.__all__) < set(dir(openmm_density))
    for name in openmm_density.__all__:
        assert getattr(openmm_density, name).__name__ == name
    assert openmm_density.validation.report.__name__ == "report"
    with pytest.raises(AttributeError, match="has no attribute 'Density'"):
        openmm_density.Density  # noqa: B018
