/* Attention of one decoding step: a few queries of each sentence over what its hypotheses, or its source, have left.

   All numbers are floats, and strides count them. A row is computed by itself, so its result does not depend on others. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__) && __GNUC__ >= 12
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

/* e^x for x <= 0: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]; the error is below 2e-7 of the result. */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = rintf(x * 1.44269504f);
    float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 1.98756915e-4f;
    p = p * r + 1.39819995e-3f;
    p = p * r + 8.33345190e-3f;
    p = p * r + 4.16657962e-2f;
    p = p * r + 1.66666655e-1f;
    p = p * r + 5.00000012e-1f;
    p = p * r * r + r + 1.0f;
    union {
        int32_t bits;
        float value;
    } scale = {((int32_t)n + 127) << 23};
    return p * scale.value;
}

/* Row k of sentence b has its query at q + (b * K + k) * row, its result goes to out + (b * K + k) * H * d. The key of
   step t in slot s for head h stands at keys + b * sentence + t * step + s * slot + h * head, its value as far from
   ``values``. Which slot a row has at step t says slots[(b * K + k) * slots_row + t]; NULL: 0. bias[b * bias_row + t] is
   added to a score; NULL: nothing. Scratch holds H * T floats. Where new_keys is not NULL, the keys and values of the last
   step (row apart, heads side by side) are copied there first. */
static inline __attribute__((always_inline)) void attend_over(const float *q, int64_t row, const float *new_keys, const float *new_values, float *keys, float *values,
            int64_t sentence, int64_t step, int64_t slot, int64_t head, const int32_t *slots, int64_t slots_row, const float *bias,
            int64_t bias_row, float *out, float *scratch, int64_t B, int64_t K, int64_t H, int64_t d, int64_t T,
            float scale) {
    const int64_t width = H * d;
    for (int64_t b = 0; b < B; b++) {
        if (new_keys)
            for (int64_t k = 0; k < K; k++) {
                const int64_t to = b * sentence + (T - 1) * step + k * slot, from = (b * K + k) * row;
                memcpy(keys + to, new_keys + from, width * sizeof(float));
                memcpy(values + to, new_values + from, width * sizeof(float));
            }
        for (int64_t k = 0; k < K; k++) {
            const int64_t n = b * K + k;
            const float *query = q + n * row;
            const int32_t *own = slots ? slots + n * slots_row : 0;
            for (int64_t t = 0; t < T; t++) {
                const float shift = bias ? bias[b * bias_row + t] : 0.0f;
                if (shift == -INFINITY) {
                    for (int64_t h = 0; h < H; h++) scratch[h * T + t] = -INFINITY;
                    continue;
                }
                const float *key = keys + b * sentence + t * step + (own ? own[t] * slot : 0);
                for (int64_t h = 0; h < H; h++) {
                    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
                    for (int64_t i = 0; i < d; i++) sum += query[h * d + i] * key[h * head + i];
                    scratch[h * T + t] = sum * scale + shift;
                }
            }
            for (int64_t h = 0; h < H; h++) {
                float *weights = scratch + h * T, highest = -INFINITY, total = 0.0f;
                for (int64_t t = 0; t < T; t++) highest = weights[t] > highest ? weights[t] : highest;
#pragma omp simd reduction(+ : total)
                for (int64_t t = 0; t < T; t++) {
                    weights[t] = weights[t] == -INFINITY ? 0.0f : exponential(weights[t] - highest);
                    total += weights[t];
                }
                const float share = 1.0f / total;
                for (int64_t t = 0; t < T; t++) weights[t] *= share;
            }
            float *result = out + n * width;
            memset(result, 0, width * sizeof(float));
            for (int64_t t = 0; t < T; t++) {
                if (bias && bias[b * bias_row + t] == -INFINITY) continue;
                const float *value = values + b * sentence + t * step + (own ? own[t] * slot : 0);
                for (int64_t h = 0; h < H; h++) {
                    const float weight = scratch[h * T + t];
#pragma omp simd
                    for (int64_t i = 0; i < d; i++) result[h * d + i] += weight * value[h * head + i];
                }
            }
        }
    }
}

/* Heads of usual widths are constants to the compiler. */
FOR_EACH_PROCESSOR
void attend(const float *q, int64_t row, const float *new_keys, const float *new_values, float *keys, float *values,
            int64_t sentence, int64_t step, int64_t slot, int64_t head, const int32_t *slots, int64_t slots_row, const float *bias,
            int64_t bias_row, float *out, float *scratch, int64_t B, int64_t K, int64_t H, int64_t d, int64_t T,
            float scale) {
#define WITH(width)                                                                                                    \
    attend_over(q, row, new_keys, new_values, keys, values, sentence, step, slot, head, slots, slots_row, bias,        \
                bias_row, out, scratch, B, K, H, width, T, scale)
    if (d == 64)
        WITH(64);
    else if (d == 32)
        WITH(32);
    else
        WITH(d);
#undef WITH
}
