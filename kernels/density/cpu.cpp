// Model density, its gradients, and similarity with forces, on the CPU.
//
// The grid is cut into tiles of TILE_Z x TILE_Y rows along x. A tile lists the atoms that reach it, in input order, each
// periodic image on its own, so that nothing below the lists knows of periodicity. One thread at a time owns a tile: it
// splats the listed atoms into a scratch that stays in its cache, sweeps the scratch once for the sums that the similarity
// needs, and gathers, for every listed atom, the gradients that those sums will weight. For the correlations
// g = dS/d(density) is c0 + c1*density + c2*target with c known only after the last tile, so the three terms are gathered
// apart and combined at the end: density and g never exist for more than a tile. Tiles, lists and the order of every
// addition follow from the input alone: the same bits for any number of threads.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "../grid.h"
#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "../parallel.h"
#include "../simd.h"

namespace openmm_density {
namespace {

constexpr int TILE_Z = 16;
constexpr int TILE_Y = 24;
constexpr int ROWS = (TILE_Y + W - 1) / W * W;  // of a tile, in whole vectors
constexpr int MAX_GAUSSIANS = 5;
constexpr int MAX_CHANNELS = 3;
constexpr int ATOMS_PER_CHUNK = 512;

enum Measure { CROSS_CORRELATION, CROSS_CORRELATION_ABOUT_MEAN, INNER_PRODUCT, RELATIVE_ENTROPY, LEAST_SQUARES };

struct Atoms {
    int64_t count;
    int gaussians;
    const float* amplitudes;  // (count, gaussians)
    const float* exponents;   // (count, gaussians)
    double cutoff;
};

// One image of one atom in one tile: the rows [y0, y1) x [z0, z1) of the tile, the lanes from x on, and where the first of
// these voxels lies as seen from the atom, in voxels.
struct Entry {
    int atom;
    int x;
    short y0, y1, z0, z1;
    float ux, uy, uz;
};

struct Tile {
    int z, y;  // first plane and row
    int64_t begin, end;
};

struct Interval {
    int begin, end;  // half open
};

struct ThreadScratch {
    std::vector<float> channels[MAX_CHANNELS];
    std::vector<float> tables;
};

// Reused between calls; belongs to the calling thread, so that several Contexts never share one.
struct Workspace {
    std::vector<float> edges;             // (atoms, gaussians)
    std::vector<double> u;                // (atoms, 3), NaN where an atom cannot be placed
    std::vector<int64_t> chunk_offsets;   // (chunks, tiles)
    std::vector<int64_t> first_entry_of;  // (atoms + 1): index into entry_of_atom
    std::vector<int64_t> entry_of_atom;
    std::vector<Entry> entries;
    std::vector<Tile> tiles;              // those with entries, the longest list first, so that threads end together
    std::vector<float> partials;          // (entries, channels, 3)
    std::vector<std::array<double, 3>> sums;
    std::vector<ThreadScratch> threads;
};

Workspace& workspace() {
    static thread_local Workspace instance;
    return instance;
}

class Images {
   public:
    Images(double u, double reach, int n, bool periodic) : n_(n) {
        begin_ = static_cast<int64_t>(std::ceil(u - reach));
        end_ = static_cast<int64_t>(std::floor(u + reach)) + 1;
        const auto cell = [n](int64_t i) { return i >= 0 ? i / n : -((n - 1 - i) / n); };
        first_ = periodic ? cell(begin_) : 0;
        last_ = periodic ? cell(end_ - 1) : 0;
    }
    // f(shift, the part of the image that lies in the grid)
    template <typename F>
    void each(const F& f) const {
        for (int64_t cell = first_; cell <= last_; ++cell) {
            const int64_t shift = cell * n_;
            const Interval part{static_cast<int>(std::max<int64_t>(begin_ - shift, 0)),
                                static_cast<int>(std::min<int64_t>(end_ - shift, n_))};
            if (part.begin < part.end) f(shift, part);
        }
    }

