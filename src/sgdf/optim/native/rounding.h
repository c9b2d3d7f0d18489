/* Small formats of numbers, and the random numbers to round to them.

   The same as noise.py and rounding.py, bit for bit: there the formats are explained. Every
   function works on arrays of a few thousand bytes, which stay in the first-level cache. */

#include <float.h>
#include <stdint.h>
#include <string.h>

/* The CPU's own vector width, chosen when the library is loaded: it runs on every CPU of
   the family. glibc alone has the loader for that. Converting to 16 and 8 bits takes AVX-512's
   instructions for such lanes, which come with x86-64-v4 but not with avx512f. */
#if defined(__x86_64__) && defined(__GLIBC__)
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#else
#define FOR_EACH_CPU
#endif

/* Compiled into each clone of its callers, with the vectors of that clone. */
#define INLINE static inline __attribute__((always_inline))

INLINE uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINE float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

enum { SIZE_BITS = 0x7fffffff, INFINITE = 0x7f800000 }; /* of a float, without its sign */

/* Noise: 32 bits for each element, of which a rounding uses the low or the high half. */

typedef struct {
    uint32_t k0, k1;
} Key;

INLINE uint32_t scramble(uint32_t x, uint32_t key)
{
    x ^= x >> 15;
    x = x * 0x2c1b3c6d + key;
    x ^= x >> 12;
    x *= 0x297a2d39;
    return x ^ x >> 15;
}

static Key noise_key(uint32_t stream, uint32_t parameter, uint32_t step)
{
    const uint32_t numbers[] = {0 /* seed */, stream, parameter, step, 1};
    uint32_t keys[6] = {0};
    for (int i = 0; i < 5; i++)
        keys[i + 1] = scramble((keys[i] ^ numbers[i]) + 0x9e3779b9, 0);
    return (Key){keys[4], keys[5]};
}

FOR_EACH_CPU static void fill_run(uint32_t *restrict noise, Key key, uint32_t first, int size)
{
    for (int i = 0; i < size; i++)
        noise[i] = scramble((first + i) ^ key.k0, key.k1);
}

/* The noise of a tensor's elements from `first` on. The upper half of an index enters as a
   multiple; it may change once on the way. */
static void fill_noise(uint32_t *noise, Key key, int64_t first, int64_t size)
{
    const int64_t left = 0x100000000 - (first & 0xffffffff), run = size < left ? size : left;
    fill_run(noise, key, first + (first >> 32) * 0x9e3779b1, run);
    if (run < size)
        fill_noise(noise + run, key, first + run, size - run);
}

INLINE uint32_t half_of(uint32_t noise, int high)
{
    return high ? noise >> 16 : noise & 0xffff;
}

INLINE float fraction(uint32_t random)
{
    return (float)(int32_t)random * 0x1p-16f;
}

/* 16 bits: to float exactly, from float rounded to nearest even or at random. */

INLINE float from_bfloat16(uint16_t half)
{
    return float_of((uint32_t)half << 16);
}

INLINE uint16_t to_bfloat16(float value)
{
    const uint32_t bits = bits_of(value);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return value != value ? 0x7fc0 : rounded;
}

INLINE uint16_t to_bfloat16_random(float value, uint32_t random)
{
    const uint32_t bits = bits_of(value);
    return (value != value ? 0x7fc00000 : bits + random) >> 16;
}

INLINE float from_float16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    /* The product moves the exponent's bias and normalises what is subnormal. */
    const uint32_t finite = bits_of(float_of(rest << 13) * 0x1p112f);
    const uint32_t special = rest << 13 | 0x7f800000; /* infinity, NaN */
    return float_of(sign | (rest < 0x7c00 ? finite : special));
}

INLINE uint16_t to_float16(float value)
{
    const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, size = bits & SIZE_BITS;
    const uint32_t normal = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
    /* The sum puts the last bit of a subnormal half where the addition rounds. */
    const uint32_t subnormal = bits_of(float_of(size) + 0.5f) - 0x3f000000;
    const uint32_t special = size > INFINITE ? 0x7e00 : 0x7c00;
    return sign | (size < 0x38800000 ? subnormal : size < 0x47800000 ? normal : special);
}

