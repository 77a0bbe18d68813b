// One atom over the bricks that its sphere touches: its density, and sums of a field weighted with the slope of its density.
#pragma once

#include "atom_kernels.h"

namespace openmm_density {
namespace {

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

// What the exponentials of a sphere along x are multiplied by.
enum Factor { ONE, AMPLITUDE, STEEPNESS };

// Where the bricks of a footprint are. BRICKS is how many bricks long its columns are, which then stay in registers, or 0 for any
// number.
template <int BRICKS>
struct Columns {
    const TileFootprint& footprint;
    const int plan_bricks;

    Columns(const Plan& plan, const TileFootprint& footprint) : footprint(footprint), plan_bricks(plan.bricks) {}

    int bricks() const { return BRICKS > 0 ? BRICKS : plan_bricks; }
    // From the atom to the voxels of a brick, in voxels.
    vec x(int b) const { return (lane_x() + static_cast<float>(footprint.first[0] + b * BX)) - footprint.offset[0]; }
    vec y(int column) const {
        return (lane_y() + static_cast<float>(footprint.first[1] + footprint.column_y[column] * BY)) - footprint.offset[1];
    }
    vec z(int column) const {
        return (lane_z() + static_cast<float>(footprint.first[2] + footprint.column_z[column] * BZ)) - footprint.offset[2];
    }
};

// On an orthogonal grid exp(-alpha s) is a product of three short tables, one for each axis, and a brick costs one fused
// multiply-add per Gaussian. The tables are made when the atom is splatted and read again when it is gathered.
template <int C, int BRICKS, Factor FACTOR>
class OrthogonalSphere : public Columns<BRICKS> {
   public:
    struct Column {
        vec square;  // dy^2 + dz^2
        vec limit;   // of dx^2, for the sphere
        vec product[C];
    };

    static int table_size(const Plan& plan) { return C * (vectors(plan.bricks * BX) + TABLE_Y + TABLE_Z); }

    OrthogonalSphere(const Plan& plan, const TileFootprint& footprint, vec* table, bool fill)
        : Columns<BRICKS>(plan, footprint), profile_(plan.atoms, plan.edges, footprint.atom) {
        const auto step = [&](int axis) { return static_cast<float>(plan.grid.matrix[axis][axis]); };
        step_x_ = step(0);
        tables_x_ = table;
        pitch_x_ = vectors(this->bricks() * BX);
        vec* const tables_y = table + C * pitch_x_;
        vec* const tables_z = tables_y + C * TABLE_Y;
        set_axis<0>(x_, tables_x_, pitch_x_, this->bricks(), step_x_, fill);
        set_axis<1>(y_, tables_y, TABLE_Y, footprint.n_y, step(1), fill);
        set_axis<2>(z_, tables_z, TABLE_Z, footprint.n_z, step(2), fill);
    }

    Column column(int i) const {
        const int y = this->footprint.column_y[i], z = this->footprint.column_z[i];
        Column column;
        column.square = y_.square[y] + z_.square[z];
        column.limit = profile_.s_c - column.square;
        for (int c = 0; c < C; ++c) column.product[c] = z_.exponential[c][z] * y_.exponential[c][y];
        return column;
    }
    Interval bricks_of(int) const { return {0, this->bricks()}; }

    // The density, with FACTOR = AMPLITUDE.
    vec value(const Column& column, int b) const {
        const vec dx2 = squares(b);
        vec rho = (profile_.at_cutoff + profile_.slope_cutoff * column.limit) - profile_.slope_cutoff * dx2;
        for (int c = 0; c < C; ++c) rho += column.product[c] * along_x(c, b);
        return zero_unless(dx2 < column.limit, rho);
    }

    // -d rho/ds within the cut-off, with FACTOR = STEEPNESS.
    vec slope(const Column& column, int b) const {
        vec h = broadcast(profile_.slope_cutoff);
        for (int c = 0; c < C; ++c) h += column.product[c] * along_x(c, b);
        return h;
    }

