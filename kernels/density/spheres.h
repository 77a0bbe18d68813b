// One atom over the bricks that its sphere touches: its density, and sums of a field weighted with the density's slope.
#pragma once

#include "tiles.h"

namespace openmm_density {
namespace {

constexpr int MAX_GAUSSIANS = 5;

// f(s) = sum A exp(-alpha s); the density is f(s) - f(s_c) - f'(s_c)(s - s_c) for s < s_c.
template <int C>
struct Profile {
    float s_c;
    float at_cutoff = 0;     // -f(s_c)
    float slope_cutoff = 0;  // f'(s_c)
    float amplitude[C], exponent[C];
    float steepness[C];  // their product

    Profile(const Atoms& atoms, const float* edges, int64_t atom)
        : s_c(static_cast<float>(atoms.cutoff * atoms.cutoff)) {
        for (int c = 0; c < C; ++c) {
            const float edge = edges[atom * C + c];
            amplitude[c] = atoms.amplitudes[atom * C + c];
            exponent[c] = atoms.exponents[atom * C + c];
            steepness[c] = amplitude[c] * exponent[c];
            at_cutoff -= edge;
            slope_cutoff -= edge * exponent[c];
        }
    }
};

// What the exponentials of a sphere are multiplied by.
enum Factor { ONE, AMPLITUDE, STEEPNESS };

// Where the bricks of a part lie. BRICKS is how many bricks long its columns are, which then stay in registers, or 0 for any number.
template <int BRICKS>
struct Columns {
    const Part& part;
    const int plan_bricks;

    Columns(const Plan& plan, const Part& part_) : part(part_), plan_bricks(plan.bricks) {}

    int bricks() const { return BRICKS > 0 ? BRICKS : plan_bricks; }
    // Of the voxels of a brick, as seen from the atom, in voxels.
    vec x(int b) const { return (x_places() + static_cast<float>(part.x + b * BX)) - part.beyond[0]; }
    vec y(int column) const { return (y_places() + static_cast<float>(part.y + part.column_y[column] * BY)) - part.beyond[1]; }
    vec z(int column) const { return (z_places() + static_cast<float>(part.z + part.column_z[column] * BZ)) - part.beyond[2]; }
};

// On an orthogonal grid exp(-alpha s) is a product of three short tables, and a brick costs one fused multiply-add per
// Gaussian. The tables are made when the atom is splatted and read again when it is gathered.
template <int C, int BRICKS, Factor FACTOR>
class OrthogonalSphere : public Columns<BRICKS> {
   public:
    struct Column {
        vec square;  // dy^2 + dz^2
        vec limit;   // of dx^2, for the sphere
        vec product[C];
    };

    static int table_size(const Plan& plan) { return C * (vectors(plan.bricks * BX) + TABLE_Y + TABLE_Z); }

    OrthogonalSphere(const Plan& plan, const Part& part, vec* table, bool fill)
        : Columns<BRICKS>(plan, part), profile_(plan.atoms, plan.edges, part.atom) {
        const int n_x = this->bricks() * BX, n_y = part.n_y * BY, n_z = part.n_z * BZ;
        const auto step = [&](int axis) { return static_cast<float>(plan.grid.matrix[axis][axis]); };
        step_x_ = step(0);
        tables_x_ = table;
        pitch_x_ = vectors(n_x);
        vec* const tables_y = table + C * pitch_x_;
        vec* const tables_z = tables_y + C * TABLE_Y;
        for (int i = 0; i * W < n_x; ++i) {
            const vec d = distances(part.x + i * W, part.beyond[0], step_x_);
            if (fill)
                for (int c = 0; c < C; ++c) tables_x_[c * pitch_x_ + i] = exponential(c, d);
            if (i * W >= HELD * BX) continue;
            each_spread_x(d * d, W / BX, [&](int b, vec s) { dx2_[i * (W / BX) + b] = s; });
            for (int c = 0; c < C; ++c)
                each_spread_x(tables_x_[c * pitch_x_ + i] * factor(c), W / BX, [&](int b, vec e) { x_[c][i * (W / BX) + b] = e; });
        }
        for (int i = 0; i * W < n_y; ++i) {
            const vec d = distances(part.y + i * W, part.beyond[1], step(1));
            each_spread_y(d * d, part.n_y - i * (W / BY), [&](int b, vec s) { dy2_[i * (W / BY) + b] = s; });
            for (int c = 0; c < C; ++c) {
                if (fill) tables_y[c * TABLE_Y + i] = exponential(c, d);
                each_spread_y(tables_y[c * TABLE_Y + i], part.n_y - i * (W / BY), [&](int b, vec e) { y_[c][i * (W / BY) + b] = e; });
            }
        }
        for (int i = 0; i * W < n_z; ++i) {
            const vec d = distances(part.z + i * W, part.beyond[2], step(2));
            each_spread_z(d * d, part.n_z - i * (W / BZ), [&](int b, vec s) { dz2_[i * (W / BZ) + b] = s; });
            for (int c = 0; c < C; ++c) {
                if (fill) tables_z[c * TABLE_Z + i] = exponential(c, d);
                each_spread_z(tables_z[c * TABLE_Z + i], part.n_z - i * (W / BZ), [&](int b, vec e) { z_[c][i * (W / BZ) + b] = e; });
            }
        }
    }

