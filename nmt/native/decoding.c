/* A Transformer that translates: sentences are encoded, and their hypotheses grow step by step.

   B sentences at the beginning, b of them still there, K hypotheses of each, N = b * K rows, D width, V pieces. */

#include "layers.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 16 /* steps that there is room for at first; it doubles when full */

/* An embedding, positions that are added to it, and layers, with a norm before the first and one after the last, or none. */
typedef struct {
    Matrix embedding;       /* [V, D]; the matrix of the output too, if they are shared */
    const float *positions; /* [any, D], or NULL */
    float scale;            /* of the embedding */
    const Layer *layers;
    int64_t count;
    Norm first, last;
} Stack;

typedef struct {
    Stack source, target;
    Matrix output;
    int64_t width;
} Model;

typedef struct {
    const Model *model;
    int64_t sentences, beam, steps, room;
    int64_t begun;    /* B */
    int64_t *places;  /* [b] where each sentence still there stood at the beginning */
    int64_t *caches;  /* [b] and where its caches stand now */
    int64_t *offsets; /* [B + 1] of the sources */
    int64_t *laid;    /* [B + 1] where the keys of each source begin */
    float **sources;  /* by layer: keys of the sources, laid out, then values [positions, attended] */
    float **keys;     /* by layer: [caches, room, K, kept]; cells, of an SSRU, which has no values */
    float **values;
    int32_t *slots;       /* [N, room] */
    int32_t *other_slots; /* where the next ones are made */
    float *hidden;        /* [N, D] */
    float *scores;        /* [N, V] of the last step */
    float *maxima;        /* of the blocks of scores */
    float *normaliser;    /* [N] */
    const Matrix *own;    /* [B] a part of the output layer for each sentence, or NULL */
    int64_t pieces;       /* V, or those of the longest part */
    int64_t blocks;       /* of scores that maxima are of */
} Decoding;

/* See ranking.c. */
int64_t summary_bytes(int64_t rows);
void begin_summaries(void *summaries, int64_t rows);
void add_to_summaries(void *summaries, const float *scores, int64_t stride, int64_t rows, int64_t first, int64_t count,
                      float *maxima, int64_t blocks, int64_t normalise);
void end_summaries(const void *summaries, int64_t rows, float *maxima, int64_t blocks, float *normaliser);
void best_continuations(const float *scores, const float *maxima, const float *totals, const float *normaliser, int64_t B,
                        int64_t K, int64_t V, int64_t count, const uint8_t *banned, int64_t num_banned, float *best,
                        int64_t *parents, int64_t *tokens);

FOR_EACH_PROCESSOR
static void embed(const Stack *stack, const int64_t *ids, const int64_t *positions, int64_t position, int64_t rows,
                  int64_t width, float *x) {
    for (int64_t r = 0; r < rows; r++, x += width) {
        unpack_row(&stack->embedding, ids[r], x);
        const float *place = stack->positions + (positions ? positions[r] : position) * width;
        if (stack->positions)
#pragma omp simd
            for (int64_t i = 0; i < width; i++) x[i] = x[i] * stack->scale + place[i];
        else
#pragma omp simd
            for (int64_t i = 0; i < width; i++) x[i] *= stack->scale;
    }
}

static void normalise_if(const Norm *norm, float *x, int64_t rows, int64_t width) {
    if (norm->weight) normalise(norm, x, rows, width, x);
}

/* The input of the first layer. */
static void enter(const Stack *stack, const int64_t *ids, const int64_t *positions, int64_t position, int64_t rows,
                  int64_t width, float *x) {
    embed(stack, ids, positions, position, rows, width, x);
    normalise_if(&stack->first, x, rows, width);
}

/* The states of all sources, one after the other: x [positions, D]; ``positions``: of each piece in its sentence. */
static void encode(const Model *model, const int64_t *ids, const int64_t *positions, int64_t B, const int64_t *offsets,
                   float *x) {
    enter(&model->source, ids, positions, 0, offsets[B], model->width, x);
    for (int64_t i = 0; i < model->source.count; i++) encoder_layer(model->source.layers + i, x, B, offsets);
    normalise_if(&model->source.last, x, offsets[B], model->width);
}

