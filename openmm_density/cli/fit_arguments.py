"""The arguments of ``openmm-density fit``, by what they concern."""

from __future__ import annotations

import argparse
from typing import Any

from ..energies.measures import SIMILARITIES
from ..fitting.installed_extensions import extension_options
from ..restraints.names import DEFAULT_STAGE_RESTRAINTS, RESTRAINT_NAMES
from .arguments import (
    add_amplitudes,
    add_columns,
    add_corrections,
    add_dictionary,
    number,
    refused,
    spelled,
    whole_number,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add all that ``fit`` takes."""
    _add_files(parser)
    add_crystal(parser)
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what says how a fit is made, beside its model, map and folder."""
    _add_more_files(parser)
    _add_protocol(protocol := parser.add_argument_group("the protocol"))
    groups = {str(protocol.title): protocol}
    for option in extension_options():
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        groups[option.group].add_argument(
            spelled(option.name),
            type={int: whole_number, float: number}.get(option.kind, option.kind),
            metavar=option.metavar,
            choices=option.choices,
            default=option.default,
            help=option.help,
        )
    add_shared(parser)


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Add what every command takes that fits: on the density force, the force field and the run."""
    for title, add in (
        ("the density force", _add_density),
        ("the force field", _add_force_field),
        ("the run", _add_run),
    ):
        add(parser.add_argument_group(title))


def defaults() -> dict[str, Any]:
    """Return the value of each option that is not given."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return vars(parser.parse_args([]))


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="PDB or mmCIF, .gz or not")
    parser.add_argument("map", nargs="?", metavar="MAP", help="MRC, CCP4, SITUS (.gz or not), or MTZ")
    parser.add_argument(
        "--resolution",
        type=number,
        metavar="R",
        help="resolution of the map in Å; of amplitudes, the limit to which they are used (all)",
    )
    parser.add_argument("--output", metavar="DIR", help="folder for the results")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier fit in DIR")
    parser.add_argument(
        "--resume",
        metavar="DIR",
        help="resume the fit in DIR that was interrupted, with the options that it began with",
    )


def add_crystal(parser: argparse.ArgumentParser) -> None:
    """Add what is said of the measured amplitudes of a crystal, and of a fit to them."""
    group = parser.add_argument_group("measured amplitudes of a crystal, in place of a map")
    add_amplitudes(group)
    group.add_argument(
        "--make-free-flags",
        action="store_true",
        help="hold out 5%% of the reflections of a file without free flags, and write the flags into DIR",
    )
    group.add_argument(
        "--cycles",
        type=whole_number,
        default=8,
        metavar="N",
        help="cycles of phases and a fit, at most (%(default)s); --protocol and --steps are those of one cycle (2000 steps)",
    )


def _add_more_files(parser: argparse.ArgumentParser) -> None:
    add_columns(parser)
    add_corrections(parser)
    parser.add_argument(
        "--reference", metavar="TARGET", help="a model of the target, to report the distance to"
    )
    parser.add_argument(
        "--half-map",
        action="append",
        default=[],
        metavar="FILE",
        help="given twice: find the strength, and whether --replicas are better than one model, by fitting into the one and "
        "scoring in the other",
    )
    parser.add_argument(
        "--place",
        choices=("auto", "on", "off"),
        default="auto",
        help="place the model in the map as a rigid body first (auto: if it lies outside or beside its density)",
    )
    parser.add_argument(
        "--predicted",
        choices=("auto", "yes", "no"),
        default="auto",
        help="whether the B column of MODEL is the confidence of a prediction (auto: as the file says, or that column looks)",
    )
    parser.add_argument(
        "--pae",
        metavar="FILE",
        help="the errors that a prediction expects between its residues: JSON of AlphaFold or ColabFold, .npz of Boltz",
    )
    parser.add_argument(
        "--trim",
        type=number,
        metavar="P",
        help="leave residues of a prediction out whose confidence (pLDDT, 0 to 100) is below P, such as 50",
    )
    parser.add_argument(
        "--symmetry",
        metavar="WORD",
        help="fit one unit of a symmetric assembly, its copies following: C4, D7, T, O, I, helical:RISE,TWIST (Å, degrees), "
        "or auto, which finds it in the chains, the file or the map. crystal: the copies in the crystal that the model's file "
        "names; by default where the map is that of its whole cell, and off leaves them out",
    )