    Column column(int i) const {
        const int y = this->part.column_y[i], z = this->part.column_z[i];
        Column column;
        column.square = dy2_[y] + dz2_[z];
        column.limit = profile_.s_c - column.square;
        for (int c = 0; c < C; ++c) column.product[c] = z_[c][z] * y_[c][y];
        return column;
    }
    Interval bricks_of(int) const { return {0, this->bricks()}; }

    // Of AMPLITUDE.
    vec value(const Column& column, int b) const {
        const vec dx2 = squares(b);
        vec rho = (profile_.at_cutoff + profile_.slope_cutoff * column.limit) - profile_.slope_cutoff * dx2;
        for (int c = 0; c < C; ++c) rho += column.product[c] * along_x(c, b);
        return zero_unless(dx2 < column.limit, rho);
    }

    // -d rho/ds; of STEEPNESS.
    vec slope(const Column& column, int b) const {
        vec h = splat(profile_.slope_cutoff);
        for (int c = 0; c < C; ++c) h += column.product[c] * along_x(c, b);
        return h;
    }

    // Of ONE.
    vec exponential(const Column& column, int c, int b) const { return column.product[c] * along_x(c, b); }
    vec squared_distance(const Column& column, int b) const { return squares(b) + column.square; }
    ivec within(const Column& column, int b) const { return squares(b) < column.limit; }
    const Profile<C>& profile() const { return profile_; }

   private:
    static constexpr int vectors(int n) { return (n + W - 1) / W; }
    static constexpr int TABLE_Y = vectors(TILE_Y * BY), TABLE_Z = vectors(TILE_Z * BZ);
    // So many bricks along x are spread once; those beyond are spread from the tables each time.
    static constexpr int HELD = BRICKS > 0 ? BRICKS : 16;
    static vec distances(int first, float beyond, float step) { return ((lanes() + static_cast<float>(first)) - beyond) * step; }
    vec exponential(int c, vec d) const { return exp_of_negative(d * d * -profile_.exponent[c]); }
    float factor(int c) const {
        return FACTOR == ONE ? 1.0f : FACTOR == AMPLITUDE ? profile_.amplitude[c] : profile_.steepness[c];
    }
    vec squares(int b) const {
        if (BRICKS > 0 || b < HELD) return dx2_[b];
        const vec dx = this->x(b) * step_x_;
        return dx * dx;
    }
    vec along_x(int c, int b) const {
        if (BRICKS > 0 || b < HELD) return x_[c][b];
        // The last brick reads on into the tables along y, which follow.
        return spread_x(reinterpret_cast<const float*>(tables_x_ + c * pitch_x_) + b * BX) * factor(c);
    }

