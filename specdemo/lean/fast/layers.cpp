// A pass through the layers of a Llama-like model in one call: what lies between the products costs
// as much as they do when every step is an operation of a framework.
//
// A few threads run the same code and meet at barriers. What is small (norms, roundings) each does
// for itself; panels of a product and heads of the attention are shared out. The attention adds keys
// one after the other and hidden ones weigh 0, so a row has the same bits in a chain and in a tree.
#include <omp.h>

#include <cmath>
#include <initializer_list>

#include "products.h"

extern "C" {

struct Layer {
    Matrix qkv, output, gate_up, down;
    const float *norm_in, *norm_mid;  // [H], times sqrt(H)
    const float *q_norm, *k_norm;     // [D], times sqrt(D), or null
    const float* norm_beside;         // of `beside`, or null
};

// All of one shape of pass. x: [T, H] residual stream; turns: complex [T, D/2]; mask: [T, L], 0 or -inf.
struct Pass {
    const Layer* layers;
    float* x;
    const float *turn_q, *turn_k;
    const int64_t* slots;  // [T]: where new keys and values go
    const float* mask;
    uint16_t *keys, *values;  // fp16, [layers, M, rows / 64, D, 64] and [layers, M, rows, D]
    float *qkv, *attended, *wide, *inner;  // [T, ...]
    const float* beside;  // [T, H], what EAGLE-3 puts in front of x for queries, keys and values; or null
    float* const* captured;  // [layers]: where the state in front of a layer goes, or null; or null
    char* memory;         // of the threads, `each` bytes a thread
    int64_t each, rows, hidden, heads, kv_heads, head_dim, inner_size, mask_stride, cache_rows, length;
    float epsilon;
};
}

namespace {

constexpr int KEYS = 64, VECTOR = 16, WIDEST = 128;

// 2^x for x <= 0, to about 2 units in the last place; 0 below -126.
inline __m512 power_of_two(__m512 x) {
    const __mmask16 tiny = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_LT_OQ);
    x = _mm512_max_ps(x, _mm512_set1_ps(-126.0f));
    const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 f = _mm512_sub_ps(x, whole);
    __m512 y = _mm512_set1_ps(1.5403530e-4f);  // ln(2)^n / n!
    for (float c : {1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1.0f})
        y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(c));
    return _mm512_mask_blend_ps(tiny, _mm512_scalef_ps(y, whole), _mm512_setzero_ps());
}

// out = x * weight / sqrt(sum(x^2) + n * epsilon)
void norm(const float* x, const float* weight, int64_t n, float epsilon, float* out) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += VECTOR) {
        const __m512 v = _mm512_loadu_ps(x + i);
        sum = _mm512_fmadd_ps(v, v, sum);
    }
    const __m512 size = _mm512_set1_ps(std::sqrt(_mm512_reduce_add_ps(sum) + (float)n * epsilon));
    for (int64_t i = 0; i < n; i += VECTOR)
        _mm512_storeu_ps(out + i, _mm512_div_ps(_mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(weight + i)), size));
}

// Neighbouring numbers (a, b) times the complex (c, s).
void turn(float* x, const float* by, int64_t n) {
    for (int64_t i = 0; i < n; i += VECTOR) {
        const __m512 v = _mm512_loadu_ps(x + i), w = _mm512_loadu_ps(by + i);
        const __m512 sine = _mm512_mul_ps(_mm512_permute_ps(v, 0xB1), _mm512_movehdup_ps(w));
        _mm512_storeu_ps(x + i, _mm512_fmaddsub_ps(v, _mm512_moveldup_ps(w), sine));
    }
}

