/* Attention for one kind of processor. Included once for each, with NAME(x), TARGET, LANES (floats of a register) and
   SUMS(sums, four), which writes the sums of four registers side by side. */

typedef float NAME(Lane) __attribute__((vector_size(4 * LANES), aligned(4)));

/* One head of one row: a query of ``parts`` registers over the steps whose keys and values stand at steps[t]. */
TARGET INLINE void NAME(attend_head)(const float *query, const float *keys, const float *values, const int64_t *steps,
                                     const float *shifts, int64_t seen, int64_t parts, float scale, float *scores,
                                     float *result, float *weights, int64_t heads) {
    NAME(Lane) q[MOST / LANES], sums[MOST / LANES];
    for (int64_t p = 0; p < parts; p++) q[p] = *(const NAME(Lane) *)(query + p * LANES);
    for (int64_t t = 0; t < seen; t += 4) { /* there is room for three more */
        NAME(Lane) four[4];
        for (int64_t i = 0; i < 4; i++) {
            const float *key = keys + steps[t + i < seen ? t + i : seen - 1];
            four[i] = q[0] * *(const NAME(Lane) *)key;
            for (int64_t p = 1; p < parts; p++) four[i] += q[p] * *(const NAME(Lane) *)(key + p * LANES);
        }
        SUMS(scores + t, four);
    }
    const float share = 1.0f / weigh(scores, shifts, seen, scale);
    if (weights) record(weights, scores, seen, share / (float)heads);
    for (int64_t p = 0; p < parts; p++) sums[p] = (NAME(Lane)){0};
    for (int64_t t = 0; t < seen; t++) {
        const float *value = values + steps[t];
        for (int64_t p = 0; p < parts; p++) sums[p] += scores[t] * *(const NAME(Lane) *)(value + p * LANES);
    }
    for (int64_t p = 0; p < parts; p++) *(NAME(Lane) *)(result + p * LANES) = sums[p] * share;
}

TARGET static void NAME(attend_heads)(const float *query, const float *keys, const float *values, const int64_t *steps,
                                      const float *shifts, int64_t seen, int64_t heads, int64_t head, int64_t width,
                                      float scale, float *scores, float *result, float *weights) {
#define EACH_HEAD(parts)                                                                                               \
    for (int64_t h = 0; h < heads; h++)                                                                                \
    NAME(attend_head)(query + h * width, keys + h * head, values + h * head, steps, shifts, seen, parts, scale, scores,  \
                      result + h * width, weights, heads)
    if (width == 64)
        EACH_HEAD(64 / LANES);
    else
        EACH_HEAD(32 / LANES);
#undef EACH_HEAD
}

#undef NAME
#undef TARGET
#undef LANES
#undef SUMS