   private:
    int64_t n_, begin_, end_, first_, last_;
};

struct Plan {
    const Grid& grid;
    const Atoms& atoms;
    const float* edges;  // (atoms, gaussians): A exp(-alpha s_c)
    double reach[3];
    int vectors;  // of lanes that hold any row of an atom
    int tiles_y;
    Interval box_z, box_y;
};

template <typename F>
void each_image_in_tile(const Plan& plan, const double* u, const F& f) {
    const Grid& grid = plan.grid;
    const Images along_x(u[0], plan.reach[0], grid.n[0], grid.periodic);
    const Images along_y(u[1], plan.reach[1], grid.n[1], grid.periodic);
    const Images along_z(u[2], plan.reach[2], grid.n[2], grid.periodic);
    along_z.each([&](int64_t shift_z, Interval z) {
        along_y.each([&](int64_t shift_y, Interval y) {
            along_x.each([&](int64_t shift_x, Interval) {
                for (int tz = (z.begin - plan.box_z.begin) / TILE_Z; tz * TILE_Z + plan.box_z.begin < z.end; ++tz)
                    for (int ty = (y.begin - plan.box_y.begin) / TILE_Y; ty * TILE_Y + plan.box_y.begin < y.end; ++ty)
                        f(tz * plan.tiles_y + ty, shift_x, shift_y, shift_z, y, z);
            });
        });
    });
}

void fill_edges(const Atoms& atoms, int64_t first, int64_t last, float* edges) {
    const float s_c = static_cast<float>(atoms.cutoff * atoms.cutoff);
    for (int64_t i = first * atoms.gaussians; i < last * atoms.gaussians; i += W) {
        const int width = static_cast<int>(std::min<int64_t>(W, last * atoms.gaussians - i));
        const vec edge = load_first(atoms.amplitudes + i, width) *
                         exp_of_negative(load_first(atoms.exponents + i, width) * -s_c);
        std::memcpy(edges + i, &edge, width * sizeof(float));
    }
}

// Fill workspace.u, .entries, .tiles and the atoms' lists of entries.
template <typename T>
Plan make_plan(Workspace& work, const Grid& grid, const Atoms& atoms, const T* positions, const int64_t* selection) {
    work.edges.resize(atoms.count * atoms.gaussians);
    Plan plan{grid, atoms, work.edges.data(), {}, 0, 0, {grid.n[2], 0}, {grid.n[1], 0}};
    for (int axis = 0; axis < 3; ++axis) {
        plan.reach[axis] = grid.reach(axis, atoms.cutoff);
        TORCH_CHECK(plan.reach[axis] < (1 << 24), "the cutoff reaches over ", plan.reach[axis], " voxels: make it smaller");
    }
    plan.vectors = (static_cast<int>(std::floor(2 * plan.reach[0])) + W) / W;

    const int64_t n = atoms.count;
    const int64_t n_chunks = (n + ATOMS_PER_CHUNK - 1) / ATOMS_PER_CHUNK;
    work.u.resize(3 * n);
    std::vector<std::array<Interval, 2>> boxes(n_chunks, {plan.box_z, plan.box_y});
    parallel_for(n_chunks, [&](int64_t chunk, int) {
        fill_edges(atoms, chunk * ATOMS_PER_CHUNK, std::min(n, (chunk + 1) * ATOMS_PER_CHUNK), work.edges.data());
        auto& box = boxes[chunk];
        for (int64_t atom = chunk * ATOMS_PER_CHUNK; atom < std::min(n, (chunk + 1) * ATOMS_PER_CHUNK); ++atom) {
            double* u = &work.u[3 * atom];
            bool near = grid.locate(positions + 3 * (selection ? selection[atom] : atom), u);
            for (int axis = 0; near && !grid.periodic && axis < 3; ++axis)
                near = u[axis] + plan.reach[axis] >= 0 && u[axis] - plan.reach[axis] <= grid.n[axis] - 1;
            if (!near) {
                u[0] = std::nan("");
                continue;
            }
            for (int side = 0; side < 2; ++side) {
                const int axis = 2 - side;
                Images(u[axis], plan.reach[axis], grid.n[axis], grid.periodic).each([&](int64_t, Interval part) {
                    box[side].begin = std::min(box[side].begin, part.begin);
                    box[side].end = std::max(box[side].end, part.end);
                });
            }
        }
    });
    for (const auto& box : boxes) {
        plan.box_z = {std::min(plan.box_z.begin, box[0].begin), std::max(plan.box_z.end, box[0].end)};
        plan.box_y = {std::min(plan.box_y.begin, box[1].begin), std::max(plan.box_y.end, box[1].end)};
    }
    const int tiles_z = std::max(0, (plan.box_z.end - plan.box_z.begin + TILE_Z - 1) / TILE_Z);
    plan.tiles_y = std::max(0, (plan.box_y.end - plan.box_y.begin + TILE_Y - 1) / TILE_Y);
    const int64_t n_tiles = int64_t(tiles_z) * plan.tiles_y;

    // Count per chunk and tile, so that chunks can fill the lists side by side and still in the order of the atoms.
    work.chunk_offsets.assign(n_chunks * n_tiles, 0);
    work.first_entry_of.resize(n + 1);
    work.first_entry_of[0] = 0;
    parallel_for(n_chunks, [&](int64_t chunk, int) {
        int64_t* counts = work.chunk_offsets.data() + chunk * n_tiles;
        for (int64_t atom = chunk * ATOMS_PER_CHUNK; atom < std::min(n, (chunk + 1) * ATOMS_PER_CHUNK); ++atom) {
            int64_t count = 0;
            if (!std::isnan(work.u[3 * atom]))
                each_image_in_tile(plan, &work.u[3 * atom], [&](int64_t tile, int64_t, int64_t, int64_t, Interval, Interval) {
                    ++counts[tile];
                    ++count;
                });
            work.first_entry_of[atom + 1] = count;
        }
    });
    int64_t total = 0;
    work.tiles.clear();
    for (int64_t tile = 0; tile < n_tiles; ++tile) {
        const int64_t begin = total;
        for (int64_t chunk = 0; chunk < n_chunks; ++chunk) {
            const int64_t count = work.chunk_offsets[chunk * n_tiles + tile];
            work.chunk_offsets[chunk * n_tiles + tile] = total;
            total += count;
        }
        if (total > begin)
            work.tiles.push_back({plan.box_z.begin + TILE_Z * static_cast<int>(tile / plan.tiles_y),
                                  plan.box_y.begin + TILE_Y * static_cast<int>(tile % plan.tiles_y), begin, total});
    }
    std::stable_sort(work.tiles.begin(), work.tiles.end(),
                     [](const Tile& a, const Tile& b) { return a.end - a.begin > b.end - b.begin; });
    for (int64_t atom = 0; atom < n; ++atom) work.first_entry_of[atom + 1] += work.first_entry_of[atom];

    work.entries.resize(total);
    work.entry_of_atom.resize(total);
    parallel_for(n_chunks, [&](int64_t chunk, int) {
        int64_t* next = work.chunk_offsets.data() + chunk * n_tiles;
        for (int64_t atom = chunk * ATOMS_PER_CHUNK; atom < std::min(n, (chunk + 1) * ATOMS_PER_CHUNK); ++atom) {
            const double* u = &work.u[3 * atom];
            if (std::isnan(u[0])) continue;
            int64_t own = work.first_entry_of[atom];
            each_image_in_tile(plan, u, [&](int64_t tile, int64_t shift_x, int64_t shift_y, int64_t shift_z, Interval y,
                                            Interval z) {
                const int tile_z = plan.box_z.begin + TILE_Z * static_cast<int>(tile / plan.tiles_y);
                const int tile_y = plan.box_y.begin + TILE_Y * static_cast<int>(tile % plan.tiles_y);
                Entry entry;
                entry.atom = static_cast<int>(atom);
                entry.x = static_cast<int>(static_cast<int64_t>(std::ceil(u[0] - plan.reach[0])) - shift_x);
                entry.y0 = static_cast<short>(std::max(y.begin - tile_y, 0));
                entry.y1 = static_cast<short>(std::min(y.end - tile_y, TILE_Y));
                entry.z0 = static_cast<short>(std::max(z.begin - tile_z, 0));
                entry.z1 = static_cast<short>(std::min(z.end - tile_z, TILE_Z));
                entry.ux = static_cast<float>(entry.x + shift_x - u[0]);
                entry.uy = static_cast<float>(tile_y + entry.y0 + shift_y - u[1]);
                entry.uz = static_cast<float>(tile_z + entry.z0 + shift_z - u[2]);
                work.entry_of_atom[own++] = next[tile];
                work.entries[next[tile]++] = entry;
            });
        }
    });
    return plan;
}

// What the rows of one atom need. f(s) = sum A exp(-alpha s); the density is f(s) - f(s_c) - f'(s_c)(s - s_c) for s < s_c.
struct Profile {
    float s_c;
    float at_cutoff;     // -f(s_c) + f'(s_c) s_c
    float slope_cutoff;  // f'(s_c)
    float amplitude[MAX_GAUSSIANS], exponent[MAX_GAUSSIANS];
    float steepness[MAX_GAUSSIANS];  // their product