// Queries and keys of one row turned, keys and values put into the cache.
void place(const Pass& p, const Layer& layer, int64_t index, int64_t t) {
    const int64_t d = p.head_dim, all = p.heads + p.kv_heads;
    float* row = p.qkv + t * (all + p.kv_heads) * d;
    if (layer.qkv.bias)
        for (int64_t i = 0; i < (all + p.kv_heads) * d; i++) row[i] += layer.qkv.bias[i];
    for (int64_t h = 0; h < all; h++) {
        const float* weight = h < p.heads ? layer.q_norm : layer.k_norm;
        if (weight) norm(row + h * d, weight, d, p.epsilon, row + h * d);
        turn(row + h * d, (h < p.heads ? p.turn_q : p.turn_k) + t * d, d);
    }
    for (int64_t m = 0; m < p.kv_heads; m++) {
        const int64_t start = (index * p.kv_heads + m) * p.cache_rows, slot = p.slots[t];
        uint16_t* keys = p.keys + (start + slot / KEYS * KEYS) * d + slot % KEYS;
        const float *key = row + (p.heads + m) * d, *value = row + (all + m) * d;
        for (int64_t i = 0; i < d; i++) keys[i * KEYS] = _cvtss_sh(key[i], 0);
        for (int64_t i = 0; i < d; i += VECTOR)
            _mm256_storeu_si256((__m256i*)(p.values + (start + slot) * d + i),
                                _mm512_cvtps_ph(_mm512_loadu_ps(value + i), 0));
    }
}

// R rows from t on times G heads of one key head; `scores`: [R, G, L] floats. The more of them, the more
// often what was read (and made fp32) is used.
template <int R, int G>
void attend(const Pass& p, int64_t index, int64_t t, int64_t head, float* scores) {
    constexpr int N = R * G;
    const int64_t d = p.head_dim, m = head / (p.heads / p.kv_heads), reach = (p.length + KEYS - 1) / KEYS * KEYS;
    const uint16_t* keys = p.keys + (index * p.kv_heads + m) * p.cache_rows * d;
    const uint16_t* values = p.values + (index * p.kv_heads + m) * p.cache_rows * d;
    const float* q[N];
    for (int n = 0; n < N; n++) q[n] = p.qkv + (t + n / G) * (p.heads + 2 * p.kv_heads) * d + (head + n % G) * d;
    __m512 most[N];
    for (int n = 0; n < N; n++) most[n] = _mm512_set1_ps(-INFINITY);
    for (int64_t l = 0; l < reach; l += KEYS) {
        __m512 sum[N][KEYS / VECTOR];
#pragma GCC unroll 8
        for (int n = 0; n < N; n++)
            for (int v = 0; v < KEYS / VECTOR; v++)
                sum[n][v] = _mm512_loadu_ps(p.mask + (t + n / G) * p.mask_stride + l + VECTOR * v);
        for (int64_t i = 0; i < d; i++)
#pragma GCC unroll 4
            for (int v = 0; v < KEYS / VECTOR; v++) {
                const __m512 key = halves(keys + l * d + i * KEYS + VECTOR * v);
#pragma GCC unroll 8
                for (int n = 0; n < N; n++) sum[n][v] = _mm512_fmadd_ps(_mm512_set1_ps(q[n][i]), key, sum[n][v]);
            }
#pragma GCC unroll 8
        for (int n = 0; n < N; n++)
            for (int v = 0; v < KEYS / VECTOR; v++) {
                most[n] = _mm512_max_ps(most[n], sum[n][v]);
                _mm512_storeu_ps(scores + n * reach + l + VECTOR * v, sum[n][v]);
            }
    }
    for (int n = 0; n < N; n++) {
        const __m512 peak = _mm512_set1_ps(_mm512_reduce_max_ps(most[n]));
        for (int64_t l = n * reach; l < (n + 1) * reach; l += VECTOR)
            _mm512_storeu_ps(scores + l, power_of_two(_mm512_sub_ps(_mm512_loadu_ps(scores + l), peak)));
    }
    float weight[N];  // one key after the other, as the values are added
    for (int n = 0; n < N; n++) weight[n] = 0.0f;
    for (int64_t l = 0; l < p.length; l++)
#pragma GCC unroll 8
        for (int n = 0; n < N; n++) weight[n] += scores[n * reach + l];
    for (int64_t i = 0; i < d; i += 2 * VECTOR) {  // 32 dimensions at a time
        __m512 mixed[N][2];
        for (int n = 0; n < N; n++) mixed[n][0] = mixed[n][1] = _mm512_setzero_ps();
        for (int64_t l = 0; l < p.length; l++) {
            const __m512 a = halves(values + l * d + i), b = halves(values + l * d + i + VECTOR);
#pragma GCC unroll 8
            for (int n = 0; n < N; n++) {
                const __m512 share = _mm512_set1_ps(scores[n * reach + l]);
                mixed[n][0] = _mm512_fmadd_ps(share, a, mixed[n][0]);
                mixed[n][1] = _mm512_fmadd_ps(share, b, mixed[n][1]);
            }
        }
        for (int n = 0; n < N; n++)
            for (int v = 0; v < 2; v++)
                _mm512_storeu_ps(p.attended + ((t + n / G) * p.heads + head + n % G) * d + i + VECTOR * v,
                                 _mm512_div_ps(mixed[n][v], _mm512_set1_ps(weight[n])));
    }
}

