// Matrix products for few rows, weights read once: fp32, bf16 (AVX-512 BF16) and GGUF's 4- and 8-bit
// blocks (AVX-512 VNNI, activations rounded to 8 bits in groups of 32 as llama.cpp does).
//
// Every row is summed in an order that depends on the matrix alone, never on the number of rows or
// threads: a row has the same bits in a pass of any width.
//
// Weights lie in panels of 32 outputs, in the order in which they are read; a panel is multiplied with
// up to MOST rows at a time (MOST_BYTES in 4 and 8 bits), all sums in registers.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace {

using Line = __m512i;
// AHEAD: lines; 2 to 4 KB of weights are under way, or a wide pass waits for memory and then computes.
constexpr int PANEL = 32, BLOCKS = 2, MOST = 12, MOST_BYTES = 8, GROUP = 32, AHEAD = 32;

enum Kind : int32_t { HALF = 0, INT4 = 1, INT8 = 2, FULL = 3 };

// [N, K] weights. HALF: [N/32, K/2, 2, 16, 2] bf16. INT4: [N/32, K/32, 4, 2, 16, 4] bytes, low halves are
// k = 8 i + 0..3, high ones k = 8 i + 4..7; INT8: [N/32, K/32, 8, 2, 16, 4] bytes, value + 128.
// FULL: [N/32, K, 32] fp32. `scales`: fp16, per panel and group 32 times d, then (INT4) 32 times m; a weight is d * value + m.
struct Matrix {
    const void* values;
    const uint16_t* scales;
    const float* bias;  // [N] or null
    int64_t n, k;
    int32_t kind;
};

// Activations of T rows in the form that a kind of matrix wants; `scale` and `sums`: [T, K/32].
struct Rows {
    float* full;
    uint16_t* half;
    int8_t* bytes;
    float* scale;   // of a group
    float* sums;    // sum of a group's rounded activations
    int32_t* lift;  // -128 times the sum of its bytes
};

inline Rows rows_in(char* memory, int64_t t, int64_t k) {
    Rows r;
    r.full = (float*)memory;
    r.half = (uint16_t*)memory;
    r.bytes = (int8_t*)memory;
    r.scale = (float*)(memory + 4 * t * k);
    r.sums = r.scale + t * k / GROUP;
    r.lift = (int32_t*)(r.sums + t * k / GROUP);
    return r;
}

inline int64_t rows_bytes(int64_t t, int64_t k) { return 4 * t * k + 12 * t * k / GROUP; }

inline void prepare_half(const float* x, int64_t count, const Rows& to) {
#ifdef __AVX512BF16__
    for (int64_t i = 0; i < count; i += 16)
        _mm256_storeu_si256((__m256i*)(to.half + i), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i)));
#endif
}

inline void prepare_bytes(const float* x, int64_t count, const Rows& to) {
    for (int64_t g = 0; g < count / GROUP; g++) {
        const __m512 a = _mm512_loadu_ps(x + GROUP * g), b = _mm512_loadu_ps(x + GROUP * g + 16);
        const float most = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
        const float scale = most / 127.0f;
        const __m512 inverse = _mm512_set1_ps(most > 0.0f ? 127.0f / most : 0.0f);
        const Line p = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
        const Line q = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
        _mm_storeu_si128((__m128i*)(to.bytes + GROUP * g), _mm512_cvtepi32_epi8(p));
        _mm_storeu_si128((__m128i*)(to.bytes + GROUP * g + 16), _mm512_cvtepi32_epi8(q));
        const int32_t sum = _mm512_reduce_add_epi32(_mm512_add_epi32(p, q));
        to.scale[g] = scale;
        to.sums[g] = scale * (float)sum;
        to.lift[g] = -128 * sum;
    }
}

inline void prepare(int32_t kind, const float* x, int64_t count, const Rows& to) {
    if (kind == FULL) std::memcpy(to.full, x, 4 * count);
    else if (kind == HALF) prepare_half(x, count, to);
    else prepare_bytes(x, count, to);
}

