/* How packed matrices stand in memory.

   A matrix [N, K] stands in panels of 16 outputs. Inside a panel the numbers of 16 outputs for the same inputs stand side
   by side: one input in float32, two in the halves, four in int8, so that every line has 64 bytes. N is filled up to 16,
   and K to the width of a tile, with zeros. */

#ifndef NMT_PANELS_H
#define NMT_PANELS_H

#include "native.h"

#include <string.h>

#define PANEL 16
#define LINE 64  /* bytes */
#define LINES 16 /* of a tile: inputs are filled up to so many lines */
#define LEAST 1e-30f /* what int8 takes for more than nothing */

INLINE int64_t inputs_of_line(int64_t format) { return format == INT8 ? 4 : format == FLOAT32 ? 1 : 2; }

/* Inputs with those that fill up the last line, or the last tile where there are tiles for the format. */
INLINE int64_t filled_inputs(int64_t inputs, int64_t format) {
    const int64_t line = inputs_of_line(format), tile = format == BFLOAT16 || format == INT8 ? LINES * line : line;
    return (inputs + tile - 1) / tile * tile;
}

INLINE int64_t panel_bytes(const Matrix *m) {
    return filled_inputs(m->inputs, m->format) / inputs_of_line(m->format) * LINE;
}

INLINE uint16_t to_bfloat16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0; /* not a number */
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

INLINE float of_bfloat16(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* The exponent moves to its place, and is then too small by 112. */
INLINE float of_float16(uint16_t half) {
    const uint32_t bits = (uint32_t)(half & 0x8000) << 16 | (uint32_t)(half & 0x7fff) << 13;
    float x;
    memcpy(&x, &bits, 4);
    return x * 0x1p112f;
}

/* Rounds to the nearest, ties to even; what is too large, or no number, becomes the largest. */
INLINE uint16_t to_float16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    const uint16_t sign = (uint16_t)((bits >> 16) & 0x8000);
    bits &= 0x7fffffff;
    if (bits >= 0x477ff000) return sign | 0x7bff;
    if (bits < 0x38800000) { /* below the smallest normal number: in steps of 2^-24 */
        float size;
        memcpy(&size, &bits, 4);
        return sign | (uint16_t)lrintf(size * 16777216.0f);
    }
    return sign | (uint16_t)((bits - 0x38000000 + 0xfff + ((bits >> 13) & 1)) >> 13);
}

#endif