    Profile(const Atoms& atoms, const float* edges, int64_t atom) {
        const double cutoff_squared = atoms.cutoff * atoms.cutoff;
        s_c = static_cast<float>(cutoff_squared);
        at_cutoff = slope_cutoff = 0;
        for (int c = 0; c < atoms.gaussians; ++c) {
            amplitude[c] = atoms.amplitudes[atom * atoms.gaussians + c];
            exponent[c] = atoms.exponents[atom * atoms.gaussians + c];
            steepness[c] = amplitude[c] * exponent[c];
        }
        for (int c = 0; c < atoms.gaussians; ++c) {
            at_cutoff -= edges[atom * atoms.gaussians + c] * (1 + exponent[c] * s_c);
            slope_cutoff -= edges[atom * atoms.gaussians + c] * exponent[c];
        }
    }
};

// Rows of the plane at hand, [begin, end) of the entry's, and in each the vectors of lanes that the sphere reaches. With one
// vector per row there is nothing to choose. What a row needs is worked out for a whole plane at once: done row by row, it would
// cost more than the voxels do.
template <int VECTORS>
struct PlaneRows {
    static constexpr bool ONE_VECTOR = VECTORS == 1;
    int begin = 0, end = 0;
    int n_rows, n_vectors;
    int first[ROWS], last[ROWS];
    float y[ROWS];  // of each row, as seen from the atom, in voxels

    PlaneRows(const Plan& plan, const Entry& entry) : n_rows(entry.y1 - entry.y0), n_vectors(plan.vectors) {
        for (int j = 0; j < n_rows; j += W) store(y + j, lanes() + (entry.uy + static_cast<float>(j)));
    }

    int whole_rows() const { return (n_rows + W - 1) / W * W; }
    int first_vector(int j) const { return ONE_VECTOR ? 0 : first[j]; }
    int last_vector(int j) const { return ONE_VECTOR ? 1 : last[j]; }

    // Where a row is one vector, working out which rows the sphere reaches takes longer than adding zeros to a few more.
    void set_rows(float centre, float half) {
        begin = std::max(0, static_cast<int>(std::ceil(centre - half)));
        end = std::min(n_rows, static_cast<int>(std::floor(centre + half)) + 1);
    }

    void set_vectors(const float* centre, const float* half) {
        if constexpr (!ONE_VECTOR) {
            for (int j = 0; j < whole_rows(); ++j) {
                first[j] = std::max(0, static_cast<int>((centre[j] - half[j]) * (1.0f / W)));
                last[j] = std::min(n_vectors, static_cast<int>((centre[j] + half[j]) * (1.0f / W)) + 1);
            }
        }
    }
};

// Rows on an orthogonal grid: exp(-alpha s) is a product of three short tables, and a row costs one fused
// multiply-add per Gaussian. The tables are made when the atom is splatted and read again when it is gathered.
// VECTORS is 1 where a row fits into one vector, which then stays in a register, else 0.
template <int C, int VECTORS>
class OrthogonalRows : public PlaneRows<VECTORS> {
   public:
    static int64_t table_size(int vectors) { return (C + 1) * vectors * W + (C + 1) * ROWS + C * padded(TILE_Z); }

    OrthogonalRows(const Plan& plan, const Entry& entry, float* table, bool fill)
        : PlaneRows<VECTORS>(plan, entry),
          profile_(plan.atoms, plan.edges, entry.atom),
          ux_(entry.ux),
          uy_(entry.uy),
          uz_(entry.uz) {
        for (int axis = 0; axis < 3; ++axis) step_[axis] = static_cast<float>(plan.grid.matrix[axis][axis]);
        dx2_ = table;
        along_x_ = dx2_ + plan.vectors * W;
        dy2_ = along_x_ + C * plan.vectors * W;
        along_y_ = dy2_ + ROWS;
        along_z_ = along_y_ + C * ROWS;
        if (fill) {
            fill_axis(dx2_, along_x_, plan.vectors * W, plan.vectors * W, ux_, step_[0]);
            fill_axis(dy2_, along_y_, ROWS, this->n_rows, uy_, step_[1]);
            fill_axis(nullptr, along_z_, padded(TILE_Z), entry.z1 - entry.z0, uz_, step_[2]);
        }
        if constexpr (VECTORS == 1) {
            dx2_held_ = load(dx2_);
            for (int c = 0; c < C; ++c) held_[c] = load(along_x_ + c * W);
        }
    }

    void plane(int k) {
        const float dz = (uz_ + static_cast<float>(k)) * step_[2];
        const float dz2 = dz * dz, rest = profile_.s_c - dz2;
        if constexpr (VECTORS == 1)
            this->end = this->n_rows;
        else
            this->set_rows(-uy_, std::sqrt(std::max(rest, 0.0f)) / std::abs(step_[1]));
        const float constant = profile_.at_cutoff - profile_.slope_cutoff * dz2;
        for (int j = 0; j < this->n_rows; j += W) {
            const vec dy2 = load(dy2_ + j);
            store(limit_ + j, rest - dy2);
            store(offset_ + j, constant - profile_.slope_cutoff * dy2);
            for (int c = 0; c < C; ++c)
                store(pair_[c] + j, along_z_[c * padded(TILE_Z) + k] * load(along_y_ + c * ROWS + j));
        }
        if constexpr (VECTORS != 1) {
            float centre[ROWS], half[ROWS];
            const float per_voxel = 1 / std::abs(step_[0]);
            for (int j = 0; j < this->whole_rows(); ++j) {
                centre[j] = -ux_;
                half[j] = std::sqrt(std::max(limit_[j], 0.0f)) * per_voxel;
            }
            this->set_vectors(centre, half);
        }
        dz2_ = dz2;
    }

    vec value(int j, int v) const {
        const vec dx2 = squares(v);
        vec rho = offset_[j] - profile_.slope_cutoff * dx2;
        for (int c = 0; c < C; ++c) rho += (pair_[c][j] * profile_.amplitude[c]) * table(c, v);
        return zero_unless(dx2 < limit_[j], rho);
    }

    // -d rho/ds
    vec slope(int j, int v) const {
        vec h = splat(profile_.slope_cutoff);
        for (int c = 0; c < C; ++c) h += (pair_[c][j] * profile_.steepness[c]) * table(c, v);
        return zero_unless(squares(v) < limit_[j], h);
    }

    vec squared_distance(int j, int v) const { return squares(v) + (dz2_ + dy2_[j]); }
    vec exponential(int c, int j, int v) const { return table(c, v) * pair_[c][j]; }
    const Profile& profile() const { return profile_; }
    vec within(int j, int v, vec x) const { return zero_unless(squares(v) < limit_[j], x); }

   private:
    static constexpr int padded(int n) { return (n + W - 1) / W * W; }

