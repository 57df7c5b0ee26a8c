/* Products of integers with the instructions of larger processors. Included by products.c. */

/* The instructions for integers multiply numbers without a sign (of rows, to which something was added) by those with one.
   Where four products are added at once there is room for 8 bits of a row. In pairs of two bytes there is for 7, which is as
   exact as half of the steps. Eight outputs in a register, four rows side by side; a row that is missing repeats the last. */
#define ADD_FOURS(sum, row, weights) _mm256_dpbusd_avx_epi32(sum, row, weights)
#define ADD_PAIRS(sum, row, weights)                                                                                   \
    _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(row, weights), _mm256_set1_epi16(1)))

#define INTEGERS(name, extensions, add, halved)                                                                        \
    __attribute__((target(extensions))) static void name(const Matrix *m, const uint8_t *x, const float *scales,       \
                                                         int64_t filled, int64_t rows, float *y, int64_t y_stride,     \
                                                         int64_t relu) {                                               \
        for (int64_t first = 0; first < m->outputs; first += PANEL) {                                                  \
            const char *panel = (const char *)m->panels + first / PANEL * panel_bytes(m);                              \
            for (int64_t r = 0; r < rows; r += 4) {                                                                    \
                const int64_t taken = rows - r < 4 ? rows - r : 4;                                                     \
                const uint8_t *from[4];                                                                                \
                __m256i sums[4][2], results[4][2];                                                                     \
                for (int i = 0; i < 4; i++) {                                                                          \
                    from[i] = x + (r + (i < taken ? i : taken - 1)) * filled;                                          \
                    sums[i][0] = sums[i][1] = _mm256_setzero_si256();                                                  \
                }                                                                                                      \
                const char *line = panel;                                                                              \
                for (int64_t k = 0; k < filled; k += 4, line += LINE) {                                                \
                    const __m256i low = _mm256_loadu_si256((const __m256i *)line);                                     \
                    const __m256i high = _mm256_loadu_si256((const __m256i *)(line + 32));                             \
                    for (int i = 0; i < 4; i++) {                                                                      \
                        int32_t four;                                                                                  \
                        memcpy(&four, from[i] + k, 4);                                                                 \
                        const __m256i row = _mm256_set1_epi32(four);                                                   \
                        sums[i][0] = add(sums[i][0], row, low);                                                        \
                        sums[i][1] = add(sums[i][1], row, high);                                                       \
                    }                                                                                                  \
                }                                                                                                      \
                for (int i = 0; i < 4; i++) /* so that the sums stay in registers */                                   \
                    for (int p = 0; p < 2; p++) results[i][p] = sums[i][p];                                            \
                for (int64_t p = 0; p < 2 && first + 8 * p < m->outputs; p++) {                                        \
                    const Integers_avx2 shifts = *(const Integers_avx2 *)(m->shifts + first + 8 * p) >> (halved);      \
                    for (int64_t i = 0; i < taken; i++)                                                                \
                        finish_integers_avx2(m, y + (r + i) * y_stride, (Integers_avx2)results[i][p] - shifts,         \
                                             first + 8 * p, scales[r + i], relu);                                      \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

INTEGERS(integers_avx_vnni, "arch=x86-64-v3,avxvnni", ADD_FOURS, 0)
INTEGERS(integers_avx2, "arch=x86-64-v3", ADD_PAIRS, 1)

/* Some rows and one or two panels. Each number of rows has a function of its own: in one large function gcc moves the sums
   about at every line, which takes half of the speed. */
WITH_AVX512
INLINE void add_rows(const Matrix *m, int64_t first, const uint8_t *x, const float *scales, int64_t filled, float *y,
                     int64_t y_stride, int64_t relu, int64_t rows, int64_t panels) {
    const int64_t bytes = panel_bytes(m);
    const char *line = (const char *)m->panels + first / PANEL * bytes;
    __m512i sums[24], results[24];
    UNROLLED for (int64_t i = 0; i < rows * panels; i++) sums[i] = _mm512_setzero_si512();
    for (int64_t k = 0; k < filled; k += 4, line += LINE) {
        __m512i weights[2];
        UNROLLED for (int64_t p = 0; p < panels; p++) weights[p] = _mm512_loadu_si512(line + p * bytes);
        UNROLLED for (int64_t r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x + r * filled + k, 4);
            const __m512i all = _mm512_set1_epi32(four);
            UNROLLED for (int64_t p = 0; p < panels; p++)
                sums[r * panels + p] = _mm512_dpbusd_epi32(sums[r * panels + p], all, weights[p]);
        }
    }
    UNROLLED for (int64_t i = 0; i < rows * panels; i++) results[i] = sums[i]; /* so that the sums stay in registers */
    for (int64_t p = 0; p < panels; p++) {
        const Integers_avx512 shifts = *(const Integers_avx512 *)(m->shifts + first + p * PANEL);
        for (int64_t r = 0; r < rows; r++)
            finish_integers_avx512(m, y + r * y_stride, (Integers_avx512)results[r * panels + p] - shifts,
                                   first + p * PANEL, scales[r], relu);
    }
}

#define ROWS_OF_INTEGERS(rows, panels)                                                                                 \
    WITH_AVX512 __attribute__((noinline)) static void add_##rows##_rows_##panels(                                      \
        const Matrix *m, int64_t first, const uint8_t *x, const float *scales, int64_t filled, float *y,               \
        int64_t y_stride, int64_t relu) {                                                                              \
        add_rows(m, first, x, scales, filled, y, y_stride, relu, rows, panels);                                        \
    }
ROWS_OF_INTEGERS(12, 2)
ROWS_OF_INTEGERS(8, 2)
ROWS_OF_INTEGERS(4, 2)
ROWS_OF_INTEGERS(1, 2)
ROWS_OF_INTEGERS(12, 1)
ROWS_OF_INTEGERS(8, 1)
ROWS_OF_INTEGERS(4, 1)
ROWS_OF_INTEGERS(1, 1)

typedef void (*AddRows)(const Matrix *, int64_t, const uint8_t *, const float *, int64_t, float *, int64_t, int64_t);

static void integers_vnni(const Matrix *m, const uint8_t *x, const float *scales, int64_t filled, int64_t rows,
                          float *y, int64_t y_stride, int64_t relu) {
    static const AddRows by_panels[2][4] = {{add_12_rows_1, add_8_rows_1, add_4_rows_1, add_1_rows_1},
                                            {add_12_rows_2, add_8_rows_2, add_4_rows_2, add_1_rows_2}};
    static const int64_t sizes[4] = {12, 8, 4, 1};
    for (int64_t first = 0; first < m->outputs; first += 2 * PANEL) {
        const AddRows *add = by_panels[first + PANEL < m->outputs];
        int64_t r = 0;
        for (int i = 0; i < 4; i++)
            for (; r + sizes[i] <= rows; r += sizes[i])
                add[i](m, first, x + r * filled, scales + r, filled, y + r * y_stride, y_stride, relu);
    }
}
