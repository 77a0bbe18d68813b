"""Fit open adenylate kinase into volumes along its path to the closed form, and compare with the models that these are of.

    python examples/adenylate_kinase_path.py --output path
    python examples/series_adenylate_kinase.py path [--output DIR] [--volumes 1,2,3,10,11,12] [--platform CUDA]

As `openmm-density series` does, with what only a simulated series knows: the Cα RMSD of each model to the truth. With
``--volumes 1,2,3,10,11,12`` the middle of the path is missing, and the series has one real jump, which must be found.
"""

import argparse
from pathlib import Path

from openmm_density.extensions.series import InternalCoordinate, Series
from openmm_density.extensions.series.result import Trace, rmsd
from openmm_density.models import read_model

DATA = Path(__file__).parent / "data"
RESOLUTION = 5.0
# Of the NMP and the LID domain to the CORE, as O. Beckstein et al., J. Mol. Biol. 394, 160 (2009), have them.
ANGLES = (
    InternalCoordinate("angle", ("residue 115 to 125", "residue 90 to 100", "residue 35 to 55")),
    InternalCoordinate("angle", ("residue 179 to 185", "residue 115 to 125", "residue 125 to 153")),
)

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("path", type=Path, help="the folder that adenylate_kinase_path.py wrote")
parser.add_argument("--output", type=Path, default=Path("series"), help="folder for the series")
parser.add_argument("--volumes", help="numbers with commas between them (all)")
parser.add_argument("--start-at", type=int, help="the volume to fit first, by its place among these")
parser.add_argument("--platform", default="CPU")
parser.add_argument("--threads", type=int)
arguments = parser.parse_args()

numbers = sorted(int(path.stem.split("_")[1]) for path in arguments.path.glob("volume_*.mrc"))
if arguments.volumes:
    numbers = [int(number) for number in arguments.volumes.split(",")]
series = Series(
    DATA / "adk_open.pdb",
    [arguments.path / f"volume_{number:02d}.mrc" for number in numbers],
    RESOLUTION,
    arguments.output,
    start_at=arguments.start_at,
    coordinates=ANGLES,
    platform=arguments.platform,
    threads=arguments.threads,
)
result = series.run(lambda line, stays: print(line, flush=True) if stays else None)

for frame, number in zip(result.frames, numbers):
    truth = read_model(arguments.path / f"truth_{number:02d}.cif")
    alpha = truth.positions[Trace.of(truth.topology).atoms]
    away = rmsd(result.positions[frame.number - 1, result.trace.atoms], alpha, superposed=False)
    source = "the model" if frame.kept.step.source is None else f"volume {frame.kept.step.source}"
    print(f"volume {number}: {away:.2f} Å from the truth, CC {frame.kept.cc:.3f}, from {source}")
steps = ", ".join(f"{step:.2f}" for step in result.path.steps)
print(f"from each to the next: {steps} Å; jumps: {[(k + 1, k + 2) for k in result.path.jumps] or 'none'}")
for motion in result.path.motions:
    print(
        f"domain {motion.domain} ({', '.join(motion.residues)}) turns by {max(motion.angle_from_first):.0f}°"
    )
for doubt in result.doubts:
    print(f"Doubt: {doubt}")
