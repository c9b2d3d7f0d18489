/* An optimizer's step on a whole list of tensors: one parallel region, one pass over memory.

   The arithmetic is that of filter_gradient (sgdf/filter.py) and of the elementwise directions
   (sgdf/directions.py), or of momentum (direction_table.py), and of decay and update in paths.py,
   in float or in double; half-precision parameters are widened block by block. Everything is
   elementwise and compiled without contraction to fused multiply-adds, so that the result
   depends neither on the number of threads nor on the vector instructions of the CPU (except
   for powers other than 1/2 and 1, which are libm's).

   Besides the step this file has the functions with which step.py prepares it, and one that
   only reads and writes memory, for `sgdf cost`. */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rounding.h"

/* Numbers and layout are shared with step.py. */
enum { FLOAT32, FLOAT64, BFLOAT16, FLOAT16 };
enum { SGDF, SIGN, ADAM, MOMENTUM };
/* How a buffer is stored: as param_type has it (float or double), in bfloat16, in 8 bits with
   scales (int8 for the mean, float8 for the others), or, a variance only, as one float for the
   whole tensor. */
enum { FULL, HALF, CODES, SHARED };

typedef struct {
    /* Addresses; step is that of the step count in float32. Those not in use are 0. */
    uint64_t param, grad, step;
    uint64_t exp_avg, exp_avg_scale, exp_var, exp_var_scale, exp_avg_sq, exp_avg_sq_scale;
    int64_t size;                  /* in elements */
    int64_t row;                   /* elements of a row of the first dimension; a vector's size */
    int64_t param_type, grad_type; /* a gradient has its parameter's type or the state's */
    int64_t number;                /* of the parameter, for the noise */
    int64_t scalars;               /* index of this tensor's step among the distinct steps */
    int64_t sums;                  /* index of this tensor's first partial sum */
} Tensor;

typedef struct {
    double mean_correction, residual_weight, exponent; /* FilterScalars, one per distinct step */
    double root_correction;                            /* divides the root of exp_avg_sq */
} Scalars;

typedef struct {
    double kind;
    double lr, shrink;       /* shrink: 1 - lr * decay where decay is decoupled, else 1 */
    double sign, decay;      /* sign: -1 to maximize; decay: coupled decay, else 0 */
    double beta1, beta2;     /* weights of the old moments */
    double weight1, weight2; /* weights of the new gradient: 1 - beta, computed in double */
    double eps;
    double mean_format, variance_format, square_format;
    double rounds; /* 1: parameters of 16 bits are rounded at random */
} Options;

/* A divisor with which 0/0 gives 0; a NaN stays one. */
#define FLOORED(x) ((x) < tiny ? tiny : (x))

/* `variance` sets var, `filtered` is the residual's part in the estimate, K^exponent times the
   residual, and `direction` that of the update. Each combination has a loop of its own, so that
   the common ones are vectorised. */
#define FILTER_LOOP(real, variance, filtered, direction)                                 \
    for (int64_t i = 0; i < size; i++) {                                                 \
        real g = sign * grad[i];                                                         \
        if (decays)                                                                      \
            g += decay * param[i];                                                       \
        /* From the nearer end, so that beta1 = 0 gives the gradient and a steady        \
           gradient is its own mean. */                                                  \
        const real near = from_grad ? g : exp_avg[i], far = from_grad ? exp_avg[i] : g;  \
        const real mean = near + weight1 * (far - near);                                 \
        const real deviation = g - mean;                                                 \
        variance(real);                                                                  \
        const real corrected_mean = corrects ? mean / mean_correction : mean;            \
        const real residual = g - corrected_mean;                                        \
        const real spread = residual * residual + eps;                                   \
        const real estimate = corrected_mean + (filtered);                               \
        param[i] = param[i] * shrink - lr * (direction);                                 \
        exp_avg[i] = mean;                                                               \
    }

/* Of the element: it hides the tensor's. */
#define OWN_VARIANCE(real)                                                               \
    const real var = beta2 * exp_var[i] + weight2 * deviation * deviation;               \
    exp_var[i] = var

/* The tensor's, of the step before. The caller adds up the squares. */
#define SHARED_VARIANCE(real) exp_var[i] = deviation * deviation

#define FLOORED_TOTAL FLOORED(spread * residual_weight + var)

/* 0 for a NaN, as in torch.sign. */
#define SIGN_OF_ESTIMATE ((estimate > 0) - (estimate < 0))

