/* Products of a few rows with packed matrices (panels.h).

   A row's result is the same number whatever other rows there are: its sums are made in the same order, and a row of int8
   has a scale of its own. */

#include "panels.h"

#include <math.h>

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

#include "integers_of_processors.h"
#include "tiles.h"

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