/* Numbers of a step that a layer keeps in each of its caches. */
static int64_t kept(const Layer *layer) { return layer->recurrent ? layer->width : layer->attended; }

static void *array(int64_t count, size_t size) {
    void *memory = malloc((size_t)(count > 0 ? count : 1) * size);
    return memory;
}

void end_decoding(Decoding *d) {
    if (!d) return;
    for (int64_t i = 0; i < d->model->target.count; i++) {
        if (d->sources) free(d->sources[i]);
        if (d->keys) free(d->keys[i]);
        if (d->values) free(d->values[i]);
    }
    void *parts[] = {d->places, d->caches,      d->offsets, d->laid,   d->sources, d->keys,       d->values,
                     d->slots,  d->other_slots, d->hidden,  d->scores, d->maxima,  d->normaliser, d};
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) free(parts[i]);
}

/* Whether there is memory for everything but the caches. */
static int make_room(Decoding *d, const int64_t *offsets) {
    const int64_t layers = d->model->target.count, width = d->model->width, rows = d->begun * d->beam;
    const int64_t attended = d->model->target.layers->attended;
    d->places = array(d->begun, sizeof(int64_t));
    d->caches = array(d->begun, sizeof(int64_t));
    d->offsets = array(d->begun + 1, sizeof(int64_t));
    d->laid = array(d->begun + 1, sizeof(int64_t));
    d->sources = calloc((size_t)layers, sizeof(float *));
    d->keys = calloc((size_t)layers, sizeof(float *));
    d->values = calloc((size_t)layers, sizeof(float *));
    d->hidden = array(rows * width, sizeof(float));
    d->scores = array(rows * d->pieces, sizeof(float));
    d->maxima = array(rows * d->blocks, sizeof(float));
    d->normaliser = array(rows, sizeof(float));
    if (!d->places || !d->caches || !d->offsets || !d->laid || !d->sources || !d->keys || !d->values || !d->hidden ||
        !d->scores || !d->maxima || !d->normaliser)
        return 0;
    memcpy(d->offsets, offsets, (size_t)(d->begun + 1) * sizeof(int64_t));
    d->laid[0] = 0;
    for (int64_t b = 0; b < d->begun; b++) d->laid[b + 1] = d->laid[b] + laid_out(offsets[b + 1] - offsets[b], attended);
    for (int64_t i = 0; i < layers; i++)
        if (!(d->sources[i] = array(d->laid[d->begun] + offsets[d->begun] * attended, sizeof(float)))) return 0;
    return 1;
}

/* Twice the room for steps, for the sentences alone that are still there. */
static int grow(Decoding *d) {
    const int64_t room = d->room ? 2 * d->room : FIRST_ROOM;
    const int64_t rows = d->sentences * d->beam;
    int32_t *slots = array(rows * room, sizeof(int32_t)), *others = array(rows * room, sizeof(int32_t));
    if (slots && others) {
        for (int64_t n = 0; n < rows && d->steps; n++)
            memcpy(slots + n * room, d->slots + n * d->room, (size_t)d->steps * sizeof(int32_t));
        free(d->slots);
        free(d->other_slots);
        d->slots = slots;
        d->other_slots = others;
    } else {
        free(slots);
        free(others);
        return 0;
    }
    for (int64_t i = 0; i < 2 * d->model->target.count; i++) {
        const Layer *layer = d->model->target.layers + i / 2;
        const int64_t step = d->beam * kept(layer);
        float **which = i % 2 ? d->values + i / 2 : d->keys + i / 2;
        if (i % 2 && layer->recurrent) continue;
        float *larger = array(d->sentences * room * step, sizeof(float));
        if (!larger) return 0;
        for (int64_t b = 0; b < d->sentences && d->steps; b++)
            memcpy(larger + b * room * step, *which + d->caches[b] * d->room * step,
                   (size_t)(d->steps * step) * sizeof(float));
        free(*which);
        *which = larger;
    }
    for (int64_t b = 0; b < d->sentences; b++) d->caches[b] = b;
    d->room = room;
    return 1;
}

