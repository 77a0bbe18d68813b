// A PaiNN of some layers: its energy and the gradient, in 2 L sweeps over the atoms, between which neighbours read one another.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "phases.h"
#include "rows.h"
#include "weights.h"

namespace openmm_density {
namespace {

constexpr float NORM_FLOOR = 1e-8f;
// Products of matrices take so many rows at once.
constexpr int64_t ROWS_TOGETHER = 6;
constexpr int64_t FEWEST_TASKS = 8, MOST_ATOMS_PER_TASK = 3 * ROWS_TOGETHER;

inline int64_t atoms_per_task(int64_t n_atoms) {
    const int64_t wanted = std::max<int64_t>(1, (n_atoms + FEWEST_TASKS - 1) / FEWEST_TASKS);
    return std::min(MOST_ATOMS_PER_TASK, (wanted + ROWS_TOGETHER - 1) / ROWS_TOGETHER * ROWS_TOGETHER);
}

// Filters of all pairs and layers are kept where they are no more than this, about what the last cache holds.
constexpr int64_t TABLE_BYTES = int64_t(8) << 20;

// Memory that stays with a thread: what is new to the process costs more than the sums that it holds.
class Memory {
   public:
    explicit Memory(int64_t size) : size_(size) {
        thread_local std::unique_ptr<float[]> kept;
        thread_local int64_t room = 0;
        constexpr int64_t MOST_KEPT = int64_t(16) << 20;
        if (size > MOST_KEPT) {
            own_.reset(new float[size]);
            next_ = own_.get();
        } else {
            if (size > room) {
                kept.reset(new float[size]);
                room = size;
            }
            next_ = kept.get();
        }
    }

    float* take(int64_t count) {
        float* const found = next_;
        next_ += (count + 15) / 16 * 16;
        return found;
    }

    static int64_t rounded(int64_t count) { return (count + 15) / 16 * 16; }

   private:
    std::unique_ptr<float[]> own_;
    float* next_;
    int64_t size_;
};

// What a layer keeps for its gradients, by atoms.
struct LayerTape {
    float *hidden, *sent, *vectors, *mixed, *dot, *length, *update_hidden, *gates;
};

template <int F>
class Network {
   public:
    static constexpr int HALF = F / 2;

    // Of edges whose radial functions are still to be filled in.
    Network(Edges& edges, double cutoff, const NetworkWeights& weights, const int32_t* kinds)
        : edges_(edges), cutoff_(cutoff), weights_(weights), kinds_(kinds), n_(edges.n_atoms), n_layers_(static_cast<int>(weights.layers.size())),
          tabled_(edges.n_pairs * 3 * F * n_layers_ * int64_t(sizeof(float)) <= TABLE_BYTES),
          per_task_(atoms_per_task(n_)),
          n_tasks_((n_ + per_task_ - 1) / per_task_), memory_(needed()) {
        for (int l = 0; l < n_layers_; ++l) {
            LayerTape tape;
            tape.hidden = memory_.take(n_ * F);
            tape.sent = memory_.take(n_ * 3 * F);
            tape.vectors = memory_.take(n_ * 3 * F);
            tape.mixed = memory_.take(n_ * 6 * F);
            tape.dot = memory_.take(n_ * F);
            tape.length = memory_.take(n_ * F);
            tape.update_hidden = memory_.take(n_ * F);
            tape.gates = memory_.take(n_ * 3 * F);
            tapes_.push_back(tape);
        }
        scalars_ = memory_.take(n_ * F);
        for (auto& each : by_scalars_) each = memory_.take(n_ * F);
        for (auto& each : by_vectors_) each = memory_.take(n_ * 3 * F);
        by_pair_ = memory_.take(edges_.n_pairs * 3);
        for (auto& each : scratch_) each = memory_.take(threads() * per_task_ * 6 * F);
        if (tabled_) table_ = memory_.take(table_size());
        energies_.assign(n_, 0.0);
        rows_.reset(new RowScratch<F>[threads()]);
    }

