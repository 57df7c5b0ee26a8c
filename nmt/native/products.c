/* Products of a few rows with packed matrices (panels.h).

   A row's result is the same number whatever other rows there are: its sums are made in the same order, and a row of int8
   has a scale of its own. */

#include "panels.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#define BLOCK 48 /* rows that are computed before the next ones: whole groups on every processor */
#define CACHED 131072 /* bytes of weights that are used for all rows before the next ones */

int processor = PORTABLE;

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "panels are read in the order of little-endian processors"
#endif

/* ---- What every processor can do ---- */

#define NAME(x) x##_portable
#define TARGET
#define LANES 4
#define AT_ONCE 4
#define PANELS 1
#include "products_for.h"

/* Rows in integers up to ``most`` with a scale for each, filled up to ``filled`` inputs with zeros; ``added`` to every
   number. A row with something that is no number, or infinite, gets a scale that is none. */
FOR_EACH_PROCESSOR
static void to_integers(const float *x, int64_t stride, int64_t rows, int64_t inputs, int64_t filled, int64_t most,
                        int64_t added, uint8_t *integers, float *scales) {
    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + r * stride;
        uint8_t *to = integers + r * filled;
        float highest = 0.0f, nothing = 0.0f;
#pragma omp simd reduction(max : highest) reduction(+ : nothing)
        for (int64_t k = 0; k < inputs; k++) {
            highest = fabsf(row[k]) > highest ? fabsf(row[k]) : highest;
            nothing += row[k] * 0.0f;
        }
        const int sound = nothing == 0.0f;
        const float inverse = sound && highest > LEAST ? (float)most / highest : 0.0f;
        if (sound)
            for (int64_t k = 0; k < inputs; k++) to[k] = (uint8_t)((int32_t)rintf(row[k] * inverse) + (int32_t)added);
        else
            memset(to, (int)added, (size_t)inputs);
        memset(to + inputs, (int)added, (size_t)(filled - inputs));
        scales[r] = sound ? highest / (float)most : NAN;
    }
}

#if KNOWN_PROCESSORS
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAME(x) x##_avx2
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define LANES 8
#define AT_ONCE 6
#define PANELS 1
#include "products_for.h"

#define WITH_AVX512 __attribute__((target("arch=x86-64-v4,avx512vnni")))
#define NAME(x) x##_avx512
#define TARGET WITH_AVX512
#define LANES 16
#define AT_ONCE 12
#define PANELS 2
#include "products_for.h"

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

/* ---- Tiles: 16 rows of 64 bytes ---- */

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

/* Rows rounded to bfloat16, filled up with zeros. */
WITH_TILES
static void to_halves(const float *x, int64_t stride, int64_t rows, int64_t inputs, int64_t filled, uint16_t *halves) {
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t k = 0; k < inputs; k++) halves[r * filled + k] = to_bfloat16(x[r * stride + k]);
        memset(halves + r * filled + inputs, 0, (size_t)(filled - inputs) * 2);
    }
}

/* The system lends the registers of tiles to those who ask. */
static int may_use_tiles(void) {
    const long ask = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, ask, tile_data) == 0;
}
#endif

/* What this processor can do, but not more than ``most``; products are made for that from now on. */
int64_t choose_processor(int64_t most) {
    int found = PORTABLE;
#if KNOWN_PROCESSORS
    unsigned a, b, c, d;
    __builtin_cpu_init();
    if (most >= AVX2 && __builtin_cpu_supports("x86-64-v3")) found = AVX2;
    if (most >= AVX_VNNI && found == AVX2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1) found = AVX_VNNI;
    if (most >= AVX512 && __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512vnni")) found = AVX512;
    if (most >= AMX && found == AVX512 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1) &&
        (d >> 25 & 1) && __builtin_cpu_supports("avx512bf16") && may_use_tiles())
        found = AMX;
#endif
    processor = found;
    return found;
}

/* Rows as the processor wants them. */
typedef struct {
    const void *numbers;
    const float *scales; /* of integers */
    int64_t line;        /* bytes from one row to the next */
} Rows;

static Rows prepare_rows(const Matrix *m, const float *x, int64_t stride, int64_t rows) {
    const int64_t filled = filled_inputs(m->inputs, m->format);
    const int64_t room = (rows + 2 * LINES) * filled; /* tiles read whole sixteens of rows */
    if (m->format == INT8) {
        const int64_t most = processor == AVX2 ? 63 : 127;
        const int64_t added = processor == AVX2 ? 64 : processor == AVX_VNNI || processor == AVX512 ? 128 : 0;
        uint8_t *integers = scratch_memory(ROWS, room);
        float *scales = scratch_memory(SCALES, rows * (int64_t)sizeof(float));
        to_integers(x, stride, rows, m->inputs, filled, most, added, integers, scales);
        return (Rows){integers, scales, filled};
    }
#if KNOWN_PROCESSORS
    if (processor == AMX && m->format == BFLOAT16) {
        uint16_t *halves = scratch_memory(ROWS, room * 2);
        to_halves(x, stride, rows, m->inputs, filled, halves);
        return (Rows){halves, NULL, filled * 2};
    }
#endif
    return (Rows){x, NULL, stride * (int64_t)sizeof(float)};
}