    // The first n of a table's `pitch` places for each Gaussian, and the rest of their last vector.
    void fill_axis(float* squares, float* table, int pitch, int n, float first, float step) const {
        for (int i = 0; i < n; i += W) {
            const vec d = (lanes() + (first + static_cast<float>(i))) * step;
            if (squares) store(squares + i, d * d);
            for (int c = 0; c < C; ++c) store(table + c * pitch + i, exp_of_negative(d * d * -profile_.exponent[c]));
        }
    }
    vec squares(int v) const {
        if constexpr (VECTORS == 1) return dx2_held_;
        return load(dx2_ + v * W);
    }
    vec table(int c, int v) const {
        if constexpr (VECTORS == 1) return held_[c];
        return load(along_x_ + (c * this->n_vectors + v) * W);
    }

    Profile profile_;
    float step_[3];
    float *dx2_, *along_x_, *dy2_, *along_y_, *along_z_;
    float ux_, uy_, uz_, dz2_;
    float limit_[ROWS], offset_[ROWS], pair_[C][ROWS];
    vec dx2_held_, held_[C];
};

// Rows on any grid: s is a quadratic in the voxel index along a row, and each voxel takes C exponentials.
template <int C, int VECTORS>
class SkewedRows : public PlaneRows<VECTORS> {
   public:
    static int64_t table_size(int) { return 0; }

    SkewedRows(const Plan& plan, const Entry& entry, float*, bool)
        : PlaneRows<VECTORS>(plan, entry),
          profile_(plan.atoms, plan.edges, entry.atom),
          ux_(entry.ux),
          uy_(entry.uy),
          uz_(entry.uz) {
        for (int column = 0; column < 3; ++column)
            for (int row = 0; row < 3; ++row) step_[column][row] = static_cast<float>(plan.grid.matrix[row][column]);
        xx_ = dot(step_[0], step_[0]);
        for (int d = 0; d < 3; ++d) across_[d] = step_[1][d] - dot(step_[1], step_[0]) / xx_ * step_[0][d];
        yy_ = dot(across_, across_);
    }

    void plane(int k) {
        float r0[3], nearest[3];  // of row 0, and its point nearest to the atom
        for (int d = 0; d < 3; ++d) r0[d] = step_[2][d] * (uz_ + static_cast<float>(k)) + step_[1][d] * uy_;
        const float along = dot(r0, step_[0]) / xx_;
        for (int d = 0; d < 3; ++d) nearest[d] = r0[d] - along * step_[0][d];
        const float middle = -dot(nearest, across_) / yy_;
        const float half_squared = middle * middle + (profile_.s_c - dot(nearest, nearest)) / yy_;
        this->set_rows(middle, std::sqrt(std::max(half_squared, 0.0f)));
        if (half_squared <= 0) this->end = this->begin;
        float centre[ROWS], half[ROWS];
        for (int j = 0; j < this->whole_rows(); ++j) {
            float square = 0, product = 0;
            for (int d = 0; d < 3; ++d) {
                const float r = r0[d] + step_[1][d] * static_cast<float>(j);
                square += r * r;
                product += r * step_[0][d];
            }
            constant_[j] = square;
            linear_[j] = 2 * product;
            const float vertex = -product / xx_;
            centre[j] = vertex - ux_;
            half[j] = std::sqrt(std::max(vertex * vertex + (profile_.s_c - square) / xx_, 0.0f));
        }
        this->set_vectors(centre, half);
    }

    vec squared_distance(int j, int v) const {
        const vec t = lanes() + (ux_ + static_cast<float>(v * W));
        return (t * xx_ + linear_[j]) * t + constant_[j];
    }

    vec value(int j, int v) const {
        const vec s = squared_distance(j, v);
        vec rho = profile_.at_cutoff - profile_.slope_cutoff * s;
        for (int c = 0; c < C; ++c) rho += profile_.amplitude[c] * exp_of_negative(s * -profile_.exponent[c]);
        return zero_unless(s < profile_.s_c, rho);
    }

    vec slope(int j, int v) const {
        const vec s = squared_distance(j, v);
        vec h = splat(profile_.slope_cutoff);
        for (int c = 0; c < C; ++c) h += profile_.steepness[c] * exp_of_negative(s * -profile_.exponent[c]);
        return zero_unless(s < profile_.s_c, h);
    }

    vec exponential(int c, int j, int v) const {
        return exp_of_negative(squared_distance(j, v) * -profile_.exponent[c]);
    }
    const Profile& profile() const { return profile_; }
    vec within(int j, int v, vec x) const { return zero_unless(squared_distance(j, v) < profile_.s_c, x); }

   private:
    static float dot(const float* a, const float* b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

    Profile profile_;
    float ux_, uy_, uz_;
    float step_[3][3], across_[3];  // across_: from row to row, at right angles to the rows
    float xx_, yy_;
    float constant_[ROWS], linear_[ROWS];
};

// The scratch of a tile: the rows that its entries touch, of `pitch` lanes, lane 0 being voxel x0.
struct TileView {
    const Tile& tile;
    int x0, pitch;
    Interval planes, rows;
    int inside_begin, inside_end;  // lanes that lie in the grid

    TileView(const Tile& tile_, const Plan& plan, const std::vector<Entry>& entries)
        : tile(tile_),
          x0(entries[tile_.begin].x),
          planes{TILE_Z, 0},
          rows{TILE_Y, 0} {
        int last = x0;
        for (int64_t e = tile.begin; e < tile.end; ++e) {
            const Entry& entry = entries[e];
            x0 = std::min(x0, entry.x);
            last = std::max(last, entry.x);
            planes = {std::min<int>(planes.begin, entry.z0), std::max<int>(planes.end, entry.z1)};
            rows = {std::min<int>(rows.begin, entry.y0), std::max<int>(rows.end, entry.y1)};
        }
        pitch = (last - x0 + W - 1) / W * W + plan.vectors * W;  // whole vectors
        inside_begin = std::max(0, -x0);
        inside_end = std::min(pitch, plan.grid.n[0] - x0);
    }

