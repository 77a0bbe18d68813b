// A row's messages, and their gradients: an atom and all its neighbours, by features.
//
// What neighbours send has 3 F numbers (phi, phi', phi''), vectors 3 x F, and a filter 3 F.
#pragma once

#include <algorithm>
#include <cstdint>

#include "edges.h"
#include "products.h"

namespace openmm_density {
namespace {

constexpr int EDGES_AT_ONCE = 32;  // whose filters stay in the processor's first cache
constexpr int MOST_BASIS = 129;

// Filters of some edges: of a table by pairs, or worked out here.
template <int F>
struct Filters {
    const float* of[EDGES_AT_ONCE];
    float computed[EDGES_AT_ONCE * 3 * F];
    float inputs[EDGES_AT_ONCE * MOST_BASIS];

    void find(const Edges& edges, const Edge* const* which, int count, const float* functions, const float* matrix, const float* table) {
        const int n = edges.n_basis;
        for (int e = 0; e < count; ++e) {
            of[e] = table ? table + which[e]->pair * int64_t(3 * F) : computed + e * 3 * F;
            if (!table) std::copy_n(functions + which[e]->pair * int64_t(n), n, inputs + e * n);
        }
        if (!table) multiply(inputs, n, count, matrix, n, 3 * F, computed, 3 * F);
    }
};

template <int F>
struct RowScratch {
    Filters<F> values, slopes;
    float gathered[5 * F];
};

// What the features of a layer are, and the gradients that come back.
struct Features {
    const float* sent;
    const float* vectors;           // or null, where all are 0
    const float* by_scalars = nullptr;
    const float* by_vectors = nullptr;
};

template <int F>
void add_messages(const Edge* const* edges, int count, const float* const* filters, const Features& x, float* scalars, float* vectors) {
    for (int f = 0; f < F; f += W) {
        vec s = load(scalars + f), v0 = load(vectors + f), v1 = load(vectors + F + f), v2 = load(vectors + 2 * F + f);
        for (int e = 0; e < count; ++e) {
            const float* const w = filters[e] + f;
            const float* const sent = x.sent + edges[e]->other * int64_t(3 * F) + f;
            const float* const u = edges[e]->direction;
            s += load(w) * load(sent);
            const vec along = load(w + F) * load(sent + F);
            v0 += along * u[0];
            v1 += along * u[1];
            v2 += along * u[2];
            if (x.vectors) {
                const float* const v = x.vectors + edges[e]->other * int64_t(3 * F) + f;
                const vec carried = load(w + 2 * F) * load(sent + 2 * F);
                v0 += carried * load(v);
                v1 += carried * load(v + F);
                v2 += carried * load(v + 2 * F);
            }
        }
        store(scalars + f, s);
        store(vectors + f, v0);
        store(vectors + F + f, v1);
        store(vectors + 2 * F + f, v2);
    }
}

// Sums over those that a row's atom sends to, 5 F of them: w ds, w' (u . dv), and w'' dv.
template <int F>
void add_returned(const Edge* const* edges, int count, const float* const* filters, const Features& x, float* sums) {
    for (int f = 0; f < F; f += W) {
        vec s = load(sums + f), a = load(sums + F + f);
        vec v0 = load(sums + 2 * F + f), v1 = load(sums + 3 * F + f), v2 = load(sums + 4 * F + f);
        for (int e = 0; e < count; ++e) {
            const float* const w = filters[e] + f;
            const float* const dv = x.by_vectors + edges[e]->other * int64_t(3 * F) + f;
            const float* const u = edges[e]->direction;
            const vec d0 = load(dv), d1 = load(dv + F), d2 = load(dv + 2 * F);
            s += load(w) * load(x.by_scalars + edges[e]->other * int64_t(F) + f);
            a -= load(w + F) * (d0 * u[0] + d1 * u[1] + d2 * u[2]);
            if (x.vectors) {
                const vec filter = load(w + 2 * F);
                v0 += filter * d0;
                v1 += filter * d1;
                v2 += filter * d2;
            }
        }
        store(sums + f, s);
        store(sums + F + f, a);
        store(sums + 2 * F + f, v0);
        store(sums + 3 * F + f, v1);
        store(sums + 4 * F + f, v2);
    }
}

// The gradient by a pair's vector, of both messages between its atoms, added to three numbers.
template <int F>
void add_pair_gradient(int64_t i, const Edge& edge, double distance, const float* w, const float* slope, const Features& x, float* gradient) {
    const int64_t j = edge.other;
    const float *const a = x.sent + i * (3 * F), *const b = x.sent + j * (3 * F);
    const float *const sa = x.by_scalars + i * F, *const sb = x.by_scalars + j * F;
    const float *const da = x.by_vectors + i * (3 * F), *const db = x.by_vectors + j * (3 * F);
    const float* const u = edge.direction;
    vec radial{}, turn0{}, turn1{}, turn2{};
    for (int f = 0; f < F; f += W) {
        const vec da0 = load(da + f), da1 = load(da + F + f), da2 = load(da + 2 * F + f);
        const vec db0 = load(db + f), db1 = load(db + F + f), db2 = load(db + 2 * F + f);
        const vec to_a = load(b + F + f), to_b = load(a + F + f), filter = load(w + F + f);
        const vec m0 = to_a * da0 - to_b * db0, m1 = to_a * da1 - to_b * db1, m2 = to_a * da2 - to_b * db2;
        radial += load(slope + f) * (load(b + f) * load(sa + f) + load(a + f) * load(sb + f));
        radial += load(slope + F + f) * (m0 * u[0] + m1 * u[1] + m2 * u[2]);
        if (x.vectors) {
            const float *const va = x.vectors + i * (3 * F) + f, *const vb = x.vectors + j * (3 * F) + f;
            const vec received = load(vb) * da0 + load(vb + F) * da1 + load(vb + 2 * F) * da2;
            const vec sent = load(va) * db0 + load(va + F) * db1 + load(va + 2 * F) * db2;
            radial += load(slope + 2 * F + f) * (load(b + 2 * F + f) * received + load(a + 2 * F + f) * sent);
        }
        turn0 += filter * m0;
        turn1 += filter * m1;
        turn2 += filter * m2;
    }
    const float by_distance = sum(radial), turn[3] = {sum(turn0), sum(turn1), sum(turn2)};
    const float along = turn[0] * u[0] + turn[1] * u[1] + turn[2] * u[2], per_r = static_cast<float>(1 / distance);
    for (int k = 0; k < 3; ++k) gradient[k] += by_distance * u[k] + (turn[k] - along * u[k]) * per_r;
}

// Call f(edges, count) with pointers to the edges of a row, a few at a time.
template <typename Function>
void for_some_edges(const Edges& edges, int64_t atom, const Function& f) {
    const Edge* which[EDGES_AT_ONCE];
    for (const Edge* edge = edges.begin(atom); edge != edges.end(atom);) {
        int count = 0;
        while (count < EDGES_AT_ONCE && edge != edges.end(atom)) which[count++] = edge++;
        f(which, count);
    }
}

// Add what an atom receives to its scalars and vectors.
template <int F>
void receive(const Edges& edges, int64_t atom, const float* matrix, const float* table, const Features& x, float* scalars, float* vectors,
             RowScratch<F>& scratch) {
    for_some_edges(edges, atom, [&](const Edge* const* which, int count) {
        scratch.values.find(edges, which, count, edges.basis.get(), matrix, table);
        add_messages<F>(which, count, scratch.values.of, x, scalars, vectors);
    });
}

// Gradients of what an atom has sent (where asked for: 3 F, and 3 x F added to those of its vectors) and of the pairs whose first it is.
template <int F>
void give_back(const Edges& edges, int64_t atom, const float* matrix, const float* table, const Features& x, float* by_sent, float* by_vectors,
               float* by_pair, RowScratch<F>& scratch) {
    float* const sums = scratch.gathered;
    std::fill_n(sums, 5 * F, 0.0f);
    for_some_edges(edges, atom, [&](const Edge* const* which, int count) {
        scratch.values.find(edges, which, count, edges.basis.get(), matrix, table);
        if (by_sent) add_returned<F>(which, count, scratch.values.of, x, sums);
        const Edge* firsts[EDGES_AT_ONCE];
        const float* of_firsts[EDGES_AT_ONCE];
        int n_firsts = 0;
        for (int e = 0; e < count; ++e)
            if (which[e]->first) {
                of_firsts[n_firsts] = scratch.values.of[e];
                firsts[n_firsts++] = which[e];
            }
        if (n_firsts) scratch.slopes.find(edges, firsts, n_firsts, edges.slopes.get(), matrix, nullptr);
        for (int e = 0; e < n_firsts; ++e)
            add_pair_gradient<F>(atom, *firsts[e], edges.distance[firsts[e]->pair], of_firsts[e], scratch.slopes.of[e], x,
                                 by_pair + 3 * int64_t(firsts[e]->pair));
    });
    if (!by_sent) return;
    std::copy_n(sums, 2 * F, by_sent);
    for (int f = 0; f < F; f += W) {
        vec total{};
        if (x.vectors) {
            const vec factor = load(x.sent + atom * (3 * F) + 2 * F + f);
            for (int k = 0; k < 3; ++k) {
                const vec returned = load(sums + (2 + k) * F + f);
                total += returned * load(x.vectors + atom * (3 * F) + k * F + f);
                store(by_vectors + k * F + f, load(by_vectors + k * F + f) + factor * returned);
            }
        }
        store(by_sent + 2 * F + f, total);
    }
}

}  // namespace
}  // namespace openmm_density