#define ADAM_OF_ESTIMATE(root)                                                           \
    (exp_avg_sq[i] = beta2 * exp_avg_sq[i] + weight2 * g * g,                            \
     estimate / FLOORED(root(exp_avg_sq[i]) / root_correction + eps))

#define FILTER_LOOPS(real, root, power, variance, direction)                             \
    {                                                                                    \
        if (ratio > 0)                                                                   \
            FILTER_LOOP(real, variance, residual / root(1 + ratio * spread), direction)  \
        else if (exponent == (real)0.5)                                                  \
            FILTER_LOOP(real, variance, root(var / FLOORED_TOTAL) * residual, direction) \
        else if (!usual && exponent == 1)                                                \
            FILTER_LOOP(real, variance, var / FLOORED_TOTAL * residual, direction)       \
        else if (!usual)                                                                 \
            FILTER_LOOP(real, variance, power(var / FLOORED_TOTAL, exponent) * residual, \
                        direction)                                                       \
    }

#define MOMENTUM_LOOP(real)                                                              \
    for (int64_t i = 0; i < size; i++) {                                                 \
        const real g = sign * grad[i] + (decays ? decay * param[i] : 0);                 \
        exp_avg[i] = beta1 * exp_avg[i] + momentum_weight * g;                           \
        param[i] = param[i] * shrink - lr * exp_avg[i];                                  \
    }

/* The usual case has loops with less to decide or, once the mean needs no correction, with one
   division less. For this `usual` and `corrects` are constants. */
#define STEP_SPAN(name, real, root, power, smallest, variance, is_shared)                \
    INLINE void name##_loops(real *restrict param, const real *restrict grad,            \
                             real *restrict exp_avg, real *restrict exp_var,             \
                             real *restrict exp_avg_sq, int64_t size,                    \
                             const Scalars *scalars, const Options *options,             \
                             double shared, int usual, int corrects)                     \
    {                                                                                    \
        const real lr = options->lr, shrink = options->shrink, eps = options->eps;       \
        const real sign = options->sign, decay = options->decay;                         \
        const int kind = options->kind, decays = !usual && decay != 0;                   \
        const int from_grad = !usual && options->beta1 <= 0.5;                           \
        const real beta1 = options->beta1, momentum_weight = options->weight1;           \
        const real weight1 = from_grad ? beta1 : momentum_weight;                        \
        const real beta2 = options->beta2, weight2 = options->weight2;                   \
        const real mean_correction = scalars->mean_correction;                           \
        const real root_correction = scalars->root_correction;                           \
        const real exponent = scalars->exponent, tiny = smallest;                        \
        const real var = shared;                                                         \
        const real residual_weight = scalars->residual_weight;                           \
        /* With a shared variance a square root of the gain takes one division less. */  \
        const real quotient = is_shared ? scalars->residual_weight / shared : 0;         \
        const int is_root = exponent == (real)0.5 && var >= tiny;                        \
        const real ratio = is_shared && is_root && isfinite(quotient) ? quotient : 0;    \
        (void)var, (void)beta2, (void)eps; /* not all loops use them */                  \
        if (!usual && kind == MOMENTUM)                                                  \
            MOMENTUM_LOOP(real)                                                          \
        else if (kind == ADAM)                                                           \
            FILTER_LOOPS(real, root, power, variance, ADAM_OF_ESTIMATE(root))            \
        else if (kind == SIGN)                                                           \
            FILTER_LOOPS(real, root, power, variance, SIGN_OF_ESTIMATE)                  \
        else                                                                             \
            FILTER_LOOPS(real, root, power, variance, estimate)                          \
    }                                                                                    \
    FOR_EACH_CPU static void name(real *param, const real *grad, real *exp_avg,          \
                                  real *exp_var, real *exp_avg_sq, int64_t size,         \
                                  const Scalars *scalars, const Options *options,        \
                                  double shared)                                         \
    {                                                                                    \
        const int usual = options->kind != MOMENTUM && options->beta1 > 0.5 &&           \
                          options->decay == 0 && (real)scalars->exponent == (real)0.5;   \
        if (!usual)                                                                      \
            name##_loops(param, grad, exp_avg, exp_var, exp_avg_sq, size, scalars,       \
                         options, shared, 0, 1);                                         \
        else if ((real)scalars->mean_correction == 1)                                    \
            name##_loops(param, grad, exp_avg, exp_var, exp_avg_sq, size, scalars,       \
                         options, shared, 1, 0);                                         \
        else                                                                             \
            name##_loops(param, grad, exp_avg, exp_var, exp_avg_sq, size, scalars,       \
                         options, shared, 1, 1);                                         \
    }