static void multiply_rows(const Matrix *m, Rows x, int64_t rows, float *y, int64_t y_stride, int64_t relu) {
    const int64_t stride = x.line / (int64_t)sizeof(float);
#if KNOWN_PROCESSORS
    if (processor == AMX && (m->format == INT8 || m->format == BFLOAT16))
        tile_product(m, x.numbers, x.scales, x.line, rows, y, y_stride, relu);
    else if (processor >= AVX512 && m->format == INT8)
        integers_vnni(m, x.numbers, x.scales, x.line, rows, y, y_stride, relu);
    else if (processor >= AVX512)
        floats_avx512(m, x.numbers, stride, rows, y, y_stride, relu);
    else if (processor == AVX_VNNI && m->format == INT8)
        integers_avx_vnni(m, x.numbers, x.scales, x.line, rows, y, y_stride, relu);
    else if (processor >= AVX2 && m->format == INT8)
        integers_avx2(m, x.numbers, x.scales, x.line, rows, y, y_stride, relu);
    else if (processor >= AVX2)
        floats_avx2(m, x.numbers, stride, rows, y, y_stride, relu);
    else
#endif
        if (m->format == INT8)
        integers_portable(m, x.numbers, x.scales, x.line, rows, y, y_stride, relu);
    else
        floats_portable(m, x.numbers, stride, rows, y, y_stride, relu);
}

/* Some outputs at a time, so that their weights stay in the cache for all rows; of these some rows at a time, so that
   results of neighbouring outputs are written soon after each other. */
void multiply_and(const Matrix *m, const float *x, int64_t stride, int64_t rows, float *y, int64_t y_stride, int64_t relu,
                  Then then, void *about) {
    const int64_t bytes = panel_bytes(m), fours = CACHED / (4 * bytes), together = (fours > 1 ? fours : 1) * 4 * PANEL;
    const Rows all = prepare_rows(m, x, stride, rows);
#if KNOWN_PROCESSORS
    const int tiles = processor == AMX && (m->format == INT8 || m->format == BFLOAT16);
    if (tiles) prepare_tiles();
#endif
    for (int64_t first = 0; first < m->outputs; first += together) {
        Matrix part = *m;
        part.panels = (const char *)m->panels + first / PANEL * bytes;
        part.outputs = m->outputs - first < together ? m->outputs - first : together;
        if (m->bias) part.bias = m->bias + first;
        if (m->scales) part.scales = m->scales + first;
        if (m->shifts) part.shifts = m->shifts + first;
        for (int64_t r = 0; r < rows; r += BLOCK) {
            const Rows some = {(const char *)all.numbers + r * all.line, all.scales ? all.scales + r : NULL, all.line};
            multiply_rows(&part, some, rows - r < BLOCK ? rows - r : BLOCK, y + r * y_stride + first, y_stride, relu);
        }
        if (then) then(about, first, part.outputs);
    }
#if KNOWN_PROCESSORS
    if (tiles) release_tiles();
#endif
}

void multiply(const Matrix *m, const float *x, int64_t stride, int64_t rows, float *y, int64_t y_stride, int64_t relu) {
    multiply_and(m, x, stride, rows, y, y_stride, relu, NULL, NULL);
}

/* For each of B sentences a matrix of its own, of ``first``'s shape and so many bytes (numbers: of scales, shifts and bias)
   after the one before: x [B * rows, inputs] to y [B * rows, outputs]. */
void multiply_own(const Matrix *first, int64_t bytes, int64_t B, const float *x, int64_t rows, float *y) {
    const int64_t numbers = (first->outputs + PANEL - 1) / PANEL * PANEL;
    for (int64_t b = 0; b < B; b++) {
        Matrix own = *first;
        own.panels = (const char *)first->panels + b * bytes;
        if (first->scales) own.scales = first->scales + b * numbers;
        if (first->shifts) own.shifts = first->shifts + b * numbers;
        if (first->bias) own.bias = first->bias + b * numbers;
        multiply(&own, x + b * rows * own.inputs, own.inputs, rows, y + b * rows * own.outputs, own.outputs, 0);
    }
}

typedef struct {
    void *memory;
    int64_t bytes;
} Piece;

static pthread_key_t own_pieces;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void give_back(void *pieces) {
    for (int i = 0; i < PIECES; i++) free(((Piece *)pieces)[i].memory);
    free(pieces);
}

static void make_key(void) {
    if (pthread_key_create(&own_pieces, give_back)) abort();
}

void *scratch_memory(int piece, int64_t bytes) {
    static _Thread_local Piece *pieces;
    if (!pieces) {
        pthread_once(&once, make_key);
        pieces = calloc(PIECES, sizeof(Piece));
        if (!pieces || pthread_setspecific(own_pieces, pieces)) abort();
    }
    Piece *own = pieces + piece;
    if (own->bytes < bytes) {
        const int64_t room = bytes < 1 << 20 ? bytes + bytes / 2 : bytes; /* the next one may be a little larger */
        free(own->memory);
        own->bytes = (room + LINE - 1) / LINE * LINE;
        own->memory = aligned_alloc(LINE, (size_t)own->bytes);
        if (!own->memory) abort();
    }
    return own->memory;
}