INLINE uint16_t to_float16_random(float value, uint32_t random)
{
    const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, size = bits & SIZE_BITS;
    const uint32_t normal = (size - 0x38000000 + (random >> 3)) >> 13;
    const float small = float_of(size < 0x38800000 ? size : 0x38800000);
    const uint32_t subnormal = (int32_t)(small * 0x1p24f + fraction(random));
    const uint32_t special = size > INFINITE ? 0x7e00 : 0x7c00;
    const uint32_t finite = normal < 0x7bff ? normal : 0x7bff;
    return sign | (size < 0x38800000 ? subnormal : size < 0x477ff000 ? finite : special);
}

#define CONVERSION(name, from, to, convert)                                              \
    FOR_EACH_CPU static void name(to *restrict target, const from *restrict source,      \
                                  int64_t size)                                          \
    {                                                                                    \
        for (int64_t i = 0; i < size; i++)                                               \
            target[i] = convert(source[i]);                                              \
    }

CONVERSION(widen_bfloat16, uint16_t, float, from_bfloat16)
CONVERSION(widen_float16, uint16_t, float, from_float16)
CONVERSION(narrow_bfloat16, float, uint16_t, to_bfloat16)
CONVERSION(narrow_float16, float, uint16_t, to_float16)

#define ROUNDING(name, convert, high)                                                    \
    FOR_EACH_CPU static void name(uint16_t *restrict target, const float *restrict source, \
                                  const uint32_t *restrict noise, int64_t size)          \
    {                                                                                    \
        for (int64_t i = 0; i < size; i++)                                               \
            target[i] = convert(source[i], half_of(noise[i], high));                     \
    }

ROUNDING(round_bfloat16_low, to_bfloat16_random, 0)
ROUNDING(round_bfloat16_high, to_bfloat16_random, 1)
ROUNDING(round_float16_low, to_float16_random, 0)

/* 8 bits, relative to a scale for each block. */

enum { BLOCK = 256, NAN_INT8 = -128, NAN_FLOAT8 = 255, OFFSET_BITS = 0x2f800000 };
#define OFFSET 0x1p-32f

INLINE float from_int8(int8_t code, float scale)
{
    return code == NAN_INT8 ? float_of(0x7fc00000) : code * scale;
}

INLINE float from_float8(uint8_t code, float scale)
{
    const float number = (float_of(((uint32_t)code << 20) + OFFSET_BITS) - OFFSET) * scale;
    return code == NAN_FLOAT8 ? float_of(0x7fc00000) : number;
}

INLINE int8_t to_int8(float value, float inverse, uint32_t random)
{
    /* 128 + random / 2^16: the last bits of that float are those of `random`. */
    const int32_t code = value * inverse + float_of(0x43000000 | random);
    const int32_t least = code > 1 ? code : 1;
    return (least < 255 ? least : 255) - 128;
}

INLINE uint8_t to_float8(float value, float inverse, uint32_t random)
{
    const uint32_t bits = bits_of(value * inverse + OFFSET) - OFFSET_BITS;
    const int32_t code = (int32_t)(bits + (random << 4) + 8) >> 20;
    const int32_t least = code > 0 ? code : 0;
    return least < 254 ? least : 254;
}

/* The bits of the largest absolute value. As integers, since a vectorised maximum of floats
   would need leave to ignore NaN; NaN and infinity are larger than all numbers. */
INLINE uint32_t largest_bits(const float *x, int size)
{
    /* Two at a time: the maxima wait for one another. */
    const int half = size / 2;
    int32_t largest = bits_of(x[size - 1]) & SIZE_BITS;
    for (int i = 0; i < half; i++) {
        const int32_t a = bits_of(x[i]) & SIZE_BITS, b = bits_of(x[half + i]) & SIZE_BITS;
        const int32_t larger = a > b ? a : b;
        largest = larger > largest ? larger : largest;
    }
    return largest;
}

