/* Memory of a thread that keeps its place from call to call. */

#include "native.h"

#include <pthread.h>
#include <stdlib.h>

#define LINE 64 /* bytes that the cache takes at once */

typedef struct {
    void *memory;
    int64_t bytes;
} Piece;

static pthread_key_t own_pieces;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void give_back(void *pieces) {
    for (int i = 0; i < PIECES; i++) free(((Piece *)pieces)[i].memory);
    free(pieces);
}

static void make_key(void) {
    if (pthread_key_create(&own_pieces, give_back)) abort();
}

void *scratch_memory(int piece, int64_t bytes) {
    static _Thread_local Piece *pieces;
    if (!pieces) {
        pthread_once(&once, make_key);
        pieces = calloc(PIECES, sizeof(Piece));
        if (!pieces || pthread_setspecific(own_pieces, pieces)) abort();
    }
    Piece *own = pieces + piece;
    if (own->bytes < bytes) {
        const int64_t room = bytes < 1 << 20 ? bytes + bytes / 2 : bytes; /* the next one may be a little larger */
        free(own->memory);
        own->bytes = (room + LINE - 1) / LINE * LINE;
        own->memory = aligned_alloc(LINE, (size_t)own->bytes);
        if (!own->memory) abort();
    }
    return own->memory;
}
