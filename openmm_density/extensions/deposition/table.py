"""Table 1 of a paper, as Markdown: what is known of data, model and validation, and what its authors have to fill in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .cctbx_figures import INSTALL

if TYPE_CHECKING:
    from .diffraction import Crystal, DiffractionFigures, DiffractionShell

FILL_IN = "*[fill in]*"
IDEAL_VALUES = "Amber ff14SB, OL15 and OL3"
_NONE = "–"

_Rows = list[tuple[str, str, str]]

_SYMMETRY = "Symmetry imposed"
_OF_UNIT = (
    "The model is one of {n} copies that its symmetry makes, and all figures are of this one{cc}. CC_peaks, CC_box and the "
    "unmasked FSC compare it with all of the map: publish those of all copies, which `openmm-density score assembly_expanded.cif "
    "MAP --table1 FILE` has of the file that a fit with symmetry writes."
)
_EM_DATA = (
    *("Magnification", "Voltage (kV)", "Electron exposure (e⁻/Å²)", "Defocus range (μm)", "Pixel size (Å)"),
    *(_SYMMETRY, "Initial particle images (no.)", "Final particle images (no.)"),
)
_CRYSTAL_DATA = ("Wavelength (Å)", "R_merge, R_meas or R_pim", "I/σ(I)", "CC1/2", "Redundancy")
_OF_REFLECTIONS = "measured amplitudes"
OF_OWN_PHASES = (
    "The map is 2mF_o − DF_c with the phases of this model itself: its correlations with it are above those with a map that "
    "does not know the model. Judge it by R_free."
)
"""Below the table of a model and measured amplitudes."""


@dataclass(frozen=True)
class Symmetric:
    """The symmetry of an assembly, and which part of that a model is."""

    name: str  # As in ``C4``
    copies: int = 1  # Of the model in the assembly; with 1 it is all of it
    correlation: float | None = None  # CC_mask of all copies


@dataclass(frozen=True)
class TableInput:
    """What a Table 1 is made of."""

    figures: Mapping[str, Any]  # From `deposition.figures.deposition_figures`
    geometry: Mapping[str, Any]  # From `openmm_density.validation.geometry.GeometryReport.as_dict`
    resolution: float  # Å
    model: str  # `model`, `map` as the user gave them.
    map: str
    voxel_size: Sequence[float]  # Of the map, in Å
    version: str  # Of this package
    crystal: Crystal | None = None  # None where the map is not that of a crystal
    half_map_resolution: float | None = None  # Å, where the halves' correlation around the model is 0.143
    symmetric: Symmetric | None = None  # The symmetry, where it is known
    remarks: Sequence[str] = ()  # Further sentences below the table


def table_one(known: TableInput) -> str:
    """Return the table as Markdown: a row for each figure with its value and by which definition or program it is."""
    kind = "Crystallographic data" if known.crystal else "Cryo-EM data collection"
    parts = [f"# Table 1. {kind}, refinement and validation statistics", ""]
    copies = 1 if known.symmetric is None else known.symmetric.copies
    if known.symmetric is not None and copies > 1:
        of_all = known.symmetric.correlation
        cc = "" if of_all is None else f"; CC_mask of all is {of_all:.3f}"
        parts += [_OF_UNIT.format(n=copies, cc=cc), ""]
    of_copies = f", one of {copies} copies" if copies > 1 else ""
    for title, rows in (
        ("Data collection and processing", _data(known)),
        ("Refinement", _refinement(known)),
        (f"Model composition{of_copies}", _composition(known.figures["model"]["composition"])),
        ("Model and map", _agreement(known)),
        ("Validation", _validation(known)),
    ):
        parts += [f"## {title}", "", "| | | by |", "| --- | --- | --- |"]
        parts += [f"| {name} | {value} | {source} |" for name, value, source in rows]
        parts.append("")
    parts += [f"{sentence}\n" for sentence in (*known.remarks, *_footnotes(known))]
    return "\n".join(parts).rstrip() + "\n"


def _number(value: float | None, digits: int) -> str:
    return _NONE if value is None else f"{value:.{digits}f}"


def _data(known: TableInput) -> _Rows:
    """Return the rows on the data: what only the authors know, and what map or amplitudes say."""
    if known.crystal is not None:
        return _crystal_data(known.crystal)
    imposed = (
        (known.symmetric.name, "model and map; say what the reconstruction had")
        if known.symmetric and known.symmetric.name
        else (FILL_IN, "")
    )
    sizes = " × ".join(f"{size:.4g}" for size in dict.fromkeys(round(s, 5) for s in known.voxel_size))
    half = known.half_map_resolution
    by_half_maps = "" if half is None else "half maps around the model, openmm-density"
    return [
        *((name, *(imposed if name == _SYMMETRY else (FILL_IN, ""))) for name in _EM_DATA),
        ("Voxel size of the map (Å)", sizes, "map"),
        (
            "Map resolution by half maps, FSC 0.143 (Å)",
            FILL_IN if half is None else f"{half:.2f}",
            by_half_maps,
        ),
        ("Map resolution range (Å)", FILL_IN, ""),
    ]


def _crystal_data(crystal: Crystal) -> _Rows:
    """Return the rows on a crystal's data; of those on a range the values of the finest shell stand in brackets."""
    numbers = None if crystal.cell is None else [f"{number:.2f}" for number in crystal.cell]
    lengths, angles = (FILL_IN, FILL_IN) if numbers is None else map(", ".join, (numbers[:3], numbers[3:]))
    whose = "model and map" if crystal.diffraction is None else "model and measured amplitudes"
    rows = [
        ("Space group", crystal.space_group or FILL_IN, whose),
        ("Cell a, b, c (Å)", lengths, whose),
        ("Cell α, β, γ (°)", angles, whose),
    ]
    return [*rows, *((name, FILL_IN, "") for name in _CRYSTAL_DATA), *_reflection_rows(crystal.diffraction)]