    int64_t size() const { return int64_t(planes.end - planes.begin) * (rows.end - rows.begin) * pitch; }
    int64_t offset(int z, int y) const {
        return (int64_t(z - planes.begin) * (rows.end - rows.begin) + (y - rows.begin)) * pitch;
    }
    // Where a row's first lane inside the grid is in the grid's array.
    int64_t in_grid(const Grid& grid, int z, int y) const {
        return (int64_t(tile.z + z) * grid.n[1] + tile.y + y) * grid.n[0] + x0 + inside_begin;
    }
};

// f(row, vector, where it is in the scratch) for every vector that the sphere reaches; after each plane, after(plane).
template <typename Rows, typename F, typename After>
void each_vector(Rows& rows, const Entry& entry, const TileView& view, const F& f, const After& after) {
    for (int z = entry.z0; z < entry.z1; ++z) {
        rows.plane(z - entry.z0);
        const int64_t corner = view.offset(z, entry.y0) + (entry.x - view.x0);
        for (int j = rows.begin; j < rows.end; ++j)
            for (int v = rows.first_vector(j); v < rows.last_vector(j); ++v)
                f(j, v, corner + int64_t(j) * view.pitch + v * W);
        after(z - entry.z0);
    }
}

template <typename Rows>
void splat_entry(Rows& rows, const Entry& entry, const TileView& view, float* density) {
    each_vector(
        rows, entry, view,
        [&](int j, int v, int64_t at) { store(density + at, load(density + at) + rows.value(j, v)); }, [](int) {});
}

// partial[3 * channel + axis] = sum over voxels of channel * (-d rho/ds) * (voxel - atom), in voxels.
// MASKED where a channel may hold anything beyond the cut-off, NaN too: 0 times that would not be 0.
template <int CHANNELS, bool MASKED, typename Rows>
void gather_entry(Rows& rows, const Entry& entry, const TileView& view, const ThreadScratch& scratch, float* partial) {
    const float* channels[CHANNELS];
    for (int channel = 0; channel < CHANNELS; ++channel) channels[channel] = scratch.channels[channel].data();
    vec in_plane[CHANNELS] = {}, total[CHANNELS] = {};
    vec total_x[CHANNELS] = {}, total_y[CHANNELS] = {}, total_z[CHANNELS] = {};
    const vec ux = lanes() + entry.ux;
    each_vector(
        rows, entry, view,
        [&](int j, int v, int64_t at) {
            const vec h = rows.slope(j, v);
            for (int channel = 0; channel < CHANNELS; ++channel) {
                vec field = load(channels[channel] + at);
                if constexpr (MASKED) field = rows.within(j, v, field);
                const vec weighted = h * field;
                in_plane[channel] += weighted;
                total_y[channel] += weighted * rows.y[j];
                if constexpr (!Rows::ONE_VECTOR) total_x[channel] += weighted * (ux + static_cast<float>(v * W));
            }
        },
        [&](int k) {
            const float uz = entry.uz + static_cast<float>(k);
            for (int channel = 0; channel < CHANNELS; ++channel) {
                total[channel] += in_plane[channel];
                total_z[channel] += in_plane[channel] * uz;
                in_plane[channel] = vec{};
            }
        });
    for (int channel = 0; channel < CHANNELS; ++channel) {
        // With one vector per row a lane is always as far from the atom.
        if constexpr (Rows::ONE_VECTOR) total_x[channel] = total[channel] * ux;
        partial[3 * channel] = sum(total_x[channel]);
        partial[3 * channel + 1] = sum(total_y[channel]);
        partial[3 * channel + 2] = sum(total_z[channel]);
    }
}

// Of channel 0, what gather_entry gives, and then its sums with 1, s, and per Gaussian exp(-alpha s) and s exp(-alpha s), which
// the derivatives with respect to amplitudes and exponents are made of. Each exponential serves both.
template <int C, typename Rows>
void gather_all(Rows& rows, const Entry& entry, const TileView& view, const ThreadScratch& scratch, float* partial) {
    const float* field = scratch.channels[0].data();
    vec in_plane{}, total_x{}, total_y{}, total_z{}, total[2 + 2 * C] = {};
    const vec ux = lanes() + entry.ux;
    each_vector(
        rows, entry, view,
        [&](int j, int v, int64_t at) {
            const vec g = rows.within(j, v, load(field + at));
            const vec s = rows.squared_distance(j, v);
            total[0] += g;
            total[1] += g * s;
            vec weighted = g * rows.profile().slope_cutoff;
            for (int c = 0; c < C; ++c) {
                const vec of_gaussian = g * rows.exponential(c, j, v);
                total[2 + 2 * c] += of_gaussian;
                total[3 + 2 * c] += of_gaussian * s;
                weighted += of_gaussian * rows.profile().steepness[c];
            }
            in_plane += weighted;
            total_y += weighted * rows.y[j];
            total_x += weighted * (ux + static_cast<float>(v * W));
        },
        [&](int k) {
            total_z += in_plane * (entry.uz + static_cast<float>(k));
            in_plane = vec{};
        });
    partial[0] = sum(total_x);
    partial[1] = sum(total_y);
    partial[2] = sum(total_z);
    for (int i = 0; i < 2 + 2 * C; ++i) partial[3 + i] = sum(total[i]);
}

// One instance of the kernels for a number of Gaussians and a kind of grid.
struct Kernels {
    int64_t (*table_size)(int vectors);
    void (*splat)(const Plan&, const Entry&, const TileView&, float* table, float* density);
    void (*gather[MAX_CHANNELS])(const Plan&, const Entry&, const TileView&, float* table, const ThreadScratch&, float*);
    void (*gather_positions)(const Plan&, const Entry&, const TileView&, float* table, const ThreadScratch&, float*);
    void (*gather_all)(const Plan&, const Entry&, const TileView&, float* table, const ThreadScratch&, float*);
};

// The tables are there, and the channels clean, where a tile was splatted and swept.
template <typename Rows, int CHANNELS, bool SWEPT>
void gather_with(const Plan& plan, const Entry& entry, const TileView& view, float* table, const ThreadScratch& scratch,
                 float* partial) {
    Rows rows(plan, entry, table, !SWEPT);
    gather_entry<CHANNELS, !SWEPT>(rows, entry, view, scratch, partial);
}

template <typename Rows, int C>
Kernels kernels_of() {
    return {Rows::table_size,
            [](const Plan& plan, const Entry& entry, const TileView& view, float* table, float* density) {
                Rows rows(plan, entry, table, true);
                splat_entry(rows, entry, view, density);
            },
            {gather_with<Rows, 1, true>, gather_with<Rows, 2, true>, gather_with<Rows, 3, true>},
            gather_with<Rows, 1, false>,
            [](const Plan& plan, const Entry& entry, const TileView& view, float* table, const ThreadScratch& scratch,
               float* partial) {
                Rows rows(plan, entry, table, true);
                gather_all<C>(rows, entry, view, scratch, partial);
            }};
}

template <int C>
Kernels kernels_for(bool orthogonal, int vectors) {
    if (vectors == 1)
        return orthogonal ? kernels_of<OrthogonalRows<C, 1>, C>() : kernels_of<SkewedRows<C, 1>, C>();
    return orthogonal ? kernels_of<OrthogonalRows<C, 0>, C>() : kernels_of<SkewedRows<C, 0>, C>();
}

Kernels kernels_for(const Plan& plan) {
    const bool orthogonal = plan.grid.orthogonal();
    switch (plan.atoms.gaussians) {
        case 1: return kernels_for<1>(orthogonal, plan.vectors);
        case 2: return kernels_for<2>(orthogonal, plan.vectors);
        case 3: return kernels_for<3>(orthogonal, plan.vectors);
        case 4: return kernels_for<4>(orthogonal, plan.vectors);
        default: return kernels_for<5>(orthogonal, plan.vectors);
    }
}

// Give every tile to a thread: f(tile number, view, scratch). The scratch has so many channels; the first is zeroed.
template <typename F>
void each_tile(Workspace& work, const Plan& plan, int channels, const F& f) {
    const int64_t n_tiles = static_cast<int64_t>(work.tiles.size());
    if (static_cast<int>(work.threads.size()) < threads_for(n_tiles)) work.threads.resize(threads_for(n_tiles));
    parallel_for(n_tiles, [&](int64_t index, int thread) {
        ThreadScratch& scratch = work.threads[thread];
        const TileView view(work.tiles[index], plan, work.entries);
        for (int channel = 0; channel < channels; ++channel) {
            auto& values = scratch.channels[channel];
            if (static_cast<int64_t>(values.size()) < view.size()) values.resize(view.size());
        }
        std::fill_n(scratch.channels[0].begin(), view.size(), 0.0f);
        f(index, view, scratch);
    });
}

void splat_tile(const Workspace& work, const Plan& plan, const Kernels& kernels, const TileView& view,
                ThreadScratch& scratch) {
    const int64_t table_size = kernels.table_size(plan.vectors);
    const int64_t needed = table_size * (view.tile.end - view.tile.begin);
    if (static_cast<int64_t>(scratch.tables.size()) < needed) scratch.tables.resize(needed);
    for (int64_t e = view.tile.begin; e < view.tile.end; ++e)
        kernels.splat(plan, work.entries[e], view, scratch.tables.data() + table_size * (e - view.tile.begin),
                      scratch.channels[0].data());
}

// Sums over the partials of an atom's entries, in the order of its list.
void add_partials(const Workspace& work, int64_t atom, int width, double* total) {
    std::fill_n(total, width, 0.0);
    for (int64_t i = work.first_entry_of[atom]; i < work.first_entry_of[atom + 1]; ++i) {
        const float* partial = work.partials.data() + work.entry_of_atom[i] * width;
        for (int j = 0; j < width; ++j) total[j] += partial[j];
    }
}

// d(density)/dx = -2 rho'(s) (voxel - atom): from voxels to space.
template <typename T>
void store_gradient(const Grid& grid, const double* in_voxels, T* gradient) {
    for (int row = 0; row < 3; ++row) {
        double g = 0;
        for (int column = 0; column < 3; ++column) g += grid.matrix[row][column] * in_voxels[column];
        gradient[row] = static_cast<T>(2 * g);
    }
}

struct Inputs {
    at::Tensor positions, amplitudes, exponents;
    Atoms atoms;

