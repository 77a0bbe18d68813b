// Tiles: which atoms reach which part of the grid.
//
// The box of bricks that atoms reach is cut into tiles of TILE_Z x TILE_Y bricks across x. A tile lists the atoms that reach it, in
// input order, and each periodic image of one on its own, so that nothing that works on a tile knows of periodicity.
#pragma once

#include <array>
#include <vector>

#include "footprints.h"

namespace openmm_density {

constexpr int MAX_CHANNELS = 3;

// Slots of the similarity's sums over a tile, see measures.h.
enum Sum { SUM_DENSITY, SUM_DENSITY_SQUARED, SUM_DENSITY_TARGET, SUMS, SUM_ENTROPY = SUM_DENSITY };
using Sums = std::array<double, SUMS>;

// That an image reaches a tile, by the tile's number in the box.
struct TileEntry {
    int tile;
    Image image;
};

struct Tile {
    int number;          // in the grid's order, whoever works on it when
    int bz, by;          // its first brick in the box
    int64_t begin, end;  // its images
};

struct ThreadScratch {
    std::vector<vec> channels[MAX_CHANNELS];  // fields over the bricks of a tile, see measures.h
    std::vector<vec> tables;
    std::vector<TileFootprint> footprints;
};

// Reused between calls; belongs to the calling thread, so that several Contexts never share one.
struct Workspace {
    std::vector<float> edges;             // (atoms, gaussians)
    std::vector<GridPosition> positions;  // (atoms)
    std::vector<std::vector<TileEntry>> entries;  // (chunks): in the order of the atoms
    std::vector<int64_t> chunk_offsets;   // (chunks, tiles)
    std::vector<int64_t> first_image_of;  // (atoms + 1): index into image_of_atom
    std::vector<int> image_of_atom;
    std::vector<Image> images;
    std::vector<Tile> tiles;              // those with atoms
    std::vector<float> partials;          // (images, sums of a gather)
    std::vector<Sums> sums;               // (tiles)
    std::vector<ThreadScratch> threads;
};

}  // namespace openmm_density
