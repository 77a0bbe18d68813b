// The energy of a unit among its images, with its gradient.
//
// No list is kept between calls. Cells as wide as the cut-off hold those atoms of the images that are in or beside a cell with an
// atom of the unit; then each atom of the unit looks at the cells around it. Every sum belongs to one atom: no order depends on threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../masks.h"
#include "../parallel.h"
#include "forms.h"
#include "interface.h"

namespace openmm_density {
namespace {

constexpr int64_t UNIT_ATOMS_PER_TASK = 64;
constexpr int MOST_CELLS = 64;  // along an axis
constexpr double FARTHEST = 1e18;  // the largest coordinate: its square, and that of a distance, is a float
// Of half the sum of two atoms' sigma: nearer than that the energy goes on along its tangent.
constexpr float TANGENT_FROM = 0.6f;
// Of the largest sigma: the width of all atoms up to which float32 suffices as seen from the middle of where they begin and end.
constexpr double WIDE = 100;

// One of the unit's atoms that have contacts, seen from the middle of all.
struct UnitAtom {
    float x[3];
    int32_t index, cell;
};

struct Mate {
    float x[3];
    int32_t index, image, cell;
};

// Cells with a border of one all around; x runs fastest.
struct Cells {
    float low[3], per_width;
    int32_t n[3];

    // The cell of a place, or -1 beyond the border.
    int32_t at(const float* x) const {
        int32_t cell[3];
        for (int axis = 0; axis < 3; ++axis) {
            const float place = std::floor((x[axis] - low[axis]) * per_width) + 1;
            if (!(place >= 0 && place < n[axis])) return -1;
            cell[axis] = static_cast<int32_t>(place);
        }
        return (cell[2] * n[1] + cell[1]) * n[0] + cell[0];
    }
    int64_t count() const { return int64_t(n[0]) * n[1] * n[2]; }
};

inline Cells cells_around(const std::vector<UnitAtom>& atoms, double cutoff) {
    float high[3];
    Cells made{};
    for (int axis = 0; axis < 3; ++axis) {
        made.low[axis] = high[axis] = atoms.empty() ? 0 : atoms[0].x[axis];
        for (const UnitAtom& atom : atoms) {
            made.low[axis] = std::min(made.low[axis], atom.x[axis]);
            high[axis] = std::max(high[axis], atom.x[axis]);
        }
    }
    // A little wider than the cut-off, for the rounding of what is divided by it.
    float width = static_cast<float>(1.0001 * cutoff);
    for (int axis = 0; axis < 3; ++axis) width = std::max(width, (high[axis] - made.low[axis]) / (MOST_CELLS - 3));
    made.per_width = 1 / width;
    for (int axis = 0; axis < 3; ++axis) made.n[axis] = static_cast<int32_t>((high[axis] - made.low[axis]) * made.per_width) + 3;
    return made;
}

// From the median of a coordinate an atom that has got lost takes no digits from the others.
template <typename Real>
double median(const std::vector<UnitAtom>& atoms, const Real* positions, int axis) {
    std::vector<double> coordinates;
    for (const UnitAtom& atom : atoms) coordinates.push_back(positions[3 * atom.index + axis]);
    const auto middle = coordinates.begin() + coordinates.size() / 2;
    std::nth_element(coordinates.begin(), middle, coordinates.end());
    return *middle;
}

template <typename Real>
std::vector<UnitAtom> atoms_with_contacts(const Contacts& given, const Real* positions, double (&centre)[3]) {
    std::vector<UnitAtom> atoms;
    double low[3], high[3];
    float largest_sigma = 0;
    for (int axis = 0; axis < 3; ++axis) low[axis] = INFINITY, high[axis] = -INFINITY;
    for (int64_t i = 0; i < given.n_atoms; ++i) {
        const Real* const x = positions + 3 * i;
        const bool acts = given.parameters[3 * i + 1] != 0 || given.parameters[3 * i + 2] != 0;
        // False for NaN too.
        if (!acts || !(std::abs(x[0]) <= FARTHEST && std::abs(x[1]) <= FARTHEST && std::abs(x[2]) <= FARTHEST)) continue;
        for (int axis = 0; axis < 3; ++axis) {
            low[axis] = std::min<double>(low[axis], x[axis]);
            high[axis] = std::max<double>(high[axis], x[axis]);
        }
        largest_sigma = std::max(largest_sigma, given.parameters[3 * i]);
        atoms.push_back({{}, static_cast<int32_t>(i), 0});
    }
    for (int axis = 0; axis < 3; ++axis) {
        centre[axis] = atoms.empty() ? 0 : (low[axis] + high[axis]) / 2;
        if (high[axis] - low[axis] > WIDE * largest_sigma) centre[axis] = median(atoms, positions, axis);
    }
    for (UnitAtom& atom : atoms)
        for (int axis = 0; axis < 3; ++axis) atom.x[axis] = static_cast<float>(positions[3 * atom.index + axis] - centre[axis]);
    return atoms;
}

// The atoms of one image that are in or beside a cell with an atom of the unit.
inline std::vector<Mate> mates_in_reach(const Contacts& given, int64_t image, const std::vector<UnitAtom>& atoms, const double (&centre)[3],
                                        float radius, const Cells& cells, const std::vector<char>& reached) {
    const double* const M = given.images + 12 * image;
    float R[3][3], away[3];
    double squared = 0;
    for (int row = 0; row < 3; ++row) {
        double moved = M[4 * row + 3] - centre[row];
        for (int axis = 0; axis < 3; ++axis) {
            R[row][axis] = static_cast<float>(M[4 * row + axis]);
            moved += M[4 * row + axis] * centre[axis];
        }
        away[row] = static_cast<float>(moved);
        squared += moved * moved;
    }
    std::vector<Mate> found;
    const double farthest = 2.001 * radius + given.cutoff;
    if (!(squared < farthest * farthest)) return found;
    for (const UnitAtom& atom : atoms) {
        Mate mate{{}, atom.index, static_cast<int32_t>(image), 0};
        for (int row = 0; row < 3; ++row) mate.x[row] = atom.x[0] * R[row][0] + atom.x[1] * R[row][1] + atom.x[2] * R[row][2] + away[row];
        mate.cell = cells.at(mate.x);
        if (mate.cell < 0 || !reached[mate.cell]) continue;
        found.push_back(mate);
    }
    return found;
}

// All mates by cells, each property side by side.
struct SortedMates {
    std::vector<float> x[3], parameters[3];
    std::vector<int32_t> index, image, start;

