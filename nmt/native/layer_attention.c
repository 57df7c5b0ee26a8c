/* Attention in whole layers: of several queries over the same keys (the positions of a sentence over each other, its
   hypotheses over the source), and of each hypothesis over what it wrote. A row is computed by itself, so its result does not
   depend on others. */

#include "layers.h"

#include <string.h>

#define BLOCK 16 /* positions */

INLINE int64_t whole_blocks(int64_t positions) { return (positions + BLOCK - 1) / BLOCK * BLOCK; }

int64_t laid_out(int64_t positions, int64_t width) { return whole_blocks(positions) * width; }

/* Keys of one sentence, ``step`` apart, for attend_shared: by head and block, then by number within the key, then by position. */
void lay_out_keys(const float *keys, int64_t step, int64_t seen, int64_t heads, int64_t head, float *to) {
    const int64_t room = whole_blocks(seen);
    memset(to, 0, (size_t)(room * heads * head) * sizeof(float));
    for (int64_t t = 0; t < seen; t++, keys += step) {
        float *block = to + t / BLOCK * BLOCK * head + t % BLOCK;
        for (int64_t h = 0; h < heads; h++)
            for (int64_t d = 0; d < head; d++) block[h * head * room + d * BLOCK] = keys[h * head + d];
    }
}

/* To the scores of the keys 0, 1, ... for the query at position ``now``. */
INLINE void add_biases(const Biases *biases, int64_t h, int64_t now, int64_t seen, float *scores) {
    const int64_t reach = biases->reach;
    const float *own = biases->of_heads + h * (2 * reach + 1) + reach;
    for (int64_t t = 0; t < seen; t++) {
        const int64_t distance = t - now;
        scores[t] += own[distance < -reach ? -reach : distance > reach ? reach : distance];
    }
}

#define NAME(x) x##_portable
#define TARGET
#define LANES 4
#define SUMS(sums, four)                                                                                               \
    for (int64_t i = 0; i < 4; i++) (sums)[i] = four[i][0] + four[i][1] + four[i][2] + four[i][3]
#include "softmax_for.h"
#include "shared_attention_for.h"
#include "past_attention_for.h"

#if KNOWN_PROCESSORS
#include <immintrin.h>

/* The sums of four registers of four. */
__attribute__((target("arch=x86-64-v3"))) INLINE __m128 sums_of(__m128 a, __m128 b, __m128 c, __m128 d) {
    const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
    const __m128 cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
    return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}

__attribute__((target("arch=x86-64-v3"))) INLINE __m128 halved(__m256 x) {
    return _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
}

#define NAME(x) x##_avx2
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define LANES 8
#define SUMS(sums, four)                                                                                               \
    _mm_storeu_ps(sums, sums_of(halved((__m256)four[0]), halved((__m256)four[1]), halved((__m256)four[2]),             \
                                halved((__m256)four[3])))
#include "softmax_for.h"
#include "shared_attention_for.h"
#include "past_attention_for.h"

/* The same for four registers of sixteen: quarters are summed first, since all four go through at once. */
typedef float Sixteen __attribute__((vector_size(64)));
typedef int32_t Sixteenth __attribute__((vector_size(64)));

__attribute__((target("arch=x86-64-v4"))) INLINE void sixteens(float *sums, Sixteen a, Sixteen b, Sixteen c, Sixteen d) {
    const Sixteenth low = {0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29}, high = low + 2;
    const Sixteenth first = {0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29}, last = first + 2;
    const Sixteen ab = __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, high);
    const Sixteen cd = __builtin_shuffle(c, d, low) + __builtin_shuffle(c, d, high);
    Sixteen all = __builtin_shuffle(ab, cd, first) + __builtin_shuffle(ab, cd, last);
    all += __builtin_shuffle(all, (Sixteenth){8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7});
    all += __builtin_shuffle(all, (Sixteenth){4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11});
    memcpy(sums, &all, 16);
}

#define NAME(x) x##_avx512
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define LANES 16
#define SUMS(sums, four) sixteens(sums, (Sixteen)four[0], (Sixteen)four[1], (Sixteen)four[2], (Sixteen)four[3])
#include "softmax_for.h"
#include "shared_attention_for.h"
#include "past_attention_for.h"
#endif

