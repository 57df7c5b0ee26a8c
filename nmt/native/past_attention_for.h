/* Attention of one hypothesis over what it wrote, for one kind of processor. Included once for each after softmax_for.h, with
   NAME(x), TARGET, LANES and SUMS(sums, four), which writes the sums of four registers side by side. Heads have ``parts``
   registers, and every loop goes over all heads, so that one need not wait for the other. */

TARGET INLINE void NAME(score_past)(const float *query, const float *keys, const int64_t *steps, int64_t seen, int64_t heads,
                                    int64_t parts, float *scores, int64_t room) {
    const int64_t width = parts * LANES;
    for (int64_t t = 0; t < seen; t += 4) { /* there is room for three more */
        const float *four_keys[4];
        for (int64_t i = 0; i < 4; i++) four_keys[i] = keys + steps[t + i < seen ? t + i : seen - 1];
        for (int64_t h = 0; h < heads; h++) {
            const float *q = query + h * width;
            NAME(Lane) four[4];
            UNROLLED for (int64_t i = 0; i < 4; i++) {
                const float *key = four_keys[i] + h * width;
                four[i] = *(const NAME(Lane) *)q * *(const NAME(Lane) *)key;
                UNROLLED for (int64_t p = 1; p < parts; p++)
                    four[i] += *(const NAME(Lane) *)(q + p * LANES) * *(const NAME(Lane) *)(key + p * LANES);
            }
            SUMS(scores + h * room + t, four);
        }
    }
}

/* Registers ``first`` to first + count of the result. */
TARGET INLINE void NAME(mix_past)(const float *weights, int64_t room, const float *shares, const float *values,
                                  const int64_t *steps, int64_t seen, int64_t parts, int64_t first, int64_t count,
                                  float *result) {
    NAME(Lane) sums[8];
    UNROLLED for (int64_t i = 0; i < count; i++) sums[i] = (NAME(Lane)){0};
    for (int64_t t = 0; t < seen; t++) {
        const float *value = values + steps[t] + first * LANES;
        UNROLLED for (int64_t i = 0; i < count; i++)
            sums[i] += weights[(first + i) / parts * room + t] * *(const NAME(Lane) *)(value + i * LANES);
    }
    UNROLLED for (int64_t i = 0; i < count; i++)
        *(NAME(Lane) *)(result + (first + i) * LANES) = sums[i] * shares[(first + i) / parts];
}

TARGET INLINE void NAME(attend_parts)(const float *query, const float *keys, const float *values, const int64_t *steps,
                                      int64_t seen, int64_t heads, int64_t parts, float scale, const Biases *biases,
                                      float *scores, float *shares, float *result) {
    const int64_t room = whole_blocks(seen), all = heads * parts;
    NAME(score_past)(query, keys, steps, seen, heads, parts, scores, room);
    for (int64_t h = 0; biases && h < heads; h++) add_biases(biases, h, seen - 1, seen, scores + h * room);
    for (int64_t h = 0; h < heads; h++) shares[h] = 1.0f / NAME(softmax)(scores + h * room, seen, scale);
    int64_t first = 0;
    for (; first + 8 <= all; first += 8)
        NAME(mix_past)(scores, room, shares, values, steps, seen, parts, first, 8, result);
    for (; first < all; first++) NAME(mix_past)(scores, room, shares, values, steps, seen, parts, first, 1, result);
}

TARGET static void NAME(attend_row)(const float *query, const float *keys, const float *values, const int64_t *steps,
                                    int64_t seen, int64_t heads, int64_t head, float scale, const Biases *biases,
                                    float *scores, float *shares, float *result) {
#define OF_PARTS(parts)                                                                                                \
    NAME(attend_parts)(query, keys, values, steps, seen, heads, parts, scale, biases, scores, shares, result)
    if (head == LANES)
        OF_PARTS(1);
    else if (head == 2 * LANES)
        OF_PARTS(2);
    else if (head == 4 * LANES)
        OF_PARTS(4);
    else
        OF_PARTS(8);
#undef OF_PARTS
}

#undef SUMS
#undef NAME
#undef TARGET
#undef LANES
