"""What speaks against a fit, or against a part of it, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from ..base.errors import as_argument, with_arguments
from ..base.wording import listing
from ..fitting.doubt import Doubt, Place, place_of_stretch
from ..fitting.fit_result import FitResult
from ..fitting.flexible_fit import FlexibleFit
from ..fitting.half_maps import StrengthScan
from ..fitting.improvement import most_borne
from ..fitting.protocols import Protocol
from ..restraints import Violation
from ..validation.correlation import LARGEST_PART_OUTSIDE, LOW_CORRELATION
from ..validation.fsc import HALF_MAP_THRESHOLD, Crossing, half_map_doubt
from ..validation.map_checks import Finding
from ..validation.stretches import MOST_STRETCHES, DoubtfulStretch, sentences_of
from .contacts import contact_doubts
from .local_geometry import worse_doubts

# Above that of a reference that is as near (Å) and as large as a model of this map would be, a correlation may come from noise.
ABOVE_REFERENCE = 0.01
NEAR_REFERENCE = 1.5
WHOLE = 0.9
# What is clearly worse after a fit than relaxed: an RMSD by this factor, and numbers by more than 5 and beyond `most_borne`.
# Adenylate kinase, fitted well from afar into 5 Å, has 1.08 times the RMSD of angles and fewer outliers; EMD-3488,
# pulled by 180 kJ/mol per atom, 1.4 times and outliers in one side chain of 25 more.
WORSE_RMSZ = 1.2
# The same of a model refined against amplitudes, which know bonds and angles better than a force field does: 1G8A, as it was
# deposited with data to 1.23 Å, has 1.7 times the RMSD of bonds.
WORSE_RMSZ_BY_AMPLITUDES = 2.0
WORSE_BY = 5
# Steps (those of the shortest protocol) before which a strong pull has had little time to come to rest.
FEW_STEPS = 5000
# Published resolutions may be a little beyond what the voxels hold.
NYQUIST_SLACK = 0.9
# A residue fits the map clearly worse than at the start if its correlation fell by more than this, and what it lacks to 1 grew by
# this factor. Of some 60 models fitted back into their maps 11 have such; of 97 residues in EMD-5925 none or one.
LESS_CORRELATION, LACKS_MORE = 0.03, 2.0


def doubts_about(
    fit: FlexibleFit,
    result: FitResult,
    summary: Mapping[str, Any],
    violations: Mapping[str, Sequence[Violation]],
    stretches: Sequence[DoubtfulStretch],
    residues: Sequence[Mapping[str, Any]],
    scan: StrengthScan | None = None,
    findings: Sequence[Finding] = (),
    spellings: Mapping[str, str] = MappingProxyType({}),
    of_extensions: Sequence[Doubt] = (),
) -> list[Doubt]:
    """Return a sentence, and where, for each sign that the fit, or a part of it, is not to be believed."""
    doubts = [
        *interruption(fit.protocol, result),
        *(Doubt("map", finding.spelled(spellings)) for finding in findings),
        *_overall_doubts(fit, result),
        *_noise_doubt(result, summary, scan),
        *_geometry_doubt(result, summary, scan),
        *_strength_doubt(scan),
        *_half_map_doubt(scan),
        *_backbone_doubt(summary),
        *_chemistry_doubts(summary),
        *_peptide_doubt(violations, summary),
        *_pierced_doubt(summary),
        *contact_doubts(summary),
        *worse_doubts(summary["worse_geometry"]),
        *_worse_residues_doubt(stretches, residues),
        *_unknown_ligand_doubts(summary),
        *of_extensions,
        *_stretch_doubts(stretches, residues),
    ]
    return [replace(doubt, sentence=with_arguments(doubt.sentence, spellings)) for doubt in doubts]


def doubts_of_figures(
    summary: Mapping[str, Any], stretches: Sequence[DoubtfulStretch], residues: Sequence[Mapping[str, Any]]
) -> list[Doubt]:
    """Return the doubts from figures of a summary alone: correlation, new outliers, contacts, ligands and stretches."""
    return [
        *_low_correlation_doubt(summary["cc_final"]),
        *_backbone_doubt(summary),
        *_chemistry_doubts(summary),
        *contact_doubts(summary),
        *worse_doubts(summary["worse_geometry"]),
        *_worse_residues_doubt(stretches, residues),
        *_stretch_doubts(stretches, residues),
    ]


def interruption(protocol: Protocol, result: FitResult) -> list[Doubt]:
    """Return how far a fit came that was interrupted, and what has not happened yet; nothing for one that came to its end."""
    if not result.interrupted:
        return []
    return [Doubt("interrupted", _what_is_left(protocol, result))]


def _what_is_left(protocol: Protocol, result: FitResult) -> str:
    """Return a sentence on where a fit was interrupted."""
    if result.unfinished is not None:
        return (
            f"{result.unfinished.what} was interrupted: these results are those of the fit of one model, which is complete; "
            f"{result.unfinished.remedy}."
        )
    started, planned = result.stages, protocol.stages
    where = f"the fit was interrupted at step {result.steps} of {protocol.steps}"
    if not started:
        return f"{where}, before its first stage: the model was only minimised, and nothing has pulled it into the map yet."
    last, left = started[-1], [stage.name for stage in planned[len(started) :]]
    stage = planned[len(started) - 1]
    unfinished = last["steps"] < stage.steps and not last["converged"]
    if unfinished:
        left.insert(0, f"the rest of {stage.name}")
    if not left:
        return f"{where}, after its last stage: only the last minimisation is cut short."
    pulled = max((each["strength"] for each in started), default=0.0) / (result.strength or 1.0)
    done = planned[: len(started) - unfinished]
    cools = [stage.temperature[1] < stage.temperature[0] for stage in (planned[-1], *done)]
    cooled = ", so it is not annealed" if cools[0] and not any(cools[1:]) else ""
    return (
        f"{where}, in stage {len(started)} of {len(planned)} ({stage.name}): the model is between its start and a fit. The "
        f"density had pulled with up to {pulled:.0%} of its full strength; {listing(left)} {'has' if len(left) == 1 else 'have'} "
        f"not happened yet{cooled}. Go on with the fit before you judge it."
    )


def _overall_doubts(fit: FlexibleFit, result: FitResult) -> list[Doubt]:
    """Return a doubt where the resolution, the place of the model or its correlation are not those of a good fit."""
    doubts = []
    finest = 2 * float(fit.density_map.voxel_size.max())
    if fit.density.resolution < NYQUIST_SLACK * finest:
        said = (
            f"a resolution of {fit.density.resolution:g} Å was given, but voxels of {finest / 2:.2f} Å hold no detail finer than "
            f"{finest:.1f} Å: check it."
        )
        doubts.append(Doubt("resolution", said))
    values = fit.density_map.value_at(result.final[fit.density.atoms])
    outside = float(np.isnan(values).mean())
    if outside > LARGEST_PART_OUTSIDE:
        said = (
            f"{outside:.0%} of the fitted atoms are outside the map: check that the model is in its density."
        )
        doubts.append(Doubt("outside", said))
    if result.simulated is not None:
        said = (
            f"the fit did not improve the model ({result.simulated.because}): fitted.* hold it as it was, and after.* what the "
            "simulation made of it."
        )
        doubts.append(Doubt("not_improved", said))
    elif result.cc_final <= result.cc_initial:
        said = (
            f"the correlation did not rise ({result.cc_initial:.3f} to {result.cc_final:.3f}): run more steps, or keep the model "
            "as it was."
        )
        doubts.append(Doubt("not_improved", said))
    return [*doubts, *_low_correlation_doubt(result.cc_final)]


def _low_correlation_doubt(cc: float) -> list[Doubt]:
    if cc >= LOW_CORRELATION:
        return []
    said = (
        f"the final correlation is low ({cc:.2f}): look at overview.png, and check resolution and placement."
    )
    return [Doubt("correlation", said)]


def _noise_doubt(result: FitResult, summary: Mapping[str, Any], scan: StrengthScan | None) -> list[Doubt]:
    """Return a doubt where the model agrees with the map better than a reference, by the correlation alone or close to it."""
    if result.cc_reference is None or result.cc_final <= result.cc_reference + ABOVE_REFERENCE:
        return []
    compared = f"the correlation is above that of the reference ({result.cc_final:.3f}, reference {result.cc_reference:.3f})"
    q, fsc = (
        [summary[f"{name}_{end}"] for end in ("final", "reference")] for name in ("q_score", "fsc_resolution")
    )
    if None not in (*q, *fsc) and q[0] < q[1] - ABOVE_REFERENCE and fsc[0] > fsc[1]:
        said = (
            f"{compared}, but Q ({q[0]:.3f}, reference {q[1]:.3f}) and FSC 0.5 ({fsc[0]:.2f} Å, reference {fsc[1]:.2f} Å) are "
            "worse: the model fills the envelope of the density, and its detail is wrong; look where the correlation is low, and "
            "do not take the higher correlation for a better model."
        )
        return [Doubt("noise", said)]
    of = summary["ca_rmsd_of"]
    if of is None or of["matched"] < WHOLE * of["residues"] or result.ca_rmsd_final > NEAR_REFERENCE:
        return []
    tells = f"half maps ({as_argument('half_maps')}) would tell"
    if scan is not None:
        tells = "compare work and free of half_maps in summary.json"
    return [Doubt("noise", f"{compared}: the model may have been fitted into noise; {tells}.")]


def _geometry_doubt(result: FitResult, summary: Mapping[str, Any], scan: StrengthScan | None) -> list[Doubt]:
    """Return a doubt where the geometry is clearly worse than where force field and restraints alone bring it."""
    if result.simulated is not None:  # it is the start's own
        return []
    relaxed, after = (summary[f"geometry_{stage}"] for stage in ("relaxed", "final"))
    worse, places = [], []
    limit = WORSE_RMSZ if result.amplitude_weight is None else WORSE_RMSZ_BY_AMPLITUDES
    for name in ("bond", "angle"):
        values = relaxed[f"{name}_rmsz"], after[f"{name}_rmsz"]
        if None not in values and values[1] > limit * values[0]:
            worse.append(f"{name} RMSZ {values[0]:.2f} to {values[1]:.2f}")
            places.append(_worst_place(name, after[f"worst_{name}_atoms"]))
    beyond = _new("z_outliers", relaxed, after)
    if len(beyond) > WORSE_BY:
        worse.append(f"{len(beyond)} bonds and angles newly beyond 5 standard deviations")
        places += map(Place.of, beyond)
    for name, key, of in (
        ("Ramachandran outliers", "ramachandran_outlier", "ramachandran_count"),
        ("rotamer outliers", "rotamer_outlier", "rotamer_count"),
        ("clashes", "clash", "atom_count"),
    ):
        counts = relaxed[f"{key}_count"], after[f"{key}_count"]
        if None not in counts and counts[1] > max(
            counts[0] + WORSE_BY, most_borne(key, counts[0], after[of])
        ):
            worse.append(f"{name} {counts[0]} to {counts[1]}")
            places += map(Place.of, _new(f"{key}s", relaxed, after))
    if not worse or not result.strength:
        return []
    said = (
        f"the geometry is clearly worse than that of the model relaxed without the map ({', '.join(worse)}); "
        f"{_why_worse(result, scan)}."
    )
    return [Doubt("geometry", said, tuple(places))]


def _worst_place(name: str, atoms: str) -> Place:
    """Return where the worst bond or angle is, as in ``worst bond: A LYS 45 CA - A LYS 45 CB``."""
    return replace(Place.of(atoms), label=f"worst {name}: {atoms}")


def _new(key: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what a list of one geometry names and that of another does not."""
    known = before.get(key) or ()
    return [each for each in after.get(key) or () if each not in known]


