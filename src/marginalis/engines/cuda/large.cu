// Large dense models of spins, two independent sides: half a step of all chains is a product of matrices.
//
// Spins are bits, [chain][word]. The weights into a unit are whole numbers of 24 bits times a power of 2 of that unit.
// They are split into three signed bytes, so that tensor cores add them up without rounding, and the fields do not
// depend on the division of the work. Increments of log-weights are whole numbers as well, for four units at a time,
// which share a call of Philox. This file is the common part of two kernels: `resident.cu`, for weights that fit into
// the shared memory of all multiprocessors together, and `streamed.cu`, for others. A warp processes 16·HALVES chains
// and 32 units at a time.
//
// Input 8j + q + 4r of an input word of 32 bits is in byte j of register r of the threads with lane % 4 = q, so that
// shifts of the word yield the operands. Units are assigned to columns such that a thread has eight neighbouring units,
// which form one byte of the drawn word. `large.py` packs the weights accordingly.

struct alignas(16) Operands2 { u32 of[4]; }; // of two products
template <class T> struct alignas(16) Four { T of[4]; };

FORCED void multiply(int *c, const u32 *a, u32 b0, u32 b1)
{
#ifdef __CUDACC__
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    host_multiply(c, a, b0, b1);
#endif
}

// Read a value that another multiprocessor may have just written.
template <class T> FORCED T read_through(const T *from)
{
#ifdef __CUDACC__
    return __ldcg(from);
#else
    return *from;
#endif
}

// Start copying 16 bytes into shared memory; close a group of copies; wait for all but the last few groups.
FORCED void fetch(void *to, const void *from)
{
#ifdef __CUDACC__
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from));
#else
    host_copy(to, from, 16);
#endif
}
#ifdef __CUDACC__
#define FETCHED() asm volatile("cp.async.commit_group;")
#define WAIT_FETCHES(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#else
#define FETCHED()
#define WAIT_FETCHES(n)
#endif

// The operands from two input words, for the chains g and g + 8 of sixteen.
FORCED void spread(u32 *a, u32 upper, u32 lower, int q)
{
    upper >>= q, lower >>= q;
    a[0] = upper & 0x01010101u, a[1] = lower & 0x01010101u;
    a[2] = (upper >> 4) & 0x01010101u, a[3] = (lower >> 4) & 0x01010101u;
}

FORCED int rounded(float x)
{
#ifdef __CUDACC__
    return __float2int_rn(x);
#else
    return (int)rint(x);
#endif
}

typedef int Sums[HALVES][4][3][4]; // A thread's part of a product, for each sixteen chains, eight columns and byte.

// Add two of the twelve products of 32 inputs.
FORCED void add_products(Sums &sums, const u32 (&a)[HALVES][4], const Operands2 &b, int p)
{
#pragma unroll
    for (int two = 0; two < 2; ++two)
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            const int j = (2 * p + two) / 3, byte = (2 * p + two) % 3;
            multiply(sums[half][j][byte], a[half], b.of[2 * two], b.of[2 * two + 1]);
        }
}

// Units to draw, from the first of a word. Each unit has the `scale` of its weights, the slope of its own field, the
// field at β = 0 (`bases`), and the sums of the weights into it (`high`, `low`), which are needed because an input is
// 2·bit − 1. `units` and `number` are those of the side.
struct Side {
    const real *scale, *slopes, *bases;
    const int *high, *low;
    int units;
    u32 number;
};
#define SIDE(end) \
    const real *scale##end, const real *slopes##end, const real *bases##end, const int *high##end, const int *low##end, \
        int units##end, u32 side##end
#define GIVEN_SIDE(end) {scale##end, slopes##end, bases##end, high##end, low##end, units##end, side##end}

// A step: its β, the previous β, and their difference.
struct alignas(16) Step {
    real beta, before;
    double difference;
};

// Sums per chain: increments of ln Λ and, for AIS, of ln W, as whole numbers after multiplication by `unit`; slopes of
// −E_k in β times `unit_v`, for even and odd k; and log-weights.
struct Gains {
    real unit, unit_v;
    long long *marginal, *joint, *rises;
    double *weights, *weights_joint;
    int chains;
};
#define GAINS \
    real unit, real unit_v, long long *gained, long long *gained_joint, long long *rises, double *weights, \
        double *joint, int chains
#define GIVEN_GAINS {unit, unit_v, gained, gained_joint, rises, weights, joint, chains}

// Results for the chains of a thread (row, row + 8, …): a byte of spins that are up, and the increments of weights.
#define CHAINS (2 * HALVES)
struct Drawn {
    u32 bits[CHAINS];
    int gain[CHAINS], with_h[CHAINS];
};