    // Return the energy; by_pair() then has the gradient by each pair's vector.
    double evaluate() {
        std::fill_n(by_pair_, edges_.n_pairs * 3, 0.0f);
        embed();
        std::vector<int64_t> n_tasks(1 + 2 * n_layers_, n_tasks_);
        n_tasks[0] = radial_tasks(edges_);
        parallel_phases(n_tasks, [&](int phase, int64_t task, int thread) {
            if (phase == 0) {
                fill_radial(edges_, cutoff_, task);
                fill_table(task);
            } else if (phase <= n_layers_) {
                const int l = phase - 1;
                forward(l, task, thread);
                if (l + 1 == n_layers_) {
                    read_out(task, thread);
                    update_backward(l, task, thread);
                }
            } else {
                const int l = 2 * n_layers_ - phase;
                message_backward(l, task, thread);
                if (l > 0) update_backward(l - 1, task, thread);
            }
        });
        double energy = 0;
        for (double each : energies_) energy += each;
        return energy;
    }

    const float* by_pair() const { return by_pair_; }

   private:
    int threads() const { return threads_for(std::max<int64_t>(n_tasks_, edges_.n_pairs)); }
    int64_t table_size() const { return edges_.n_pairs * 3 * F * n_layers_; }
    int64_t needed() const {
        int64_t size = n_layers_ * (3 * Memory::rounded(n_ * F) + 3 * Memory::rounded(n_ * 3 * F) + Memory::rounded(n_ * 6 * F) + Memory::rounded(n_ * F));
        size += 3 * Memory::rounded(n_ * F) + 2 * Memory::rounded(n_ * 3 * F) + Memory::rounded(edges_.n_pairs * 3);
        size += 3 * Memory::rounded(threads() * per_task_ * 6 * F);
        return size + (tabled_ ? Memory::rounded(table_size()) : 0);
    }

    int64_t first(int64_t task) const { return task * per_task_; }
    int64_t count(int64_t task) const { return std::min(n_, first(task) + per_task_) - first(task); }
    float* scratch(int which, int thread) const { return scratch_[which] + thread * per_task_ * 6 * F; }
    const float* table(int l) const { return tabled_ ? table_ + l * edges_.n_pairs * 3 * F : nullptr; }
    Features features(int l) const {
        return {tapes_[l].sent, l ? tapes_[l].vectors : nullptr, by_scalars_[l % 2], by_vectors_[l % 2]};
    }

    // The filters of a task's pairs.
    void fill_table(int64_t task) {
        if (!tabled_) return;
        const int64_t from = task * PAIRS_PER_TASK, n = std::min(PAIRS_PER_TASK, edges_.n_pairs - from);
        for (int l = 0; l < n_layers_; ++l)
            multiply(edges_.basis.get() + from * edges_.n_basis, edges_.n_basis, n, weights_.layers[l].filter, edges_.n_basis, 3 * F,
                     table_ + (l * edges_.n_pairs + from) * 3 * F, 3 * F);
    }

    // What atoms send at first depends on their kind alone.
    void embed() {
        const LayerWeights& w = weights_.layers[0];
        std::vector<float> hidden(weights_.n_kinds * F), active(weights_.n_kinds * F), sent(weights_.n_kinds * 3 * F);
        send(w, weights_.embedding, weights_.n_kinds, hidden.data(), active.data(), sent.data());
        for (int64_t i = 0; i < n_; ++i) {
            std::copy_n(weights_.embedding + kinds_[i] * F, F, scalars_ + i * F);
            std::copy_n(sent.data() + kinds_[i] * 3 * F, 3 * F, tapes_[0].sent + i * 3 * F);
        }
    }

    static void send(const LayerWeights& w, const float* scalars, int64_t n, float* hidden, float* active, float* sent) {
        multiply(scalars, F, n, w.first.matrix, F, F, hidden, F, w.first.bias);
        activate(hidden, active, n * F);
        multiply(active, F, n, w.second.matrix, F, 3 * F, sent, 3 * F, w.second.bias);
    }

