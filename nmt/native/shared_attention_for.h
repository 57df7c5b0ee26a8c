/* Attention of several queries over the same keys for one kind of processor. Included once for each after softmax_for.h,
   with NAME(x), TARGET and LANES. */

#define PARTS (BLOCK / LANES) /* registers for the scores of a block */

/* Scores of ``count`` queries with the keys of one head: scores [count, room]. Two sums for each score, so that one addition
   need not wait for the other. */
TARGET INLINE void NAME(score_some)(const float *queries, int64_t row, const float *keys, int64_t seen, int64_t width,
                                    float *scores, int64_t room, int64_t count) {
    for (int64_t first = 0; first < seen; first += BLOCK, keys += width * BLOCK) {
        NAME(Lane) even[4 * PARTS], odd[4 * PARTS];
        UNROLLED for (int64_t i = 0; i < count * PARTS; i++) even[i] = odd[i] = (NAME(Lane)){0};
        int64_t d = 0;
        for (; d + 2 <= width; d += 2) {
            const float *key = keys + d * BLOCK;
            UNROLLED for (int64_t q = 0; q < count; q++) {
                const float x = queries[q * row + d], y = queries[q * row + d + 1];
                UNROLLED for (int64_t p = 0; p < PARTS; p++) {
                    even[q * PARTS + p] += x * *(const NAME(Lane) *)(key + p * LANES);
                    odd[q * PARTS + p] += y * *(const NAME(Lane) *)(key + BLOCK + p * LANES);
                }
            }
        }
        if (d < width) /* the last number of a key of odd width: nothing of this head follows it */
            UNROLLED for (int64_t q = 0; q < count; q++)
                UNROLLED for (int64_t p = 0; p < PARTS; p++)
                    even[q * PARTS + p] += queries[q * row + d] * *(const NAME(Lane) *)(keys + d * BLOCK + p * LANES);
        UNROLLED for (int64_t q = 0; q < count; q++)
            UNROLLED for (int64_t p = 0; p < PARTS; p++)
                *(NAME(Lane) *)(scores + q * room + first + p * LANES) = even[q * PARTS + p] + odd[q * PARTS + p];
    }
}

/* The sums of values [seen] by weight, for ``parts`` registers of ``count`` queries: result [count, row]. */
TARGET INLINE void NAME(mix_some)(const float *weights, int64_t room, const float *shares, const float *values, int64_t step,
                                  int64_t seen, float *result, int64_t row, int64_t count, int64_t parts) {
    NAME(Lane) sums[8];
    UNROLLED for (int64_t i = 0; i < count * parts; i++) sums[i] = (NAME(Lane)){0};
    for (int64_t t = 0; t < seen; t++, values += step)
        UNROLLED for (int64_t p = 0; p < parts; p++) {
            const NAME(Lane) value = *(const NAME(Lane) *)(values + p * LANES);
            UNROLLED for (int64_t q = 0; q < count; q++) sums[q * parts + p] += weights[q * room + t] * value;
        }
    UNROLLED for (int64_t q = 0; q < count; q++)
        UNROLLED for (int64_t p = 0; p < parts; p++)
            *(NAME(Lane) *)(result + q * row + p * LANES) = sums[q * parts + p] * shares[q];
}

/* ``count`` queries from the position ``first`` on, all heads. */
TARGET INLINE void NAME(attend_some)(const float *queries, int64_t row, int64_t first, const SharedKeys *s, float *scores,
                                     float *result, float *weights, int64_t weights_row, int64_t count) {
    const int64_t width = s->head, room = whole_blocks(s->seen), all = s->heads * width;
    for (int64_t h = 0; h < s->heads; h++) {
        float shares[4];
        const float *values = s->values + h * width;
        float *out = result + h * width;
        NAME(score_some)(queries + h * width, row, s->keys + h * width * room, s->seen, width, scores, room, count);
        for (int64_t q = 0; q < count; q++) {
            if (s->biases) add_biases(s->biases, h, first + q, s->seen, scores + q * room);
            shares[q] = 1.0f / NAME(softmax)(scores + q * room, s->seen, s->scale);
            for (int64_t t = 0; weights && t < s->seen; t++)
                weights[q * weights_row + t] += scores[q * room + t] * (shares[q] / (float)s->heads);
        }
        int64_t d = 0;
        for (; d + 2 * LANES <= width; d += 2 * LANES)
            NAME(mix_some)(scores, room, shares, values + d, s->step, s->seen, out + d, all, count, 2);
        for (; d + LANES <= width; d += LANES)
            NAME(mix_some)(scores, room, shares, values + d, s->step, s->seen, out + d, all, count, 1);
        for (; d < width; d++)
            for (int64_t q = 0; q < count; q++) {
                float sum = 0.0f;
                for (int64_t t = 0; t < s->seen; t++) sum += scores[q * room + t] * values[t * s->step + d];
                out[q * all + d] = sum * shares[q];
            }
    }
}

TARGET static void NAME(attend_shared)(const float *queries, int64_t row, int64_t count, const SharedKeys *shared,
                                        float *scores, float *result, float *weights, int64_t weights_row) {
    const int64_t all = shared->heads * shared->head;
    int64_t q = 0;
    for (; q + 4 <= count; q += 4)
        NAME(attend_some)(queries + q * row, row, q, shared, scores, result + q * all,
                          weights ? weights + q * weights_row : NULL, weights_row, 4);
    for (; q < count; q++)
        NAME(attend_some)(queries + q * row, row, q, shared, scores, result + q * all,
                          weights ? weights + q * weights_row : NULL, weights_row, 1);
}

#undef PARTS