    Profile<C> profile_;
    float step_x_;
    vec* tables_x_;
    int pitch_x_;
    vec dx2_[vectors(HELD * BX) * (W / BX)], x_[C][vectors(HELD * BX) * (W / BX)];
    vec dy2_[TABLE_Y * (W / BY)], y_[C][TABLE_Y * (W / BY)];
    vec dz2_[TABLE_Z * (W / BZ)], z_[C][TABLE_Z * (W / BZ)];
};

// On any grid: s is a quadratic in the voxel index along x, and each brick takes C exponentials.
template <int C, int BRICKS, Factor FACTOR>
class SkewedSphere : public Columns<BRICKS> {
   public:
    struct Column {
        vec constant, linear;
    };

    static int table_size(const Plan&) { return 0; }

    SkewedSphere(const Plan& plan, const Part& part, vec*, bool)
        : Columns<BRICKS>(plan, part), profile_(plan.atoms, plan.edges, part.atom) {
        for (int column = 0; column < 3; ++column)
            for (int row = 0; row < 3; ++row) step_[column][row] = static_cast<float>(plan.grid.matrix[row][column]);
        xx_ = dot(step_[0], step_[0]);
        yy_ = plan.yy, yz_ = plan.yz, zz_ = plan.zz, farthest_ = plan.farthest_column;
        margin_ = (0.5f * (BY - 1) * std::abs(dot(step_[0], step_[1])) + 0.5f * (BZ - 1) * std::abs(dot(step_[0], step_[2]))) / xx_;
    }

    Column column(int i) const {
        const vec y = this->y(i), z = this->z(i);
        Column column{};
        for (int d = 0; d < 3; ++d) {
            const vec r = y * step_[1][d] + z * step_[2][d];
            column.constant += r * r;
            column.linear += r * (2 * step_[0][d]);
        }
        return column;
    }

    // Exponentials are worth leaving out bricks for.
    Interval bricks_of(int i) const {
        const float y = this->part.middle_y(this->part.column_y[i]), z = this->part.middle_z(this->part.column_z[i]);
        const float first = static_cast<float>(this->part.x) - this->part.beyond[0];
        const float nearest = -(y * dot(step_[0], step_[1]) + z * dot(step_[0], step_[2])) / xx_ - first;
        const float square = (farthest_ - (yy_ * y + 2 * yz_ * z) * y - zz_ * z * z) / xx_;
        const float half = std::sqrt(std::max(square, 0.0f)) + margin_;
        return {static_cast<int>(std::max(nearest - half, 0.0f) * (1.0f / BX)),
                std::min(static_cast<int>(std::max(nearest + half, 0.0f) * (1.0f / BX)) + 1, this->bricks())};
    }

    vec squared_distance(const Column& column, int b) const {
        const vec x = this->x(b);
        return (x * xx_ + column.linear) * x + column.constant;
    }

    vec value(const Column& column, int b) const {
        const vec s = squared_distance(column, b);
        vec rho = profile_.at_cutoff + profile_.slope_cutoff * (profile_.s_c - s);
        for (int c = 0; c < C; ++c) rho += profile_.amplitude[c] * exp_of_negative(s * -profile_.exponent[c]);
        return zero_unless(s < profile_.s_c, rho);
    }

    vec slope(const Column& column, int b) const {
        const vec s = squared_distance(column, b);
        vec h = splat(profile_.slope_cutoff);
        for (int c = 0; c < C; ++c) h += profile_.steepness[c] * exp_of_negative(s * -profile_.exponent[c]);
        return h;
    }

    vec exponential(const Column& column, int c, int b) const {
        return exp_of_negative(squared_distance(column, b) * -profile_.exponent[c]);
    }
    ivec within(const Column& column, int b) const { return squared_distance(column, b) < profile_.s_c; }
    const Profile<C>& profile() const { return profile_; }