    SortedMates(const Contacts& given, const std::vector<std::vector<Mate>>& images, const Cells& cells) : start(cells.count() + 1, 0) {
        size_t n = 0;
        for (const auto& mates : images) {
            n += mates.size();
            for (const Mate& mate : mates) ++start[mate.cell + 1];
        }
        for (size_t cell = 1; cell < start.size(); ++cell) start[cell] += start[cell - 1];
        // Vectors are read beyond the last.
        for (int k = 0; k < 3; ++k) x[k].assign(n + W, 0.0f), parameters[k].assign(n + W, 0.0f);
        index.assign(n + W, -1), image.assign(n + W, -1);
        std::vector<int32_t> next(start.begin(), start.end() - 1);
        for (const auto& mates : images)
            for (const Mate& mate : mates) {
                const int32_t to = next[mate.cell]++;
                for (int k = 0; k < 3; ++k) x[k][to] = mate.x[k], parameters[k][to] = given.parameters[3 * mate.index + k];
                index[to] = mate.index, image[to] = mate.image;
            }
    }
};

// The pairs of an atom that do not count: atom, image, and the atom there.
struct Exclusions {
    const int32_t *begin, *end;
};

inline Exclusions exclusions_of(const Contacts& given, int32_t atom) {
    const auto first_from = [&](int32_t least) {
        int64_t begin = 0, end = given.n_excluded;
        while (begin < end) {
            const int64_t middle = (begin + end) / 2;
            if (given.excluded[3 * middle] < least)
                begin = middle + 1;
            else
                end = middle;
        }
        return given.excluded + 3 * begin;
    };
    return {first_from(atom), first_from(atom + 1)};
}

inline ivec whole_numbers(const int32_t* from) {
    ivec values;
    std::memcpy(&values, from, sizeof(values));
    return values;
}

struct OfAtom {
    float energy, gradient[3];
};

inline OfAtom among(const UnitAtom& atom, const Contacts& given, const SortedMates& mates, const Cells& cells, const Setting& setting) {
    Atoms p;
    vec own[3], total[3] = {}, energy{};
    for (int k = 0; k < 3; ++k) {
        own[k] = broadcast(atom.x[k]);
        p.own[k] = broadcast(given.parameters[3 * atom.index + k]);
    }
    const Exclusions exclusions = exclusions_of(given, atom.index);
    const ivec numbers = lane_numbers();
    for (int z = -1; z <= 1; ++z)
        for (int y = -1; y <= 1; ++y) {
            const int32_t middle = atom.cell + (z * cells.n[1] + y) * cells.n[0], end = mates.start[middle + 2];
            for (int32_t k = mates.start[middle - 1]; k < end; k += W) {
                vec d[3];
                for (int axis = 0; axis < 3; ++axis) d[axis] = load(mates.x[axis].data() + k) - own[axis];
                vec squared = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
                ivec near = (numbers < (end - k)) & (squared < setting.cutoff_squared);
                for (const int32_t* each = exclusions.begin; each < exclusions.end; each += 3)
                    near &= (whole_numbers(mates.image.data() + k) != each[1]) | (whole_numbers(mates.index.data() + k) != each[2]);
                if (!bits(near)) continue;
                for (int slot = 0; slot < 3; ++slot) p.other[slot] = load(mates.parameters[slot].data() + k);
                squared = near ? (squared > 1e-12f ? squared : broadcast(1e-12f)) : broadcast(1.0f);
                const vec r = square_root(squared);
                const vec tangent = (p.own[0] + p.other[0]) * (0.5f * TANGENT_FROM);
                const vec at = r > tangent ? r : tangent;
                const Found found = pair_energy<NONBONDED>(at, 1.0f / at, p, setting);
                const vec by_r = found.slope * at;
                energy += zero_unless(near, found.energy + by_r * (r - at));
                const vec slope = zero_unless(near, by_r / r);
                for (int axis = 0; axis < 3; ++axis) total[axis] -= slope * d[axis];
            }
        }
    return {sum(energy), {sum(total[0]), sum(total[1]), sum(total[2])}};
}

// Return half the energy of all pairs of an atom with one of an image; store scale times what acts on the atoms of the unit.
template <typename Real>
double mate_contacts(const Contacts& given, const Real* positions, double scale, Real* gradient) {
    std::fill_n(gradient, 3 * given.n_atoms, Real(0));
    double centre[3];
    std::vector<UnitAtom> atoms = atoms_with_contacts(given, positions, centre);
    const Cells cells = cells_around(atoms, given.cutoff);
    std::vector<char> reached(cells.count(), 0);
    float radius = 0;
    for (UnitAtom& atom : atoms) {
        radius = std::max(radius, std::sqrt(atom.x[0] * atom.x[0] + atom.x[1] * atom.x[1] + atom.x[2] * atom.x[2]));
        atom.cell = cells.at(atom.x);
        for (int z = -1; z <= 1; ++z)
            for (int y = -1; y <= 1; ++y) {
                char* const middle = reached.data() + atom.cell + (z * cells.n[1] + y) * cells.n[0];
                middle[-1] = middle[0] = middle[1] = 1;
            }
    }
    std::vector<std::vector<Mate>> images(given.n_images);
    parallel_for(given.n_images, [&](int64_t image, int) { images[image] = mates_in_reach(given, image, atoms, centre, radius, cells, reached); });
    const SortedMates mates(given, images, cells);
    const Setting setting = setting_of(NONBONDED, given.cutoff, given.settings);
    const int64_t n = atoms.size(), n_tasks = (n + UNIT_ATOMS_PER_TASK - 1) / UNIT_ATOMS_PER_TASK;
    std::vector<double> energies(n_tasks, 0.0);
    parallel_for(n_tasks, [&](int64_t task, int) {
        for (int64_t i = task * UNIT_ATOMS_PER_TASK; i < std::min(n, (task + 1) * UNIT_ATOMS_PER_TASK); ++i) {
            const OfAtom found = among(atoms[i], given, mates, cells, setting);
            energies[task] += found.energy;
            for (int axis = 0; axis < 3; ++axis) gradient[3 * atoms[i].index + axis] = static_cast<Real>(scale * found.gradient[axis]);
        }
    });
    double energy = 0;
    for (const double each : energies) energy += each;
    return energy / 2;
}

}  // namespace
}  // namespace openmm_density