    void forward(int l, int64_t task, int thread) {
        const LayerWeights& w = weights_.layers[l];
        const LayerTape& tape = tapes_[l];
        const int64_t from = first(task), n = count(task);
        float* const scalars = scalars_ + from * F;
        float* const vectors = scratch(0, thread);
        if (l)
            std::copy_n(tape.vectors + from * 3 * F, n * 3 * F, vectors);
        else
            std::fill_n(vectors, n * 3 * F, 0.0f);
        for (int64_t i = 0; i < n; ++i)
            receive<F>(edges_, from + i, w.filter, table(l), features(l), scalars + i * F, vectors + i * 3 * F, rows_[thread]);

        float* const mixed = tape.mixed + from * 6 * F;
        multiply(vectors, F, 3 * n, w.mix.matrix, F, 2 * F, mixed, 2 * F);
        float* const context = scratch(1, thread);  // n x 2 F
        for (int64_t i = 0; i < n; ++i)
            for (int f = 0; f < F; f += W) {
                const float* const m = mixed + i * 6 * F + f;
                const vec q0 = load(m + F), q1 = load(m + 3 * F), q2 = load(m + 5 * F);
                const vec squared = q0 * q0 + q1 * q1 + q2 * q2 + NORM_FLOOR;
                vec length;
                for (int lane = 0; lane < W; ++lane) length[lane] = std::sqrt(squared[lane]);
                store(tape.length + (from + i) * F + f, length);
                store(tape.dot + (from + i) * F + f, load(m) * q0 + load(m + 2 * F) * q1 + load(m + 4 * F) * q2);
                store(context + i * 2 * F + f, load(scalars + i * F + f));
                store(context + i * 2 * F + F + f, length);
            }
        float* const hidden = tape.update_hidden + from * F;
        float* const active = scratch(2, thread);
        float* const gates = tape.gates + from * 3 * F;
        multiply(context, 2 * F, n, w.third.matrix, 2 * F, F, hidden, F, w.third.bias);
        activate(hidden, active, n * F);
        multiply(active, F, n, w.fourth.matrix, F, 3 * F, gates, 3 * F, w.fourth.bias);
        const bool goes_on = l + 1 < n_layers_;
        for (int64_t i = 0; i < n; ++i)
            for (int f = 0; f < F; f += W) {
                const float* const g = gates + i * 3 * F + f;
                store(scalars + i * F + f, load(scalars + i * F + f) + load(g + F) + load(g + 2 * F) * load(tape.dot + (from + i) * F + f));
                if (!goes_on) continue;
                for (int k = 0; k < 3; ++k)
                    store(tapes_[l + 1].vectors + ((from + i) * 3 + k) * F + f,
                          load(vectors + (i * 3 + k) * F + f) + load(g) * load(mixed + i * 6 * F + 2 * k * F + f));
            }
        if (goes_on) {
            const LayerTape& next = tapes_[l + 1];
            send(weights_.layers[l + 1], scalars, n, next.hidden + from * F, active, next.sent + from * 3 * F);
        }
    }

    // Energies, and the gradient by the scalars, into those of the last layer.
    void read_out(int64_t task, int thread) {
        const int64_t from = first(task), n = count(task);
        float *const hidden = scratch(0, thread), *const active = scratch(1, thread);
        multiply(scalars_ + from * F, F, n, weights_.readout.matrix, F, HALF, hidden, HALF, weights_.readout.bias);
        activate(hidden, active, n * HALF);
        for (int64_t i = 0; i < n; ++i) {
            double energy = *weights_.last_bias;
            for (int f = 0; f < HALF; ++f) energy += static_cast<double>(active[i * HALF + f]) * weights_.last[f];
            energies_[from + i] = energy;
            std::copy_n(weights_.last, HALF, active + i * HALF);
        }
        activate_backward(hidden, active, n * HALF);
        const int last = (n_layers_ - 1) % 2;
        multiply(active, HALF, n, weights_.readout.transposed, HALF, F, by_scalars_[last] + from * F, F);
        std::fill_n(by_vectors_[last] + from * 3 * F, n * 3 * F, 0.0f);
    }

