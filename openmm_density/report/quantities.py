"""What the numbers of a fit's output are called and mean, and their units.

Each correlation and score has one definition:

CC (``cc_…``, ``cc`` in log.csv)
    `openmm_density.validation.correlation.MapCorrelation.cc_mask`: the Pearson correlation over the voxels within 3 Å of a
    non-hydrogen atom, between the map as it was read and gemmi's density of the model that was given, with uniform B = 8 d and
    cut at resolution d. It is the same whatever the energy uses.
``cc_free``
    The same with another map of the molecule, such as the other half map.
``correlation_…`` of a residue
    `openmm_density.validation.correlation.residue_correlations`: as CC, over the voxels within 3 Å of its own non-hydrogen atoms.
``q_score_…``
    `openmm_density.validation.q_score.q_scores`.
``similarity``, ``similarity_…``
    The measure that the energy uses, `openmm_density.DensityFit.similarity`, with Gaussians of the map's own resolution;
    those of a stage may be wider (``blur``), or its map coarser or sharper (``sharpened``).
"""

from __future__ import annotations

UNITS = {
    **dict.fromkeys(("resolution", "fsc_resolution", "ca_rmsd", "moved_by"), "Å"),
    **dict.fromkeys(("planarity_rms", "planarity_worst", "rms", "worst", "bond_rmsd", "worst_bond"), "Å"),
    **dict.fromkeys(("voxel_size", "map_voxel_size", "sigma", "cutoff"), "Å"),
    **dict.fromkeys(("given", "spectrum_ends", "agrees_to"), "Å"),
    **dict.fromkeys(("angle_rmsd", "worst_angle", "largest_omega_change"), "°"),
    **dict.fromkeys(("chi_before", "chi_after"), "°"),
    "separation": "Å",
    "frequency": "1/Å",
    **dict.fromkeys(("strength", "final_strength", "chosen", "most"), "kJ/mol per fitted atom"),
    "clashscore": "clashes per 1000 atoms",
    **dict.fromkeys(("gain", "strain"), "kJ/mol"),
    **dict.fromkeys(("disagreement_worst", "disagreement_bound"), "kcal/mol/Å"),
    "work": "steps of the whole model, estimated",
    **dict.fromkeys(("wall_seconds", "seconds_by_part", "seconds_within"), "s"),
    "contour_level": "the map's own",
    "ms_per_step": "ms",
    "density_ms_per_step": "ms",
    "ms_by_force": "ms",
}
"""Of the numbers in summary.json by their names, wherever they stand, without the endings _initial, _relaxed, _final and
_reference. What is not here has none."""