   private:
    static float dot(const float* a, const float* b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

    Profile<C> profile_;
    float step_[3][3], xx_, yy_, yz_, zz_, farthest_, margin_;
};

// f(column, brick of it, where that is in the scratch) for every brick that the sphere may touch; after(i) after column i.
template <typename Sphere, typename F, typename After>
inline void each_brick(const Sphere& sphere, const TileView& view, const F& f, const After& after) {
    const int64_t corner = view.offset(sphere.part.bz, sphere.part.by) + (sphere.part.bx - view.bx);
    const int64_t plane = int64_t(view.rows.end - view.rows.begin) * view.pitch;
    for (int i = 0; i < sphere.part.n_columns; ++i) {
        const auto column = sphere.column(i);
        const int64_t at = corner + sphere.part.column_z[i] * plane + sphere.part.column_y[i] * int64_t(view.pitch);
        const Interval bricks = sphere.bricks_of(i);
        for (int b = bricks.begin; b < bricks.end; ++b) f(column, b, at + b);
        after(i);
    }
}

template <typename Sphere>
void splat_part(const Plan& plan, const Part& part, const TileView& view, vec* table, vec* density) {
    const Sphere sphere(plan, part, table, true);
    each_brick(
        sphere, view, [&](const auto& column, int b, int64_t at) { density[at] += sphere.value(column, b); }, [](int) {});
}

// Multiples of STEP from -SIZE times it on.
template <int SIZE, int STEP>
struct Multiples {
    float value[2 * SIZE];
    constexpr Multiples() : value{} {
        for (int i = 0; i < 2 * SIZE; ++i) value[i] = static_cast<float>((i - SIZE) * STEP);
    }
    constexpr float operator[](int i) const { return value[i + SIZE]; }
};
constexpr Multiples<TILE_Y, BY> MULTIPLES_Y{};
constexpr Multiples<TILE_Z, BZ> MULTIPLES_Z{};

// How far the voxels of columns are from the atom, as steps from those of the row and the plane of bricks that are nearest to it:
// no digits are lost near the atom, and no integers are converted.
class Steps {
   public:
    explicit Steps(const Part& part) : part_(part), y_(-part.y / BY), z_(-part.z / BZ) {
        y_ = std::min(std::max(y_, 0), part.n_y - 1);
        z_ = std::min(std::max(z_, 0), part.n_z - 1);
        nearest_y_ = (y_places() + static_cast<float>(part.y + y_ * BY)) - part.beyond[1];
        nearest_z_ = (z_places() + static_cast<float>(part.z + z_ * BZ)) - part.beyond[2];
    }
    vec y(int column) const { return nearest_y_ + MULTIPLES_Y[part_.column_y[column] - y_]; }
    vec z(int column) const { return nearest_z_ + MULTIPLES_Z[part_.column_z[column] - z_]; }

