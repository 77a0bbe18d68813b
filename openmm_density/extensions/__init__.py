"""What not every fit needs, a room for each: on the hook of `openmm_density.fitting.extension`, and imported by no other room."""