STEP_SPAN(step_floats, float, sqrtf, powf, FLT_MIN, OWN_VARIANCE, 0)
STEP_SPAN(step_doubles, double, sqrt, pow, DBL_MIN, OWN_VARIANCE, 0)
STEP_SPAN(step_shared, float, sqrtf, powf, FLT_MIN, SHARED_VARIANCE, 1)

/* Everything but float32 and float64 throughout: a tensor is divided into chunks, fixed runs of
   whole blocks (rounding.py), whose numbers are widened to float, stepped and stored again in
   arrays that stay in the first-level cache. Formats without blocks have rows as long as the
   tensor. */

typedef struct {
    int64_t row, blocks_per_row, blocks, blocks_per_chunk;
} Layout;

static int has_variance(const Options *options)
{
    return options->kind != MOMENTUM;
}

static int is_shared(const Options *options)
{
    return has_variance(options) && options->variance_format == SHARED;
}

/* Whether all numbers are stored in the type of the parameter, and rounded to nearest. */
static int is_plain(const Tensor *tensor, const Options *options)
{
    return (tensor->param_type == FLOAT32 || tensor->param_type == FLOAT64) &&
           options->mean_format == FULL &&
           (!has_variance(options) || options->variance_format == FULL) &&
           (options->kind != ADAM || options->square_format == FULL);
}

static Layout layout_of(const Tensor *tensor, const Options *options)
{
    const int in_blocks = options->mean_format == CODES || options->variance_format == CODES ||
                          options->square_format == CODES;
    const int64_t row = in_blocks ? tensor->row : tensor->size;
    if (tensor->size == 0)
        return (Layout){1, 1, 0, 1};
    const int64_t per_row = (row + BLOCK - 1) / BLOCK, longest = row < BLOCK ? row : BLOCK;
    return (Layout){row, per_row, tensor->size / row * per_row, CHUNK / longest};
}

static int64_t chunks_of(const Layout *layout)
{
    return (layout->blocks + layout->blocks_per_chunk - 1) / layout->blocks_per_chunk;
}

/* The number of the first chunk that begins at an element or after it. */
static int64_t chunk_from(const Layout *layout, int64_t element)
{
    const int64_t row = element / layout->row, rest = element % layout->row;
    const int64_t block = row * layout->blocks_per_row + (rest + BLOCK - 1) / BLOCK;
    return (block + layout->blocks_per_chunk - 1) / layout->blocks_per_chunk;
}

typedef struct {
    int64_t start, size, block, blocks; /* first element and block, and their numbers */
    uint16_t sizes[CHUNK];              /* of its blocks */
} Chunk;

static void set_chunk(Chunk *chunk, const Layout *layout, int64_t index)
{
    const int64_t first = index * layout->blocks_per_chunk, left = layout->blocks - first;
    int64_t column = first % layout->blocks_per_row * BLOCK;
    chunk->block = first;
    chunk->blocks = left < layout->blocks_per_chunk ? left : layout->blocks_per_chunk;
    chunk->start = first / layout->blocks_per_row * layout->row + column;
    chunk->size = 0;
    for (int64_t i = 0; i < chunk->blocks; i++) {
        const int64_t rest = layout->row - column, size = rest < BLOCK ? rest : BLOCK;
        chunk->sizes[i] = size;
        chunk->size += size;
        column = size == rest ? 0 : column + BLOCK;
    }
}

/* A buffer of the state, and room for the chunk's part of it. */
typedef struct {
    int format, is_mean;
    uint64_t numbers, scales;
    float *room;
} Buffer;

/* Return the chunk's numbers: where they are, or decoded in the buffer's room. */
static float *opened(const Buffer *buffer, const Chunk *chunk)
{
    const float *scales = (const float *)buffer->scales + chunk->block;
    if (buffer->format == FULL)
        return (float *)buffer->numbers + chunk->start;
    if (buffer->format == HALF)
        widen_bfloat16(buffer->room, (const uint16_t *)buffer->numbers + chunk->start, chunk->size);
    else if (buffer->format == CODES && buffer->is_mean)
        decode_int8(buffer->room, (const int8_t *)buffer->numbers + chunk->start, scales,
                    chunk->sizes, chunk->blocks);
    else if (buffer->format == CODES)
        decode_float8(buffer->room, (const uint8_t *)buffer->numbers + chunk->start, scales,
                      chunk->sizes, chunk->blocks);
    return buffer->room;
}

