"""Find the flat groups of a model: which atoms lie in one plane.

Four sources, in this order for each residue:

1. a user's restraint dictionary (CCP4/REFMAC, AceDRG: ``_chem_comp_plane_atom`` with its σ);
2. the tables of `residue_tables`, for amino acids, nucleotides, their common modifications, and haem;
3. a user's wwPDB component file (``_chem_comp_bond`` with orders and aromatic flags);
4. the bonded topology itself: conjugated rings, double bonds and trigonal centres.

Peptide groups and C-termini come from the bonds between residues, so that no plane crosses a gap.

A group is flat where conjugation holds it so. Hydrogens on its trigonal atoms are members where the model has
them; hydrogens that turn about a single bond are not (methyl, the hydroxyl of Tyr, a protonated carboxylate).
"""

from .plane_set import Deviations, Plane, PlaneSet
from .report import PlanarityReport, PlanarityRow, planarity_report
from .search import find_planes

__all__ = [
    "Deviations",
    "PlanarityReport",
    "PlanarityRow",
    "Plane",
    "PlaneSet",
    "find_planes",
    "planarity_report",
]
