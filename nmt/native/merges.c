/* Byte-pair encoding in which merges are left out at random; nmt/data/tokenizers/bpe_dropout.py has the same loop in Python.
   Whole numbers alone, so that every machine draws the same. */

#include "native.h"

#include <string.h>

#define STEP UINT64_C(0x9E3779B97F4A7C15)
#define NEVER INT32_MAX

/* 53 random bits: splitmix64. */
INLINE uint64_t below(uint64_t *state) {
    uint64_t z = *state += STEP;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (z ^ (z >> 31)) >> 11;
}

/* A hash table of merges: two parts -> the rank of their merge, and what is made of them. */
typedef struct {
    const int64_t *keys; /* left << 32 | right; -1: nothing */
    const int32_t *values;
    int64_t bits;
} Merges;

INLINE void look_up(const Merges *merges, int32_t left, int32_t right, int32_t *rank, int32_t *whole) {
    const int64_t key = (int64_t)left << 32 | right, last = ((int64_t)1 << merges->bits) - 1;
    int64_t slot = (int64_t)(((uint64_t)key * STEP) >> (64 - merges->bits));
    while (merges->keys[slot] != key && merges->keys[slot] >= 0) slot = (slot + 1) & last;
    const int found = merges->keys[slot] == key;
    *rank = found ? merges->values[2 * slot] : NEVER;
    *whole = found ? merges->values[2 * slot + 1] : 0;
}

/* The place of the first merge after (rank, place) in the order of ranks and, where these are alike, of places; -1: none. */
INLINE int64_t next_merge(const int32_t *ranks, int64_t pairs, int32_t rank, int64_t place) {
    int64_t found = -1;
    int32_t lowest = NEVER;
    for (int64_t i = 0; i < pairs; i++)
        if (ranks[i] < lowest && (ranks[i] > rank || (ranks[i] == rank && i > place))) {
            lowest = ranks[i];
            found = i;
        }
    return found;
}

/* Of each word the parts that are left after merging take the place of its first ones, and their number goes to counts.
   ends [words] say where the parts of each word end; room [2, longest]. A merge is left out where the bits drawn for it are
   below the limit. */
void drop_merges(int32_t *parts, const int64_t *ends, const uint64_t *seeds, const int64_t *keys, const int32_t *values,
                 int32_t *room, int64_t *counts, int64_t words, int64_t longest, uint64_t limit, int64_t bits) {
    const Merges merges = {keys, values, bits};
    int32_t *ranks = room, *wholes = room + longest;
    for (int64_t w = 0; w < words; w++) {
        int32_t *part = parts + (w ? ends[w - 1] : 0);
        int64_t count = ends[w] - (w ? ends[w - 1] : 0);
        uint64_t state = seeds[w];
        for (int64_t i = 0; i + 1 < count; i++) look_up(&merges, part[i], part[i + 1], ranks + i, wholes + i);
        for (;;) {
            int32_t rank = -1;
            int64_t at = -1;
            while ((at = next_merge(ranks, count - 1, rank, at)) >= 0) {
                rank = ranks[at];
                if (below(&state) >= limit) break;
            }
            if (at < 0) break;
            part[at] = wholes[at];
            count--;
            memmove(part + at + 1, part + at + 2, (size_t)(count - at - 1) * sizeof(*part));
            if (at < count - 1) {
                memmove(ranks + at, ranks + at + 1, (size_t)(count - 1 - at) * sizeof(*ranks));
                memmove(wholes + at, wholes + at + 1, (size_t)(count - 1 - at) * sizeof(*wholes));
                look_up(&merges, part[at], part[at + 1], ranks + at, wholes + at);
            }
            if (at > 0) look_up(&merges, part[at - 1], part[at], ranks + at - 1, wholes + at - 1);
        }
        counts[w] = count;
    }
}
