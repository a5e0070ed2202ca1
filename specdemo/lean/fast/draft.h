// A step of an EAGLE-3 draft in one call: embeddings, the layer, the last norm, the output head, the
// likeliest tokens. A step takes some tenths of a millisecond, so what lies between them counts.
#pragma once

extern "C" {

struct Draft {
    const void* table;  // [V, H] embeddings of the target: bf16, or fp32 where `wide_table`
    const float* turns; // complex [positions, D/2]
    const float* norm;  // [H], times sqrt(H): in front of the output head
    const Matrix* head;
    float query_scale;
    int32_t wide_table, top, threads;
};

// What a step's rows are. All [T]: `from` and `to`: rows of the states that a row starts from and that its
// output goes to (-1: nowhere); a row sees the first `reach` cached rows and those that `more` lists,
// pairs (row, cached row).
struct Step {
    const int64_t *tokens, *positions, *from, *to, *reach, *more;
    const float* states;
    float* outputs;
    int64_t used, pairs, first;  // `first`: candidates are wanted from this row on
    float warmth;                // temperature of their probabilities
    float *beside, *logits;      // [T, H], [T - first, draft V]
    char* memory;                // of the head's product
    int64_t* ids;                // [T - first, top]: indices into the draft vocabulary
    float* probabilities;        // the same
};
}

namespace {

void embed(const Draft& d, int64_t token, int64_t n, float* out) {
    if (d.wide_table) return (void)std::memcpy(out, (const float*)d.table + token * n, 4 * n);
    const uint16_t* row = (const uint16_t*)d.table + token * n;
    for (int64_t i = 0; i < n; i += VECTOR) {
        const Line wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(row + i)));
        _mm512_storeu_si512(out + i, _mm512_slli_epi32(wide, 16));
    }
}

void look(const Pass& p, const Step& s) {
    float* mask = (float*)p.mask;
    const int64_t reach = (p.length + KEYS - 1) / KEYS * KEYS;
    for (int64_t t = 0; t < p.rows; t++) {
        float* row = mask + t * p.mask_stride;
        for (int64_t i = 0; i < reach; i++) row[i] = i < s.reach[t] ? 0.0f : -INFINITY;
    }
    for (int64_t i = 0; i < s.pairs; i++) mask[s.more[2 * i] * p.mask_stride + s.more[2 * i + 1]] = 0.0f;
}

// The `k` largest of n numbers, falling, the first of equal ones first, as indices and softmax at `warmth`.
void likeliest(const float* x, int64_t n, int64_t k, float warmth, int64_t* ids, float* probabilities) {
    for (int64_t j = 0; j < k; j++) ids[j] = -1, probabilities[j] = -INFINITY;
    for (int64_t i = 0; i < n; i += VECTOR) {
        const __m512 v = _mm512_loadu_ps(x + i);
        __mmask16 larger = _mm512_cmp_ps_mask(v, _mm512_set1_ps(probabilities[k - 1]), _CMP_GT_OQ);
        for (; larger; larger &= larger - 1) {
            const int64_t at = i + __builtin_ctz(larger);
            int64_t j = k - 1;
            if (!(x[at] > probabilities[j])) continue;
            for (; j > 0 && x[at] > probabilities[j - 1]; j--) ids[j] = ids[j - 1], probabilities[j] = probabilities[j - 1];
            ids[j] = at, probabilities[j] = x[at];
        }
    }
    const float peak = probabilities[0], factor = 1.44269504f / warmth;
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += VECTOR)
        sum = _mm512_add_ps(sum, power_of_two(_mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(peak)), _mm512_set1_ps(factor))));
    const float all = _mm512_reduce_add_ps(sum);
    for (int64_t j = 0; j < k; j++) probabilities[j] = std::exp2((probabilities[j] - peak) * factor) / all;
}

}  // namespace

extern "C" {

// `pass`: the layer with one row a row of the step.
void run_draft(const Draft* d, Pass* pass, const Step* s) {
    const int64_t t = pass->rows, h = pass->hidden, half = pass->head_dim / 2, n = d->head->n;
    pass->length = s->used + t;
    pass->beside = s->beside;
    int64_t* slots = (int64_t*)pass->slots;
    float *turn_q = (float*)pass->turn_q, *turn_k = (float*)pass->turn_k;
    for (int64_t i = 0; i < t; i++) {
        embed(*d, s->tokens[i], h, s->beside + i * h);
        std::memcpy(pass->x + i * h, s->states + s->from[i] * h, 4 * h);
        slots[i] = s->used + i;
        for (int64_t j = 0; j < 2 * half; j++) {
            turn_k[i * 2 * half + j] = d->turns[s->positions[i] * 2 * half + j];
            turn_q[i * 2 * half + j] = turn_k[i * 2 * half + j] * d->query_scale;
        }
    }
    look(*pass, *s);
    run_layers(pass, 0, 1, d->threads);
    for (int64_t i = 0; i < t; i++)
        if (s->to[i] >= 0) std::memcpy(s->outputs + s->to[i] * h, pass->x + i * h, 4 * h);
    if (s->first >= t) return;
    float* final = s->beside;  // no longer needed
    for (int64_t i = s->first; i < t; i++) norm(pass->x + i * h, d->norm, h, pass->epsilon, final + i * h);
    run_product(d->head, final + s->first * h, s->logits, t - s->first, s->memory, d->threads);
    for (int64_t i = 0; i < t - s->first; i++)
        likeliest(s->logits + i * n, n, d->top, s->warmth, s->ids + i * d->top, s->probabilities + i * d->top);
}

// y [T, N] = the chosen `rows` of L states [., H] side by side times `fuse`; `x`: [T, L * H].
void run_fuse(const Matrix* fuse, const float* const* states, int64_t layers, int64_t h, const int64_t* rows, int64_t t,
              float* x, float* y, char* memory, int32_t threads) {
    for (int64_t i = 0; i < t; i++)
        for (int64_t l = 0; l < layers; l++)
            std::memcpy(x + (i * layers + l) * h, states[l] + rows[i] * h, 4 * h);
    run_product(fuse, x, y, t, memory, threads);
}
}
