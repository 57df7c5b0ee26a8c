/* Whole layers of the Transformer for a few rows: D width, N rows, which are independent but for attention. */

#include "layers.h"

#include <math.h>
#include <string.h>

#define TOGETHER 256 /* rows of a feed-forward network */

FOR_EACH_PROCESSOR
static void normalise_by_rms(const Norm *norm, const float *x, int64_t rows, int64_t width, float *y) {
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < width; i++) squares += x[i] * x[i];
        const float scale = 1.0f / sqrtf(squares / (float)width + norm->epsilon);
#pragma omp simd
        for (int64_t i = 0; i < width; i++) y[i] = x[i] * scale * norm->weight[i];
    }
}

FOR_EACH_PROCESSOR
static void normalise_by_layer(const Norm *norm, const float *x, int64_t rows, int64_t width, float *y) {
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        float sum = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < width; i++) sum += x[i];
        const float mean = sum / (float)width;
#pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < width; i++) squares += (x[i] - mean) * (x[i] - mean);
        const float scale = 1.0f / sqrtf(squares / (float)width + norm->epsilon);
#pragma omp simd
        for (int64_t i = 0; i < width; i++) y[i] = (x[i] - mean) * scale * norm->weight[i] + norm->bias[i];
    }
}

void normalise(const Norm *norm, const float *x, int64_t rows, int64_t width, float *y) {
    (norm->bias ? normalise_by_layer : normalise_by_rms)(norm, x, rows, width, y);
}

FOR_EACH_PROCESSOR
static void multiply_by(float *x, const float *y, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) x[i] *= y[i];
}

FOR_EACH_PROCESSOR
static void add(float *x, const float *y, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) x[i] += y[i];
}

/* What a sublayer gets of x. */
static const float *before(const Layer *layer, const Norm *norm, const float *x, int64_t rows, float *normed) {
    if (!layer->norm_first) return x;
    normalise(norm, x, rows, layer->width, normed);
    return normed;
}

/* x and what the sublayer said. */
static void after(const Layer *layer, const Norm *norm, float *x, const float *said, int64_t rows) {
    add(x, said, rows * layer->width);
    if (!layer->norm_first) normalise(norm, x, rows, layer->width, x);
}

static float *floats(int piece, int64_t count) { return scratch_memory(piece, count * (int64_t)sizeof(float)); }

/* x / 2 (1 + erf(x / sqrt 2)) */
static void gelu(float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.707106781f));
}

/* x times s(u) = 1 / (1 + e^-u), or s(u) alone: u is x, or for gelu by tanh 2 sqrt(2 / pi) (x + 0.044715 x^3). With the
   exponential of what is not above zero. Row by row: a vectorised loop may round its last numbers otherwise than the first,
   and what a row becomes must not depend on how many there are. */
FOR_EACH_PROCESSOR
static void by_logistic(float *x, int64_t rows, int64_t width, int64_t activation) {
    const float first = activation == GELU_TANH ? 1.59576912f : 1.0f, third = activation == GELU_TANH ? 0.0713548163f : 0.0f;
    for (int64_t r = 0; r < rows; r++, x += width) {
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            const float u = x[i] * (first + third * x[i] * x[i]), power = exponential(-fabsf(u));
            x[i] = (activation == SIGMOID ? 1.0f : x[i]) * ((u < 0.0f ? power : 1.0f) / (1.0f + power));
        }
    }
}

static void feed_some(const Layer *layer, float *x, int64_t rows) {
    const int64_t width = layer->width, inner = layer->inner.outputs;
    float *between = floats(INNER, rows * inner), *said = floats(SAID, rows * width);
    const float *read = before(layer, &layer->feed_norm, x, rows, floats(NORMED, rows * width));
    multiply(&layer->inner, read, width, rows, between, inner, layer->activation == RELU);
    if (layer->activation == GELU) gelu(between, rows * inner);
    if (layer->activation >= SWISH) by_logistic(between, rows, inner, layer->activation);
    if (layer->gate.panels) {
        float *gates = floats(GATES, rows * inner);
        multiply(&layer->gate, read, width, rows, gates, inner, 0);
        multiply_by(between, gates, rows * inner);
    }
    multiply(&layer->outer, between, inner, rows, said, width, 0);
    after(layer, &layer->feed_norm, x, said, rows);
}

/* Some rows at a time: what is between the products is larger than what goes in and comes out. */
static void feed(const Layer *layer, float *x, int64_t rows) {
    for (int64_t r = 0; r < rows; r += TOGETHER)
        feed_some(layer, x + r * layer->width, rows - r < TOGETHER ? rows - r : TOGETHER);
}

