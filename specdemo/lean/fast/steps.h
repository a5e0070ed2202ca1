// A whole pass of a model, and a step of an EAGLE-3 draft, in one call each: embeddings, layers, the last
// norm, the output head, and for a draft the likeliest tokens. What lies between them counts where a pass
// takes a few milliseconds.
#pragma once

extern "C" {

// What is in front of the layers and behind them.
struct Ends {
    const void* table;   // [V, H] embeddings: bf16, or fp32 where `wide_table`
    const float* turns;  // complex [positions, D/2]
    const float* norm;   // [H], times sqrt(H): in front of the output head
    const Matrix* head;
    float query_scale;
    int32_t wide_table, top, threads;
};

// T rows of a pass behind `length` cached ones: [T] each, `parents`: earlier rows, -1 for the cache's last.
struct Block {
    const int64_t *tokens, *positions, *parents;
    float* const* captured;  // [layers]: where the state in front of a layer goes, [T, H], or null
    int64_t length, layers;
    float *final, *logits;  // [T, H], [T, V]; either may be null
    char* memory;           // of the head's product
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

void embed(const Ends& d, int64_t token, int64_t n, float* out) {
    if (d.wide_table) return (void)std::memcpy(out, (const float*)d.table + token * n, 4 * n);
    const uint16_t* row = (const uint16_t*)d.table + token * n;
    for (int64_t i = 0; i < n; i += VECTOR) {
        const Line wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(row + i)));
        _mm512_storeu_si512(out + i, _mm512_slli_epi32(wide, 16));
    }
}

// Row t sees the first `reach` cached rows.
void see(const Pass& p, int64_t t, int64_t reach) {
    float* row = (float*)p.mask + t * p.mask_stride;
    const int64_t all = (p.length + KEYS - 1) / KEYS * KEYS;
    for (int64_t i = 0; i < all; i++) row[i] = i < reach ? 0.0f : -INFINITY;
}

// Row t is put in place: its slot behind `used` cached rows, and what turns its queries and keys.
void set(const Ends& d, const Pass& p, int64_t t, int64_t used, int64_t position) {
    const int64_t n = p.head_dim;
    ((int64_t*)p.slots)[t] = used + t;
    float *turn_q = (float*)p.turn_q + t * n, *turn_k = (float*)p.turn_k + t * n;
    std::memcpy(turn_k, d.turns + position * n, 4 * n);
    for (int64_t i = 0; i < n; i++) turn_q[i] = turn_k[i] * d.query_scale;
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

void run_block(const Ends* d, Pass* pass, const Block* b) {
    const int64_t t = pass->rows, h = pass->hidden;
    pass->length = b->length + t;
    pass->captured = b->captured;
    float* mask = (float*)pass->mask + b->length;
    for (int64_t i = 0; i < t; i++) {
        embed(*d, b->tokens[i], h, pass->x + i * h);
        set(*d, *pass, i, b->length, b->positions[i]);
        see(*pass, i, b->length);
        float* row = mask + i * pass->mask_stride;
        if (b->parents[i] >= 0) std::memcpy(row, mask + b->parents[i] * pass->mask_stride, 4 * i);
        row[i] = 0.0f;
    }
    run_layers(pass, 0, b->layers, d->threads);
    if (!b->final) return;
    for (int64_t i = 0; i < t; i++) norm(pass->x + i * h, d->norm, h, pass->epsilon, b->final + i * h);
    if (b->logits) run_product(d->head, b->final, b->logits, t, b->memory, d->threads);
}

// A greedy chain: what the last of `b`'s rows names is fed to a pass of one row, what that names to the
// next, until `count` tokens are named or one has a chance below `least`. Of the head's rows the first
// `columns` count; row i is token `ids[i]`, or i where `ids` is null. `pass`: of `b`'s rows, `one`: of one
// row. Returns how many tokens were named.
int64_t run_chain(const Ends* d, Pass* pass, Pass* one, const Block* b, const int64_t* ids, int64_t columns,
                  int64_t count, float least, int64_t* tokens) {
    run_block(d, pass, b);
    const float* logits = b->logits + (pass->rows - 1) * d->head->n;
    int64_t position = b->positions[pass->rows - 1];
    const int64_t parent = -1;
    Block next = *b;
    next.length += pass->rows;
    next.positions = &position;
    next.parents = &parent;
    for (int64_t i = 0;; i++) {
        float chance;
        likeliest(logits, columns, 1, 1.0f, tokens + i, &chance);
        if (ids) tokens[i] = ids[tokens[i]];
        if (i + 1 == count || chance < least) return i + 1;
        position++;
        next.tokens = tokens + i;
        run_block(d, one, &next);
        next.length++;
        logits = b->logits;
    }
}

// Cached rows `from` (n, ascending) go to the rows from `start` on, which lie in front of them.
void move_rows(const Pass* p, int64_t layers, const int64_t* from, int64_t n, int64_t start) {
    const int64_t d = p->head_dim;
    for (int64_t l = 0; l < layers * p->kv_heads; l++) {
        uint16_t *keys = p->keys + l * p->cache_rows * d, *values = p->values + l * p->cache_rows * d;
        for (int64_t i = 0; i < n; i++) {
            const int64_t a = from[i], b = start + i;
            for (int64_t j = 0; j < d; j++)
                keys[b / KEYS * KEYS * d + j * KEYS + b % KEYS] = keys[a / KEYS * KEYS * d + j * KEYS + a % KEYS];
            std::memcpy(values + b * d, values + a * d, 2 * d);
        }
    }
}

// `pass`: the layer with one row a row of the step.
void run_draft(const Ends* d, Pass* pass, const Step* s) {
    const int64_t t = pass->rows, h = pass->hidden, n = d->head->n;
    pass->length = s->used + t;
    pass->beside = s->beside;
    for (int64_t i = 0; i < t; i++) {
        embed(*d, s->tokens[i], h, s->beside + i * h);
        std::memcpy(pass->x + i * h, s->states + s->from[i] * h, 4 * h);
        set(*d, *pass, i, s->used, s->positions[i]);
        see(*pass, i, s->reach[i]);
    }
    for (int64_t i = 0; i < s->pairs; i++) ((float*)pass->mask)[s->more[2 * i] * pass->mask_stride + s->more[2 * i + 1]] = 0.0f;
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

// Medusa's heads on one state [H]: block i of `first` (x + SiLU(W x + b)), then `outputs[i]`. The `top`
// likeliest tokens of each head, until the chance that all first choices are right falls below `least`.
// Returns how many heads were asked. `wide`: [heads * H], `x`: [H], `logits`: [V'].
int64_t run_heads(const Matrix* first, const Matrix* const* outputs, int64_t count, int64_t h, const float* state,
                  float* wide, float* x, float* logits, char* memory, float warmth, float least, int64_t top,
                  int64_t* ids, float* probabilities, int32_t threads) {
    run_product(first, state, wide, 1, memory, threads);
    float chance = 1.0f;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < h; j++) {
            const float z = wide[i * h + j];
            x[j] = state[j] + z / (1.0f + std::exp(-z));
        }
        run_product(outputs[i], x, logits, 1, memory, threads);
        likeliest(logits, outputs[i]->n, top, warmth, ids + i * top, probabilities + i * top);
        chance *= probabilities[i * top];
        if (chance < least) return i + 1;
    }
    return count;
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