def _reflection_rows(found: DiffractionFigures | None) -> _Rows:
    names = ("Resolution range (Å)", "Reflections", "Completeness (%)", "Mean F/σ(F)", "Wilson B factor (Å²)")
    if found is None:
        return [(name, FILL_IN, "") for name in names]
    whole, finest = found.whole, found.finest_shell

    def both(told: Callable[[DiffractionShell], str]) -> str:
        return f"{told(whole)} ({told(finest)})"

    values = (
        both(lambda shell: f"{shell.coarsest:.2f}–{shell.finest:.2f}"),
        both(lambda shell: str(shell.n_work + shell.n_free)),
        both(lambda shell: f"{100 * shell.completeness:.1f}"),
        both(lambda shell: f"{shell.f_over_sigma:.1f}"),
        _number(found.wilson_b, 1),
    )
    return [(name, value, _OF_REFLECTIONS) for name, value in zip(names, values, strict=True)]


def _r_rows(found: DiffractionFigures | None) -> _Rows:
    """Return the rows on how a model explains its amplitudes."""
    if found is None:
        return [("R_work / R_free", FILL_IN, "needs the measured amplitudes")]
    whole, finest = found.whole, found.finest_shell
    factors, of_finest = (
        f"{_number(shell.r_work, 4)} / {_number(shell.r_free, 4)}" for shell in (whole, finest)
    )
    solvent = f"{found.solvent_density:.2f} e/Å³, B {found.solvent_b:.0f} Å²"
    return [
        ("Reflections, work / free", f"{whole.n_work} / {whole.n_free}", _OF_REFLECTIONS),
        ("R_work / R_free", factors, "openmm-density, all reflections"),
        (f"R_work / R_free, {finest.coarsest:.2f}–{finest.finest:.2f} Å", of_finest, "openmm-density"),
        ("Bulk solvent", solvent, "flat model, gemmi"),
    ]


def _refinement(known: TableInput) -> _Rows:
    geometry = known.geometry
    b_factors = known.figures["model"]["mean_b_factors"]
    rows = [
        ("Initial model (PDB code)", FILL_IN, f"the file {known.model}"),
        ("Resolution of the refinement (Å)", f"{known.resolution:.4g}", "given or that of the data"),
    ]
    if known.crystal is not None:
        rows += _r_rows(known.crystal.diffraction)
    else:
        rows.append(("Map sharpening B factor (Å²)", FILL_IN, "how the given map was made"))
    rows += [
        (f"Mean B factor, {kind} (Å²)", _number(b_factors[kind], 1), "model")
        for kind in ("protein", "nucleotide", "ligand", "water")
        if b_factors[kind] is not None and b_factors["all"]
    ]
    ideal = f"deviations from the ideal values of {IDEAL_VALUES}"
    return [
        *rows,
        ("R.m.s. deviation, bond lengths (Å)", _number(geometry["bond_rmsd"], 4), ideal),
        ("R.m.s. deviation, bond angles (°)", _number(geometry["angle_rmsd"], 2), ideal),
        *(
            _z_row(f"bond {what}", geometry, kind)
            for what, kind in (("lengths", "bond"), ("angles", "angle"))
        ),
    ]


