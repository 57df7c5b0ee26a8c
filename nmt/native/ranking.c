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

/* The highest score of each block to maxima [rows, blocks], and the logarithm of the sum of exponentials to normaliser
   [rows], unless that is NULL. Scores of -inf at the end change no bit of it. Where a score is no number, the first block's
   maximum and the normaliser are none. */
FOR_EACH_PROCESSOR
void summarise(const float *scores, int64_t rows, int64_t tokens, float *maxima, float *normaliser) {
    const int64_t blocks = blocks_of(tokens);
    for (int64_t r = 0; r < rows; r++) {
        const float *row = scores + r * tokens;
        float highest = -INFINITY, block[BLOCK];
        int bad = 0;
        for (int64_t b = 0; b < blocks; b++) {
            float best = -INFINITY;
            take(block, row, b, tokens);
#pragma omp simd reduction(max : best) reduction(| : bad)
            for (int64_t i = 0; i < BLOCK; i++) {
                best = block[i] > best ? block[i] : best;
                bad |= block[i] != block[i];
            }
            maxima[r * blocks + b] = best;
            highest = best > highest ? best : highest;
        }
        if (bad) maxima[r * blocks] = NAN;
        if (!normaliser) continue;
        const float top = highest == -INFINITY ? 0.0f : highest;
        float sums[LANES] = {0}, sum = 0.0f; /* each lane has an order of its own */
        for (int64_t b = 0; b < blocks; b++) {
            take(block, row, b, tokens);
            for (int64_t first = 0; first < BLOCK; first += LANES)
#pragma omp simd
                for (int64_t i = 0; i < LANES; i++)
                    sums[i] += block[first + i] == -INFINITY ? 0.0f : exponential(block[first + i] - top);
        }
        for (int64_t i = 0; i < LANES; i++) sum += sums[i];
        normaliser[r] = bad ? NAN : top + logf(sum);
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