/* Store them again. The mean takes the low half of the noise, the other buffers the high one. */
static void close_buffer(const Buffer *buffer, const Chunk *chunk, const uint32_t *noise)
{
    float *scales = (float *)buffer->scales + chunk->block;
    if (buffer->format == HALF)
        (buffer->is_mean ? round_bfloat16_low : round_bfloat16_high)(
            (uint16_t *)buffer->numbers + chunk->start, buffer->room, noise, chunk->size);
    else if (buffer->format == CODES && buffer->is_mean)
        encode_int8((int8_t *)buffer->numbers + chunk->start, scales, buffer->room, noise,
                    chunk->sizes, chunk->blocks);
    else if (buffer->format == CODES)
        encode_float8((uint8_t *)buffer->numbers + chunk->start, scales, buffer->room, noise,
                      chunk->sizes, chunk->blocks);
}

/* In 64 lanes whatever the CPU's vectors, so that the sum is the same everywhere. */
FOR_EACH_CPU static double sum_of(const float *x, int64_t size)
{
    enum { WIDTH = 16, LANES = 4 * WIDTH };
    typedef float Lanes __attribute__((vector_size(WIDTH * sizeof(float))));
    Lanes a = {0}, b = {0}, c = {0}, d = {0}, next[4];
    int64_t end = size - size % LANES;
    float rest[LANES] = {0};
    memcpy(rest, x + end, (size - end) * sizeof *x);
    for (int64_t i = 0; i <= end; i += LANES) {
        memcpy(next, i < end ? x + i : rest, sizeof next);
        a += next[0], b += next[1], c += next[2], d += next[3];
    }
    a = (a + b) + (c + d);
    double sums[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        sums[i] = a[i];
    for (int half = WIDTH / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sums[i] += sums[half + i];
    return sums[0];
}

static void step_chunks(const Tensor *tensor, int64_t start, int64_t size, const Scalars *scalars,
                        const Options *options, double *sums)
{
    _Alignas(64) float wide_param[CHUNK], wide_grad[CHUNK], room[3][CHUNK];
    _Alignas(64) uint32_t noise[CHUNK];
    Chunk chunk;
    const int wide = tensor->param_type == FLOAT32, brain = tensor->param_type == BFLOAT16;
    const int rounds = options->rounds && !wide, shared = is_shared(options);
    const int has_square = options->kind == ADAM;
    const Buffer mean = {options->mean_format, 1, tensor->exp_avg, tensor->exp_avg_scale, room[0]};
    const Buffer var = {has_variance(options) ? options->variance_format : FULL, 0,
                        tensor->exp_var, tensor->exp_var_scale, room[1]};
    const Buffer square = {has_square ? options->square_format : FULL, 0, tensor->exp_avg_sq,
                           tensor->exp_avg_sq_scale, room[2]};
    const float shared_var = shared ? *(const float *)tensor->exp_var : 0;
    const int64_t count = *(const float *)tensor->step;
    const Key state_key = noise_key(0, tensor->number, count);
    const Key param_key = noise_key(1, tensor->number, count);
    const Layout layout = layout_of(tensor, options);
    const int64_t end = chunk_from(&layout, start + size);
    for (int64_t i = chunk_from(&layout, start); i < end; i++) {
        set_chunk(&chunk, &layout, i);
        float *param = (float *)tensor->param + chunk.start;
        uint16_t *halves = (uint16_t *)tensor->param + chunk.start;
        const float *grad = (const float *)tensor->grad + chunk.start;
        if (!wide)
            (brain ? widen_bfloat16 : widen_float16)(param = wide_param, halves, chunk.size);
        if (tensor->grad_type != FLOAT32) {
            const uint16_t *source = (const uint16_t *)tensor->grad + chunk.start;
            (brain ? widen_bfloat16 : widen_float16)(wide_grad, source, chunk.size);
            grad = wide_grad;
        }
        float *exp_var = opened(&var, &chunk);
        (shared ? step_shared : step_floats)(param, grad, opened(&mean, &chunk), exp_var,
                                             opened(&square, &chunk), chunk.size,
                                             &scalars[tensor->scalars], options, shared_var);
        if (shared)
            sums[tensor->sums + i] = sum_of(exp_var, chunk.size);
        if (mean.format != FULL || (var.format != FULL && !shared)) {
            fill_noise(noise, state_key, chunk.start, chunk.size);
            close_buffer(&mean, &chunk, noise);
            close_buffer(&var, &chunk, noise);
        }
        if (rounds || square.format != FULL) {
            fill_noise(noise, param_key, chunk.start, chunk.size);
            close_buffer(&square, &chunk, noise);
        }
        if (rounds)
            (brain ? round_bfloat16_low : round_float16_low)(halves, param, noise, chunk.size);
        else if (!wide)
            (brain ? narrow_bfloat16 : narrow_float16)(halves, param, chunk.size);
    }
}

static const int item_sizes[] = {[FLOAT32] = 4, [FLOAT64] = 8, [BFLOAT16] = 2, [FLOAT16] = 2};

static void step_part(const Tensor *tensor, int64_t start, int64_t size, const Scalars *scalars,
                      const Options *options, double *sums)
{
    const Scalars *own = &scalars[tensor->scalars];
    if (!is_plain(tensor, options))
        step_chunks(tensor, start, size, scalars, options, sums);
    else if (tensor->param_type == FLOAT64)
        step_doubles((double *)tensor->param + start, (const double *)tensor->grad + start,
                     (double *)tensor->exp_avg + start, (double *)tensor->exp_var + start,
                     (double *)tensor->exp_avg_sq + start, size, own, options, 0);
    else
        step_floats((float *)tensor->param + start, (const float *)tensor->grad + start,
                    (float *)tensor->exp_avg + start, (float *)tensor->exp_var + start,
                    (float *)tensor->exp_avg_sq + start, size, own, options, 0);
}

/* The variances that whole tensors share, after a step: from the sums of the squared deviations,
   in the order of the chunks. One bad element must not spoil a tensor. */
static void set_shared(const Tensor *tensor, const Options *options, const double *sums)
{
    const Layout layout = layout_of(tensor, options);
    float *var = (float *)tensor->exp_var;
    double sum = 0;
    for (int64_t i = 0; i < chunks_of(&layout); i++)
        sum += sums[tensor->sums + i];
    if (tensor->size > 0 && isfinite(sum / tensor->size))
        *var = options->beta2 * *var + options->weight2 * (sum / tensor->size);
}

/* Set where each tensor's partial sums begin, and return how many numbers sgdf_step needs. */
int64_t sgdf_sums(Tensor *tensors, int64_t count, const Options *options)
{
    int64_t total = 0;
    for (int64_t i = 0; i < count && is_shared(options); i++) {
        const Layout layout = layout_of(&tensors[i], options);
        tensors[i].sums = total;
        total += chunks_of(&layout);
    }
    return total;
}

/* A lower bound for the time of a step, for `sgdf cost`: reads and writes the same bytes as a
   float32 step, with almost no arithmetic, and does not change finite numbers. */
static volatile float nothing = 0;

FOR_EACH_CPU static void touch_floats(float *restrict param, const float *restrict grad,
                                      float *restrict exp_avg, float *restrict exp_var,
                                      int64_t size)
{
    const float zero = nothing; /* volatile: the compiler cannot know that it is 0 */
    for (int64_t i = 0; i < size; i++) {
        param[i] += zero * grad[i];
        exp_avg[i] += zero * grad[i];
        exp_var[i] += zero * grad[i];
    }
}

static void touch_part(const Tensor *tensor, int64_t start, int64_t size, const Scalars *scalars,
                       const Options *options, double *sums)
{
    (void)scalars, (void)options, (void)sums;
    touch_floats((float *)tensor->param + start, (const float *)tensor->grad + start,
                 (float *)tensor->exp_avg + start, (float *)tensor->exp_var + start, size);
}

/* Below this many elements a second thread costs more than it saves. */
enum { WORTH_THREADS = 32768, LARGEST_SHARE = 131072 };

/* Each thread takes a share of the elements, regardless of where tensors begin and end, and
   then the next share: a thread that wakes up late or loses its core for a while delays the
   others by at most one share.

   From the last tensor to the first: the backward pass has written the gradients of the first
   tensors just now. If the cores share no cache, data that another core has just written
   arrive more slowly than data from memory; until their turn, the other tensors of a large
   network have pushed them out of the caches. */
static void share_out(typeof(step_part) *part, const Tensor *tensors, int64_t count,
                      const Scalars *scalars, const Options *options, int threads, double *sums)
{
    int64_t total = 0, taken = 0;
    for (int64_t i = 0; i < count; i++)
        total += tensors[i].size;
    const int64_t even = total / (4 * threads) + 1;
    const int64_t share = even < LARGEST_SHARE ? even : LARGEST_SHARE;
#pragma omp parallel num_threads(threads) if (total > WORTH_THREADS)
    for (int64_t i = count - 1, offset = 0;;) {
        int64_t first;
#pragma omp atomic capture
        {
            first = taken;
            taken += share;
        }
        if (first >= total)
            break;
        const int64_t last = first + share < total ? first + share : total;
        while (offset + tensors[i].size <= first)
            offset += tensors[i--].size;
        for (;;) { /* from the tensor that holds the first element to that of the last */
            const int64_t start = first > offset ? first - offset : 0;
            const int64_t rest = last - offset;
            const int64_t stop = rest < tensors[i].size ? rest : tensors[i].size;
            part(&tensors[i], start, stop - start, scalars, options, sums);
            if (stop == rest)
                break;
            offset += tensors[i--].size;
        }
    }
}

typedef struct {
    uint64_t start, end;
} Span;

static int by_start(const void *left, const void *right)
{
    const uint64_t a = ((const Span *)left)->start, b = ((const Span *)right)->start;
    return (a > b) - (a < b);
}

/* Enter the gradients of a step.

   objects: Python tensors: first all parameters, then the state of each parameter (step count
   and buffers with their scales, `columns` in all), then all gradients.
   fields: for each of these columns, which 8-byte field of Tensor has its address.
   address_of: torch's function from such an object to the address of its elements.
   owned: the memory of all but the gradients, sorted. grads: room for one span per tensor.

   Return 0 if a tensor has moved since the table was made, or if a gradient overlaps memory
   that a step writes to, or has none (address 0), like torch's lazy zero tensors. */
int sgdf_enter(Tensor *tensors, int64_t count, void *const *objects, int64_t columns,
               const int64_t *fields, void *(*address_of)(void *), const Span *owned,
               int64_t owned_count, Span *grads)
{
    void *const *state = objects + count, *const *new_grads = state + columns * count;
    int64_t used = 0;
    for (int64_t i = 0; i < count; i++) {
        Tensor *t = &tensors[i];
        if (t->param != (uint64_t)address_of(objects[i]))
            return 0;
        for (int64_t column = 0; column < columns; column++)
            if (((const uint64_t *)t)[fields[column]] !=
                (uint64_t)address_of(state[columns * i + column]))
                return 0;
        t->grad = (uint64_t)address_of(new_grads[i]);
        if (t->size > 0 && t->grad == 0)
            return 0;
        if (t->size > 0)
            grads[used++] = (Span){t->grad, t->grad + t->size * item_sizes[t->grad_type]};
    }
    qsort(grads, used, sizeof *grads, by_start);
    for (int64_t i = 0, j = 0; i < used; i++) {
        while (j < owned_count && owned[j].end <= grads[i].start)
            j++;
        if (j < owned_count && owned[j].start < grads[i].end)
            return 0;
    }
    return 1;
}

/* Write the distinct step counts to an array, and return their number. */
int64_t sgdf_counts(Tensor *tensors, int64_t count, double *counts)
{
    int64_t distinct = 0;
    for (int64_t i = 0; i < count; i++) {
        const double step = *(const float *)tensors[i].step;
        int64_t known = 0;
        while (known < distinct && counts[known] != step)
            known++;
        if (known == distinct)
            counts[distinct++] = step;
        tensors[i].scalars = known;
    }
    return distinct;
}

void sgdf_step(const Tensor *tensors, int64_t count, const Scalars *scalars,
               const Options *options, int threads, double *sums)
{
    for (int64_t i = 0; i < count; i++)
        *(float *)tensors[i].step += 1;
    share_out(step_part, tensors, count, scalars, options, threads, sums);
    for (int64_t i = 0; i < count && is_shared(options); i++)
        set_shared(&tensors[i], options, sums);
}

void sgdf_touch(const Tensor *tensors, int64_t count, int threads)
{
    share_out(touch_part, tensors, count, NULL, NULL, threads, NULL);
}

void sgdf_prefetch(const uint64_t *addresses, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        __builtin_prefetch((const void *)addresses[i]);
}