/* Keys and values [positions, 2 attended] of a layer where its steps read them. */
static void keep_sources(const Decoding *d, const Layer *layer, const float *read, float *to) {
    const int64_t all = layer->attended;
    for (int64_t b = 0; b < d->begun; b++)
        lay_out_keys(read + d->offsets[b] * 2 * all, 2 * all, d->offsets[b + 1] - d->offsets[b], layer->heads,
                     all / layer->heads, to + d->laid[b]);
    for (int64_t r = 0; r < d->offsets[d->begun]; r++)
        memcpy(to + d->laid[d->begun] + r * all, read + (2 * r + 1) * all, (size_t)all * sizeof(float));
}

/* Sources of B sentences: ids and their positions one after the other, sentence b from offsets[b] to offsets[b + 1].
   ``own``: [B] a part of the output layer for each, with so many ``pieces`` at most; NULL: the whole one. NULL comes back
   where there is no memory for it. What is given by address must stay there until the end. */
Decoding *begin_decoding(const Model *model, int64_t B, int64_t K, const int64_t *ids, const int64_t *positions,
                         const int64_t *offsets, const Matrix *own, int64_t pieces) {
    Decoding *d = calloc(1, sizeof(Decoding));
    if (!d) return NULL;
    *d = (Decoding){.model = model, .sentences = B, .beam = K, .begun = B, .own = own};
    d->pieces = own ? pieces : model->output.outputs;
    d->blocks = (d->pieces + 63) / 64;
    float *states = array(offsets[B] * model->width, sizeof(float));
    float *read = array(offsets[B] * 2 * model->target.layers->attended, sizeof(float));
    if (!states || !read || !make_room(d, offsets) || !grow(d)) {
        free(states);
        free(read);
        end_decoding(d);
        return NULL;
    }
    for (int64_t b = 0; b < B; b++) d->places[b] = d->caches[b] = b;
    encode(model, ids, positions, B, offsets, states);
    for (int64_t i = 0; i < model->target.count; i++) {
        const Layer *layer = model->target.layers + i;
        multiply(&layer->memory, states, model->width, offsets[B], read, 2 * layer->attended, 0);
        keep_sources(d, layer, read, d->sources[i]);
    }
    free(states);
    free(read);
    return d;
}

/* Rows of scores that are summed up while they are computed. */
typedef struct {
    Decoding *d;
    int64_t first, rows;
    char *summaries;
} Rising;

static void sum_up(void *about, int64_t first, int64_t count) {
    const Rising *own = about;
    const Decoding *d = own->d;
    add_to_summaries(own->summaries, d->scores + own->first * d->pieces, d->pieces, own->rows, first, count,
                     d->maxima + own->first * d->blocks, d->blocks, 1);
}

static void score_rows(Decoding *d, const Matrix *matrix, int64_t first, int64_t rows) {
    const int64_t width = d->model->width;
    Rising about = {d, first, rows, scratch_memory(SUMMARIES, summary_bytes(rows))};
    begin_summaries(about.summaries, rows);
    multiply_and(matrix, d->hidden + first * width, width, rows, d->scores + first * d->pieces, d->pieces, 0, sum_up, &about);
    end_summaries(about.summaries, rows, d->maxima + first * d->blocks, d->blocks, d->normaliser + first);
}

/* ``beam`` rows of each sentence. */
static void score(Decoding *d, int64_t beam) {
    if (!d->own) score_rows(d, &d->model->output, 0, d->sentences * beam);
    for (int64_t b = 0; d->own && b < d->sentences; b++) score_rows(d, d->own + d->places[b], b * beam, beam);
}

static void spread(void *rows, int64_t bytes, int64_t sentences, int64_t beam) {
    char *to = rows;
    for (int64_t n = sentences * beam - 1; n > 0; n--) memcpy(to + n * bytes, to + n / beam * bytes, (size_t)bytes);
}

