/* What the files of C have in common. Numbers are floats where nothing else is said; strides count them. */

#ifndef NMT_NATIVE_H
#define NMT_NATIVE_H

#include <math.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__) && __GNUC__ >= 12
#define KNOWN_PROCESSORS 1
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define KNOWN_PROCESSORS 0
#define FOR_EACH_PROCESSOR
#endif
/* Before a loop of few rounds whose sums shall stay in registers: unrolled later, gcc copies them at every round. */
#define UNROLLED _Pragma("GCC unroll 32")
#define INLINE static inline __attribute__((always_inline))

enum { FLOAT32, BFLOAT16, FLOAT16, INT8 }; /* formats of weights */

/* What products are written for; each processor runs what stands before it too. */
enum { PORTABLE, AVX2, AVX_VNNI, AVX512, AMX };

extern int processor; /* that is there and may be used */

/* A packed matrix with the bias of its product. */
typedef struct {
    const void *panels;
    const float *scales;   /* of int8, by output; else NULL; all three have room for whole panels */
    const int32_t *shifts; /* of int8, by output; else NULL */
    const float *bias;     /* by output, or NULL */
    int64_t outputs, inputs, format;
} Matrix;

/* x [rows, inputs] times the matrix, and its bias, and nothing below zero if ``relu``, to y [rows, outputs]. */
void multiply(const Matrix *matrix, const float *x, int64_t stride, int64_t rows, float *y, int64_t y_stride,
              int64_t relu);

/* The same for the whole matrix, and ``then`` is told of results as they become ready: of outputs [first, first + count) of
   all rows, where count is a multiple of 64 but for the last one. They are still in the cache. */
typedef void (*Then)(void *about, int64_t first, int64_t count);
void multiply_and(const Matrix *matrix, const float *x, int64_t stride, int64_t rows, float *y, int64_t y_stride,
                  int64_t relu, Then then, void *about);

/* Output n of a matrix, in float32: row [inputs]. */
void unpack_row(const Matrix *m, int64_t n, float *row);

/* e^x for x <= 0: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]; the error is below 2e-7 of the result. */
INLINE float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = rintf(x * 1.44269504f);
    float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 1.98756915e-4f;
    p = p * r + 1.39819995e-3f;
    p = p * r + 8.33345190e-3f;
    p = p * r + 4.16657962e-2f;
    p = p * r + 1.66666655e-1f;
    p = p * r + 5.00000012e-1f;
    p = p * r * r + r + 1.0f;
    union {
        int32_t bits;
        float value;
    } scale = {((int32_t)n + 127) << 23};
    return p * scale.value;
}

/* Memory of this thread that keeps its place: one piece for each use. */
enum { ROWS, SCALES, SCORES, STEPS, NORMED, PROJECTED, SEEN, INNER, GATES, SAID, KEYS, SUMMARIES, PIECES };
void *scratch_memory(int piece, int64_t bytes);

#endif
