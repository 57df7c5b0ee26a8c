/* The layers of a Transformer. D width, N rows, B sentences, K hypotheses of each. */

#ifndef NMT_LAYERS_H
#define NMT_LAYERS_H

#include "native.h"

typedef struct {
    const float *weight, *bias; /* no weight: nothing is normalized; no bias: the RMS norm */
    float epsilon;
} Norm;

enum { RELU, GELU, SWISH, GELU_TANH, SIGMOID };

/* What is added to the scores of a self-attention by the distance of the key, over their scale: of each head, numbers for the
   distances from -reach to reach; farther keys have that of the last one. NULL: nothing. */
typedef struct {
    const float *of_heads;
    int64_t reach;
} Biases;

/* The parts of a layer, in the order in which they run. An encoder's has no attention over a memory. */
typedef struct {
    Matrix projection, look_output;    /* projection: queries, keys, values; of an SSRU forget gates and inputs, no output */
    Matrix query, memory, read_output; /* memory: keys, values */
    Matrix inner, gate, outer; /* gate: factors of what is between the others, or no panels */
    Norm look_norm, read_norm, feed_norm;
    int64_t norm_first; /* before the sublayer, not after it */
    int64_t activation; /* between inner and outer */
    int64_t recurrent;  /* an SSRU in place of a decoder's self-attention */
    int64_t heads, width, attended; /* attended: of all heads together */
    float look_scale, read_scale;
    Biases biases; /* of the self-attention */
} Layer;

/* What the hypotheses of a sentence wrote: keys and values by sentence, step and slot. Row n went through
   slots[n * slots_row + t] at step t; sentence b stands at places[b]. An SSRU keeps its cells in place of the keys. */
typedef struct {
    float *keys, *values;
    const int64_t *places;
    const int32_t *slots;
    int64_t slots_row, room, steps; /* room for so many steps; made, with the one of now */
    int64_t beam;                   /* slots */
} Past;

/* What a layer reads of the sources: the source of the sentence at place p has rows offsets[p] to offsets[p + 1] of values
   [positions of all sentences, attended], and its keys, laid out, at keys + laid[p]. */
typedef struct {
    const float *keys, *values;
    const int64_t *places, *offsets, *laid;
    float *weights; /* [N, weights_row] receive what each row gives each position, the mean over the heads; NULL: not asked */
    int64_t weights_row;
} Source;

/* Keys and values of one sentence that several queries attend to. */
typedef struct {
    const float *keys; /* laid out */
    const float *values;
    int64_t step; /* from the values of one position to the next */
    int64_t seen; /* positions */
    int64_t heads, head;
    float scale;
    const Biases *biases; /* of queries that are at positions 0, 1, ...; NULL: none */
} SharedKeys;

/* See layer_attention.c. */
int64_t laid_out(int64_t positions, int64_t width);
void lay_out_keys(const float *keys, int64_t step, int64_t seen, int64_t heads, int64_t head, float *to);
void attend_shared(const float *queries, int64_t row, int64_t count, const SharedKeys *shared, float *result,
                   float *weights, int64_t weights_row);
void attend_past(const float *rows, int64_t row, int64_t B, int64_t K, const Past *past, int64_t heads, int64_t head,
                 float scale, const Biases *biases, float *result);

void normalise(const Norm *norm, const float *x, int64_t rows, int64_t width, float *y);

/* All positions of B sentences one after the other: sentence b has rows offsets[b] to offsets[b + 1] of x. */
void encoder_layer(const Layer *layer, float *x, int64_t B, const int64_t *offsets);

/* One step of B sentences with K hypotheses each, at most as many as there are slots: x [B * K, D] becomes what the layer makes of it. */
void decoder_step(const Layer *layer, float *x, int64_t B, int64_t K, const Past *past, const Source *source);

#endif