    // exp(-alpha s), with FACTOR = ONE.
    vec exponential(const Column& column, int c, int b) const { return column.product[c] * along_x(c, b); }
    vec squared_distance(const Column& column, int b) const { return squares(b) + column.square; }
    ivec within(const Column& column, int b) const { return squares(b) < column.limit; }
    const Profile<C>& profile() const { return profile_; }

   private:
    static constexpr int vectors(int n) { return (n + W - 1) / W; }
    static constexpr int TABLE_Y = vectors(TILE_Y * BY), TABLE_Z = vectors(TILE_Z * BZ);
    // So many bricks along x are broadcast once, into registers where BRICKS is known; later ones from the tables each time.
    static constexpr int REGISTER_BRICKS = BRICKS > 0 ? BRICKS : 16;

    // Over the lanes of each brick along one axis, the squared distance from the atom and the exponentials.
    template <int SIZE>
    struct BrickTables {
        vec square[SIZE], exponential[C][SIZE];
    };

    // Broadcast the tables of an axis over its bricks; those of x are multiplied by FACTOR. `table` holds the exponentials at the
    // voxels in vectors, `pitch` for each Gaussian, and is worked out first where `fill` says so.
    template <int AXIS, int SIZE>
    [[gnu::always_inline]] void set_axis(BrickTables<SIZE>& axis, vec* table, int pitch, int n_bricks, float step, bool fill) {
        constexpr int BRICKS_OF_VECTOR = W / BRICK[AXIS];
        for (int i = 0; i * BRICKS_OF_VECTOR < n_bricks; ++i) {
            const int first_voxel = this->footprint.first[AXIS] + i * W, first = i * BRICKS_OF_VECTOR;
            const vec d = ((lanes() + static_cast<float>(first_voxel)) - this->footprint.offset[AXIS]) * step;
            // Along x the table may go on beyond the bricks that are kept.
            if (AXIS == 0 && fill)
                for (int c = 0; c < C; ++c) table[c * pitch + i] = exp_of_negative(d * d * -profile_.exponent[c]);
            if (AXIS == 0 && first >= SIZE) continue;
            const int n = AXIS > 0 ? n_bricks - first : BRICKS_OF_VECTOR;
            each_broadcast<AXIS>(d * d, n, [&](int b, vec s) { axis.square[first + b] = s; });
            for (int c = 0; c < C; ++c) {
                if (AXIS > 0 && fill) table[c * pitch + i] = exp_of_negative(d * d * -profile_.exponent[c]);
                const vec exponential = AXIS > 0 ? table[c * pitch + i] : table[c * pitch + i] * factor(c);
                each_broadcast<AXIS>(exponential, n, [&](int b, vec e) { axis.exponential[c][first + b] = e; });
            }
        }
    }
    float factor(int c) const {
        return FACTOR == ONE ? 1.0f : FACTOR == AMPLITUDE ? profile_.amplitude[c] : profile_.steepness[c];
    }
    vec squares(int b) const {
        if (BRICKS > 0 || b < REGISTER_BRICKS) return x_.square[b];
        const vec dx = this->x(b) * step_x_;
        return dx * dx;
    }
    vec along_x(int c, int b) const {
        if (BRICKS > 0 || b < REGISTER_BRICKS) return x_.exponential[c][b];
        // The last brick reads on into the tables along y, which follow.
        return broadcast_x(reinterpret_cast<const float*>(tables_x_ + c * pitch_x_) + b * BX) * factor(c);
    }

    Profile<C> profile_;
    float step_x_;
    vec* tables_x_;
    int pitch_x_;
    BrickTables<vectors(REGISTER_BRICKS * BX) * (W / BX)> x_;
    BrickTables<TABLE_Y * (W / BY)> y_;
    BrickTables<TABLE_Z * (W / BZ)> z_;
};

// On any grid: s is a quadratic polynomial of the voxel index along x, and each brick takes C exponentials.
template <int C, int BRICKS, Factor FACTOR>
class SkewedSphere : public Columns<BRICKS> {
   public:
    struct Column {
        vec constant, linear;
    };