def _why_worse(result: FitResult, scan: StrengthScan | None) -> str:
    """Return what made the geometry worse, and what to do about it."""
    if result.interrupted and result.unfinished is None:
        return "the fit was interrupted before it came to rest: go on with it"
    if result.amplitude_weight is not None:
        counted = (
            f"the amplitudes count {result.amplitude_weight:g} times as much as force field and restraints"
        )
        return f"{counted}: look at the model there"
    few = result.steps < FEW_STEPS
    found = result.final_search is not None
    why = f"the pull of {result.final_strength:.0f} kJ/mol per atom is strong for this map"
    why += f" and {result.steps} steps" if few else ""
    why += f": fit again with a lower {as_argument('final_strength' if found else 'strength')}"
    why += f" or more {as_argument('steps')}" if few else ""
    return why + (
        ", or let half maps find it" if scan is None else ", without half maps, which would choose it again"
    )


def _strength_doubt(scan: StrengthScan | None) -> list[Doubt]:
    """Return a doubt where half maps found no strength that is too much."""
    if scan is None or not scan.still_rises:
        return []
    said = (
        f"the correlation with the half map that was not fitted into rose up to the strongest pull, {scan.chosen:g} kJ/mol per "
        "atom, so the half maps set no limit to the final strength; the geometry alone does. If the model started far from the "
        "map, fit again from fitted.pdb."
    )
    return [Doubt("strength", said)]


