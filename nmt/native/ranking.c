/* The best continuations of a beam: B sentences, K hypotheses each, V tokens in blocks of BLOCK. */

#include "native.h"

#include <math.h>
#include <string.h>

#define BLOCK 64
#define LANES 16

static int64_t blocks_of(int64_t tokens) { return (tokens + BLOCK - 1) / BLOCK; }

/* A block of a row, filled up with -inf. */
INLINE void take(float *block, const float *row, int64_t number, int64_t tokens) {
    const int64_t left = tokens - number * BLOCK;
    if (left >= BLOCK)
        memcpy(block, row + number * BLOCK, BLOCK * sizeof(float));
    else
        for (int64_t i = 0; i < BLOCK; i++) block[i] = i < left ? row[number * BLOCK + i] : -INFINITY;
}

/* A row's scores so far: the highest, and the sums of exponentials of what they are below it; each lane has an order of its
   own. */
typedef struct {
    float highest, sums[LANES];
} Summary;

int64_t summary_bytes(int64_t rows) { return rows * (int64_t)sizeof(Summary); }

void begin_summaries(void *summaries, int64_t rows) {
    for (int64_t r = 0; r < rows; r++) ((Summary *)summaries)[r] = (Summary){-INFINITY, {0}};
}

/* Of scores [rows, stride] the tokens [first, first + count), where ``first`` begins a block, and the highest score of each
   block to maxima [rows, blocks]. Where a score is no number, neither is the highest of its block and of its row. Without
   ``normalise`` nothing is summed. */
FOR_EACH_PROCESSOR
void add_to_summaries(void *summaries, const float *scores, int64_t stride, int64_t rows, int64_t first, int64_t count,
                      float *maxima, int64_t blocks, int64_t normalise) {
    for (int64_t r = 0; r < rows; r++) {
        Summary *summary = (Summary *)summaries + r;
        const float *row = scores + r * stride + first;
        float *best = maxima + r * blocks + first / BLOCK, highest = summary->highest, block[BLOCK];
        for (int64_t b = 0; b < blocks_of(count); b++) {
            float lanes[LANES], most = -INFINITY;
            int bad = 0;
            take(block, row, b, count);
            for (int64_t i = 0; i < LANES; i++) lanes[i] = block[i];
            for (int64_t at = 0; at < BLOCK; at += LANES)
#pragma omp simd reduction(| : bad)
                for (int64_t i = 0; i < LANES; i++) {
                    lanes[i] = block[at + i] > lanes[i] ? block[at + i] : lanes[i];
                    bad |= block[at + i] != block[at + i];
                }
#pragma omp simd reduction(max : most)
            for (int64_t i = 0; i < LANES; i++) most = lanes[i] > most ? lanes[i] : most;
            best[b] = bad ? NAN : most;
            highest = bad || most > highest ? best[b] : highest;
        }
        const float before = summary->highest;
        summary->highest = highest;
        if (!normalise || !(highest > -INFINITY)) continue;
        if (highest > before) {
            const float factor = before == -INFINITY ? 0.0f : exponential(before - highest);
            for (int64_t i = 0; i < LANES; i++) summary->sums[i] *= factor;
        }
        float sums[LANES];
        for (int64_t i = 0; i < LANES; i++) sums[i] = summary->sums[i];
        for (int64_t b = 0; b < blocks_of(count); b++) {
            take(block, row, b, count);
            for (int64_t at = 0; at < BLOCK; at += LANES)
#pragma omp simd
                for (int64_t i = 0; i < LANES; i++)
                    sums[i] += block[at + i] == -INFINITY ? 0.0f : exponential(block[at + i] - highest);
        }
        for (int64_t i = 0; i < LANES; i++) summary->sums[i] = sums[i];
    }
}

/* The logarithm of the sum of exponentials of each row. Scores of -inf at the end change no bit of it. Where a score is no
   number, it is none, and neither is the first block's maximum. */
void end_summaries(const void *summaries, int64_t rows, float *maxima, int64_t blocks, float *normaliser) {
    for (int64_t r = 0; r < rows; r++) {
        const Summary *summary = (const Summary *)summaries + r;
        float sum = 0.0f;
        for (int64_t i = 0; i < LANES; i++) sum += summary->sums[i];
        if (summary->highest != summary->highest) maxima[r * blocks] = NAN;
        if (normaliser) normaliser[r] = (summary->highest == -INFINITY ? 0.0f : summary->highest) + logf(sum);
    }
}

/* All at once: scores [rows, tokens]; normaliser [rows] or NULL. */
void summarise(const float *scores, int64_t rows, int64_t tokens, float *maxima, float *normaliser) {
    const int64_t blocks = blocks_of(tokens);
    Summary summary;
    for (int64_t r = 0; r < rows; r++) {
        begin_summaries(&summary, 1);
        add_to_summaries(&summary, scores + r * tokens, tokens, 1, 0, tokens, maxima + r * blocks, blocks, normaliser != NULL);
        end_summaries(&summary, 1, maxima + r * blocks, blocks, normaliser ? normaliser + r : NULL);
    }
}

/* For each sentence the ``count`` continuations with the highest sums of a total and a log-probability, best first; of
   equal ones the lower hypothesis, then the lower token first. Tokens with a flag in ``banned`` are never among
   them. Where there are fewer, the last totals are -inf; where a total or a score is no number, all are none. */
void best_continuations(const float *scores, const float *maxima, const float *totals, const float *normaliser, int64_t B,
                        int64_t K, int64_t V, int64_t count, const uint8_t *banned, int64_t num_banned, float *best,
                        int64_t *parents, int64_t *tokens) {
    const int64_t blocks = blocks_of(V);
    for (int64_t b = 0; b < B; b++, best += count, parents += count, tokens += count) {
        for (int64_t i = 0; i < count; i++) {
            best[i] = -INFINITY;
            parents[i] = tokens[i] = 0;
        }
        for (int64_t k = 0; k < K; k++) {
            const int64_t n = b * K + k;
            const float base = totals[n] - normaliser[n], *row = scores + n * V;
            if (base != base || maxima[n * blocks] != maxima[n * blocks]) {
                for (int64_t i = 0; i < count; i++) {
                    best[i] = NAN;
                    parents[i] = k;
                    tokens[i] = V - 1;
                }
                break;
            }
            for (int64_t block = 0; block < blocks; block++) {
                if (!(maxima[n * blocks + block] + base > best[count - 1])) continue;
                const int64_t end = (block + 1) * BLOCK < V ? (block + 1) * BLOCK : V;
                for (int64_t v = block * BLOCK; v < end; v++) {
                    const float value = row[v] + base;
                    if (!(value > best[count - 1]) || (v < num_banned && banned[v])) continue;
                    int64_t place = count - 1;
                    for (; place && value > best[place - 1]; place--) {
                        best[place] = best[place - 1];
                        parents[place] = parents[place - 1];
                        tokens[place] = tokens[place - 1];
                    }
                    best[place] = value;
                    parents[place] = k;
                    tokens[place] = v;
                }
            }
        }
    }
}
