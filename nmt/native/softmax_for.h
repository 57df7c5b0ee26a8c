/* Softmax for one kind of processor, in blocks of BLOCK scores. Included once for each, with NAME(x), TARGET and LANES
   (floats of a register). */

typedef float NAME(Lane) __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t NAME(Whole) __attribute__((vector_size(4 * LANES), aligned(4)));

TARGET INLINE NAME(Lane) NAME(larger)(NAME(Lane) a, NAME(Lane) b) {
    const NAME(Whole) chosen = a > b;
    return (NAME(Lane))(((NAME(Whole))a & chosen) | ((NAME(Whole))b & ~chosen));
}

/* As ``exponential`` in native.h; the number added rounds to a whole one. */
TARGET INLINE NAME(Lane) NAME(exponentials)(NAME(Lane) x) {
    const NAME(Lane) lowest = (NAME(Lane)){0} - 87.0f;
    const NAME(Whole) far = x < lowest;
    x = (NAME(Lane))(((NAME(Whole))x & ~far) | ((NAME(Whole))lowest & far));
    const NAME(Lane) n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
    const NAME(Lane) r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    NAME(Lane) p = r * 1.98756915e-4f + 1.39819995e-3f;
    p = p * r + 8.33345190e-3f;
    p = p * r + 4.16657962e-2f;
    p = p * r + 1.66666655e-1f;
    p = p * r + 5.00000012e-1f;
    p = p * r * r + r + 1.0f;
    return p * (NAME(Lane))((__builtin_convertvector(n, NAME(Whole)) + 127) << 23);
}

/* Scores [seen], in room for whole blocks, become exponentials of ``scale`` times them, less the highest; their sum is
   returned. What follows them in the last block becomes nothing. */
TARGET INLINE float NAME(softmax)(float *scores, int64_t seen, float scale) {
    NAME(Lane) highest = (NAME(Lane)){0} - INFINITY, sums = {0};
    NAME(Whole) places;
    for (int i = 0; i < LANES; i++) places[i] = i;
    for (int64_t t = 0; t < seen; t += LANES) {
        const NAME(Whole) there = places < (int32_t)(seen - t);
        const NAME(Lane) own = *(const NAME(Lane) *)(scores + t) * scale;
        const NAME(Lane) kept =
            (NAME(Lane))(((NAME(Whole))own & there) | ((NAME(Whole))((NAME(Lane)){0} - INFINITY) & ~there));
        *(NAME(Lane) *)(scores + t) = kept;
        highest = NAME(larger)(kept, highest);
    }
    for (int32_t step = LANES / 2; step; step /= 2)
        highest = NAME(larger)(highest, __builtin_shuffle(highest, places ^ step));
    for (int64_t t = 0; t < seen; t += LANES) {
        const NAME(Lane) own = *(const NAME(Lane) *)(scores + t);
        const NAME(Whole) there = places < (int32_t)(seen - t);
        const NAME(Lane) weights = (NAME(Lane))((NAME(Whole))NAME(exponentials)(own - highest) & there);
        *(NAME(Lane) *)(scores + t) = weights;
        sums += weights;
    }
    for (int32_t step = LANES / 2; step; step /= 2) sums += __builtin_shuffle(sums, places ^ step);
    return sums[0];
}
