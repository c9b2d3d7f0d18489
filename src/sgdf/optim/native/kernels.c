/* An optimizer's step on a whole list of tensors: one parallel region, one pass over memory.

   The arithmetic is that of filter_gradient (sgdf/filter.py) and of the elementwise directions
   (sgdf/directions.py), or that of unified_momentum.py, and of the decay and update in base.py,
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

/* The CPU's own vector width, chosen when the library is loaded: it runs on every CPU of
   the family. glibc alone has the loader for that. */
#if defined(__x86_64__) && defined(__GLIBC__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

/* Numbers and layout are shared with step.py. */
enum { FLOAT32, FLOAT64, BFLOAT16, FLOAT16 };
enum { SGDF, SIGN, ADAM, MOMENTUM };

typedef struct {
    /* Addresses: of tensors of one size, and of the step count in float32. Not every kind
       has all three buffers. */
    uint64_t param, step, exp_avg, exp_var, exp_avg_sq, grad;
    int64_t size;                  /* in elements */
    int64_t param_type, grad_type; /* a gradient has its parameter's type or the state's */
    int64_t scalars;               /* index of this tensor's step among the distinct steps */
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
} Options;

/* A divisor with which 0/0 gives 0; a NaN stays one. */
#define FLOORED(x) ((x) < tiny ? tiny : (x))

/* power(gain) is K^exponent, and direction(estimate) the direction of the update. Each
   combination has a loop of its own, so that the common ones are vectorised. */
#define FILTER_LOOP(real, power, direction)                                              \
    for (int64_t i = 0; i < size; i++) {                                                 \
        real g = sign * grad[i];                                                         \
        if (decay != 0)                                                                  \
            g += decay * param[i];                                                       \
        /* From the nearer end, so that beta1 = 0 gives the gradient and a steady        \
           gradient is its own mean. */                                                  \
        const real near = from_grad ? g : exp_avg[i], far = from_grad ? exp_avg[i] : g;  \
        const real mean = near + weight1 * (far - near);                                 \
        const real deviation = g - mean;                                                 \
        const real var = beta2 * exp_var[i] + weight2 * deviation * deviation;           \
        const real corrected_mean = mean / mean_correction;                              \
        const real residual = g - corrected_mean;                                        \
        const real total = (residual * residual + eps) * residual_weight + var;          \
        const real gain = var / FLOORED(total);                                          \
        const real estimate = corrected_mean + power * residual;                         \
        param[i] = param[i] * shrink - lr * (direction);                                 \
        exp_avg[i] = mean;                                                               \
        exp_var[i] = var;                                                                \
    }

/* 0 for a NaN, as in torch.sign. */
#define SIGN_OF_ESTIMATE ((estimate > 0) - (estimate < 0))

#define ADAM_OF_ESTIMATE(root)                                                           \
    (exp_avg_sq[i] = beta2 * exp_avg_sq[i] + weight2 * g * g,                            \
     estimate / FLOORED(root(exp_avg_sq[i]) / root_correction + eps))

#define FILTER_LOOPS(real, root, power, direction)                                       \
    {                                                                                    \
        if (exponent == (real)0.5)                                                       \
            FILTER_LOOP(real, root(gain), direction)                                     \
        else if (exponent == 1)                                                          \
            FILTER_LOOP(real, gain, direction)                                           \
        else                                                                             \
            FILTER_LOOP(real, power(gain, exponent), direction)                          \
    }

#define MOMENTUM_LOOP(real)                                                              \
    for (int64_t i = 0; i < size; i++) {                                                 \
        const real g = sign * grad[i] + (decay != 0 ? decay * param[i] : 0);             \
        exp_avg[i] = beta1 * exp_avg[i] + momentum_weight * g;                           \
        param[i] = param[i] * shrink - lr * exp_avg[i];                                  \
    }

#define STEP_SPAN(name, real, root, power, smallest)                                     \
    FOR_EACH_CPU static void name(real *restrict param, const real *restrict grad,       \
                                  real *restrict exp_avg, real *restrict exp_var,        \
                                  real *restrict exp_avg_sq, int64_t size,               \
                                  const Scalars *scalars, const Options *options)        \
    {                                                                                    \
        const real lr = options->lr, shrink = options->shrink, eps = options->eps;       \
        const real sign = options->sign, decay = options->decay;                         \
        const int kind = options->kind, from_grad = options->beta1 <= 0.5;               \
        const real beta1 = options->beta1, momentum_weight = options->weight1;           \
        const real weight1 = from_grad ? beta1 : momentum_weight;                        \
        const real beta2 = options->beta2, weight2 = options->weight2;                   \
        const real mean_correction = scalars->mean_correction;                           \
        const real residual_weight = scalars->residual_weight;                           \
        const real root_correction = scalars->root_correction;                           \
        const real exponent = scalars->exponent, tiny = smallest;                        \
        if (kind == MOMENTUM)                                                            \
            MOMENTUM_LOOP(real)                                                          \
        else if (kind == ADAM)                                                           \
            FILTER_LOOPS(real, root, power, ADAM_OF_ESTIMATE(root))                      \
        else if (kind == SIGN)                                                           \
            FILTER_LOOPS(real, root, power, SIGN_OF_ESTIMATE)                            \
        else                                                                             \
            FILTER_LOOPS(real, root, power, estimate)                                    \
    }