template <class T> FORCED Four<T> four(const T *from) { return *(const Four<T> *)from; }

// With DRAWN the path starts from a mixture, and its component is part of the state. The fields of the components on
// the units of a side are [component][pitch]. Like the `exponents` a_z they are part of −E_0 and not of −E_K.
#ifdef DRAWN
struct Mixed { const real *fields; int pitch; const int *component; const double *exponents; };
#define MIXED , const real *fields, int pitch, const int *component, const double *exponents
#define GIVEN_MIXED {fields, pitch, component, exponents}

// The fields on the units of a word, for the components of the chains of a thread.
struct Pulls {
    const real *of[CHAINS];
    MEMBER Pulls(const Mixed &mixed, int row, int word)
    {
#pragma unroll
        for (int i = 0; i < CHAINS; ++i)
            of[i] = mixed.fields + (long)mixed.component[row + 8 * i] * mixed.pitch + 32 * word;
    }
};
#else
struct Mixed {};
struct Pulls { MEMBER Pulls(const Mixed &, int, int) {} };
#define MIXED
#define GIVEN_MIXED {}
#endif

// The slopes in β of the fields of four units, the first or second four of a thread, without those of a mixture.
FORCED void find_slopes(real (&slopes)[CHAINS][8], int second, const Sums &sums, int q, const Side &side)
{
    const int of = 8 * q + 4 * second;
    const Four<real> scales = four(side.scale + of), own = four(side.slopes + of);
    const Four<int> highs = four(side.high + of), lows = four(side.low + of);
#pragma unroll
    for (int i = 0; i < CHAINS; ++i)
#pragma unroll
        for (int m = 0; m < 4; ++m) {
            const int j = 2 * second + m / 2, c = 2 * (i % 2) + m % 2;
            int more = 2 * (sums[i / 2][j][2][c] * 256 + sums[i / 2][j][1][c]) - highs.of[m];
            int less = 2 * sums[i / 2][j][0][c] - lows.of[m];
            real scale = scales.of[m];
            slopes[i][4 * second + m] =
                multiply_add((real)more, (real)256 * scale, multiply_add((real)less, scale, own.of[m]));
        }
}

// Draw these units at step k; `summed` if the side is summed out.
template <bool summed>
FORCED void draw_four(
    Drawn &drawn, const real (&slopes)[CHAINS][8], int second, int q, int word, u32 chain, int k, const Step &step,
    const Side &side, const Pulls &pulls, const Gains &gains, const Keys &keys)
{
    const int of = 8 * q + 4 * second, at = 32 * word + of;
    const Four<real> own = four(side.slopes + of), base = four(side.bases + of);
    const real step_size = (real)step.difference;
#ifdef BASE
    const real per_step = summed ? (real)(1.0 / step.difference) : (real)0;
#endif
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) {
        Words words = philox(chain + 8 * i, k, at / 4, side.number, keys);
#ifdef JOINT
        Words earlier = words;
        if (summed) earlier = philox(chain + 8 * i, k - 1, at / 4, SIDE_JOINT, keys);
        real on_joint = (real)0;
#endif
        real top = (real)1, bottom = (real)1, linear = (real)0;
#ifdef DRAWN
        const Four<real> pull = four(pulls.of[i] + of);
#endif
#pragma unroll
        for (int m = 0; m < 4; ++m) {
            real slope = slopes[i][4 * second + m], start = base.of[m], alone = own.of[m];
#ifdef DRAWN
            slope -= pull.of[m], start += pull.of[m], alone -= pull.of[m];
#endif
            real now = multiply_add(slope, step.beta, start), e = boltzmann(now);
            bool up = spin_up(now, e, words.w[m]);
            if (summed) {
                real was = multiply_add(slope, step.before, start), e_before = boltzmann(was);
#ifdef BASE
                linear += rise(now, was, slope, per_step);
#else
                linear += size_of(slope);
#endif
                top = multiply_add(top, e, top), bottom = multiply_add(bottom, e_before, bottom);
#ifdef JOINT
                on_joint += spin_up(was, e_before, earlier.w[m]) ? slope : -slope;
#endif
            } else {
                linear += up ? alone : -alone;
            }
            if (up) drawn.bits[i] |= 1u << (4 * second + m);
        }
        // There are no branches, so that the arithmetic of several chains is interleaved.
        const int there = at < side.units ? -1 : 0;
        if (summed) {
            int gain = rounded(multiply_add(linear, step_size, log_ratio(top, bottom)) * gains.unit);
            drawn.gain[i] += gain & there;
#ifdef JOINT
            drawn.with_h[i] += rounded(on_joint * step_size * gains.unit) & there;
#endif
        } else {
            drawn.gain[i] += rounded(linear * gains.unit_v) & there;
        }
    }
}