    Inputs(const at::Tensor& positions_, const at::Tensor& amplitudes_, const at::Tensor& exponents_, double cutoff,
           int64_t count)
        : positions(positions_.contiguous()), amplitudes(amplitudes_.contiguous()), exponents(exponents_.contiguous()) {
        TORCH_CHECK(positions.dim() == 2 && positions.size(1) == 3, "positions must have shape (N, 3)");
        TORCH_CHECK(positions.scalar_type() == at::kFloat || positions.scalar_type() == at::kDouble,
                    "positions must be float32 or float64");
        TORCH_CHECK(amplitudes.scalar_type() == at::kFloat && exponents.scalar_type() == at::kFloat,
                    "amplitudes and exponents must be float32");
        TORCH_CHECK(amplitudes.dim() == 2 && amplitudes.size(0) == count && amplitudes.sizes() == exponents.sizes(),
                    "amplitudes and exponents must both have shape (", count, ", number of Gaussians)");
        TORCH_CHECK(amplitudes.size(1) >= 1 && amplitudes.size(1) <= MAX_GAUSSIANS, "between 1 and ", MAX_GAUSSIANS,
                    " Gaussians per atom, not ", amplitudes.size(1));
        TORCH_CHECK(cutoff > 0 && std::isfinite(cutoff), "cutoff must be positive, not ", cutoff);
        TORCH_CHECK(count < (int64_t(1) << 31), "too many atoms");
        atoms = {count, static_cast<int>(amplitudes.size(1)), amplitudes.const_data_ptr<float>(),
                 exponents.const_data_ptr<float>(), cutoff};
    }