def _add_protocol(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "--protocol",
        default="standard",
        metavar="NAME|FILE.toml",
        help="quick, standard (default), cascade, gentle, exchange, or a file; see protocol.toml of any fit",
    )
    parser.add_argument(
        "--steps", type=whole_number, metavar="N", help="steps of all stages together (those of the protocol)"
    )
    parser.add_argument(
        "--strength",
        type=_strength,
        metavar="auto|X",
        help="kJ/mol per fitted atom at full strength (that of the protocol, auto)",
    )
    parser.add_argument(
        "--final-strength",
        type=_strength,
        metavar="auto|X",
        help="kJ/mol per fitted atom at the end: auto is the largest that keeps the geometry as it is without the map (auto, or "
        "the number of --strength)",
    )
    parser.add_argument(
        "--temperature", type=number, metavar="K", help="highest temperature, in K (that of the protocol)"
    )
    parser.add_argument(
        "--density-interval",
        type=whole_number,
        metavar="N",
        help="apply the density force every N-th step, N times as strongly: 1, 2 or 4 (1)",
    )
    parser.add_argument(
        "--restrain",
        metavar="LIST",
        help=f"what is restrained to the start, in place of the protocol's {','.join(DEFAULT_STAGE_RESTRAINTS)},ss and, at the "
        f"end, rotamers: any of {', '.join(RESTRAINT_NAMES)}, or none",
    )
    parser.add_argument(
        "--restrain-to",
        metavar="MODEL2",
        help="also restrain distances to those of another model of the same molecule, released where the density "
        "contradicts them",
    )
    parser.add_argument(
        "--planarity",
        type=_planarity,
        default="on",
        metavar="on|off|SIGMA",
        help="restrain flat groups to planes, with a standard deviation in Å (on, which is 0.02)",
    )


def _add_density(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "--similarity",
        default=SIMILARITIES[0],
        metavar="NAME",
        help=f"{SIMILARITIES[0]} (default), {', '.join(SIMILARITIES[1:-1])} or {SIMILARITIES[-1]}",
    )
    parser.add_argument("--about-mean", action="store_true", help="correlate about the mean")
    parser.add_argument(
        "--weights",
        default="mass",
        metavar="NAME",
        help="what an atom's density is: mass (default), unity, number, charge, electron or xray",
    )
    parser.add_argument(
        "--atoms",
        default="heavy",
        metavar="SELECTION",
        help='which atoms are fitted: "heavy" (default: no hydrogens, waters or single ions), "all" or an mdtraj selection',
    )


def _add_force_field(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "--forcefield",
        action="append",
        default=[],
        metavar="NAME|FILE.xml",
        help="amber14 (default), charmm36 (no nucleic acids), or an OpenMM file; may be given several times, as for ligands",
    )
    parser.add_argument(
        "--allow-scripts",
        action="store_true",
        help="let force field files run the Python code in them (also beside --resume): only if you trust them",
    )
    parser.add_argument(
        "--solvent",
        default="none",
        metavar="NAME",
        help="none (default: screened charges), obc or gbn2 (generalised Born), or water (a box with ions, at "
        "1 bar)",
    )
    parser.add_argument(
        "--ligand-forcefield",
        type=_ligand_forcefield,
        metavar="NAME",
        help="rigid (default), or for ligands that have a SMILES: openff or gaff (parameters, by openmmforcefields); xtb (a "
        "potential learned from GFN2-xTB, by openmm-density[ligands]); openmmml:NAME (one of OpenMM-ML, as in openmmml:ani2x)",
    )
    parser.add_argument(
        "--ligand",
        type=_ligand,
        action="append",
        default=[],
        metavar="NAME=SMILES",
        help="what a ligand is, in its protonation, where its --dictionary does not say; may be given several times",
    )
    parser.add_argument(
        "--ligand-potential",
        action="append",
        default=[],
        metavar="FILE",
        help="a potential that distill has made of a ligand, for --ligand-forcefield xtb; may be given several times",
    )
    add_dictionary(parser)


def _add_run(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "--platform",
        default="CPU",
        metavar="NAME",
        help="OpenMM platform: CPU (default), CUDA, HIP, OpenCL or Reference",
    )
    parser.add_argument(
        "--threads",
        type=whole_number,
        metavar="N",
        help="CPU threads, and processes of the searches (all cores)",
    )
    parser.add_argument(
        "--seed",
        type=whole_number,
        default=0,
        metavar="N",
        help="seed of velocities and noise (%(default)s); with --threads 1 the same seed gives the same bits",
    )
    parser.add_argument(
        "--report-interval",
        type=whole_number,
        default=200,
        metavar="N",
        help="steps between rows of the log and frames of the trajectory (%(default)s)",
    )
    parser.add_argument(
        "--save-interval",
        type=whole_number,
        default=2000,
        metavar="N",
        help="steps between states from which a fit can go on (%(default)s)",
    )
    parser.add_argument("--explain-time", action="store_true", help="say at the end where the time went")


def _ligand_forcefield(text: str) -> str:
    if text in ("rigid", "openff", "gaff", "xtb") or (text.startswith("openmmml:") and text != "openmmml:"):
        return text
    raise refused("rigid, openff, gaff, xtb or openmmml:NAME", text)


def _strength(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise refused("auto or a number of kJ/mol", text) from None


def _ligand(text: str) -> list[str]:
    name, equals, smiles = text.partition("=")
    if not (name and equals and smiles):
        raise refused("NAME=SMILES, such as BNZ=c1ccccc1", text)
    return [name, smiles]


def _planarity(text: str) -> float | str | None:
    if text in ("on", "off"):
        return text if text == "on" else None
    try:
        return float(text)
    except ValueError:
        raise refused("on, off or a number of Å", text) from None
