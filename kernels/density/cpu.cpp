// Model density, its gradients, and similarity with forces, on the CPU: the operators, from checked arguments to results.
// passes.h and, of the similarity, similarity.h say how they work.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <vector>

#define OPENMM_DENSITY_SLEEPING_THREADS  // it runs in every step, beside the threads of OpenMM
#include "../grid_tensors.h"
#include "../scale.h"
#include "interface.h"
#include "passes.h"

namespace openmm_density {
namespace {

struct Inputs {
    at::Tensor positions, amplitudes, exponents;
    Atoms atoms;

    Inputs(const at::Tensor& given_positions, const at::Tensor& given_amplitudes, const at::Tensor& given_exponents,
           double cutoff, int64_t count)
        : positions(given_positions.contiguous()),
          amplitudes(given_amplitudes.contiguous()),
          exponents(given_exponents.contiguous()) {
        TORCH_CHECK(positions.dim() == 2 && positions.size(1) == 3, "positions must have shape (N, 3), not ",
                    positions.sizes());
        TORCH_CHECK(positions.scalar_type() == at::kFloat || positions.scalar_type() == at::kDouble,
                    "positions must be float32 or float64, not ", positions.scalar_type());
        TORCH_CHECK(amplitudes.scalar_type() == at::kFloat && exponents.scalar_type() == at::kFloat,
                    "amplitudes and exponents must be float32, not ",
                    amplitudes.scalar_type(), " and ", exponents.scalar_type());
        TORCH_CHECK(amplitudes.dim() == 2 && amplitudes.size(0) == count && amplitudes.sizes() == exponents.sizes(),
                    "amplitudes and exponents must both have shape (", count, ", number of Gaussians), not ",
                    amplitudes.sizes(), " and ", exponents.sizes());
        TORCH_CHECK(amplitudes.size(1) >= 1 && amplitudes.size(1) <= MAX_GAUSSIANS, "an atom has between 1 and ",
                    MAX_GAUSSIANS, " Gaussians, not ", amplitudes.size(1));
        TORCH_CHECK(cutoff > 0 && std::isfinite(cutoff), "cutoff must be positive and finite, not ", cutoff);
        TORCH_CHECK(count < (int64_t(1) << 31), "2147483647 atoms are the most, not ", count);
        atoms = {count, static_cast<int>(amplitudes.size(1)), amplitudes.const_data_ptr<float>(),
                 exponents.const_data_ptr<float>(), cutoff};
    }

