"""The old name of `openmm_density.cuda_graph_force`."""

import sys
import warnings

from .. import cuda_graph_force

warnings.warn(
    "openmm_density.energies.cuda_graph_force is now openmm_density.cuda_graph_force: import that",
    DeprecationWarning,
    stacklevel=2,
)
sys.modules[__name__] = cuda_graph_force
