/* Matrices in panels (panels.h), and some outputs of them. */

#include "panels.h"

#include <math.h>

/* What setup.py made of the files of C. */
const char *built_from(void) { return NMT_SOURCES; }

int64_t packed_bytes(int64_t outputs, int64_t inputs, int64_t format) {
    return (outputs + PANEL - 1) / PANEL * (filled_inputs(inputs, format) / inputs_of_line(format)) * LINE;
}

/* weight [outputs, inputs] -> panels, which hold zeros. For int8: output n is scales[n] times the integers, whose sum
   times 128 is shifts[n]. */
void pack(const float *weight, int64_t outputs, int64_t inputs, int64_t format, void *panels, float *scales,
          int32_t *shifts) {
    const int64_t together = inputs_of_line(format), panel = filled_inputs(inputs, format) / together * LINE;
    for (int64_t n = 0; n < outputs; n++) {
        const float *row = weight + n * inputs;
        char *to = (char *)panels + n / PANEL * panel + n % PANEL * (LINE / PANEL);
        float highest = 0.0f;
        int32_t sum = 0;
        if (format == INT8)
            for (int64_t k = 0; k < inputs; k++) highest = fabsf(row[k]) > highest ? fabsf(row[k]) : highest;
        const float inverse = highest > LEAST ? 127.0f / highest : 0.0f;
        for (int64_t k = 0; k < inputs; k++) {
            char *at = to + k / together * LINE;
            if (format == FLOAT32)
                *(float *)at = row[k];
            else if (format == BFLOAT16)
                ((uint16_t *)at)[k % 2] = to_bfloat16(row[k]);
            else if (format == FLOAT16)
                ((uint16_t *)(at - n % PANEL * 2))[k % 2 * PANEL] = to_float16(row[k]);
            else {
                const int8_t whole = (int8_t)rintf(row[k] * inverse);
                ((int8_t *)at)[k % 4] = whole;
                sum += whole;
            }
        }
        if (format == INT8) {
            scales[n] = highest / 127.0f;
            shifts[n] = 128 * sum;
        }
    }
}

INLINE void unpack(const Matrix *m, int64_t n, int64_t format, float *row) {
    const int64_t together = inputs_of_line(format), place = n % PANEL;
    const char *at = (const char *)m->panels + n / PANEL * panel_bytes(m);
    for (int64_t k = 0; k < m->inputs; k++) {
        const char *line = at + k / together * LINE;
        if (format == FLOAT32)
            row[k] = ((const float *)line)[place];
        else if (format == BFLOAT16)
            row[k] = of_bfloat16(((const uint16_t *)line)[place * 2 + k % 2]);
        else if (format == FLOAT16)
            row[k] = of_float16(((const uint16_t *)line)[k % 2 * PANEL + place]);
        else
            row[k] = (float)((const int8_t *)line)[place * 4 + k % 4] * m->scales[n];
    }
}

/* A panel is read line by line, which processors fetch ahead. */
void unpack_row(const Matrix *m, int64_t n, float *row) {
    switch (m->format) {
    case FLOAT32: unpack(m, n, FLOAT32, row); break;
    case BFLOAT16: unpack(m, n, BFLOAT16, row); break;
    case FLOAT16: unpack(m, n, FLOAT16, row); break;
    default: unpack(m, n, INT8, row);
    }
}

/* A matrix of some outputs of another one, into zeros; bias is -inf for those that are ``absent``. */
void select_outputs(const Matrix *m, const int64_t *outputs, const uint8_t *absent, int64_t count, void *panels,
                    float *scales, int32_t *shifts, float *bias) {
    const int64_t bytes = panel_bytes(m), share = LINE / PANEL;
    for (int64_t n = 0; n < count; n++) {
        const int64_t output = outputs[n];
        const char *from = (const char *)m->panels + output / PANEL * bytes;
        char *to = (char *)panels + n / PANEL * bytes;
        for (int64_t at = 0; at < bytes; at += LINE, from += LINE, to += LINE)
            if (m->format == FLOAT16) {
                for (int place = 0; place < 2; place++)
                    memcpy(to + place * (LINE / 2) + n % PANEL * 2, from + place * (LINE / 2) + output % PANEL * 2, 2);
            } else
                memcpy(to + n % PANEL * share, from + output % PANEL * share, (size_t)share);
        if (m->format == INT8) {
            scales[n] = m->scales[output];
            shifts[n] = m->shifts[output];
        }
        bias[n] = absent[n] ? -INFINITY : m->bias ? m->bias[output] : 0.0f;
    }
}
