/* Products with tiles: 16 rows of 64 bytes. Included by products.c. */

#define WITH_TILES __attribute__((target("arch=x86-64-v4,avx512vnni,avx512bf16,amx-tile,amx-int8,amx-bf16")))

typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t lines[16];
} __attribute__((packed)) Tiles;

#define EIGHT(x) x, x, x, x, x, x, x, x
static const Tiles TILES = {1, 0, {0}, {EIGHT(LINE)}, {EIGHT(LINES)}};

WITH_TILES
static void prepare_tiles(void) { _tile_loadconfig(&TILES); }

WITH_TILES
static void release_tiles(void) { _tile_release(); }

/* Sums of 16 or 32 rows (``line`` bytes each) and one or two panels, to ``sums`` [32, 32] of four bytes. */
#define SUM_TILES(name, product)                                                                                       \
    WITH_TILES INLINE void name(const char *x, int64_t line, int64_t both_rows, const char *panel, int64_t bytes,      \
                                int64_t both_panels, int32_t *sums) {                                                  \
        _tile_zero(0);                                                                                                 \
        _tile_zero(1);                                                                                                 \
        _tile_zero(2);                                                                                                 \
        _tile_zero(3);                                                                                                 \
        for (int64_t k = 0; k < line; k += LINE) {                                                                     \
            _tile_loadd(4, x + k, line);                                                                               \
            _tile_loadd(6, panel + k * LINES, LINE);                                                                   \
            product(0, 4, 6);                                                                                          \
            if (both_panels) {                                                                                         \
                _tile_loadd(7, panel + bytes + k * LINES, LINE);                                                       \
                product(1, 4, 7);                                                                                      \
            }                                                                                                          \
            if (both_rows) {                                                                                           \
                _tile_loadd(5, x + LINES * line + k, line);                                                            \
                product(2, 5, 6);                                                                                      \
                if (both_panels) product(3, 5, 7);                                                                     \
            }                                                                                                          \
        }                                                                                                              \
        _tile_stored(0, sums, 2 * LINE);                                                                               \
        if (both_panels) _tile_stored(1, sums + PANEL, 2 * LINE);                                                      \
        if (both_rows) _tile_stored(2, sums + 2 * PANEL * LINES, 2 * LINE);                                            \
        if (both_rows && both_panels) _tile_stored(3, sums + 2 * PANEL * LINES + PANEL, 2 * LINE);                     \
    }

SUM_TILES(sum_integer_tiles, _tile_dpbssd)
SUM_TILES(sum_half_tiles, _tile_dpbf16ps)

WITH_TILES
static void tile_product(const Matrix *m, const void *x, const float *scales, int64_t line, int64_t rows, float *y,
                         int64_t y_stride, int64_t relu) {
    const int64_t bytes = panel_bytes(m);
    int32_t sums[4 * PANEL * LINES];
    for (int64_t first = 0; first < m->outputs; first += 2 * PANEL) {
        const char *panel = (const char *)m->panels + first / PANEL * bytes;
        const int64_t left = m->outputs - first;
        for (int64_t r = 0; r < rows; r += 2 * LINES) {
            const char *from = (const char *)x + r * line;
            const int64_t taken = rows - r < 2 * LINES ? rows - r : 2 * LINES;
            if (m->format == INT8)
                sum_integer_tiles(from, line, taken > LINES, panel, bytes, left > PANEL, sums);
            else
                sum_half_tiles(from, line, taken > LINES, panel, bytes, left > PANEL, sums);
            for (int64_t i = 0; i < taken; i++)
                for (int64_t p = 0; p < 2 && p * PANEL < left; p++) {
                    const int32_t *own = sums + (2 * i + p) * PANEL;
                    float *to = y + (r + i) * y_stride;
                    if (m->format == INT8)
                        finish_integers_avx512(m, to, *(const Integers_avx512 *)own, first + p * PANEL, scales[r + i], relu);
                    else
                        finish_avx512(m, to, *(const Floats_avx512 *)own, first + p * PANEL, relu);
                }
        }
    }
}
