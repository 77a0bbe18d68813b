"""The names by which protocols and the command line know restraints, without what the restraints are made of."""

RESTRAINT_NAMES = (
    "planarity",
    "ss",
    "base-pairs",
    "sugar-puckers",
    "suites",
    "chirality",
    "cis",
    "ramachandran",
    "rotamers",
    "elastic",
    "distance",
    "torsion",
    "position",
    "symmetry",
    "water",
    "ideal-geometry",
)
"""In the order in which protocols list them; `openmm_density.restraints.registry.RESTRAINTS` has the classes behind each."""
DEFAULT_STAGE_RESTRAINTS = (
    "cis",
    "chirality",
    "ramachandran",
    "planarity",
    "base-pairs",
    "sugar-puckers",
    "water",
)
"""Those of a stage that names none."""
RELEASED_RESTRAINTS = ("base-pairs", "sugar-puckers", "suites", "distance", "torsion")
"""Those whose energy levels off: they are meant to give way where the density contradicts them."""
