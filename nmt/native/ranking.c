/* The best continuations of a beam: B sentences, K hypotheses each, V tokens in blocks of BLOCK. */

#include "native.h"

#include <math.h>
#include <string.h>

#define BLOCK 64

static int64_t blocks_of(int64_t tokens) { return (tokens + BLOCK - 1) / BLOCK; }

/* The highest score of each block to maxima [rows, blocks], and the logarithm of the sum of exponentials to normaliser
   [rows], unless that is NULL. */
FOR_EACH_PROCESSOR
void summarise(const float *scores, int64_t rows, int64_t tokens, float *maxima, float *normaliser) {
    const int64_t blocks = blocks_of(tokens);
    for (int64_t r = 0; r < rows; r++) {
        const float *row = scores + r * tokens;
        float highest = -INFINITY, sum = 0.0f;
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t end = (b + 1) * BLOCK < tokens ? BLOCK : tokens - b * BLOCK;
            float best = -INFINITY;
#pragma omp simd reduction(max : best)
            for (int64_t i = 0; i < end; i++) best = row[b * BLOCK + i] > best ? row[b * BLOCK + i] : best;
            maxima[r * blocks + b] = best;
            highest = best > highest ? best : highest;
        }
        if (!normaliser) continue;
        const float top = highest == -INFINITY ? 0.0f : highest;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < tokens; i++) sum += exponential(row[i] - top);
        normaliser[r] = top + logf(sum);
    }
}

/* For each sentence the ``count`` continuations with the highest sums of a total and a log-probability, best first; of
   equal ones the lower hypothesis, then the lower token first. Tokens with a flag in ``banned`` are never among
   them. Where there are fewer, the last totals are -inf. */
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
