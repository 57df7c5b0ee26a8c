/* Attention of one decoding step: a few queries of each sentence over what its hypotheses, or its source, have left.

   All numbers are floats, and strides count them. A row is computed by itself, so its result does not depend on others. */

#include "native.h"

#include <math.h>
#include <string.h>

#define MOST 64 /* numbers of a head */

/* Scores become exponentials, whose sum is returned. There is room for whole sixteens of them. */
FOR_EACH_PROCESSOR
static float weigh(float *scores, const float *shifts, int64_t seen, float scale) {
    const int64_t whole = (seen + 15) / 16 * 16;
    float highest = -INFINITY, total = 0.0f;
    if (shifts)
        for (int64_t t = 0; t < seen; t++) scores[t] = scores[t] * scale + shifts[t];
    else
        for (int64_t t = 0; t < seen; t++) scores[t] *= scale;
    for (int64_t t = seen; t < whole; t++) scores[t] = -INFINITY;
    for (int64_t first = 0; first < whole; first += 16)
#pragma omp simd reduction(max : highest)
        for (int64_t t = first; t < first + 16; t++) highest = scores[t] > highest ? scores[t] : highest;
    for (int64_t first = 0; first < whole; first += 16)
#pragma omp simd reduction(+ : total)
        for (int64_t t = first; t < first + 16; t++) {
            scores[t] = scores[t] == -INFINITY ? 0.0f : exponential(scores[t] - highest);
            total += scores[t];
        }
    return total;
}

/* Adds one head's share of the weights to their mean. */
static void record(float *weights, const float *scores, int64_t seen, float share) {
    for (int64_t t = 0; t < seen; t++) weights[t] += scores[t] * share;
}

#define NAME(x) x##_portable
#define TARGET
#define LANES 4
#define SUMS(sums, four)                                                                                               \
    for (int64_t i = 0; i < 4; i++) (sums)[i] = four[i][0] + four[i][1] + four[i][2] + four[i][3]
#include "attention_for.h"

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
#include "attention_for.h"

__attribute__((target("arch=x86-64-v4"))) INLINE __m128 quartered(__m512 x) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

#define NAME(x) x##_avx512
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define LANES 16
#define SUMS(sums, four)                                                                                               \
    _mm_storeu_ps(sums, sums_of(quartered((__m512)four[0]), quartered((__m512)four[1]), quartered((__m512)four[2]),    \
                                quartered((__m512)four[3])))
#include "attention_for.h"
#endif

/* Heads of any width. */
FOR_EACH_PROCESSOR
static void attend_heads(const float *query, const float *keys, const float *values, const int64_t *steps,
                         const float *shifts, int64_t seen, int64_t heads, int64_t head, int64_t width, float scale,
                         float *scores, float *result, float *weights) {
    for (int64_t h = 0; h < heads; h++, query += width, keys += head, values += head, result += width) {
        for (int64_t t = 0; t < seen; t++) {
            const float *key = keys + steps[t];
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < width; i++) sum += query[i] * key[i];
            scores[t] = sum;
        }
        const float share = 1.0f / weigh(scores, shifts, seen, scale);
        if (weights) record(weights, scores, seen, share / (float)heads);
        memset(result, 0, (size_t)width * sizeof(float));
        for (int64_t t = 0; t < seen; t++) {
            const float weight = scores[t] * share, *value = values + steps[t];
#pragma omp simd
            for (int64_t i = 0; i < width; i++) result[i] += weight * value[i];
        }
    }
}

typedef void (*Attend)(const float *, const float *, const float *, const int64_t *, const float *, int64_t, int64_t,
                       int64_t, int64_t, float, float *, float *, float *);

static Attend attend_for(int64_t width) {
    if (width != 32 && width != 64) return attend_heads;
#if KNOWN_PROCESSORS
    if (processor >= AVX512) return attend_heads_avx512;
    if (processor >= AVX2) return attend_heads_avx2;
#endif
    return attend_heads_portable;
}

/* Row k of sentence b has its query at q + (b * K + k) * row, its result goes to out + (b * K + k) * H * d. The key of
   step t in slot s for head h stands at keys + places[b] * sentence + t * step + s * slot + h * head, its value as far from
   ``values``; without places sentence b stands at b. Which slot a row has at step t says slots[(b * K + k) * slots_row + t];
   NULL: 0. bias[b * bias_row + t] is added to a score; NULL: nothing. Where new_keys is not NULL, the keys and values of the
   last step (row apart, heads side by side) are copied there first. The mean over the heads of what row n gives each step
   goes to weights + n * weights_row; NULL: nobody asks. */
void attend(const float *q, int64_t row, const float *new_keys, const float *new_values, float *keys, float *values,
            const int64_t *places, const Strides *at, const int32_t *slots, int64_t slots_row, const float *bias,
            int64_t bias_row, float *out, int64_t B, int64_t K, int64_t H, int64_t d, int64_t T, float scale,
            float *weights, int64_t weights_row) {
    const int64_t width = H * d;
    const Attend attend_row = attend_for(d);
    float *scores = scratch_memory(SCORES, (T + 16) * (int64_t)sizeof(float));
    int64_t *steps = scratch_memory(STEPS, T * (int64_t)sizeof(int64_t)); /* where the own past stands */
    for (int64_t b = 0; b < B; b++) {
        const int64_t sentence = (places ? places[b] : b) * at->sentence;
        const float *shifts = bias ? bias + b * bias_row : 0;
        int64_t seen = T; /* steps up to the last that may be seen */
        while (shifts && seen > 1 && shifts[seen - 1] == -INFINITY) seen--;
        for (int64_t k = 0; new_keys && k < K; k++) {
            const int64_t to = sentence + (T - 1) * at->step + k * at->slot, from = (b * K + k) * row;
            memcpy(keys + to, new_keys + from, (size_t)width * sizeof(float));
            memcpy(values + to, new_values + from, (size_t)width * sizeof(float));
        }
        for (int64_t k = 0; k < K; k++) {
            const int64_t n = b * K + k;
            if (slots || k == 0)
                for (int64_t t = 0; t < seen; t++)
                    steps[t] = sentence + t * at->step + (slots ? slots[n * slots_row + t] * at->slot : 0);
            float *own = weights ? weights + n * weights_row : NULL;
            if (own) memset(own, 0, (size_t)T * sizeof(float));
            attend_row(q + n * row, keys, values, steps, shifts, seen, H, at->head, d, scale, scores, out + n * width, own);
        }
    }
}