inline Line four_bytes(const void* at) {
    int32_t value;
    std::memcpy(&value, at, 4);
    return _mm512_set1_epi32(value);
}

inline __m512 halves(const uint16_t* at) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)at)); }

template <int T, bool ADD>
inline void put(float* y, int64_t stride, const __m512 (&total)[T][BLOCKS]) {
    for (int t = 0; t < T; t++)
        for (int b = 0; b < BLOCKS; b++) {
            float* to = y + t * stride + 16 * b;
            _mm512_storeu_ps(to, ADD ? _mm512_add_ps(_mm512_loadu_ps(to), total[t][b]) : total[t][b]);
        }
}

template <int T, bool ADD>
void full_panel(const Rows& x, int64_t row, const Matrix& m, int64_t panel, float* y, int64_t stride) {
    const float *w = (const float*)m.values + panel * m.k * PANEL, *from = x.full + row * m.k;
    __m512 total[T][BLOCKS];
    for (int t = 0; t < T; t++) total[t][0] = total[t][1] = _mm512_setzero_ps();
    for (int64_t i = 0; i < m.k; i++, w += PANEL) {
        const __m512 a = _mm512_loadu_ps(w), b = _mm512_loadu_ps(w + 16);
        _mm_prefetch((const char*)(w + 16 * 2 * AHEAD), _MM_HINT_T0);
        _mm_prefetch((const char*)(w + 16 * (2 * AHEAD + 1)), _MM_HINT_T0);
#pragma GCC unroll 12
        for (int t = 0; t < T; t++) {
            const __m512 v = _mm512_set1_ps(from[t * m.k + i]);
            total[t][0] = _mm512_fmadd_ps(a, v, total[t][0]);
            total[t][1] = _mm512_fmadd_ps(b, v, total[t][1]);
        }
    }
    put<T, ADD>(y, stride, total);
}

template <int T, bool ADD>
void half_panel(const Rows& x, int64_t row, const Matrix& m, int64_t panel, float* y, int64_t stride) {
#ifdef __AVX512BF16__
    const Line* w = (const Line*)m.values + panel * m.k / 2 * BLOCKS;
    const uint16_t* from = x.half + row * m.k;
    __m512 total[T][BLOCKS];
    for (int t = 0; t < T; t++) total[t][0] = total[t][1] = _mm512_setzero_ps();
    for (int64_t p = 0; p < m.k / 2; p++, w += BLOCKS) {
        const __m512bh a = (__m512bh)_mm512_loadu_si512(w), b = (__m512bh)_mm512_loadu_si512(w + 1);
        _mm_prefetch((const char*)(w + 2 * AHEAD), _MM_HINT_T0);
        _mm_prefetch((const char*)(w + 2 * AHEAD + 1), _MM_HINT_T0);
#pragma GCC unroll 12
        for (int t = 0; t < T; t++) {
            const __m512bh pair = (__m512bh)four_bytes(from + t * m.k + 2 * p);
            total[t][0] = _mm512_dpbf16_ps(total[t][0], a, pair);
            total[t][1] = _mm512_dpbf16_ps(total[t][1], b, pair);
        }
    }
    put<T, ADD>(y, stride, total);
#endif
}

