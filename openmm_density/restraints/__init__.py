"""Forces that keep a model's chemistry and fold as they are while a density pulls on its atoms.

In MDFF these are the cispeptide, chirality and ssrestraints plugins. A density force does not know chemistry: it turns a
peptide plane or inverts a centre where that puts an atom into a peak, and the force field alone then holds
the mistake as firmly as it would hold the truth.

Each restraint is a small class, usable alone on any System::

    restraint = ChiralityRestraint(topology, positions)
    system.addForce(restraint.create_force())
    …
    context.setParameter(restraint.parameter_name, 0.0)      # let go
    for violation in restraint.violations(final_positions):
        print(violation)

All are ordinary OpenMM custom forces with exact gradients on every platform, and one Context parameter, their strength.
"""

from __future__ import annotations

from ..lazy_names import moved_names
from .chirality import CHIRALITY_STRENGTH, ChiralityRestraint
from .distance import DistanceRestraint
from .domains import find_domains
from .elastic_network import ElasticNetworkRestraint
from .peptide import PEPTIDE_STRENGTH, PeptideRestraint
from .positional import PositionalRestraint
from .ramachandran import RAMACHANDRAN_STRENGTH, RamachandranRestraint
from .registry import DEFAULT_RESTRAINTS, RESTRAINTS, find_violations, make_restraints, restraint_names
from .restraint import Restraint, Violation
from .rotamers import ROTAMER_STRENGTH, RotamerRestraint
from .secondary_structure import (
    HYDROGEN_BOND_STRENGTH,
    SECONDARY_STRUCTURE_STRENGTH,
    HydrogenBondRestraint,
    SecondaryStructureRestraint,
)
from .symmetry import SymmetryRestraint
from .water import WATER_STRENGTH, WaterRestraint

__all__ = [
    "CHIRALITY_STRENGTH",
    "DEFAULT_RESTRAINTS",
    "HYDROGEN_BOND_STRENGTH",
    "PEPTIDE_STRENGTH",
    "RAMACHANDRAN_STRENGTH",
    "RESTRAINTS",
    "ROTAMER_STRENGTH",
    "SECONDARY_STRUCTURE_STRENGTH",
    "WATER_STRENGTH",
    "ChiralityRestraint",
    "DistanceRestraint",
    "ElasticNetworkRestraint",
    "HydrogenBondRestraint",
    "PeptideRestraint",
    "PositionalRestraint",
    "RamachandranRestraint",
    "Restraint",
    "RotamerRestraint",
    "SecondaryStructureRestraint",
    "SymmetryRestraint",
    "Violation",
    "WaterRestraint",
    "find_domains",
    "find_violations",
    "make_restraints",
    "restraint_names",
]


def __dir__() -> list[str]:
    return __all__


__getattr__ = moved_names(
    __name__,
    {
        "IDEAL_IMPROPER": "openmm_density.chemistry.stereocentres",
        "backbone_hydrogen_bonds": "openmm_density.chemistry.secondary_structure",
        "chiral_centres": "openmm_density.chemistry.stereocentres",
        "other_centres": "openmm_density.chemistry.stereocentres",
        "peptide_torsions": "openmm_density.chemistry.torsions",
        "secondary_structure_torsions": "openmm_density.chemistry.secondary_structure",
        "torsion_angles": "openmm_density.chemistry.torsions",
    },
)