    static int table_size(const Plan&) { return 0; }

    SkewedSphere(const Plan& plan, const TileFootprint& footprint, vec*, bool)
        : Columns<BRICKS>(plan, footprint), profile_(plan.atoms, plan.edges, footprint.atom) {
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

    // A brick costs C exponentials, so those of a column that the sphere cannot touch are left out.
    Interval bricks_of(int i) const {
        const float y = this->footprint.middle_y(this->footprint.column_y[i]), z = this->footprint.middle_z(this->footprint.column_z[i]);
        const float first = static_cast<float>(this->footprint.first[0]) - this->footprint.offset[0];
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
        vec h = broadcast(profile_.slope_cutoff);
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

// f(column, brick of it, index in the scratch) for every brick that the sphere may touch; after(i) after column i.
template <typename Sphere, typename F, typename After>
inline void each_brick(const Sphere& sphere, const TileView& view, const F& f, const After& after) {
    const int64_t corner = view.offset(sphere.footprint.bz, sphere.footprint.by) + (sphere.footprint.bx - view.bx);
    const int64_t plane = int64_t(view.rows.end - view.rows.begin) * view.pitch;
    for (int i = 0; i < sphere.footprint.n_columns; ++i) {
        const auto column = sphere.column(i);
        const int64_t at = corner + sphere.footprint.column_z[i] * plane + sphere.footprint.column_y[i] * int64_t(view.pitch);
        const Interval bricks = sphere.bricks_of(i);
        for (int b = bricks.begin; b < bricks.end; ++b) f(column, b, at + b);
        after(i);
    }
}

template <typename Sphere>
void splat_atom(const Plan& plan, const TileFootprint& footprint, const TileView& view, vec* table, vec* density) {
    const Sphere sphere(plan, footprint, table, true);
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

// From the atom to the voxels of a column of bricks, in voxels: those of the row and the plane of bricks nearest to the atom, plus
// whole bricks. No digits are lost near the atom, and no integers are converted.
class ColumnDistances {
   public:
    explicit ColumnDistances(const TileFootprint& footprint)
        : footprint_(footprint), y_(-footprint.first[1] / BY), z_(-footprint.first[2] / BZ) {
        y_ = std::min(std::max(y_, 0), footprint.n_y - 1);
        z_ = std::min(std::max(z_, 0), footprint.n_z - 1);
        nearest_y_ = (lane_y() + static_cast<float>(footprint.first[1] + y_ * BY)) - footprint.offset[1];
        nearest_z_ = (lane_z() + static_cast<float>(footprint.first[2] + z_ * BZ)) - footprint.offset[2];
    }
    vec y(int column) const { return nearest_y_ + MULTIPLES_Y[footprint_.column_y[column] - y_]; }
    vec z(int column) const { return nearest_z_ + MULTIPLES_Z[footprint_.column_z[column] - z_]; }

   private:
    const TileFootprint& footprint_;
    int y_, z_;
    vec nearest_y_, nearest_z_;
};

// sums[GRADIENT_SUMS * channel + axis] of every channel.
// FRESH where no splat came before: the tables are not there yet, and the channel may hold anything beyond the cut-off, NaN too,
// which 0 times would not be 0.
template <int CHANNELS, bool FRESH, int BRICKS, typename Sphere>
void gather_atom(const Plan& plan, const TileFootprint& footprint, const TileView& view, vec* table,
                 const ThreadScratch& scratch, float* sums) {
    const Sphere sphere(plan, footprint, table, FRESH);
    const vec* channels[CHANNELS];
    for (int channel = 0; channel < CHANNELS; ++channel) channels[channel] = scratch.channels[channel].data();
    vec in_column[CHANNELS] = {}, of_brick[CHANNELS][BRICKS + 1] = {};  // one more: an array cannot be empty
    vec sum_x[CHANNELS] = {}, sum_y[CHANNELS] = {}, sum_z[CHANNELS] = {};
    const ColumnDistances distances(footprint);
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
            const vec y = distances.y(i), z = distances.z(i);
            for (int channel = 0; channel < CHANNELS; ++channel) {
                sum_y[channel] += in_column[channel] * y;
                sum_z[channel] += in_column[channel] * z;
                in_column[channel] = vec{};
            }
        });
    for (int channel = 0; channel < CHANNELS; ++channel) {
        for (int b = 0; b < BRICKS; ++b) sum_x[channel] += of_brick[channel][b] * sphere.x(b);
        sums[GRADIENT_SUMS * channel + SUM_X] = sum(sum_x[channel]);
        sums[GRADIENT_SUMS * channel + SUM_Y] = sum(sum_y[channel]);
        sums[GRADIENT_SUMS * channel + SUM_Z] = sum(sum_z[channel]);
    }
}

// All sums of channel 0, which the derivatives with respect to positions, amplitudes and exponents are made of. Each exponential
// serves both of its sums.
template <int C, typename Sphere>
void gather_all_of_atom(const Plan& plan, const TileFootprint& footprint, const TileView& view, vec* table,
                        const ThreadScratch& scratch, float* sums) {
    const Sphere sphere(plan, footprint, table, true);
    const vec* field = scratch.channels[0].data();
    vec in_column{}, sum_x{}, sum_y{}, sum_z{}, of_parameters[all_sums(C) - GRADIENT_SUMS] = {};
    each_brick(
        sphere, view,
        [&](const auto& column, int b, int64_t at) {
            const vec g = zero_unless(sphere.within(column, b), field[at]);
            const vec s = sphere.squared_distance(column, b);
            of_parameters[SUM_G - GRADIENT_SUMS] += g;
            of_parameters[SUM_GS - GRADIENT_SUMS] += g * s;
            vec weighted = g * sphere.profile().slope_cutoff;
            for (int c = 0; c < C; ++c) {
                const vec of_gaussian = g * sphere.exponential(column, c, b);
                of_parameters[sum_ge(c) - GRADIENT_SUMS] += of_gaussian;
                of_parameters[sum_gse(c) - GRADIENT_SUMS] += of_gaussian * s;
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
    sums[SUM_X] = sum(sum_x);
    sums[SUM_Y] = sum(sum_y);
    sums[SUM_Z] = sum(sum_z);
    for (int i = GRADIENT_SUMS; i < all_sums(C); ++i) sums[i] = sum(of_parameters[i - GRADIENT_SUMS]);
}

template <template <int, int, Factor> class Sphere, int C, int BRICKS>
Kernels kernels_of() {
    using SlopeSphere = Sphere<C, BRICKS, STEEPNESS>;
    return {SlopeSphere::table_size,
            splat_atom<Sphere<C, BRICKS, AMPLITUDE>>,
            {gather_atom<1, false, BRICKS, SlopeSphere>, gather_atom<2, false, BRICKS, SlopeSphere>,
             gather_atom<3, false, BRICKS, SlopeSphere>},
            gather_atom<1, true, BRICKS, SlopeSphere>,
            gather_all_of_atom<C, Sphere<C, BRICKS, ONE>>};
}

template <int C>
Kernels kernels_of_gaussians(const Plan& plan) {
    if (!plan.grid.orthogonal()) return kernels_of<SkewedSphere, C, 0>();
    // One Gaussian at a map's resolution, or five of a form factor: what fits and simulations use.
    if constexpr (C == 1 || C == 5) {
        if (plan.bricks == 3) return kernels_of<OrthogonalSphere, C, 3>();
        if (plan.bricks == 4) return kernels_of<OrthogonalSphere, C, 4>();
    }
    return kernels_of<OrthogonalSphere, C, 0>();
}

}  // namespace
}  // namespace openmm_density
