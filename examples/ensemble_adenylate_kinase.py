"""Find the two states of adenylate kinase in a 5 Å map of a mixture of both, without being told that there are two.

    python examples/ensemble_adenylate_kinase.py [--replicas 4] [--start open|closed|between] [--closed 0.6] [-- options of fit]

Two half maps are made of 60% closed (1AKE) and 40% open (4AKE) adenylate kinase, each with its own noise; their mean is the map.
``openmm-density fit --replicas`` begins at one state, or at a model between both, fits one model, and then the ensemble. Printed
is how far each conformation that it found is from the two states, and what it weighs; ``--picture FILE`` draws them. Given again
with the same folder, it tells of the fit that is there.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import gemmi
import numpy as np

from openmm_density import DensityMap
from openmm_density.cli import main
from openmm_density.models import read_model
from openmm_density.models.structure_files import write_pdb
from openmm_density.models.superposition import superposition

DATA = Path(__file__).parent / "data"
RESOLUTION = 5.0
# What does not move between the states.
CORE = [*range(1, 30), *range(60, 122), *range(160, 215)]

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--output", type=Path, default=Path("ensemble"), help="folder for maps and results")
parser.add_argument("--replicas", type=int, default=4)
parser.add_argument("--start", choices=("open", "closed", "between"), default="open")
parser.add_argument("--closed", type=float, default=0.6, help="part of the closed form in the map")
parser.add_argument("--picture", type=Path, help="file for a picture of what was found")
parser.add_argument("--noise", type=float, default=0.3, help="of a half map, in sd of the density inside")
arguments, options = parser.parse_known_args()
arguments.output.mkdir(parents=True, exist_ok=True)

# Both states in one frame, superposed by what does not move.
states = {name: read_model(DATA / f"adk_{name}.pdb") for name in ("closed", "open")}
alphas = {
    name: {int(a.residue.id): a.index for a in model.topology.atoms() if a.name == "CA"}
    for name, model in states.items()
}
shared = sorted(set(CORE) & set(alphas["closed"]) & set(alphas["open"]))
places = {
    name: model.positions[[alphas[name][number] for number in shared]] for name, model in states.items()
}
rotation, shift = superposition(places["open"], places["closed"])
states["open"] = replace(states["open"], positions=states["open"].positions @ rotation.T + shift)

# Half maps with noise of their own, and their mean.
closed, opened = states["closed"], states["open"]
maps = [DensityMap.simulate(closed.topology, closed.positions, RESOLUTION, 1.0, margin=30.0)]
maps.append(DensityMap.simulate(opened.topology, opened.positions, RESOLUTION, like=maps[0]))
mixed = arguments.closed * maps[0].data + (1 - arguments.closed) * maps[1].data
halves = []
for seed in (1, 2):
    noisy = DensityMap.simulate(
        closed.topology, closed.positions, RESOLUTION, like=maps[0], noise=arguments.noise, seed=seed
    )
    halves.append(replace(maps[0], data=mixed + noisy.data - maps[0].data))
    halves[-1].write(arguments.output / f"half_{seed}.mrc")
replace(maps[0], data=(halves[0].data + halves[1].data) / 2).write(arguments.output / "map.mrc")
starts = {"closed": closed.positions, "open": opened.positions}
starts["between"] = (closed.positions + opened.positions) / 2
write_pdb(arguments.output / "start.pdb", closed, starts[arguments.start])

folder = arguments.output / "fit"
files = [str(arguments.output / name) for name in ("start.pdb", "map.mrc", "half_1.mrc", "half_2.mrc")]
command = [
    "fit",
    *files[:2],
    "--resolution",
    f"{RESOLUTION:g}",
    "--half-map",
    files[2],
    "--half-map",
    files[3],
]
command += ["--replicas", str(arguments.replicas), "--place", "off", "--output", str(folder)]
if not (folder / "summary.json").exists():
    status = main([*command, *(word for word in options if word != "--")])
    if status:
        raise SystemExit(status)

told = json.loads((folder / "summary.json").read_text())["ensemble"]
found = gemmi.read_structure(str(folder / "ensemble.cif"))


def placed(trace: dict[int, np.ndarray], name: str) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Return the residues that a model shares with a state, and the Cα atoms of both, superposed by all of them."""
    shared = sorted(set(trace) & set(alphas[name]))
    moving = np.array([trace[number] for number in shared])
    fixed = states[name].positions[[alphas[name][number] for number in shared]]
    rotation, shift = superposition(moving, fixed)
    return shared, moving @ rotation.T + shift, fixed


def distances(trace: dict[int, np.ndarray]) -> str:
    """Return in words how far a model's Cα trace is from both states, superposed."""
    words = []
    for name in states:
        _, moved, fixed = placed(trace, name)
        words.append(f"{np.sqrt(((moved - fixed) ** 2).sum(axis=1).mean()):5.2f} Å from {name}")
    return ", ".join(words)


def traced(model: gemmi.Model) -> dict[int, np.ndarray]:
    """Return the Cα atoms of a model by residue number."""
    return {
        residue.seqid.num: np.array(residue["CA"][0].pos.tolist())
        for chain in model
        for residue in chain
        if "CA" in residue
    }


one = gemmi.read_structure(str(folder / "fitted.cif"))
print(f"one model                  {distances(traced(one[0]))}")
for number, conformation in enumerate(told["conformations"], start=1):
    for model in conformation["models"]:
        weight = told["weights"][model - 1]
        print(f"conformation {number}, weight {weight:.2f}  {distances(traced(found[model - 1]))}")
    print(f"conformation {number} in all: weight {conformation['weight']:.2f}")
verdict = told["verdict"]
print(f"free CC: one model {verdict['cc_free_single']:.3f}, ensemble {verdict['cc_free_ensemble']:.3f}")
print(verdict["sentence"])


def draw(path: Path, traces: dict[str, dict[int, np.ndarray]]) -> None:
    """Draw models by their Cα traces in the map, and how far each residue is from the state that the model is next to."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.5))
    points = np.concatenate([model.positions for model in states.values()])
    # Seen from where both states spread most.
    axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[2][:2]
    for name, model in states.items():
        seen = model.positions[list(alphas[name].values())] @ axes.T
        left.plot(*seen.T, color="#adb5bd", linewidth=5, alpha=0.6, label=f"{name}, the truth")
    for (label, trace), color in zip(traces.items(), ("#1f6feb", "#e8590c", "#2b8a3e", "#a98bd1")):
        left.plot(
            *(np.array([trace[number] for number in sorted(trace)]) @ axes.T).T, color=color, linewidth=1.2
        )
        nearest = min(states, key=lambda name: np.square(np.subtract(*placed(trace, name)[1:])).sum())
        residues, moved, fixed = placed(trace, nearest)
        distances = np.linalg.norm(moved - fixed, axis=1)
        right.plot(residues, distances, color=color, linewidth=1.2, label=f"{label}, from {nearest}")
    left.set_aspect("equal")
    left.set_axis_off()
    left.legend(fontsize=8, frameon=False, loc="lower left")
    right.set(xlabel="residue", ylabel="Cα from the truth (Å)", ylim=(0, None))
    right.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=100)


if arguments.picture:
    shown = {"one model": traced(one[0])}
    for conformation in told["conformations"][:2]:
        heaviest = conformation["models"][0]
        shown[f"weight {conformation['weight']:.2f}"] = traced(found[heaviest - 1])
    draw(arguments.picture, shown)