/* Queries [count], ``row`` apart, give result [count, D]. The mean over the heads of what a query gives each position goes to
   weights [count, weights_row]; NULL: nobody asks. */
void attend_shared(const float *queries, int64_t row, int64_t count, const SharedKeys *shared, float *result,
                    float *weights, int64_t weights_row) {
    float *scores = scratch_memory(SCORES, 4 * whole_blocks(shared->seen) * (int64_t)sizeof(float));
    for (int64_t q = 0; weights && q < count; q++)
        memset(weights + q * weights_row, 0, (size_t)shared->seen * sizeof(float));
#if KNOWN_PROCESSORS
    if (processor >= AVX512) {
        attend_shared_avx512(queries, row, count, shared, scores, result, weights, weights_row);
        return;
    }
    if (processor >= AVX2) {
        attend_shared_avx2(queries, row, count, shared, scores, result, weights, weights_row);
        return;
    }
#endif
    attend_shared_portable(queries, row, count, shared, scores, result, weights, weights_row);
}

typedef void (*AttendRow)(const float *, const float *, const float *, const int64_t *, int64_t, int64_t, int64_t, float,
                          const Biases *, float *, float *, float *);

/* Of heads of any width. */
static void attend_row_of_any_width(const float *query, const float *keys, const float *values, const int64_t *steps,
                                    int64_t seen, int64_t heads, int64_t head, float scale, const Biases *biases,
                                    float *scores, float *shares, float *result) {
    memset(result, 0, (size_t)(heads * head) * sizeof(float));
    for (int64_t h = 0; h < heads; h++, query += head, keys += head, values += head, result += head) {
        for (int64_t t = 0; t < seen; t++) {
            scores[t] = 0.0f;
            for (int64_t d = 0; d < head; d++) scores[t] += query[d] * keys[steps[t] + d];
        }
        if (biases) add_biases(biases, h, seen - 1, seen, scores);
        shares[h] = 1.0f / softmax_portable(scores, seen, scale);
        for (int64_t t = 0; t < seen; t++)
            for (int64_t d = 0; d < head; d++) result[d] += scores[t] * shares[h] * values[steps[t] + d];
    }
}

static AttendRow attend_row_for(int64_t head) {
    int64_t lanes = 4;
    AttendRow found = attend_row_portable;
#if KNOWN_PROCESSORS
    if (processor >= AVX2) {
        lanes = processor >= AVX512 ? 16 : 8;
        found = processor >= AVX512 ? attend_row_avx512 : attend_row_avx2;
    }
#endif
    return head == lanes || head == 2 * lanes || head == 4 * lanes || head == 8 * lanes ? found : attend_row_of_any_width;
}

/* Rows [B * K, row] hold queries, keys and values side by side; these keys and values become those of the last step. */
void attend_past(const float *rows, int64_t row, int64_t B, int64_t K, const Past *past, int64_t heads, int64_t head,
                 float scale, const Biases *biases, float *result) {
    const int64_t width = heads * head, steps = past->steps, room = whole_blocks(steps);
    const int64_t step = past->beam * width, sentence_size = past->room * step; /* numbers from one to the next */
    const AttendRow attend_row = attend_row_for(head);
    float *scores = scratch_memory(SCORES, heads * (room + 1) * (int64_t)sizeof(float)), *shares = scores + heads * room;
    int64_t *stand = scratch_memory(STEPS, steps * (int64_t)sizeof(int64_t)); /* where the own past stands */
    for (int64_t n = 0; n < B * K; n++) {
        const int64_t sentence = past->places[n / K] * sentence_size;
        const int32_t *slots = past->slots + (n / K * past->beam + n % K) * past->slots_row;
        if (n % K == 0) {
            const int64_t last = sentence + (steps - 1) * step;
            for (int64_t k = 0; k < K; k++) {
                const float *own = rows + (n + k) * row + width;
                memcpy(past->keys + last + k * width, own, (size_t)width * sizeof(float));
                memcpy(past->values + last + k * width, own + width, (size_t)width * sizeof(float));
            }
        }
        for (int64_t t = 0; t < steps; t++) stand[t] = sentence + t * step + slots[t] * width;
        attend_row(rows + n * row, past->keys, past->values, stand, steps, heads, head, scale, biases, scores, shares,
                   result + n * width);
    }
}