    Plan plan(Workspace& work, const Grid& grid, const int64_t* selection) const {
        if (positions.scalar_type() == at::kDouble)
            return make_plan(work, grid, atoms, positions.const_data_ptr<double>(), selection);
        return make_plan(work, grid, atoms, positions.const_data_ptr<float>(), selection);
    }
};

at::Tensor density_splat(const at::Tensor& positions, const at::Tensor& amplitudes, const at::Tensor& exponents,
                         double cutoff, const at::Tensor& matrix, const at::Tensor& origin, at::IntArrayRef shape,
                         bool periodic) {
    const Grid grid(matrix, origin, shape, periodic);
    const Inputs inputs(positions, amplitudes, exponents, cutoff, positions.size(0));
    Workspace& work = workspace();
    const Plan plan = inputs.plan(work, grid, nullptr);
    const Kernels kernels = kernels_for(plan);
    at::Tensor density = at::empty(shape, inputs.amplitudes.options());
    float* out = density.mutable_data_ptr<float>();
    const int64_t plane = int64_t(grid.n[1]) * grid.n[0];
    parallel_for(grid.n[2], [&](int64_t z, int) { std::fill_n(out + z * plane, plane, 0.0f); });
    each_tile(work, plan, 1, [&](int64_t, const TileView& view, ThreadScratch& scratch) {
        splat_tile(work, plan, kernels, view, scratch);
        for (int z = view.planes.begin; z < view.planes.end; ++z)
            for (int y = view.rows.begin; y < view.rows.end; ++y)
                std::copy_n(scratch.channels[0].data() + view.offset(z, y) + view.inside_begin,
                            view.inside_end - view.inside_begin, out + view.in_grid(grid, z, y));
    });
    return density;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> density_gather(const at::Tensor& gradient, const at::Tensor& positions,
                                                              const at::Tensor& amplitudes, const at::Tensor& exponents,
                                                              double cutoff, const at::Tensor& matrix,
                                                              const at::Tensor& origin, bool periodic,
                                                              bool parameters) {
    const Grid grid(matrix, origin, gradient.sizes(), periodic);
    TORCH_CHECK(gradient.scalar_type() == at::kFloat, "gradient must be float32");
    const at::Tensor field = gradient.contiguous();
    const float* g = field.const_data_ptr<float>();
    const Inputs inputs(positions, amplitudes, exponents, cutoff, positions.size(0));
    Workspace& work = workspace();
    const Plan plan = inputs.plan(work, grid, nullptr);
    const Kernels kernels = kernels_for(plan);
    const int n_gaussians = parameters ? inputs.atoms.gaussians : 0;
    const int width = parameters ? 3 + 2 + 2 * n_gaussians : 3;
    const auto gather = parameters ? kernels.gather_all : kernels.gather_positions;
    work.partials.resize(work.entries.size() * width);
    each_tile(work, plan, 1, [&](int64_t, const TileView& view, ThreadScratch& scratch) {
        for (int z = view.planes.begin; z < view.planes.end; ++z)
            for (int y = view.rows.begin; y < view.rows.end; ++y)
                std::copy_n(g + view.in_grid(grid, z, y), view.inside_end - view.inside_begin,
                            scratch.channels[0].data() + view.offset(z, y) + view.inside_begin);
        scratch.tables.resize(std::max<size_t>(scratch.tables.size(), kernels.table_size(plan.vectors)));
        for (int64_t e = view.tile.begin; e < view.tile.end; ++e)
            gather(plan, work.entries[e], view, scratch.tables.data(), scratch, work.partials.data() + width * e);
    });

    const at::Tensor d_positions = at::empty(inputs.positions.sizes(), inputs.positions.options());
    const at::Tensor d_amplitudes = at::empty({inputs.atoms.count, n_gaussians}, inputs.amplitudes.options());
    const at::Tensor d_exponents = at::empty({inputs.atoms.count, n_gaussians}, inputs.exponents.options());
    float* da = d_amplitudes.mutable_data_ptr<float>();
    float* dalpha = d_exponents.mutable_data_ptr<float>();
    const double s_c = cutoff * cutoff;
    const int64_t n_chunks = (inputs.atoms.count + ATOMS_PER_CHUNK - 1) / ATOMS_PER_CHUNK;
    parallel_for(n_chunks, [&](int64_t chunk, int) {
        double total[3 + 2 + 2 * MAX_GAUSSIANS];
        for (int64_t atom = chunk * ATOMS_PER_CHUNK; atom < std::min(inputs.atoms.count, (chunk + 1) * ATOMS_PER_CHUNK);
             ++atom) {
            add_partials(work, atom, width, total);
            if (d_positions.scalar_type() == at::kDouble)
                store_gradient(grid, total, d_positions.mutable_data_ptr<double>() + 3 * atom);
            else
                store_gradient(grid, total, d_positions.mutable_data_ptr<float>() + 3 * atom);
            if (!parameters) continue;
            const double sum_g = total[3], sum_gs = total[4];
            for (int c = 0; c < n_gaussians; ++c) {
                const double sum_ge = total[5 + 2 * c], sum_gse = total[6 + 2 * c];
                const double a = inputs.atoms.amplitudes[atom * n_gaussians + c];
                const double alpha = inputs.atoms.exponents[atom * n_gaussians + c];
                const double edge = std::exp(-alpha * s_c);
                // d/dA and d/dalpha of A (exp(-alpha s) - exp(-alpha s_c) + alpha exp(-alpha s_c) (s - s_c)).
                da[atom * n_gaussians + c] =
                    static_cast<float>(sum_ge - edge * sum_g + alpha * edge * (sum_gs - s_c * sum_g));
                dalpha[atom * n_gaussians + c] =
                    static_cast<float>(a * (-sum_gse + edge * (sum_gs - alpha * s_c * (sum_gs - s_c * sum_g))));
            }
        }
    });
    return {d_positions, d_amplitudes, d_exponents};
}

// Sums over the target alone, which do not change between steps (see target_moments in __init__.py).
struct Moments {
    double count, sum, square, positive_count, positive_sum, positive_log;
};

// S and g = c0 + c1*density + c2*target from the sums of density, density^2 and density*target.
struct Correlation {
    double similarity = 0, c0 = 0, c1 = 0, c2 = 0;

    Correlation(Measure measure, const Moments& t, double sum, double square, double product) {
        const bool about_mean = measure != CROSS_CORRELATION;
        const double mean = about_mean ? sum / t.count : 0, target_mean = about_mean ? t.sum / t.count : 0;
        const double variance = square - mean * sum, target_variance = t.square - target_mean * t.sum;
        // Below this the density is uniform up to rounding, and a correlation has no meaning.
        if (!(variance > 1e-8 * square) || !(target_variance > 0)) return;
        const double norm = std::sqrt(variance * target_variance);
        similarity = (product - mean * t.sum) / norm;
        c2 = 1 / norm;
        c1 = -similarity / variance;
        c0 = -(target_mean * c2 + mean * c1);
        if (measure == LEAST_SQUARES) {
            const double scale = 2 * std::max(similarity, 0.0);
            c0 *= scale;
            c1 *= scale;
            c2 *= scale;
            similarity = similarity > 0 ? similarity * similarity : 0;
        }
    }
};

// The W floats at p, or as many of them as lie in the array.
inline vec load_within(const float* p, const float* begin, const float* end) {
    if (p >= begin && p + W <= end) return load(p);
    vec x{};
    for (int lane = 0; lane < W; ++lane)
        if (p + lane >= begin && p + lane < end) x[lane] = p[lane];
    return x;
}

// After this the channels hold what is to be gathered, with zeros wherever a voxel does not count: outside the grid, or
// not finite in the target. Returns the tile's sums.
std::array<double, 3> sweep_tile(const Grid& grid, const TileView& view, ThreadScratch& scratch, const float* target,
                                 Measure measure, double floor) {
    std::array<double, 3> sums{};
    const float* const target_end = target + int64_t(grid.n[0]) * grid.n[1] * grid.n[2];
    float* density = scratch.channels[0].data();
    float* t_out = scratch.channels[1].data();
    float* one_out = scratch.channels[2].data();
    const bool entropy = measure == RELATIVE_ENTROPY, inner = measure == INNER_PRODUCT;
    const bool counts = measure == CROSS_CORRELATION_ABOUT_MEAN || measure == LEAST_SQUARES;
    const float scale = static_cast<float>(floor), inverse = static_cast<float>(1 / floor);
    for (int z = view.planes.begin; z < view.planes.end; ++z) {
        for (int y = view.rows.begin; y < view.rows.end; ++y) {
            const int64_t row = view.offset(z, y);
            const float* t_in = target + view.in_grid(grid, z, y) - view.inside_begin;
            vec sum_0{}, sum_1{}, sum_2{};
            for (int x = 0; x < view.pitch; x += W) {
                const ivec lane = lane_numbers() + x;
                const vec t_raw = load_within(t_in + x, target, target_end);
                ivec valid = (t_raw - t_raw == 0.0f) & (lane >= view.inside_begin) & (lane < view.inside_end);
                if (entropy) valid &= t_raw > 0.0f;
                const vec t = zero_unless(valid, t_raw);
                const vec rho = zero_unless(valid, load(density + row + x));
                if (entropy) {
                    const vec shifted = rho * inverse + 1.0f;
                    sum_0 += t * log_of_positive(shifted > 1e-6f ? shifted : splat(1e-6f));
                    store(density + row + x, zero_unless(shifted > 1e-6f, t / (shifted * scale)));
                    continue;
                }
                sum_0 += rho;
                sum_1 += rho * rho;
                sum_2 += rho * t;
                store(density + row + x, inner ? t : rho);
                if (!inner) store(t_out + row + x, t);
                if (counts) store(one_out + row + x, zero_unless(valid, splat(1.0f)));
            }
            sums[0] += sum(sum_0);
            sums[1] += sum(sum_1);
            sums[2] += sum(sum_2);
        }
    }
    return sums;
}

std::tuple<at::Tensor, at::Tensor> density_similarity(const at::Tensor& positions, const at::Tensor& atoms,
                                                      const at::Tensor& amplitudes, const at::Tensor& exponents,
                                                      double cutoff, const at::Tensor& target, const at::Tensor& moments,
                                                      const at::Tensor& matrix, const at::Tensor& origin, bool periodic,
                                                      int64_t measure_, double total_weight) {
    const Grid grid(matrix, origin, target.sizes(), periodic);
    TORCH_CHECK(target.scalar_type() == at::kFloat, "target must be float32");
    TORCH_CHECK(target.is_contiguous(), "target must be contiguous");
    TORCH_CHECK(moments.scalar_type() == at::kDouble && moments.numel() == 6 && moments.is_contiguous(),
                "moments must be those of target_moments");
    TORCH_CHECK(atoms.scalar_type() == at::kLong && atoms.dim() == 1, "atoms must be int64 of shape (M,)");
    TORCH_CHECK(measure_ >= CROSS_CORRELATION && measure_ <= LEAST_SQUARES, "there is no measure ", measure_);
    const Measure measure = static_cast<Measure>(measure_);
    TORCH_CHECK(total_weight > 0 || (measure != INNER_PRODUCT && measure != RELATIVE_ENTROPY),
                "the total weight must be positive, not ", total_weight);
    const Inputs inputs(positions, amplitudes, exponents, cutoff, atoms.size(0));
    const at::Tensor selected = atoms.contiguous();
    const int64_t* selection = selected.const_data_ptr<int64_t>();
    const int64_t n_atoms = inputs.atoms.count, n_positions = inputs.positions.size(0);
    for (int64_t i = 0; i < n_atoms; ++i)
        TORCH_CHECK_INDEX(selection[i] >= 0 && selection[i] < n_positions, "atom ", selection[i], " is not among the ",
                          n_positions, " positions");
    const double* m = moments.const_data_ptr<double>();
    const Moments t{m[0], m[1], m[2], m[3], m[4], m[5]};
    // The entropy's floor, as a density: epsilon = 1e-3 of the mean share, times W.
    const double floor = measure == RELATIVE_ENTROPY ? 1e-3 / t.positive_count * total_weight : 1;

    Workspace& work = workspace();
    const Plan plan = inputs.plan(work, grid, selection);
    const Kernels kernels = kernels_for(plan);
    const int channels = measure == CROSS_CORRELATION                                   ? 2
                         : measure == INNER_PRODUCT || measure == RELATIVE_ENTROPY ? 1
                                                                                   : 3;
    const int width = 3 * channels;
    work.partials.resize(work.entries.size() * width);
    work.sums.resize(work.tiles.size());
    const float* target_data = target.const_data_ptr<float>();
    each_tile(work, plan, channels, [&](int64_t index, const TileView& view, ThreadScratch& scratch) {
        splat_tile(work, plan, kernels, view, scratch);
        work.sums[index] = sweep_tile(grid, view, scratch, target_data, measure, floor);
        const int64_t table_size = kernels.table_size(plan.vectors);
        for (int64_t e = view.tile.begin; e < view.tile.end; ++e)
            kernels.gather[channels - 1](plan, work.entries[e], view,
                                         scratch.tables.data() + table_size * (e - view.tile.begin), scratch,
                                         work.partials.data() + width * e);
    });

    std::array<double, 3> sums{};
    for (const auto& of_tile : work.sums)
        for (int i = 0; i < 3; ++i) sums[i] += of_tile[i];
    double value = 0;
    double weights[MAX_CHANNELS] = {};  // of the channels: density, target, 1
    if (measure == INNER_PRODUCT) {
        const double mean = t.sum / t.count, variance = t.square / t.count - mean * mean;
        if (variance > 0) weights[0] = 1 / (total_weight * std::sqrt(variance));
        value = weights[0] * sums[2];
    } else if (measure == RELATIVE_ENTROPY && t.positive_sum > 0) {
        const double epsilon = 1e-3 / t.positive_count;
        weights[0] = 1 / t.positive_sum;
        value = -(t.positive_log / t.positive_sum - std::log(t.positive_sum) - std::log(epsilon)) +
                sums[0] / t.positive_sum;
    } else if (measure != RELATIVE_ENTROPY) {
        const Correlation correlation(measure, t, sums[0], sums[1], sums[2]);
        value = correlation.similarity;
        weights[0] = correlation.c1;
        weights[1] = correlation.c2;
        weights[2] = correlation.c0;
    }

    at::Tensor similarity = at::empty({}, moments.options());
    *similarity.mutable_data_ptr<double>() = value;
    at::Tensor gradient = at::zeros(inputs.positions.sizes(), inputs.positions.options());
    const int64_t n_chunks = (n_atoms + ATOMS_PER_CHUNK - 1) / ATOMS_PER_CHUNK;
    parallel_for(n_chunks, [&](int64_t chunk, int) {
        double total[3 * MAX_CHANNELS];
        for (int64_t atom = chunk * ATOMS_PER_CHUNK; atom < std::min(n_atoms, (chunk + 1) * ATOMS_PER_CHUNK); ++atom) {
            add_partials(work, atom, width, total);
            double in_voxels[3] = {};
            for (int channel = 0; channel < channels; ++channel)
                for (int axis = 0; axis < 3; ++axis) in_voxels[axis] += weights[channel] * total[3 * channel + axis];
            if (gradient.scalar_type() == at::kDouble)
                store_gradient(grid, in_voxels, gradient.mutable_data_ptr<double>() + 3 * selection[atom]);
            else
                store_gradient(grid, in_voxels, gradient.mutable_data_ptr<float>() + 3 * selection[atom]);
        }
    });
    return {similarity, gradient};
}

}  // namespace

TORCH_LIBRARY_IMPL(openmm_density, CPU, m) {
    m.impl("density_splat", density_splat);
    m.impl("density_gather", density_gather);
    m.impl("density_similarity", density_similarity);
}

}  // namespace openmm_density