template <int T, bool ADD, int KIND>
void byte_panel(const Rows& x, int64_t row, const Matrix& m, int64_t panel, float* y, int64_t stride) {
    constexpr int LINES = KIND == INT4 ? 4 : 8, SCALES = KIND == INT4 ? 2 * PANEL : PANEL;
    const int64_t groups = m.k / GROUP;
    const Line* w = (const Line*)m.values + panel * groups * LINES * BLOCKS;
    const uint16_t* scales = m.scales + panel * groups * SCALES;
    const Line low = _mm512_set1_epi8(15);
    __m512 total[T][BLOCKS];
    for (int t = 0; t < T; t++) total[t][0] = total[t][1] = _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; g++, scales += SCALES) {
        Line sum[T][BLOCKS];
#pragma GCC unroll 12
        for (int t = 0; t < T; t++)
            sum[t][0] = sum[t][1] =
                KIND == INT4 ? _mm512_setzero_si512() : _mm512_set1_epi32(x.lift[(row + t) * groups + g]);
        const int8_t* from = x.bytes + row * m.k + GROUP * g;
        for (int i = 0; i < LINES; i++, w += BLOCKS) {
            const Line a = _mm512_loadu_si512(w), b = _mm512_loadu_si512(w + 1);
            _mm_prefetch((const char*)(w + AHEAD), _MM_HINT_T0);
            _mm_prefetch((const char*)(w + AHEAD + 1), _MM_HINT_T0);
            if constexpr (KIND == INT4) {
                const Line a0 = _mm512_and_si512(a, low), a1 = _mm512_and_si512(_mm512_srli_epi16(a, 4), low);
                const Line b0 = _mm512_and_si512(b, low), b1 = _mm512_and_si512(_mm512_srli_epi16(b, 4), low);
#pragma GCC unroll 12
                for (int t = 0; t < T; t++) {
                    const Line u = four_bytes(from + t * m.k + 8 * i), v = four_bytes(from + t * m.k + 8 * i + 4);
                    sum[t][0] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum[t][0], a0, u), a1, v);
                    sum[t][1] = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum[t][1], b0, u), b1, v);
                }
            } else {
#pragma GCC unroll 12
                for (int t = 0; t < T; t++) {
                    const Line u = four_bytes(from + t * m.k + 4 * i);
                    sum[t][0] = _mm512_dpbusd_epi32(sum[t][0], a, u);
                    sum[t][1] = _mm512_dpbusd_epi32(sum[t][1], b, u);
                }
            }
        }
#pragma GCC unroll 2
        for (int b = 0; b < BLOCKS; b++) {
            const __m512 d = halves(scales + 16 * b);
#pragma GCC unroll 12
            for (int t = 0; t < T; t++) {
                const int64_t at = (row + t) * groups + g;
                const __m512 factor = _mm512_mul_ps(d, _mm512_set1_ps(x.scale[at]));
                total[t][b] = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(sum[t][b]), total[t][b]);
                if constexpr (KIND == INT4)
                    total[t][b] = _mm512_fmadd_ps(halves(scales + PANEL + 16 * b),
                                                  _mm512_set1_ps(x.sums[at]), total[t][b]);
            }
        }
    }
    put<T, ADD>(y, stride, total);
}

// `count` rows, at most T.
template <int T, bool ADD>
inline void panel_of(int64_t count, const Rows& x, int64_t row, const Matrix& m, int64_t panel, float* y, int64_t stride) {
    if constexpr (T > 1)
        if (count < T) return panel_of<T - 1, ADD>(count, x, row, m, panel, y, stride);
    if (m.kind == FULL) return full_panel<T, ADD>(x, row, m, panel, y, stride);
    if (m.kind == HALF) return half_panel<T, ADD>(x, row, m, panel, y, stride);
    if constexpr (T <= MOST_BYTES) {
        if (m.kind == INT4) byte_panel<T, ADD, INT4>(x, row, m, panel, y, stride);
        else byte_panel<T, ADD, INT8>(x, row, m, panel, y, stride);
    }
}

// Panels `first` to `last` of y [T, N] (rows `stride` apart) = or += x times the transposed weights.
template <bool ADD>
void product(const Rows& x, int64_t t, const Matrix& m, float* y, int64_t stride, int64_t first, int64_t last) {
    const int64_t most = m.kind == FULL || m.kind == HALF ? MOST : MOST_BYTES, parts = (t + most - 1) / most;
    for (int64_t panel = first; panel < last; panel++)
        for (int64_t part = 0; part < parts; part++) {
            const int64_t row = t * part / parts, end = t * (part + 1) / parts;
            panel_of<MOST, ADD>(end - row, x, row, m, panel, y + row * stride + panel * PANEL, stride);
        }
}

}  // namespace