/* Whether all hypotheses of a sentence are the same one, as they are before the first token. */
static int alike(const Decoding *d, const int64_t *tokens) {
    if (d->steps) return 0;
    for (int64_t n = 0; n < d->sentences * d->beam; n++)
        if (tokens[n] != tokens[n / d->beam * d->beam]) return 0;
    return 1;
}

/* The last token [N] of each hypothesis becomes the scores of the next one. ``weights`` [N, weights_row] receive the
   attention of the last layer to the source, the mean over its heads; NULL: not asked. Returns whether there was memory. */
int64_t decoding_step(Decoding *d, const int64_t *tokens, float *weights, int64_t weights_row) {
    const Stack *target = &d->model->target;
    const int64_t once = alike(d, tokens), beam = once ? 1 : d->beam, rows = d->sentences * beam;
    if (d->steps == d->room && !grow(d)) return 0;
    for (int64_t n = 0; n < d->sentences * d->beam; n++)
        d->slots[n * d->room + d->steps] = once ? 0 : (int32_t)(n % d->beam);
    for (int64_t b = 0; b < d->sentences; b++)
        enter(target, tokens + b * d->beam, NULL, d->steps, beam, d->model->width, d->hidden + b * beam * d->model->width);
    d->steps++;
    for (int64_t i = 0; i < target->count; i++) {
        const Past past = {d->keys[i], d->values[i], d->caches, d->slots, d->room, d->room, d->steps, d->beam};
        const int last = i == target->count - 1;
        const float *keys = d->sources[i], *values = keys + d->laid[d->begun];
        const Source source = {keys, values, d->places, d->offsets, d->laid, last ? weights : NULL, weights_row};
        decoder_step(target->layers + i, d->hidden, d->sentences, beam, &past, &source);
    }
    normalise_if(&target->last, d->hidden, rows, d->model->width);
    score(d, beam);
    if (once) {
        spread(d->scores, d->pieces * (int64_t)sizeof(float), d->sentences, d->beam);
        spread(d->maxima, d->blocks * (int64_t)sizeof(float), d->sentences, d->beam);
        spread(d->normaliser, sizeof(float), d->sentences, d->beam);
        if (weights) spread(weights, weights_row * (int64_t)sizeof(float), d->sentences, d->beam);
    }
    return 1;
}

/* The ``count`` best continuations of each sentence (see ranking.c), and the log-probability of the token of each. */
void decoding_best(const Decoding *d, const float *totals, int64_t count, const uint8_t *banned, int64_t num_banned,
                   float *best, int64_t *parents, int64_t *tokens, float *logarithms) {
    best_continuations(d->scores, d->maxima, totals, d->normaliser, d->sentences, d->beam, d->pieces, count, banned,
                       num_banned, best, parents, tokens);
    for (int64_t i = 0; i < d->sentences * count; i++) {
        const int64_t n = i / count * d->beam + parents[i];
        logarithms[i] = d->scores[n * d->pieces + tokens[i]] - d->normaliser[n];
    }
}

/* The hypotheses of the next step: of the sentences ``staying`` [count] among those still there, in this order, slot k
   goes on from parents[staying[i] * K + k]. */
void decoding_follow(Decoding *d, const int64_t *parents, const int64_t *staying, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t b = staying[i]; /* never before i */
        for (int64_t k = 0; k < d->beam; k++)
            memcpy(d->other_slots + (i * d->beam + k) * d->room,
                   d->slots + (b * d->beam + parents[b * d->beam + k]) * d->room, (size_t)d->steps * sizeof(int32_t));
        d->places[i] = d->places[b];
        d->caches[i] = d->caches[b];
    }
    int32_t *slots = d->slots;
    d->slots = d->other_slots;
    d->other_slots = slots;
    d->sentences = count;
}

/* The scores [N, V] of the last step, and the logarithm [N] of the sum of their exponentials. */
const float *decoding_scores(const Decoding *d) { return d->scores; }
const float *decoding_normaliser(const Decoding *d) { return d->normaliser; }