// Sums over the four threads of some chains; each thread receives those of one chain, in order.
FORCED int add_up(const int *of, int q)
{
    int sum;
    if (CHAINS == 4) {
        int low = q & 2 ? of[0] : of[CHAINS - 2], high = q & 2 ? of[1] : of[CHAINS - 1];
        low = (q & 2 ? of[CHAINS - 2] : of[0]) + __shfl_xor_sync(0xffffffffu, low, 2);
        high = (q & 2 ? of[CHAINS - 1] : of[1]) + __shfl_xor_sync(0xffffffffu, high, 2);
        sum = (q & 1 ? high : low) + __shfl_xor_sync(0xffffffffu, q & 1 ? low : high, 1);
    } else {
        sum = (q & 2 ? of[1] : of[0]) + __shfl_xor_sync(0xffffffffu, q & 2 ? of[0] : of[1], 2);
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    }
    return sum;
}

// Draw 32 units of the chains row, row + 8, … into the word of that number, and add the increments of the weights.
template <bool summed>
FORCED void draw(
    const Sums &sums, int word, int q, int row, u32 first, u32 *out, int out_words, int k, const Step &step,
    const Side &side, const Mixed &mixed, const Gains &gains, const Keys &keys)
{
    Drawn drawn = {};
    const Pulls pulls(mixed, row, word);
    real slopes[CHAINS][8];
#pragma unroll
    for (int second = 0; second < 2; ++second) find_slopes(slopes, second, sums, q, side);
#pragma unroll
    for (int second = 0; second < 2; ++second)
        draw_four<summed>(drawn, slopes, second, q, word, first + row, k, step, side, pulls, gains, keys);
    unsigned char *byte = (unsigned char *)(out + (long)row * out_words + word) + q;
#pragma unroll
    for (int i = 0; i < CHAINS; ++i)
        if (row + 8 * i < gains.chains) byte[32 * i * out_words] = (unsigned char)drawn.bits[i];

    const int gain = add_up(drawn.gain, q);
#ifdef JOINT
    const int with_h = summed ? add_up(drawn.with_h, q) : 0;
#endif
    row += CHAINS == 4 ? 8 * q : 4 * (q & 2);
    if (row >= gains.chains || CHAINS == 2 && q & 1) return;
    long long *rises = gains.rises + row, *now = rises + (long)(k & 1) * gains.chains;
    if (!summed) {
        atomicAdd((u64 *)now, (u64)(long long)gain);
        return;
    }
    atomicAdd((u64 *)gains.marginal + row, (u64)(long long)gain);
#ifdef JOINT
    atomicAdd((u64 *)gains.joint + row, (u64)(long long)with_h);
#endif
    if (word != 0) return; // The threads of the first units also add the contribution of the other side.
    long long before = read_through(rises + (long)(k - 1 & 1) * gains.chains);
    double rise_v = (double)before / (double)gains.unit_v;
#ifdef DRAWN
    rise_v -= mixed.exponents[mixed.component[row]];
#endif
    rise_v *= step.difference;
    *now = 0;
    gains.weights[row] += rise_v;
#ifdef JOINT
    gains.weights_joint[row] += rise_v;
#endif
}

// Draw the sampled side from the base, if it is fresh, and compute its slopes.
extern "C" __global__ void start(
    u32 *out, int out_words, int units, const real *slopes, const real *bases, KEYS, u32 side, u32 first, int chains,
    int k, int fresh, real unit_v, long long *rises MIXED)
{
    const Keys keys = GIVEN_KEYS;
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= chains) return;
#ifdef DRAWN
    const real *pulls = fields + (long)component[row] * pitch;
#endif
    long long gain = 0;
    for (int at = 0; at < units; at += 4) {
        u32 *word = out + (long)row * out_words + at / 32;
        if (fresh) {
            Words words = philox(first + row, 0, at / 4, side, keys);
            u32 four = 0;
#pragma unroll
            for (int m = 0; m < 4; ++m) {
                real a = bases[at + m];
#ifdef DRAWN
                a += pulls[at + m];
#endif
                four |= (u32)spin_up(a, boltzmann(a), words.w[m]) << m;
            }
            *word = at % 32 ? *word | four << at % 32 : four;
        }
        real linear = (real)0;
#pragma unroll
        for (int m = 0; m < 4; ++m) {
            real slope = slopes[at + m];
#ifdef DRAWN
            slope -= pulls[at + m];
#endif
            linear += *word >> (at % 32 + m) & 1u ? slope : -slope;
        }
        gain += rounded(linear * unit_v);
    }
    rises[(long)(k & 1) * chains + row] = gain;
}