/* All positions of B sentences one after the other: sentence b has rows offsets[b] to offsets[b + 1] of x. */
void encoder_layer(const Layer *layer, float *x, int64_t B, const int64_t *offsets) {
    const int64_t width = layer->width, all = layer->attended, rows = offsets[B];
    float *projected = floats(PROJECTED, rows * 3 * all), *seen = floats(SEEN, rows * all);
    float *said = floats(SAID, rows * width);
    const float *read = before(layer, &layer->look_norm, x, rows, floats(NORMED, rows * width));
    multiply(&layer->projection, read, width, rows, projected, 3 * all, 0);
    const int64_t head = all / layer->heads;
    const Biases *biases = layer->biases.of_heads ? &layer->biases : NULL;
    for (int64_t b = 0; b < B; b++) {
        const float *own = projected + offsets[b] * 3 * all;
        const int64_t length = offsets[b + 1] - offsets[b];
        float *keys = floats(KEYS, laid_out(length, all));
        lay_out_keys(own + all, 3 * all, length, layer->heads, head, keys);
        const SharedKeys shared = {keys, own + 2 * all, 3 * all, length, layer->heads, head, layer->look_scale, biases};
        attend_shared(own, 3 * all, length, &shared, seen + offsets[b] * all, NULL, 0);
    }
    multiply(&layer->look_output, seen, all, rows, said, width, 0);
    after(layer, &layer->look_norm, x, said, rows);
    feed(layer, x, rows);
}

/* One step of an SSRU: f = sigmoid(forget), the cell c = f c' + (1 - f) input after that of the step before, and relu(c).
   Row by row, as with swish. */
FOR_EACH_PROCESSOR
static void recur(const float *projected, int64_t B, int64_t K, int64_t width, const Past *past, float *result) {
    const int64_t step = past->beam * width, now = past->steps - 1;
    for (int64_t n = 0; n < B * K; n++, projected += 2 * width, result += width) {
        float *sentence = past->keys + past->places[n / K] * past->room * step;
        const int32_t *slots = past->slots + (n / K * past->beam + n % K) * past->slots_row;
        const float *before = now ? sentence + (now - 1) * step + slots[now - 1] * width : NULL;
        float *cell = sentence + now * step + n % K * width;
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            const float power = exponential(-fabsf(projected[i]));
            const float forget = (projected[i] < 0.0f ? power : 1.0f) / (1.0f + power);
            const float kept = before ? forget * before[i] : 0.0f;
            cell[i] = kept + (1.0f - forget) * projected[width + i];
            result[i] = cell[i] > 0.0f ? cell[i] : 0.0f;
        }
    }
}

void decoder_step(const Layer *layer, float *x, int64_t B, int64_t K, const Past *past, const Source *source) {
    const int64_t width = layer->width, all = layer->attended, rows = B * K, head = all / layer->heads;
    float *normed = floats(NORMED, rows * width), *said = floats(SAID, rows * width);
    float *projected = floats(PROJECTED, rows * (3 * all > 2 * width ? 3 * all : 2 * width));
    float *seen = floats(SEEN, rows * all);

    const float *read = before(layer, &layer->look_norm, x, rows, normed);
    if (layer->recurrent) {
        multiply(&layer->projection, read, width, rows, projected, 2 * width, 0);
        recur(projected, B, K, width, past, said);
    } else {
        multiply(&layer->projection, read, width, rows, projected, 3 * all, 0);
        attend_past(projected, 3 * all, B, K, past, layer->heads, head, layer->look_scale,
                    layer->biases.of_heads ? &layer->biases : NULL, seen);
        multiply(&layer->look_output, seen, all, rows, said, width, 0);
    }
    after(layer, &layer->look_norm, x, said, rows);

    multiply(&layer->query, before(layer, &layer->read_norm, x, rows, normed), width, rows, projected, all, 0);
    for (int64_t b = 0; b < B; b++) {
        const int64_t place = source->places[b], first = source->offsets[place];
        const SharedKeys shared = {source->keys + source->laid[place], source->values + first * all, all,
                                   source->offsets[place + 1] - first, layer->heads, head, layer->read_scale, NULL};
        attend_shared(projected + b * K * all, all, K, &shared, seen + b * K * all,
                      source->weights ? source->weights + b * K * source->weights_row : NULL, source->weights_row);
    }
    multiply(&layer->read_output, seen, all, rows, said, width, 0);
    after(layer, &layer->read_norm, x, said, rows);
    feed(layer, x, rows);
}