/* Replace NaN and infinity by 0, and mark where they were; return the bits of the largest. */
static uint32_t set_apart(float *x, uint8_t *lost, int size)
{
    for (int i = 0; i < size; i++) {
        lost[i] = (bits_of(x[i]) & SIZE_BITS) >= INFINITE;
        x[i] = lost[i] ? 0 : x[i];
    }
    return largest_bits(x, size);
}

enum { CHUNK = 512 }; /* elements that are encoded at a time, at most */

/* A block whose numbers are all smaller than `smallest` counts as zero. All scales are computed
   first, so that their divisions overlap. Whole blocks have loops of their own, whose number of
   turns the compiler knows. NaN and infinity have a code of their own, entered at the end. */
#define CODING(name, Code, nan, smallest, largest_code, high)                            \
    INLINE void decode_block_##name(float *restrict x, const Code *restrict codes,       \
                                    float scale, int size)                               \
    {                                                                                    \
        for (int i = 0; i < size; i++)                                                   \
            x[i] = from_##name(codes[i], scale);                                         \
    }                                                                                    \
    INLINE void encode_block_##name(Code *restrict codes, float inverse,                 \
                                    const float *restrict x,                             \
                                    const uint32_t *restrict noise, int size)            \
    {                                                                                    \
        for (int i = 0; i < size; i++)                                                   \
            codes[i] = to_##name(x[i], inverse, half_of(noise[i], high));                \
    }                                                                                    \
    FOR_EACH_CPU static void decode_##name(float *x, const Code *codes,                  \
                                           const float *scales, const uint16_t *sizes,   \
                                           int64_t blocks)                               \
    {                                                                                    \
        for (int64_t i = 0; i < blocks; x += sizes[i], codes += sizes[i], i++)           \
            if (sizes[i] == BLOCK)                                                       \
                decode_block_##name(x, codes, scales[i], BLOCK);                         \
            else                                                                         \
                decode_block_##name(x, codes, scales[i], sizes[i]);                      \
    }                                                                                    \
    FOR_EACH_CPU static void encode_##name(Code *codes, float *scales, float *x,         \
                                           const uint32_t *noise, const uint16_t *sizes, \
                                           int64_t blocks)                               \
    {                                                                                    \
        uint8_t lost[CHUNK];                                                             \
        int size = 0, strange = 0;                                                       \
        for (int64_t i = 0; i < blocks; size += sizes[i], i++) {                         \
            uint32_t largest = sizes[i] == BLOCK ? largest_bits(x + size, BLOCK)         \
                                                 : largest_bits(x + size, sizes[i]);     \
            if (largest >= INFINITE) {                                                   \
                memset(lost, 0, strange ? 0 : sizeof lost);                              \
                largest = set_apart(x + size, lost + size, sizes[i]);                    \
                strange = 1;                                                             \
            }                                                                            \
            const float number = float_of(largest);                                      \
            const float scale = (number < (smallest) ? 0 : number) / (largest_code);     \
            scales[i] = scale < FLT_MAX ? scale : FLT_MAX;                               \
        }                                                                                \
        for (int64_t i = 0, start = 0; i < blocks; start += sizes[i], i++) {             \
            const float inverse = scales[i] == 0 ? 0 : 1 / scales[i];                    \
            if (sizes[i] == BLOCK)                                                       \
                encode_block_##name(codes + start, inverse, x + start, noise + start,    \
                                    BLOCK);                                              \
            else                                                                         \
                encode_block_##name(codes + start, inverse, x + start, noise + start,    \
                                    sizes[i]);                                           \
        }                                                                                \
        for (int i = 0; strange && i < size; i++)                                        \
            codes[i] = lost[i] ? (nan) : codes[i];                                       \
    }

CODING(int8, int8_t, NAN_INT8, 0x1p-118f, 127.0f, 0)
CODING(float8, uint8_t, NAN_FLOAT8, 0x1p-126f, 0.875f, 1)
