"""``openmm-density distill``: learn the potential of a ligand from GFN2-xTB."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.errors import InputError
from ...base.given_files import check_output_folder
from ...base.progress import console_for_results
from ...base.wording import counted
from ...cli.arguments import PROGRAM, add_dictionary, check_files, check_new_file, whole_number
from ...cli.startup import loading

# As in `openmm_density.extensions.distillation.DistillationSettings`, which takes a second to import.
_ROUNDS = 5

if TYPE_CHECKING:
    from ...cli.arguments import Commands
    from . import Distillation


def add_parser(commands: Commands) -> None:
    """Add what ``distill`` takes."""
    parser = commands.add_parser(
        "distill",
        help="learn the potential of a ligand from GFN2-xTB",
        description="Learn the potential of LIGAND from GFN2-xTB, and write it as FILE (safetensors), with a summary (.json), "
        "learning curves (.png) and the teacher's answers (.labels) beside it. Exits with status 1 where its forces are not "
        "within 1 kcal/mol/Å of the teacher's at 300 K; FILE is then marked.",
    )
    parser.add_argument(
        "ligand",
        metavar="LIGAND",
        help="SDF, MOL or MOL2; a model (PDB, mmCIF) that has it; a SMILES; a component file, or the name of a component of "
        "--dictionary",
    )
    parser.add_argument(
        "--smiles",
        metavar="SMILES",
        help="SMILES of the ligand of a model, in the protonation that is wanted",
    )
    add_dictionary(parser)
    parser.add_argument(
        "--residue", metavar="NAME", help="residue name of the ligand, where a model has several"
    )
    parser.add_argument(
        "--solvent", metavar="NAME", help="implicit solvent (ALPB), such as water; vacuum by default"
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="as in ligand.safetensors")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace FILE, and what is beside it, if they are there"
    )
    parser.add_argument("--threads", type=whole_number, metavar="N", help="processors (all)")
    parser.add_argument(
        "--seed", type=whole_number, default=0, metavar="N", help="seed of all random numbers (%(default)s)"
    )
    parser.add_argument(
        "--rounds",
        type=whole_number,
        default=_ROUNDS,
        metavar="N",
        help="searches for geometries that are not known, at most: larger and charged ligands may need more (%(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """Write the potential; return the exit status: 0, or 1 where it is not near enough to its teacher."""
    began = time.monotonic()
    output = Path(options.output)
    check_files((), (), options.dictionary)
    if options.rounds < 1:
        raise InputError(
            "must be 1 or more", argument="rounds", found=options.rounds, remedy="give 1 or more"
        )
    from .results import SUFFIX, paths_beside

    beside = paths_beside(output)
    for path in (output, beside["summary"], beside["picture"]):
        if path.is_dir():
            raise InputError("it is a folder", source=path, remedy="choose another name")
        check_new_file(path, options.overwrite)
    check_output_folder(output)
    if output.suffix != SUFFIX:
        raise InputError(
            f"must end in {SUFFIX}", argument="output", found=output.name, remedy="give another name"
        )
    with loading():
        from ...base.progress import Display
        from . import DistillationSettings, distill, write_results

    labels = beside["labels"]
    bar = Display()
    bar.start("reading")
    try:
        found = distill(
            options.ligand,
            smiles=options.smiles,
            dictionaries=options.dictionary,
            residue=options.residue,
            solvent=options.solvent,
            labels=labels,
            threads=options.threads,
            seed=options.seed,
            settings=DistillationSettings(most_rounds=options.rounds),
            progress=lambda done, total, doing: bar.update(done, total, doing, None),
        )
    except KeyboardInterrupt:
        bar.stop()
        said = (
            f"the same command goes on from the labels in {labels}"
            if labels.exists()
            else "nothing was written"
        )
        print(f"{PROGRAM} distill: interrupted; {said}", file=sys.stderr)
        return 130
    finally:
        bar.stop()
    write_results(output, found, time.monotonic() - began)
    return _say(found, output, time.monotonic() - began)


def _say(found: Distillation, output: Path, seconds: float) -> int:
    """Print what was found; return the exit status."""
    potential, console = found.potential, console_for_results()
    accuracy, teacher = potential.accuracy, potential.teacher
    console.print(
        f"{potential.ligand.smiles}: {len(potential.ligand)} atoms, charge {potential.ligand.charge:+d}, learned from "
        f"{teacher.method} {f'in {teacher.solvent} (ALPB)' if teacher.solvent else 'in vacuum'} on "
        f"{found.rounds[-1].n_geometries} geometries of {potential.temperatures[0]:g} to {potential.temperatures[1]:g} K "
        f"in {seconds:.0f} s"
    )
    console.print(
        f"on {accuracy.n_geometries} others at {accuracy.temperature:g} K: forces off by {accuracy.force_mae:.2f} kcal/mol/Å "
        f"(worst {accuracy.force_worst:.1f}), energies by {accuracy.energy_mae:.2f} kcal/mol (worst {accuracy.energy_worst:.1f})"
    )
    console.print(f"{output}: the potential; its figures and learning curves are beside it")
    if potential.done:
        return 0
    print(
        f"{PROGRAM} distill: not done: {_why(found)}; {output} is marked so. {_remedy(found)}",
        file=sys.stderr,
    )
    return 1


def _remedy(found: Distillation) -> str:
    """Return what to do about it."""
    errors = [each.accuracy.force_mae for each in found.rounds]
    if not found.potential.accuracy.is_within_limit and len(errors) > 1 and errors[-1] < errors[-2]:
        return f"It was still learning: add --overwrite --rounds {2 * (len(errors) - 1)}, which begins with what was labelled."
    return "Try another --seed."


def _why(found: Distillation) -> str:
    """Return why a potential is not done."""
    from .accuracy import FORCE_LIMIT

    accuracy, n_broken = found.potential.accuracy, found.rounds[-1].n_broken
    if not accuracy.is_within_limit:
        return f"forces must be within {FORCE_LIMIT:g} kcal/mol/Å of the teacher's, found {accuracy.force_mae:.2f}"
    return f"the ligand broke in {counted(n_broken, 'run')} of its own dynamics at 300 K"