def _half_map_doubt(scan: StrengthScan | None) -> list[Doubt]:
    """Return a doubt where half maps are not independent, or do not agree at all."""
    if scan is None or scan.fsc_falls is None:
        return []
    nowhere = float("inf")
    crossing = Crossing(HALF_MAP_THRESHOLD, scan.fsc_resolution or nowhere, scan.fsc_falls)
    said = half_map_doubt(crossing)
    return [] if said is None else [Doubt("half_maps", said)]


def _backbone_doubt(summary: Mapping[str, Any]) -> list[Doubt]:
    """Return a doubt about the residues whose backbone torsions the fit made unusual."""
    spoilt = _new("ramachandran_outliers", summary["geometry_initial"], summary["geometry_final"])
    if not spoilt:
        return []
    said = f"the fit made Ramachandran outliers of {listing(spoilt, 10)}: look at the model there."
    return [Doubt("ramachandran", said, tuple(map(Place.of, spoilt)))]


def _chemistry_doubts(summary: Mapping[str, Any]) -> list[Doubt]:
    """Return doubts about puckers and suites made outliers, base pairs opened, other rings of sugars, and what metals lost."""
    doubts = []
    before, after = summary["geometry_initial"], summary["geometry_final"]
    mended = {*before.get("pyranose_outliers", ())} - {*after.get("pyranose_outliers", ())}
    told = [each["atoms"] for each in summary["worse_geometry"] if each["kind"] == "metal"]
    # At usual resolutions of RNA some suites are outliers, and which ones changes: more of them are what a fit spoilt.
    more = len(after.get("suite_outliers", ())) > len(before.get("suite_outliers", ()))
    for kind, found, said in (
        (
            "puckers",
            _new("pucker_outliers", before, after),
            "the fit made sugar pucker outliers of",
        ),
        (
            "suites",
            _new("suite_outliers", before, after) if more else (),
            "the fit made more backbone suites outliers, among them",
        ),
        ("base_pairs", summary["base_pairs_lost"], "the fit opened base pairs:"),
        (
            "pyranoses",
            [each for each in summary["pyranose_changes"] if each.partition(" (")[0] not in mended],
            "the fit changed the ring or the anomer of sugars:",
        ),
        (
            "metal",
            [
                each
                for each in summary["metal_changes"]
                if " without " in each and not any(each.partition(" (")[0] in known for known in told)
            ],
            "the fit changed what metals bind:",
        ),
    ):
        if found:
            places = tuple(map(Place.of, (each.partition(" (")[0] for each in found)))
            doubts.append(Doubt(kind, f"{said} {listing(found, 10)}: look at the model there.", places))
    return doubts