STEP_SPAN(step_floats, float, sqrtf, powf, FLT_MIN)
STEP_SPAN(step_doubles, double, sqrt, pow, DBL_MIN)

/* Half precision: to float exactly, from float rounded to nearest even. */

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float from_bfloat16(uint16_t half)
{
    return float_of((uint32_t)half << 16);
}

static inline uint16_t to_bfloat16(float value)
{
    const uint32_t bits = bits_of(value);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return value != value ? 0x7fc0 : rounded;
}

static inline float from_float16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    /* The product moves the exponent's bias and normalises what is subnormal. */
    const uint32_t finite = bits_of(float_of(rest << 13) * 0x1p112f);
    const uint32_t special = rest << 13 | 0x7f800000; /* infinity, NaN */
    return float_of(sign | (rest < 0x7c00 ? finite : special));
}

static inline uint16_t to_float16(float value)
{
    const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    const uint32_t normal = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
    /* The sum puts the last bit of a subnormal half where the addition rounds. */
    const uint32_t subnormal = bits_of(float_of(size) + 0.5f) - 0x3f000000;
    const uint32_t special = size > 0x7f800000 ? 0x7e00 : 0x7c00;
    return sign | (size < 0x38800000 ? subnormal : size < 0x47800000 ? normal : special);
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

enum { BLOCK = 1024 }; /* two such blocks of floats stay in the first-level cache */

static void step_halves(uint16_t *param, const void *grad, int64_t grad_type, float *exp_avg,
                        float *exp_var, float *exp_avg_sq, int64_t size, int64_t param_type,
                        const Scalars *scalars, const Options *options)
{
    const int brain = param_type == BFLOAT16;
    float wide_param[BLOCK], wide_grad[BLOCK];
    for (int64_t start = 0; start < size; start += BLOCK) {
        const int64_t count = size - start < BLOCK ? size - start : BLOCK;
        const float *block_grad = (const float *)grad + start;
        (brain ? widen_bfloat16 : widen_float16)(wide_param, param + start, count);
        if (grad_type != FLOAT32) {
            const uint16_t *halves = (const uint16_t *)grad + start;
            (brain ? widen_bfloat16 : widen_float16)(wide_grad, halves, count);
            block_grad = wide_grad;
        }
        step_floats(wide_param, block_grad, exp_avg + start, exp_var + start, exp_avg_sq + start,
                    count, scalars, options);
        (brain ? narrow_bfloat16 : narrow_float16)(param + start, wide_param, count);
    }
}

static const int item_sizes[] = {[FLOAT32] = 4, [FLOAT64] = 8, [BFLOAT16] = 2, [FLOAT16] = 2};

static void step_part(const Tensor *tensor, int64_t start, int64_t size, const Scalars *scalars,
                      const Options *options)
{
    const Scalars *own = &scalars[tensor->scalars];
    char *param = (char *)tensor->param + start * item_sizes[tensor->param_type];
    const char *grad = (const char *)tensor->grad + start * item_sizes[tensor->grad_type];
    if (tensor->param_type == FLOAT64)
        step_doubles((double *)param, (const double *)grad, (double *)tensor->exp_avg + start,
                     (double *)tensor->exp_var + start, (double *)tensor->exp_avg_sq + start,
                     size, own, options);
    else if (tensor->param_type == FLOAT32)
        step_floats((float *)param, (const float *)grad, (float *)tensor->exp_avg + start,
                    (float *)tensor->exp_var + start, (float *)tensor->exp_avg_sq + start, size,
                    own, options);
    else
        step_halves((uint16_t *)param, grad, tensor->grad_type, (float *)tensor->exp_avg + start,
                    (float *)tensor->exp_var + start, (float *)tensor->exp_avg_sq + start, size,
                    tensor->param_type, own, options);
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
                       const Options *options)
{
    (void)scalars, (void)options;
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
                      const Scalars *scalars, const Options *options, int threads)
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
            part(&tensors[i], start, stop - start, scalars, options);
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
   and buffers, `columns` in all), then all gradients.
   address_of: torch's function from such an object to the address of its elements.
   owned: the memory of all but the gradients, sorted. grads: room for one span per tensor.

   Return 0 if a tensor has moved since the table was made, or if a gradient overlaps memory
   that a step writes to, or has none (address 0), like torch's lazy zero tensors. */
int sgdf_enter(Tensor *tensors, int64_t count, void *const *objects, int64_t columns,
               void *(*address_of)(void *), const Span *owned, int64_t owned_count, Span *grads)
{
    void *const *state = objects + count, *const *new_grads = state + columns * count;
    int64_t used = 0;
    for (int64_t i = 0; i < count; i++) {
        Tensor *t = &tensors[i];
        if (t->param != (uint64_t)address_of(objects[i]))
            return 0;
        for (int64_t column = 0; column < columns; column++)
            if ((&t->step)[column] != (uint64_t)address_of(state[columns * i + column]))
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
               const Options *options, int threads)
{
    for (int64_t i = 0; i < count; i++)
        *(float *)tensors[i].step += 1;
    share_out(step_part, tensors, count, scalars, options, threads);
}

void sgdf_touch(const Tensor *tensors, int64_t count, int threads)
{
    share_out(touch_part, tensors, count, NULL, NULL, threads);
}

void sgdf_prefetch(const uint64_t *addresses, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        __builtin_prefetch((const void *)addresses[i]);
}