def _z_row(name: str, geometry: Mapping[str, Any], kind: str) -> tuple[str, str, str]:
    """Return how the bonds or angles of a model agree with the ideal values by which depositions are judged."""
    rms, beyond = geometry[f"{kind}_rmsz"], geometry[f"{kind}_outlier_count"]
    value = _NONE if rms is None else f"{rms:.2f} ({beyond} of {geometry[f'{kind}_z_count']})"
    return f"RMSZ, {name} (#\\|Z\\|>5)", value, "CCP4 monomer library, as in the wwPDB's validation reports"


def _composition(found: Mapping[str, Any]) -> _Rows:
    ligands = ", ".join(f"{name}: {number}" for name, number in found["ligands"].items())
    return [
        ("Chains", str(found["chains"]), "model"),
        ("Non-hydrogen atoms", str(found["atoms"]), "model"),
        ("Hydrogen atoms", str(found["hydrogens"]), "model"),
        ("Protein residues", str(found["protein"]), "model"),
        ("Nucleotides", str(found["nucleotide"]), "model"),
        ("Ligands and ions", ligands or "0", "model"),
        ("Waters", str(found["water"]), "model"),
    ]


def _agreement(known: TableInput) -> _Rows:
    figures = known.figures["map"]
    cc = figures["correlations"]
    density = "its own B factors" if cc["b_used"] == "model" else "B = 8 d, as it has none"
    phenix = f"Afonine et al. 2018, the model with {density}"
    rows = [
        (f"CC_{name}", _number(cc[f"cc_{name}"], 3), phenix)
        for name in ("mask", "volume", "peaks", "box")
        if cc[f"cc_{name}"] is not None
    ]
    if figures["cc_bases"] is not None:
        around = "openmm-density: voxels within 3 Å of them, B = 8 d for all atoms"
        rows.append(("CC of bases", _number(figures["cc_bases"], 3), around))
        rows.append(("CC of sugars and phosphates", _number(figures["cc_backbone"], 3), around))
    for mask in ("masked", "unmasked"):
        found = [figures["fsc"][f"{mask}_{threshold}"] for threshold in ("0.5", "0.143")]
        if any(found):
            rows.append(
                (
                    f"Resolution, FSC of map and model 0.5 / 0.143, {mask} (Å)",
                    _fallen(found),
                    "openmm-density",
                )
            )
    if figures["emringer"] is not None:
        text = f"Barad et al. 2015, {figures['emringer_side_chains']} side chains"
        rows.append(("EMRinger score", _number(figures["emringer"], 2), text))
    if figures["smoc"] is not None:
        rows.append(("SMOC, mean", _number(figures["smoc"], 3), "Joseph et al. 2016, window of 11 residues"))
    if figures["q_score"] is not None:
        relative = figures["q_score_relative"]
        at_resolution = (
            f" ({_number(figures['q_score_expected'], 2)} is usual at this resolution, ratio {relative:.2f})"
            if relative is not None
            else ""
        )
        text = "Pintilie et al. 2020, σ 0.4 Å as on EMDB's pages"
        rows.append(
            (
                "Q-score of proteins and nucleic acids, mean",
                _number(figures["q_score"], 3) + at_resolution,
                text,
            )
        )
    return rows


def _fallen(found: Sequence[Mapping[str, Any] | None]) -> str:
    return " / ".join(
        _NONE if each is None else f"{'' if each['falls'] else '≤ '}{each['resolution']:.2f}"
        for each in found
    )


