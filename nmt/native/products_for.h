/* Products for one kind of processor. Included once for each, with NAME(x), TARGET, LANES (floats of a register), AT_ONCE
   (rows side by side) and PANELS (side by side). */

typedef float NAME(Floats) __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t NAME(Integers) __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint32_t NAME(Bits) __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint16_t NAME(Halves) __attribute__((vector_size(2 * LANES), aligned(2)));

#define PARTS (PANEL / LANES) /* registers for 16 outputs */

/* Sums of outputs from ``first`` on become results: with the bias, and not below zero if ``relu``. */
TARGET INLINE void NAME(finish)(const Matrix *m, float *y, NAME(Floats) sums, int64_t first, int64_t relu) {
    if (m->bias) sums += *(const NAME(Floats) *)(m->bias + first);
    if (relu) sums = (NAME(Floats))((NAME(Integers))sums & ~(NAME(Integers))(sums < 0.0f));
    if (first + LANES <= m->outputs)
        *(NAME(Floats) *)(y + first) = sums;
    else
        for (int64_t j = first; j < m->outputs; j++) y[j] = sums[j - first];
}

TARGET INLINE void NAME(finish_integers)(const Matrix *m, float *y, NAME(Integers) sums, int64_t first, float scale,
                                         int64_t relu) {
    const NAME(Floats) scales = *(const NAME(Floats) *)(m->scales + first) * scale;
    NAME(finish)(m, y, __builtin_convertvector(sums, NAME(Floats)) * scales, first, relu);
}

/* The weights of one input (in a line, at ``place``) for LANES outputs. The exponent of a float16 moves to its place, and is
   then too small by 112. */
TARGET INLINE NAME(Floats) NAME(widen)(const char *line, int64_t part, int64_t place, int64_t format) {
    if (format == FLOAT32) return *(const NAME(Floats) *)(line + part * LANES * 4);
    if (format == BFLOAT16) { /* a pair stands in one number of four bytes */
        const NAME(Bits) pairs = *(const NAME(Bits) *)(line + part * LANES * 4);
        return (NAME(Floats))(place ? pairs & 0xffff0000u : pairs << 16);
    }
    const NAME(Halves) halves = *(const NAME(Halves) *)(line + place * (LINE / 2) + part * LANES * 2);
    const NAME(Bits) bits = __builtin_convertvector(halves, NAME(Bits));
    return (NAME(Floats))((bits & 0x8000u) << 16 | (bits & 0x7fffu) << 13) * 0x1p112f;
}

/* Adds the products of one input, at ``place`` in its line. */
TARGET INLINE void NAME(add_input)(NAME(Floats) *sums, const char *line, const char *next_panel, const float *x,
                                   int64_t stride, int64_t place, int64_t format, int64_t rows, int64_t parts) {
    NAME(Floats) weights[4];
    UNROLLED for (int64_t p = 0; p < parts; p++)
        weights[p] = NAME(widen)(p < PARTS ? line : next_panel, p % PARTS, place, format);
    UNROLLED for (int64_t r = 0; r < rows; r++)
        UNROLLED for (int64_t p = 0; p < parts; p++) sums[r * parts + p] += x[r * stride] * weights[p];
}

TARGET INLINE void NAME(float_rows)(const Matrix *m, const char *panel, const char *ahead, int64_t first,
                                    const float *x, int64_t stride, float *y, int64_t y_stride, int64_t relu,
                                    int64_t format, int64_t rows, int64_t panels) {
    const int64_t together = format == FLOAT32 ? 1 : 2, bytes = panel_bytes(m), parts = panels * PARTS;
    const float *end = x + m->inputs / together * together;
    NAME(Floats) sums[24], results[24];
    UNROLLED for (int64_t i = 0; i < rows * parts; i++) sums[i] = (NAME(Floats)){0};
    for (; x < end; x += together, panel += LINE, ahead += LINE) {
        __builtin_prefetch(ahead, 0, 2);
        for (int64_t place = 0; place < together; place++)
            NAME(add_input)(sums, panel, panel + bytes, x + place, stride, place, format, rows, parts);
    }
    if (m->inputs % together) NAME(add_input)(sums, panel, panel + bytes, x, stride, 0, format, rows, parts);
    UNROLLED for (int64_t i = 0; i < rows * parts; i++) results[i] = sums[i]; /* so that the sums stay in registers */
    for (int64_t r = 0; r < rows; r++)
        for (int64_t p = 0; p < parts; p++)
            if (first + p * LANES < m->outputs)
                NAME(finish)(m, y + r * y_stride, results[r * parts + p], first + p * LANES, relu);
}