def _peptide_doubt(violations: Mapping[str, Sequence[Violation]], summary: Mapping[str, Any]) -> list[Doubt]:
    """Return a doubt about peptide bonds that are twisted at the end, or flipped unrestrained."""
    found = summary["peptide_flips"]
    places = tuple(map(Place.of, found))
    if "cis" in violations:
        found = [
            f"{' - '.join(each.residues)} ({each.quantity} {each.value:.1f}°, held at {each.target:.1f}°)"
            for each in violations["cis"]
        ]
        places = tuple(Place(" - ".join(each.residues), each.residues) for each in violations["cis"])
    if not found:
        return []
    said = f"peptide bonds are twisted or flipped at the end: {listing(found, 10)}: look at the model there."
    return [Doubt("cis", said, places)]


def _pierced_doubt(summary: Mapping[str, Any]) -> list[Doubt]:
    """Return a doubt about the rings through which bonds pass."""
    pierced = summary["pierced_rings_final"]
    if not pierced:
        return []
    places = []
    for each in pierced:
        ring, _, bond = each.rstrip(")").partition(" (by ")
        places.append(Place(each, (ring, *bond.split(" - "))))
    said = (
        f"bonds pass through rings, which no molecule has: {listing(pierced, 10)}: rebuild the model there."
    )
    return [Doubt("pierced", said, tuple(places))]