   private:
    const Part& part_;
    int y_, z_;
    vec nearest_y_, nearest_z_;
};

// sums[3 * channel + axis] = sum over voxels of channel * (-d rho/ds) * (voxel - atom), in voxels.
// FRESH where no splat came before: the tables are not there yet, and the channel may hold anything beyond the cut-off, NaN too,
// which 0 times would not be 0.
template <int CHANNELS, bool FRESH, int BRICKS, typename Sphere>
void gather_part(const Plan& plan, const Part& part, const TileView& view, vec* table, const ThreadScratch& scratch,
                 float* sums) {
    const Sphere sphere(plan, part, table, FRESH);
    const vec* channels[CHANNELS];
    for (int channel = 0; channel < CHANNELS; ++channel) channels[channel] = scratch.channels[channel].data();
    vec in_column[CHANNELS] = {}, of_brick[CHANNELS][BRICKS + 1] = {};  // one more: an array cannot be empty
    vec sum_x[CHANNELS] = {}, sum_y[CHANNELS] = {}, sum_z[CHANNELS] = {};
    const Steps steps(part);
    each_brick(
        sphere, view,
        [&](const auto& column, int b, int64_t at) {
            const ivec within = sphere.within(column, b);
            const vec h = zero_unless(within, sphere.slope(column, b));
            for (int channel = 0; channel < CHANNELS; ++channel) {
                vec field = channels[channel][at];
                if constexpr (FRESH) field = zero_unless(within, field);
                const vec weighted = once(h * field);
                in_column[channel] += weighted;
                // In a column of known length a brick is always as far from the atom.
                if constexpr (BRICKS > 0)
                    of_brick[channel][b] += weighted;
                else
                    sum_x[channel] += weighted * sphere.x(b);
            }
        },
        [&](int i) {
            const vec y = steps.y(i), z = steps.z(i);
            for (int channel = 0; channel < CHANNELS; ++channel) {
                sum_y[channel] += in_column[channel] * y;
                sum_z[channel] += in_column[channel] * z;
                in_column[channel] = vec{};
            }
        });
    for (int channel = 0; channel < CHANNELS; ++channel) {
        for (int b = 0; b < BRICKS; ++b) sum_x[channel] += of_brick[channel][b] * sphere.x(b);
        sums[3 * channel] = sum(sum_x[channel]);
        sums[3 * channel + 1] = sum(sum_y[channel]);
        sums[3 * channel + 2] = sum(sum_z[channel]);
    }
}

// Of channel 0, what gather_part gives, and then its sums with 1, s, and per Gaussian exp(-alpha s) and s exp(-alpha s), which
// the derivatives with respect to amplitudes and exponents are made of. Each exponential serves both.
template <int C, typename Sphere>
void gather_all_of_part(const Plan& plan, const Part& part, const TileView& view, vec* table, const ThreadScratch& scratch,
                        float* sums) {
    const Sphere sphere(plan, part, table, true);
    const vec* field = scratch.channels[0].data();
    vec in_column{}, sum_x{}, sum_y{}, sum_z{}, others[2 + 2 * C] = {};
    each_brick(
        sphere, view,
        [&](const auto& column, int b, int64_t at) {
            const vec g = zero_unless(sphere.within(column, b), field[at]);
            const vec s = sphere.squared_distance(column, b);
            others[0] += g;
            others[1] += g * s;
            vec weighted = g * sphere.profile().slope_cutoff;
            for (int c = 0; c < C; ++c) {
                const vec of_gaussian = g * sphere.exponential(column, c, b);
                others[2 + 2 * c] += of_gaussian;
                others[3 + 2 * c] += of_gaussian * s;
                weighted += of_gaussian * sphere.profile().steepness[c];
            }
            in_column += weighted;
            sum_x += weighted * sphere.x(b);
        },
        [&](int i) {
            sum_y += in_column * sphere.y(i);
            sum_z += in_column * sphere.z(i);
            in_column = vec{};
        });
    sums[0] = sum(sum_x);
    sums[1] = sum(sum_y);
    sums[2] = sum(sum_z);
    for (int i = 0; i < 2 + 2 * C; ++i) sums[3 + i] = sum(others[i]);
}

// One instance of the kernels for a number of Gaussians and a kind of grid.
struct Kernels {
    using Gather = void (*)(const Plan&, const Part&, const TileView&, vec* table, const ThreadScratch&, float* sums);
    int (*table_size)(const Plan&);
    void (*splat)(const Plan&, const Part&, const TileView&, vec* table, vec* density);
    Gather gather[MAX_CHANNELS];
    Gather fresh_gather, fresh_gather_all;
};

template <template <int, int, Factor> class Sphere, int C, int BRICKS>
Kernels kernels_of() {
    using Sloping = Sphere<C, BRICKS, STEEPNESS>;
    return {Sloping::table_size,
            splat_part<Sphere<C, BRICKS, AMPLITUDE>>,
            {gather_part<1, false, BRICKS, Sloping>, gather_part<2, false, BRICKS, Sloping>,
             gather_part<3, false, BRICKS, Sloping>},
            gather_part<1, true, BRICKS, Sloping>,
            gather_all_of_part<C, Sphere<C, BRICKS, ONE>>};
}

template <int C>
Kernels kernels_for(const Plan& plan) {
    if (!plan.grid.orthogonal()) return kernels_of<SkewedSphere, C, 0>();
    // One Gaussian at a map's resolution, or five of a form factor: what fits and simulations use.
    if constexpr (C == 1 || C == 5) {
        if (plan.bricks == 3) return kernels_of<OrthogonalSphere, C, 3>();
        if (plan.bricks == 4) return kernels_of<OrthogonalSphere, C, 4>();
    }
    return kernels_of<OrthogonalSphere, C, 0>();
}

inline Kernels kernels_for(const Plan& plan) {
    switch (plan.atoms.gaussians) {
        case 1: return kernels_for<1>(plan);
        case 2: return kernels_for<2>(plan);
        case 3: return kernels_for<3>(plan);
        case 4: return kernels_for<4>(plan);
        default: return kernels_for<5>(plan);
    }
}

}  // namespace
}  // namespace openmm_density