template <int G>
void attend_rows(const Pass& p, int64_t index, int64_t t, int64_t head, float* scores) {
    if (t + 1 < p.rows) attend<2, G>(p, index, t, head, scores);
    else attend<1, G>(p, index, t, head, scores);
}

void attention(const Pass& p, int64_t index, int64_t me, int64_t all, float* scores) {
    const int64_t group = p.heads / p.kv_heads;
    // One row alone: its heads are shared out one by one, or a thread would wait for the other.
    const int64_t at_once = p.rows == 1 ? 1 : group % 3 == 0 ? 3 : group % 2 == 0 ? 2 : 1;
    const int64_t units = p.heads / at_once, tasks = (p.rows + 1) / 2 * units;
    for (int64_t i = tasks * me / all; i < tasks * (me + 1) / all; i++) {
        const int64_t t = i / units * 2, head = i % units * at_once;
        if (at_once == 3) attend_rows<3>(p, index, t, head, scores);
        else if (at_once == 2) attend_rows<2>(p, index, t, head, scores);
        else attend_rows<1>(p, index, t, head, scores);
    }
}

// inner = silu(gate) * up for columns `first` to `last`.
void gate(const Pass& p, int64_t first, int64_t last) {
    const __m512 one = _mm512_set1_ps(1.0f), log2e = _mm512_set1_ps(1.44269504f);
    for (int64_t t = 0; t < p.rows; t++) {
        const float *gates = p.wide + 2 * t * p.inner_size, *ups = gates + p.inner_size;
        for (int64_t i = first; i < last; i += VECTOR) {
            const __m512 x = _mm512_loadu_ps(gates + i), up = _mm512_loadu_ps(ups + i);
            const __m512 e = power_of_two(_mm512_mul_ps(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_abs_ps(x)), log2e));
            // exp(-|x|) never overflows: sigmoid(x) = 1 / (1 + e) for x >= 0, e / (1 + e) below.
            const __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
            const __m512 top = _mm512_mask_blend_ps(negative, one, e);
            const __m512 sigmoid = _mm512_div_ps(top, _mm512_add_ps(one, e));
            _mm512_storeu_ps(p.inner + t * p.inner_size + i, _mm512_mul_ps(_mm512_mul_ps(x, sigmoid), up));
        }
    }
}

