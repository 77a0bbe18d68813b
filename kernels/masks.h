// Masks of vectors as bits, and a square root, for which the compiler's vector types have nothing: apart from simd.h, as the
// processor's own header takes long to compile.
#pragma once

#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "simd.h"

namespace openmm_density {
namespace {

// A bit for every lane of a mask, the first lowest.
inline uint32_t bits(ivec mask) {
#if defined(__AVX512F__)
    __m512i wide;
    std::memcpy(&wide, &mask, sizeof(wide));
    return _mm512_cmplt_epi32_mask(wide, _mm512_setzero_si512());
#elif defined(__AVX__)
    __m256 wide;
    std::memcpy(&wide, &mask, sizeof(wide));
    return static_cast<uint32_t>(_mm256_movemask_ps(wide));
#else
    uint32_t found = 0;
    for (int lane = 0; lane < W; ++lane) found |= (mask[lane] ? 1u : 0u) << lane;
    return found;
#endif
}

inline vec square_root(vec x) {
    vec y;
#if defined(__AVX512F__)
    __m512 wide;
    std::memcpy(&wide, &x, sizeof(wide));
    wide = _mm512_sqrt_ps(wide);
    std::memcpy(&y, &wide, sizeof(wide));
#else
    for (int lane = 0; lane < W; ++lane) y[lane] = __builtin_sqrtf(x[lane]);
#endif
    return y;
}

// 1/sqrt(x), relative error below 1e-6.
inline vec reciprocal_root(vec x) {
#if defined(__AVX512F__)
    const vec y = reinterpret_cast<vec>(_mm512_rsqrt14_ps(reinterpret_cast<__m512>(x)));
    return y * (1.5f - 0.5f * x * y * y);
#else
    return 1.0f / square_root(x);
#endif
}

}  // namespace
}  // namespace openmm_density