    Points points() const {
        if (positions.scalar_type() == at::kDouble) return {nullptr, positions.const_data_ptr<double>()};
        return {positions.const_data_ptr<float>(), nullptr};
    }
};

Gradients gradients_of(const at::Tensor& gradient) {
    if (gradient.scalar_type() == at::kDouble) return {nullptr, gradient.mutable_data_ptr<double>()};
    return {gradient.mutable_data_ptr<float>(), nullptr};
}

at::Tensor density_splat(const at::Tensor& positions, const at::Tensor& amplitudes, const at::Tensor& exponents,
                         double cutoff, const at::Tensor& matrix, const at::Tensor& origin, at::IntArrayRef shape,
                         bool periodic) {
    const Grid grid = grid_of(matrix, origin, shape, periodic);
    const Inputs inputs(positions, amplitudes, exponents, cutoff, positions.size(0));
    Workspace& work = workspace();
    const Plan plan = make_plan(work, grid, inputs.atoms, inputs.points(), nullptr);
    const Kernels kernels = kernels_for(plan);
    at::Tensor density = at::empty(shape, inputs.amplitudes.options());
    float* out = density.mutable_data_ptr<float>();
    const int64_t plane = int64_t(grid.n[1]) * grid.n[0];
    parallel_for(grid.n[2], [&](int64_t z, int) { std::fill_n(out + z * plane, plane, 0.0f); });
    each_tile(work, plan, 1, [&](const Tile& tile, const TileView& view, ThreadScratch& scratch) {
        splat_tile(plan, kernels, tile, view, scratch);
        each_bricks(
            view,
            [&](int bz, int by, int bx, int64_t at) {
                store_bricks(plan, bz, by, bx, scratch.channels[0].data() + at, out);
            },
            [] {});
    });
    return density;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> density_gather(const at::Tensor& gradient, const at::Tensor& positions,
                                                              const at::Tensor& amplitudes, const at::Tensor& exponents,
                                                              double cutoff, const at::Tensor& matrix,
                                                              const at::Tensor& origin, bool periodic,
                                                              bool parameters) {
    const Grid grid = grid_of(matrix, origin, gradient.sizes(), periodic);
    TORCH_CHECK(gradient.scalar_type() == at::kFloat, "gradient must be float32, not ", gradient.scalar_type());
    const at::Tensor field = gradient.contiguous();
    const float* g = field.const_data_ptr<float>();
    const Inputs inputs(positions, amplitudes, exponents, cutoff, positions.size(0));
    Workspace& work = workspace();
    const Plan plan = make_plan(work, grid, inputs.atoms, inputs.points(), nullptr);
    const Kernels kernels = kernels_for(plan);
    const int n_gaussians = parameters ? inputs.atoms.gaussians : 0;
    const int width = parameters ? all_sums(n_gaussians) : GRADIENT_SUMS;
    const auto gather = parameters ? kernels.fresh_gather_all : kernels.fresh_gather;
    work.partials.resize(work.images.size() * width);
    each_tile(work, plan, 1, [&](const Tile& tile, const TileView& view, ThreadScratch& scratch) {
        each_bricks(
            view,
            [&](int bz, int by, int bx, int64_t at) {
                vec bricks[BRICK_ROWS];
                load_bricks(plan, bz, by, bx, g, 0.0f, bricks);
                std::copy_n(bricks, BRICK_ROWS, scratch.channels[0].data() + at);
            },
            [] {});
        const size_t table_size = kernels.table_size(plan);
        if (scratch.tables.size() < table_size) scratch.tables.resize(table_size);
        for (int64_t i = 0; i < tile.end - tile.begin; ++i)
            gather(plan, scratch.footprints[i], view, scratch.tables.data(), scratch,
                   work.partials.data() + width * (tile.begin + i));
    });

    const at::Tensor d_positions = at::empty(inputs.positions.sizes(), inputs.positions.options());
    const at::Tensor d_amplitudes = at::empty({inputs.atoms.count, n_gaussians}, inputs.amplitudes.options());
    const at::Tensor d_exponents = at::empty({inputs.atoms.count, n_gaussians}, inputs.exponents.options());
    const Gradients to_positions = gradients_of(d_positions);
    float* da = d_amplitudes.mutable_data_ptr<float>();
    float* dalpha = d_exponents.mutable_data_ptr<float>();
    const double s_c = cutoff * cutoff;
    const int64_t n_chunks = (inputs.atoms.count + ATOMS_PER_CHUNK - 1) / ATOMS_PER_CHUNK;
    parallel_for(n_chunks, [&](int64_t chunk, int) {
        double total[all_sums(MAX_GAUSSIANS)];
        for (int64_t atom = chunk * ATOMS_PER_CHUNK; atom < std::min(inputs.atoms.count, (chunk + 1) * ATOMS_PER_CHUNK);
             ++atom) {
            add_partials(work, atom, width, total);
            store_gradient(grid, total, to_positions, atom);
            if (!parameters) continue;
            const double sum_g = total[SUM_G], sum_gs = total[SUM_GS];
            for (int c = 0; c < n_gaussians; ++c) {
                const double of_ge = total[sum_ge(c)], of_gse = total[sum_gse(c)];
                const double a = inputs.atoms.amplitudes[atom * n_gaussians + c];
                const double alpha = inputs.atoms.exponents[atom * n_gaussians + c];
                const double edge = std::exp(-alpha * s_c);
                // d/dA and d/dalpha of A (exp(-alpha s) - exp(-alpha s_c) + alpha exp(-alpha s_c) (s - s_c)).
                da[atom * n_gaussians + c] =
                    static_cast<float>(of_ge - edge * sum_g + alpha * edge * (sum_gs - s_c * sum_g));
                dalpha[atom * n_gaussians + c] =
                    static_cast<float>(a * (-of_gse + edge * (sum_gs - alpha * s_c * (sum_gs - s_c * sum_g))));
            }
        }
    });
    return {d_positions, d_amplitudes, d_exponents};
}

std::tuple<at::Tensor, at::Tensor> density_similarity(const at::Tensor& positions, const at::Tensor& atoms,
                                                      const at::Tensor& amplitudes, const at::Tensor& exponents,
                                                      double cutoff, const at::Tensor& target, const at::Tensor& moments,
                                                      const at::Tensor& matrix, const at::Tensor& origin, bool periodic,
                                                      int64_t measure_number, double total_weight,
                                                      const std::optional<at::Tensor>& scale) {
    const at::Tensor rows = matrix.contiguous(), corner = origin.contiguous();
    grid_of(rows, corner, target.sizes(), periodic);
    TORCH_CHECK(target.scalar_type() == at::kFloat, "target must be float32, not ", target.scalar_type());
    TORCH_CHECK(target.is_contiguous(), "target must be contiguous, but has strides ", target.strides(),
                ": pass target.contiguous()");
    TORCH_CHECK(moments.scalar_type() == at::kDouble && moments.numel() == MOMENTS && moments.is_contiguous(),
                "moments must be ", static_cast<int>(MOMENTS), " contiguous float64 numbers, not ", moments.sizes(), " of ",
                moments.scalar_type(), ": take them from target_moments");
    TORCH_CHECK(atoms.scalar_type() == at::kLong && atoms.dim() == 1, "atoms must be int64 of shape (M,), not ",
                atoms.scalar_type(), " of shape ", atoms.sizes());
    TORCH_CHECK(measure_number >= 0 && measure_number < MEASURES, "there is no measure ", measure_number,
                ": use one of the constants of openmm_density.kernels.density");
    const Measure measure = static_cast<Measure>(measure_number);
    TORCH_CHECK(total_weight > 0 || !divides_by_weight(measure),
                "the total weight must be positive, not ", total_weight);
    const Inputs inputs(positions, amplitudes, exponents, cutoff, atoms.size(0));
    const at::Tensor selected = atoms.contiguous();
    const int64_t* selection = selected.const_data_ptr<int64_t>();
    const int64_t n_atoms = inputs.atoms.count, n_positions = inputs.positions.size(0);
    for (int64_t i = 0; i < n_atoms; ++i)
        TORCH_CHECK_INDEX(selection[i] >= 0 && selection[i] < n_positions, "atom ", selection[i], " is not among the ",
                          n_positions, " positions: atoms are counted from 0");
    const at::Tensor value = at::empty({}, moments.options());
    const at::Tensor gradient = at::empty(inputs.positions.sizes(), inputs.positions.options());
    const Comparison compared{n_atoms,
                              inputs.atoms.gaussians,
                              selection,
                              inputs.atoms.amplitudes,
                              inputs.atoms.exponents,
                              cutoff,
                              target.const_data_ptr<float>(),
                              moments.const_data_ptr<double>(),
                              rows.const_data_ptr<double>(),
                              corner.const_data_ptr<double>(),
                              {target.size(0), target.size(1), target.size(2)},
                              periodic,
                              static_cast<int>(measure),
                              total_weight};
    const Points points = inputs.points();
    const Gradients gradients = gradients_of(gradient);
    *value.mutable_data_ptr<double>() = openmm_density_similarity_of(
        compared, {points.single, points.twice, gradients.single, gradients.twice}, n_positions, value_of(scale));
    return {value, gradient};
}

}  // namespace

TORCH_LIBRARY_IMPL(openmm_density, CPU, m) {
    m.impl("density_splat", density_splat);
    m.impl("density_gather", density_gather);
    m.impl("density_similarity", density_similarity);
}

}  // namespace openmm_density
