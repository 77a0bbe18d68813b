"""Refine a model in a map with Coot, inside the environment that `coot-headless-api` is installed in: `coot.py` starts it.

    python coot_worker.py MODEL MAP OUTPUT BLURS CYCLES WEIGHT

The map is blurred by each B factor of BLURS (Å², as "400,100,0") in turn, and the model refined in it for up to CYCLES cycles
of one thread, with a weight of WEIGHT over the map's standard deviation (Coot's own estimate is 15), and with restraints of
torsions and by the Ramachandran plot. Prints the seconds that it took.
"""

from __future__ import annotations

import sys
import time

import coot_headless_api as coot


def main() -> None:
    """Refine, and write the model."""
    model, density_map, output, blurs, cycles, weight = sys.argv[1:]
    container = coot.molecules_container_t(False)
    container.set_max_number_of_threads(1)
    container.set_use_rama_plot_restraints(True)
    container.set_use_torsion_restraints(True)
    molecule = container.read_coordinates(model)
    given = container.read_ccp4_map(density_map, False)
    begun = time.perf_counter()
    for blur in map(float, blurs.split(",")):
        blurred = container.sharpen_blur_map(given, blur, False) if blur else given
        container.set_imol_refinement_map(blurred)
        container.set_map_weight(float(weight) / container.get_map_rmsd_approx(blurred))
        container.refine_residues_using_atom_cid(molecule, "/", "ALL", int(cycles))
    print(time.perf_counter() - begun)
    container.write_coordinates(molecule, output)


if __name__ == "__main__":
    main()
