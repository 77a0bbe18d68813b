"""Forces that keep a model's chemistry and fold as they are while a density pulls on its atoms.

In MDFF these are the cispeptide, chirality and ssrestraints plugins. A density force does not know chemistry: it turns a
peptide plane or inverts a centre where that puts an atom into a peak, and the force field alone then holds
the mistake as firmly as it would hold the truth.

Each restraint is a small class, usable alone on any System::

    restraint = ChiralityRestraint(topology, positions)
    system.addForce(restraint.create_force())
    …
    context.setParameter(restraint.parameter_name, 0.0)      # disable it
    for violation in restraint.violations(final_positions):
        print(violation)

All have exact gradients on every platform, and one Context parameter, their force constant. All but planes, whose
energy a kernel of ours computes, are custom forces of OpenMM; `IdealGeometryRestraint` has one for each kind of its terms
(``restraint.create_forces()``). A new one is a module here with a subclass of `Restraint`, and its
entry in `registry.RESTRAINTS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .base_pairs import (
        BASE_PAIR_FORCE_CONSTANT,
        BASE_PLANE_FORCE_CONSTANT,
        BasePairRestraint,
        BasePlaneRestraint,
    )
    from .chirality import CHIRALITY_FORCE_CONSTANT, ChiralityRestraint
    from .distance import DistanceRestraint
    from .domains import find_domains
    from .elastic_network import ElasticNetworkRestraint
    from .ideal_geometry import IDEAL_GEOMETRY_FORCE_CONSTANT, IdealGeometryRestraint
    from .peptide import PEPTIDE_FORCE_CONSTANT, PeptideRestraint
    from .planarity import PlanarityRestraint
    from .positional import PositionalRestraint
    from .predicted_torsions import PredictedTorsionRestraint
    from .ramachandran import RAMACHANDRAN_FORCE_CONSTANT, RamachandranRestraint
    from .registry import DEFAULT_RESTRAINTS, RESTRAINTS, find_violations, make_restraints, restraint_names
    from .restraint import Restraint, Violation
    from .rotamers import ROTAMER_FORCE_CONSTANT, RotamerRestraint
    from .secondary_structure import (
        HYDROGEN_BOND_FORCE_CONSTANT,
        SECONDARY_STRUCTURE_FORCE_CONSTANT,
        HydrogenBondRestraint,
        SecondaryStructureRestraint,
    )
    from .sugar_puckers import (
        GLYCOSIDIC_FORCE_CONSTANT,
        SUGAR_PUCKER_FORCE_CONSTANT,
        GlycosidicRestraint,
        SugarPuckerRestraint,
    )
    from .suites import SUITE_FORCE_CONSTANT, SuiteRestraint
    from .symmetry import SymmetryRestraint
    from .water import WATER_FORCE_CONSTANT, WaterRestraint

__all__ = [
    "BASE_PAIR_FORCE_CONSTANT",
    "BASE_PLANE_FORCE_CONSTANT",
    "CHIRALITY_FORCE_CONSTANT",
    "DEFAULT_RESTRAINTS",
    "GLYCOSIDIC_FORCE_CONSTANT",
    "HYDROGEN_BOND_FORCE_CONSTANT",
    "IDEAL_GEOMETRY_FORCE_CONSTANT",
    "PEPTIDE_FORCE_CONSTANT",
    "RAMACHANDRAN_FORCE_CONSTANT",
    "RESTRAINTS",
    "ROTAMER_FORCE_CONSTANT",
    "SECONDARY_STRUCTURE_FORCE_CONSTANT",
    "SUGAR_PUCKER_FORCE_CONSTANT",
    "SUITE_FORCE_CONSTANT",
    "WATER_FORCE_CONSTANT",
    "BasePairRestraint",
    "BasePlaneRestraint",
    "ChiralityRestraint",
    "DistanceRestraint",
    "ElasticNetworkRestraint",
    "GlycosidicRestraint",
    "HydrogenBondRestraint",
    "IdealGeometryRestraint",
    "PeptideRestraint",
    "PlanarityRestraint",
    "PositionalRestraint",
    "PredictedTorsionRestraint",
    "RamachandranRestraint",
    "Restraint",
    "RotamerRestraint",
    "SecondaryStructureRestraint",
    "SugarPuckerRestraint",
    "SuiteRestraint",
    "SymmetryRestraint",
    "Violation",
    "WaterRestraint",
    "find_domains",
    "find_violations",
    "make_restraints",
    "restraint_names",
]

__getattr__, __dir__ = lazy_names(__name__)
