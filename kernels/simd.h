// Vectors of floats as wide as the processor's registers, through the compiler's own vector types.
#pragma once

#include <cstdint>
#include <cstring>

namespace openmm_density {

#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif

typedef float vec __attribute__((vector_size(W * sizeof(float))));
typedef int32_t ivec __attribute__((vector_size(W * sizeof(float))));
typedef float unaligned_vec __attribute__((vector_size(W * sizeof(float)), aligned(4), may_alias));

inline vec load(const float* p) { return *reinterpret_cast<const unaligned_vec*>(p); }
inline void store(float* p, vec x) { *reinterpret_cast<unaligned_vec*>(p) = x; }
inline vec broadcast(float x) { return x - vec{}; }
inline vec zero_unless(ivec mask, vec x) { return mask ? x : vec{}; }

// A value that several sums use: without this the compiler would multiply again in each of them.
inline vec once(vec x) {
#if defined(__x86_64__)
    __asm__("" : "+v"(x));
#endif
    return x;
}

// The first n floats at p, and zeros: the end of a row must not be read past.
inline vec load_first(const float* p, int n) {
    if (n >= W) return load(p);
    vec x{};
    std::memcpy(&x, p, n * sizeof(float));
    return x;
}

inline ivec lane_numbers() {
    ivec x;
    for (int lane = 0; lane < W; ++lane) x[lane] = lane;
    return x;
}

inline vec lanes() { return __builtin_convertvector(lane_numbers(), vec); }

typedef float vec4 __attribute__((vector_size(16)));

// By memory, since g++ 11 has no __builtin_shufflevector.
template <typename Half, typename Whole>
inline Half halves_added(Whole x) {
    Half halves[2];
    static_assert(sizeof(halves) == sizeof(x));
    std::memcpy(halves, &x, sizeof(x));
    return halves[0] + halves[1];
}

#if defined(__AVX512F__)
typedef float vec8 __attribute__((vector_size(32)));
inline vec4 folded(vec x) { return halves_added<vec4>(halves_added<vec8>(x)); }
#elif defined(__AVX__)
inline vec4 folded(vec x) { return halves_added<vec4>(x); }
#else
inline vec4 folded(vec x) { return x; }
#endif

// Pairwise, always in the same order.
inline float sum(vec x) {
    const vec4 y = folded(x);
    return (y[0] + y[2]) + (y[1] + y[3]);
}

// exp(x) for x <= 0, 0 below -87: relative error below 1e-7 beside the rounding of x itself.
// 2^n times the Taylor polynomial of the rest, |rest| <= ln 2 / 2 (coefficients 1/k!).
[[gnu::always_inline]] inline vec exp_of_negative(vec x) {
    const vec clamped = x > -87.0f ? x : broadcast(-87.0f);
    const float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const vec n = (clamped * 1.44269504088896341f + shift) - shift;
    // ln 2 in two parts, the first with so few bits that n times it is exact.
    const vec r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
    vec p = broadcast(1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const ivec scale = (__builtin_convertvector(n, ivec) + 127) << 23;
    vec power;
    std::memcpy(&power, &scale, sizeof(vec));
    return zero_unless(x > -87.0f, p * power);
}

// ln(x) for normal positive x, relative error about 2e-7 (absolute near 1):
// x = m 2^n with m in [1/sqrt 2, sqrt 2), ln m = 2 artanh((m - 1)/(m + 1)) as its series.
inline vec log_of_positive(vec x) {
    ivec bits;
    std::memcpy(&bits, &x, sizeof(vec));
    const ivec n = (bits - 0x3f3504f3) >> 23;
    const ivec mantissa_bits = bits - (n << 23);
    vec m;
    std::memcpy(&m, &mantissa_bits, sizeof(vec));
    const vec u = (m - 1.0f) / (m + 1.0f);
    const vec u2 = u * u;
    vec p = broadcast(2.0f / 11);
    p = p * u2 + 2.0f / 9;
    p = p * u2 + 2.0f / 7;
    p = p * u2 + 2.0f / 5;
    p = p * u2 + 2.0f / 3;
    p = p * u2 + 2.0f;
    return p * u + __builtin_convertvector(n, vec) * 0.693147180559945f;
}

}  // namespace openmm_density