def _unknown_ligand_doubts(summary: Mapping[str, Any]) -> list[Doubt]:
    """Return a doubt about each ligand that left what its learned potential knows."""
    doubts = []
    for ligand in summary["ligand_potentials"]:
        if not ligand["unknown"]:
            continue
        held = ligand["held_times"]
        how = f", and was held back {held} time{'s' if held > 1 else ''}" if held else ""
        said = (
            f"{ligand['residue']} left what its potential knows at step {ligand['first_unknown']} ({ligand['unknown']} of "
            f"{ligand['looks']} looks; the forces of its students differed by up to {ligand['disagreement_worst']:.1f} "
            f"kcal/mol/Å, and by {ligand['disagreement_bound']:.1f} at most where they know it){how}: look at its geometry, and "
            "check its SMILES and where it starts."
        )
        doubts.append(Doubt("ligand", said, (Place.of(ligand["residue"]),)))
    return doubts


def _worse_residues_doubt(
    stretches: Sequence[DoubtfulStretch], residues: Sequence[Mapping[str, Any]]
) -> list[Doubt]:
    """Return a doubt about the residues, but waters and those of stretches, that fit the map clearly worse than at the start."""
    told = {row for stretch in stretches for row in stretch.rows}
    found = {}
    for number, row in enumerate(residues):
        before, after, best = (row.get(f"correlation_{each}") for each in ("initial", "final", "reference"))
        if number in told or row["kind"] == "water" or before is None or after is None:
            continue
        is_worse = before - after > LESS_CORRELATION and 1 - after > LACKS_MORE * (1 - before)
        if is_worse and (best is None or after < best):
            found[row["residue"]] = f"{row['residue']} ({before:.2f} to {after:.2f})"
    if not found:
        return []
    said = (
        f"residues correlate with the map clearly less than at the start: {listing(list(found.values()), 10)}"
    )
    return [Doubt("worse", f"{said}: look at the model there.", tuple(map(Place.of, found)))]


def _stretch_doubts(
    stretches: Sequence[DoubtfulStretch], residues: Sequence[Mapping[str, Any]]
) -> list[Doubt]:
    """Return a doubt about each of the worst stretches, and one about all others."""
    places = [place_of_stretch(stretch, residues) for stretch in stretches]
    sentences, own = sentences_of(stretches), min(len(places), MOST_STRETCHES)
    doubts = [Doubt("stretch", said, (place,)) for said, place in zip(sentences, places[:own])]
    doubts += [Doubt("stretch", said, tuple(places[own:])) for said in sentences[own:]]
    return doubts