/* Meanwhile the next panels come to the cache, one for each of the first groups of rows. */
TARGET INLINE void NAME(float_panels)(const Matrix *m, int64_t first, const float *x, int64_t stride, int64_t rows,
                                      float *y, int64_t y_stride, int64_t relu, int64_t format, int64_t panels) {
    const int64_t bytes = panel_bytes(m);
    const char *panel = (const char *)m->panels + first / PANEL * bytes, *next = panel + panels * bytes;
    int64_t r = 0;
#define COMPUTE(count)                                                                                                 \
    NAME(float_rows)(m, panel, next + r / AT_ONCE % panels * bytes, first, x + r * stride, stride, y + r * y_stride,   \
                     y_stride, relu, format, count, panels)
    for (; r + AT_ONCE <= rows; r += AT_ONCE) COMPUTE(AT_ONCE);
    for (; r + 8 <= rows && AT_ONCE > 8; r += 8) COMPUTE(8);
    for (; r + 4 <= rows && AT_ONCE > 4; r += 4) COMPUTE(4);
    for (; r + 2 <= rows; r += 2) COMPUTE(2);
    if (r < rows) COMPUTE(1);
#undef COMPUTE
}

#define FLOATS(format)                                                                                                 \
    for (; first + (PANELS - 1) * PANEL < m->outputs; first += PANELS * PANEL)                                         \
        NAME(float_panels)(m, first, x, stride, rows, y, y_stride, relu, format, PANELS);                              \
    for (; first < m->outputs; first += PANEL)                                                                         \
        NAME(float_panels)(m, first, x, stride, rows, y, y_stride, relu, format, 1);

TARGET static void NAME(floats)(const Matrix *m, const float *x, int64_t stride, int64_t rows, float *y,
                                int64_t y_stride, int64_t relu) {
    int64_t first = 0;
    if (m->format == FLOAT32) {
        FLOATS(FLOAT32)
    } else if (m->format == BFLOAT16) {
        FLOATS(BFLOAT16)
    } else {
        FLOATS(FLOAT16)
    }
}

#if LANES == 4
/* Without instructions of their own: sums of one row after the other. */
TARGET static void NAME(integers)(const Matrix *m, const uint8_t *x, const float *scales, int64_t filled, int64_t rows,
                                  float *y, int64_t y_stride, int64_t relu) {
    for (int64_t first = 0; first < m->outputs; first += PANEL) {
        const char *panel = (const char *)m->panels + first / PANEL * panel_bytes(m);
        for (int64_t r = 0; r < rows; r++) {
            NAME(Integers) sums[PARTS];
            for (int64_t p = 0; p < PARTS; p++) sums[p] = (NAME(Integers)){0};
            for (int64_t k = 0; k < filled; k += 4)
                for (int64_t p = 0; p < PARTS; p++) {
                    const NAME(Bits) line = *(const NAME(Bits) *)(panel + k / 4 * LINE + p * LANES * 4);
                    for (int i = 0; i < 4; i++)
                        sums[p] += ((NAME(Integers))(line << (24 - 8 * i)) >> 24) * (int32_t)(int8_t)x[r * filled + k + i];
                }
            for (int64_t p = 0; p < PARTS && first + p * LANES < m->outputs; p++)
                NAME(finish_integers)(m, y + r * y_stride, sums[p], first + p * LANES, scales[r], relu);
        }
    }
}

#endif

#undef FLOATS
#undef PARTS
#undef NAME
#undef TARGET
#undef LANES
#undef AT_ONCE
#undef PANELS
