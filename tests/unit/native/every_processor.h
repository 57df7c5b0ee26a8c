/* Included before every file of C (gcc -include): the instructions of the largest processors, written out for those that have
   AVX2 alone, so that what is written for each of them is tested everywhere. The system's own headers come first. */

#include <cpuid.h>
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define target(extensions) target("arch=x86-64-v3")
#define WRITTEN_OUT __attribute__((target("arch=x86-64-v3"))) static inline

/* This processor says yes to everything, and the system lends what it is asked for. */
#define __builtin_cpu_supports(name) 1
#define __get_cpuid_count(leaf, part, a, b, c, d) (*(a) = *(b) = *(c) = *(d) = ~0u, 1)
#define syscall(...) 0L

/* Four products of numbers without and with a sign, added to each sum: so many bytes at once. */
WRITTEN_OUT void add_fours(int32_t *sums, const uint8_t *rows, const int8_t *weights, int count) {
    for (int i = 0; i < count; i++) sums[i / 4] += (int32_t)rows[i] * (int32_t)weights[i];
}

WRITTEN_OUT __m256i add_fours_256(__m256i sums, __m256i rows, __m256i weights) {
    add_fours((int32_t *)&sums, (const uint8_t *)&rows, (const int8_t *)&weights, 32);
    return sums;
}

WRITTEN_OUT __m512i add_fours_512(__m512i sums, __m512i rows, __m512i weights) {
    add_fours((int32_t *)&sums, (const uint8_t *)&rows, (const int8_t *)&weights, 64);
    return sums;
}

WRITTEN_OUT __m512i bytes_512(const void *from) {
    __m512i found;
    memcpy(&found, from, 64);
    return found;
}

WRITTEN_OUT __m512i sixteen(int32_t number) {
    __m512i found;
    for (int i = 0; i < 16; i++) ((int32_t *)&found)[i] = number;
    return found;
}

WRITTEN_OUT __m256 half_of(__m512 x, int which) {
    __m256 found;
    memcpy(&found, (const char *)&x + 32 * which, 32);
    return found;
}

#define _mm256_dpbusd_avx_epi32 add_fours_256
#define _mm512_dpbusd_epi32 add_fours_512
#define _mm512_loadu_si512 bytes_512
#define _mm512_set1_epi32 sixteen
#define _mm512_setzero_si512() sixteen(0)
#define _mm512_castps512_ps256(x) half_of(x, 0)
#define _mm512_extractf32x8_ps half_of

/* Tiles: 16 rows of 64 bytes, there between loading a configuration and releasing it. */
static _Thread_local char tiles[8][16][64];
static _Thread_local int configured;

WRITTEN_OUT char (*tile(int number))[64] {
    if (!configured) __builtin_trap();
    return tiles[number];
}

WRITTEN_OUT void configure(const void *configuration) {
    const uint8_t *said = configuration;
    uint16_t bytes;
    for (int i = 0; i < 8; i++) {
        memcpy(&bytes, said + 16 + 2 * i, 2);
        if (said[0] != 1 || bytes != 64 || said[48 + i] != 16) __builtin_trap();
    }
    memset(tiles, 0, sizeof tiles);
    configured = 1;
}

WRITTEN_OUT void load_tile(int number, const void *from, int64_t stride) {
    for (int i = 0; i < 16; i++) memcpy(tile(number)[i], (const char *)from + i * stride, 64);
}

WRITTEN_OUT void store_tile(int number, void *to, int64_t stride) {
    for (int i = 0; i < 16; i++) memcpy((char *)to + i * stride, tile(number)[i], 64);
}

WRITTEN_OUT void multiply_bytes(int sums, int rows, int weights) {
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 16; n++)
                for (int i = 0; i < 4; i++)
                    ((int32_t *)tile(sums)[m])[n] +=
                        (int32_t)((int8_t *)tile(rows)[m])[4 * k + i] * (int32_t)((int8_t *)tile(weights)[k])[4 * n + i];
}

WRITTEN_OUT float widened(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float found;
    memcpy(&found, &bits, 4);
    return found;
}

WRITTEN_OUT void multiply_halves(int sums, int rows, int weights) {
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 16; n++)
                for (int i = 0; i < 2; i++)
                    ((float *)tile(sums)[m])[n] +=
                        widened(((uint16_t *)tile(rows)[m])[2 * k + i]) * widened(((uint16_t *)tile(weights)[k])[2 * n + i]);
}

#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#undef _tile_dpbf16ps
#define _tile_loadconfig configure
#define _tile_release() (configured = 0)
#define _tile_zero(number) memset(tile(number), 0, sizeof tiles[0])
#define _tile_loadd load_tile
#define _tile_stored store_tile
#define _tile_dpbssd multiply_bytes
#define _tile_dpbf16ps multiply_halves