void layer(const Pass& p, int64_t index, int64_t me, int64_t all) {
    const Layer& w = p.layers[index];
    char* mine = p.memory + me * p.each;
    const int64_t width = (p.heads + 2 * p.kv_heads) * p.head_dim, t = p.rows, h = p.hidden;
    const auto first = [&](int64_t panels) { return panels * me / all; };
    const auto last = [&](int64_t panels) { return panels * (me + 1) / all; };
    const auto normed = [&](const float* weight, const Matrix& m, const float* beside) {  // as `m` wants it
        const Rows rows = rows_in(mine, t, m.k);
        float* to = (float*)(mine + rows_bytes(t, m.k));
        for (int64_t i = 0; i < t; i++, to += m.k) {
            if (beside) norm(beside + i * h, w.norm_beside, h, p.epsilon, to);
            norm(p.x + i * h, weight, h, p.epsilon, to + m.k - h);
        }
        prepare(m.kind, to - t * m.k, t * m.k, rows);
        return rows;
    };
    const auto prepared = [&](const float* x, const Matrix& m) {
        const Rows rows = rows_in(mine, t, m.k);
        prepare(m.kind, x, t * m.k, rows);
        return rows;
    };
    if (float* kept = p.captured ? p.captured[index] : nullptr)  // x stays as it is until the next but one barrier
        std::memcpy(kept + first(t) * h, p.x + first(t) * h, 4 * h * (last(t) - first(t)));
    const int64_t panels = w.qkv.n / PANEL;
    product<false>(normed(w.norm_in, w.qkv, p.beside), t, w.qkv, p.qkv, width, first(panels), last(panels));
#pragma omp barrier
    for (int64_t i = first(t); i < last(t); i++) place(p, w, index, i);
#pragma omp barrier
    attention(p, index, me, all, (float*)mine);
#pragma omp barrier
    product<true>(prepared(p.attended, w.output), t, w.output, p.x, h, first(h / PANEL), last(h / PANEL));
#pragma omp barrier
    const int64_t half = p.inner_size / PANEL, a = first(half), b = last(half);
    const Rows rows = normed(w.norm_mid, w.gate_up, nullptr);
    product<false>(rows, t, w.gate_up, p.wide, 2 * p.inner_size, a, b);
    product<false>(rows, t, w.gate_up, p.wide, 2 * p.inner_size, half + a, half + b);
    gate(p, a * PANEL, b * PANEL);
#pragma omp barrier
    product<true>(prepared(p.inner, w.down), t, w.down, p.x, h, first(h / PANEL), last(h / PANEL));
#pragma omp barrier
}

}  // namespace

extern "C" {

void run_layers(const Pass* pass, int64_t first, int64_t last, int32_t threads) {
#pragma omp parallel num_threads(threads)
    for (int64_t i = first; i < last; i++) layer(*pass, i, omp_get_thread_num(), omp_get_num_threads());
}

// y [T, N] = x [T, K] times the transposed weights, plus the bias; `memory`: rows_bytes a thread.
void run_product(const Matrix* m, const float* x, float* y, int64_t t, char* memory, int32_t threads) {
#pragma omp parallel num_threads(threads)
    {
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads(), panels = m->n / PANEL;
        const Rows rows = rows_in(memory + me * rows_bytes(t, m->k), t, m->k);
        prepare(m->kind, x, t * m->k, rows);
        const int64_t first = panels * me / all, last = panels * (me + 1) / all;
        product<false>(rows, t, *m, y, m->n, first, last);
        if (m->bias)
            for (int64_t i = 0; i < t; i++)
                for (int64_t c = first * PANEL; c < last * PANEL; c++) y[i * m->n + c] += m->bias[c];
    }
}

// The index of the largest of n numbers, the first of equal ones, for each of t rows; -1 for a row of NaN.
// A thread takes the part of a row that it wrote as a product: it has that in its own caches.
void first_of_largest(const float* rows, int64_t t, int64_t n, int64_t* found, int32_t threads) {
    for (int64_t i = 0; i < t; i++) found[i] = -1;
#pragma omp parallel num_threads(threads)
    {
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads(), blocks = (n + PANEL - 1) / PANEL;
        const int64_t first = blocks * me / all * PANEL, last = me + 1 < all ? blocks * (me + 1) / all * PANEL : n;
        for (int64_t i = 0; i < t; i++) {
            const float* x = rows + i * n;
            __m512 most[4];
            for (auto& m : most) m = _mm512_set1_ps(-INFINITY);
            int64_t at = first, here = -1;
            for (; at + 64 <= last; at += 64)
                for (int v = 0; v < 4; v++) most[v] = _mm512_max_ps(most[v], _mm512_loadu_ps(x + at + 16 * v));
            float peak = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(most[0], most[1]), _mm512_max_ps(most[2], most[3])));
            for (; at < last; at++) peak = x[at] > peak ? x[at] : peak;
            for (at = first; at + 16 <= last && here < 0; at += 16) {
                const __mmask16 same = _mm512_cmp_ps_mask(_mm512_loadu_ps(x + at), _mm512_set1_ps(peak), _CMP_EQ_OQ);
                if (same) here = at + __builtin_ctz(same);
            }
            for (; at < last && here < 0; at++)
                if (x[at] == peak) here = at;
#pragma omp critical
            if (here >= 0 && (found[i] < 0 || peak > x[found[i]] || (peak == x[found[i]] && here < found[i]))) found[i] = here;
        }
    }
}
}

#include "steps.h"