    // Gradients by what a layer's update makes become those by what it is made of, in place.
    void update_backward(int l, int64_t task, int thread) {
        const LayerWeights& w = weights_.layers[l];
        const LayerTape& tape = tapes_[l];
        const int64_t from = first(task), n = count(task);
        float *const ds = by_scalars_[l % 2] + from * F, *const dv = by_vectors_[l % 2] + from * 3 * F;
        float *const by_gates = scratch(0, thread), *const by_hidden = scratch(1, thread), *const by_context = scratch(2, thread);
        for (int64_t i = 0; i < n; ++i)
            for (int f = 0; f < F; f += W) {
                const float* const m = tape.mixed + (from + i) * 6 * F + f;
                const float* const d = dv + i * 3 * F + f;
                const vec s = load(ds + i * F + f);
                store(by_gates + i * 3 * F + f, load(d) * load(m) + load(d + F) * load(m + 2 * F) + load(d + 2 * F) * load(m + 4 * F));
                store(by_gates + i * 3 * F + F + f, s);
                store(by_gates + i * 3 * F + 2 * F + f, s * load(tape.dot + (from + i) * F + f));
            }
        multiply(by_gates, 3 * F, n, w.fourth.transposed, 3 * F, F, by_hidden, F);
        activate_backward(tape.update_hidden + from * F, by_hidden, n * F);
        multiply(by_hidden, F, n, w.third.transposed, F, 2 * F, by_context, 2 * F);
        float* const by_mixed = scratch(0, thread);  // n x 6 F
        for (int64_t i = 0; i < n; ++i)
            for (int f = 0; f < F; f += W) {
                const float* const m = tape.mixed + (from + i) * 6 * F + f;
                const float* const gates = tape.gates + (from + i) * 3 * F + f;
                const vec s = load(ds + i * F + f), by_dot = s * load(gates + 2 * F);
                const vec by_length = load(by_context + i * 2 * F + F + f) / load(tape.length + (from + i) * F + f);
                for (int k = 0; k < 3; ++k) {
                    const vec p = load(m + 2 * k * F), q = load(m + 2 * k * F + F);
                    store(by_mixed + (3 * i + k) * 2 * F + f, load(dv + (i * 3 + k) * F + f) * load(gates) + by_dot * q);
                    store(by_mixed + (3 * i + k) * 2 * F + F + f, by_dot * p + by_length * q);
                }
                store(ds + i * F + f, s + load(by_context + i * 2 * F + f));
            }
        multiply(by_mixed, 2 * F, 3 * n, w.mix.transposed, 2 * F, F, dv, F, nullptr, true);
    }

    // Gradients by what a layer's message makes, of all atoms, become those by what it is made of, in the buffers of the layer below.
    void message_backward(int l, int64_t task, int thread) {
        const LayerWeights& w = weights_.layers[l];
        const LayerTape& tape = tapes_[l];
        const int64_t from = first(task), n = count(task);
        const Features x = features(l);
        float* const by_sent = scratch(0, thread);
        float *const ds = by_scalars_[(l + 1) % 2] + from * F, *const dv = by_vectors_[(l + 1) % 2] + from * 3 * F;
        if (l) std::copy_n(x.by_vectors + from * 3 * F, n * 3 * F, dv);
        for (int64_t i = 0; i < n; ++i)
            give_back<F>(edges_, from + i, w.filter, table(l), x, l ? by_sent + i * 3 * F : nullptr, dv + i * 3 * F, by_pair_, rows_[thread]);
        if (!l) return;
        float* const by_hidden = scratch(1, thread);
        multiply(by_sent, 3 * F, n, w.second.transposed, 3 * F, F, by_hidden, F);
        activate_backward(tape.hidden + from * F, by_hidden, n * F);
        std::copy_n(x.by_scalars + from * F, n * F, ds);
        multiply(by_hidden, F, n, w.first.transposed, F, F, ds, F, nullptr, true);
    }

    Edges& edges_;
    const double cutoff_;
    const NetworkWeights& weights_;
    const int32_t* const kinds_;
    const int64_t n_;
    const int n_layers_;
    const bool tabled_;
    const int64_t per_task_, n_tasks_;
    Memory memory_;
    std::vector<LayerTape> tapes_;
    float *scalars_, *by_scalars_[2], *by_vectors_[2], *by_pair_, *scratch_[3], *table_ = nullptr;
    std::vector<double> energies_;
    std::unique_ptr<RowScratch<F>[]> rows_;
};

}  // namespace
}  // namespace openmm_density