def _validation(known: TableInput) -> _Rows:
    """Return MolProbity's figures where there are any, and ours by their own names where there are none."""
    geometry, cctbx = known.geometry, known.figures["cctbx"]
    theirs = {} if cctbx is None else cctbx["figures"]
    name = "" if cctbx is None else f"cctbx {cctbx['version']}"

    def percent(part: int | None, whole: int | None) -> str:
        return _NONE if part is None or not whole else f"{100 * part / whole:.2f}"

    rows: _Rows = []
    for title, key, digits in (
        ("MolProbity score", "molprobity_score", 2),
        ("Clashscore", "clashscore", 2),
        ("Rotamer outliers (%)", "rotamer_outlier_percent", 2),
        ("Ramachandran favoured (%)", "ramachandran_favoured_percent", 2),
        ("Ramachandran allowed (%)", "ramachandran_allowed_percent", 2),
        ("Ramachandran outliers (%)", "ramachandran_outlier_percent", 2),
        ("Cβ outliers (%)", "c_beta_outlier_percent", 2),
        ("CaBLAM outliers (%)", "cablam_outlier_percent", 2),
        ("Cα geometry outliers (%)", "ca_geometry_outlier_percent", 2),
    ):
        if theirs.get(key) is not None:
            rows.append((title, _number(theirs[key], digits), name))
    z = theirs.get("ramachandran_z_whole")
    if z is not None:
        rows.append(
            ("Ramachandran Z, whole (r.m.s.)", f"{z[0]:.2f} ({z[1]:.2f})", f"{name}, Sobolev et al. 2020")
        )
    # None where the tables are missing, 0 where there is no residue that has a place in the plot.
    if "ramachandran_outlier_percent" not in theirs and geometry["ramachandran_count"] != 0:
        count = geometry["ramachandran_count"]
        rows += [
            (
                f"Ramachandran {title} (%)",
                percent(geometry[f"ramachandran_{key}_count"], count),
                "openmm-density: Top500 tables, Lovell et al. 2003",
            )
            for title, key in (("favoured", "favoured"), ("allowed", "allowed"), ("outliers", "outlier"))
        ]
    if "rotamer_outlier_percent" not in theirs and geometry["rotamer_count"]:
        rows.append(
            (
                "Side chains not staggered (%)",
                percent(geometry["rotamer_outlier_count"], geometry["rotamer_count"]),
                "openmm-density: a torsion over 40° from staggered; *not MolProbity's rotamer outliers*",
            )
        )
    if theirs.get("c_beta_outlier_percent") is None and geometry["c_beta_count"]:
        share = percent(geometry["c_beta_outlier_count"], geometry["c_beta_count"])
        rows.append(("Cβ outliers (%)", share, "openmm-density: MolProbity's definition, our implementation"))
    if theirs.get("clashscore") is None:
        text = "openmm-density: MolProbity's definition, our implementation, hydrogens at ideal places"
        rows.append(("Clashscore", _number(geometry["clashscore"], 2), text))
    if geometry["twisted_count"] is not None:
        rows += [
            ("Cis peptides not before proline", str(geometry["cis_nonproline_count"]), "openmm-density"),
            ("Peptides twisted by over 30°", str(geometry["twisted_count"]), "openmm-density"),
        ]
    return [*rows, *_nucleic_rows(geometry)]


def _nucleic_rows(geometry: Mapping[str, Any]) -> _Rows:
    rows: _Rows = []
    if geometry["pucker_count"]:
        share = f"{100 * geometry['pucker_outlier_count'] / geometry['pucker_count']:.2f}"
        by_phosphate = "openmm-density: δ and ε against Pperp, Richardson et al. 2008, RNA alone"
        rows.append(("Sugar pucker outliers (%)", share, by_phosphate))
    if geometry["suite_count"]:
        count, by_conformers = (
            geometry["suite_count"],
            "openmm-density: the 54 conformers of Richardson et al. 2008",
        )
        rows += [
            ("Suite outliers (%)", f"{100 * geometry['suite_outlier_count'] / count:.2f}", by_conformers),
            ("Mean suiteness", f"{geometry['mean_suiteness']:.3f}", by_conformers),
        ]
    if geometry["base_pair_count"] is not None:
        by_bonds = "openmm-density: two or more N, O hydrogen bonds between bases in one plane"
        rows.append(("Base pairs", str(geometry["base_pair_count"]), by_bonds))
    if geometry["pyranose_outlier_count"] is not None:
        share = f"{geometry['pyranose_outlier_count']} of {len(geometry['pyranoses'])}"
        rows.append(("Sugars not in their usual chair", share, "openmm-density: Cremer and Pople 1975"))
    return rows


def _footnotes(known: TableInput) -> list[str]:
    """Return what stands below the table."""
    cctbx = known.figures["cctbx"]
    notes = [
        f"Written by openmm-density {known.version} for {known.model} in {known.map}. {FILL_IN}: only its authors know.",
        f"The ideal values of bonds and angles are those of {IDEAL_VALUES}; they differ by 0.01 to 0.02 Å from those of Engh "
        "and Huber, against which refinement programs report.",
        "CC_mask to CC_box are correlations by Phenix' definitions. The CC that openmm-density prints is another: with B = 8 d "
        "for all atoms, over the voxels within 3 Å of them.",
    ]
    if cctbx is None:
        notes.append(
            "Not here: MolProbity's rotamer outliers, CaBLAM, Ramachandran Z and MolProbity score. "
            f"{INSTALL} brings what cctbx computes of them; MolProbity (molprobity.biochem.duke.edu) and Phenix, free for "
            "academic use, have all."
        )
    else:
        notes += [f"{name}: {sentence}." for name, sentence in cctbx["missing"].items()]
    return notes
