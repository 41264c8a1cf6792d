// The common part of all kernels: random bits by address, exponentials and logarithms, draws.
//
// It is compiled at run time (`device.py`) with -fmad=false, so that multiply-adds are fused only if written as such,
// and kernels with another arrangement of threads give the same bits. The tests also compile it as C++ for the host.

typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef DOUBLE
typedef double real;
#else
typedef float real;
#endif

#ifdef __CUDACC__
#define FORCED __device__ __forceinline__
#define MEMBER FORCED
#define SHARED_BYTES(name) extern __shared__ __align__(16) unsigned char name[]
#define SHARED(type, name, from, count) \
    SHARED_BYTES(shared_bytes); \
    type *name = (type *)shared_bytes; \
    copy_all((uint4 *)name, (const uint4 *)(from), ((count) * sizeof(type) + 15) / 16)
#define SHARED_AFTER(type, name, before) type *name = (type *)(shared_bytes + ((before) + 15) / 16 * 16)
#define SYNC_WARP() __syncwarp()
#define WRITE_BIT(word, lane, up) { u32 all = __ballot_sync(0xffffffffu, up); if ((lane) == 0) word = all; }
// Copy by all threads of a block, with many transfers of 16 bytes in flight; both ends are padded to 16 bytes.
FORCED void copy_all(uint4 *to, const uint4 *from, int count)
{
    const int most = 8;
    for (int i = threadIdx.x; i < count; i += most * blockDim.x) {
        uint4 held[most];
#pragma unroll
        for (int j = 0; j < most; ++j)
            if (i + j * blockDim.x < count) held[j] = from[i + j * blockDim.x];
#pragma unroll
        for (int j = 0; j < most; ++j)
            if (i + j * blockDim.x < count) to[i + j * blockDim.x] = held[j];
    }
    __syncthreads();
}
#else
#define FORCED static inline
#define MEMBER inline
#endif
#ifndef BOUNDS
#define BOUNDS
#endif

FORCED float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
FORCED double multiply_add(double a, double b, double c) { return fma(a, b, c); }
FORCED float size_of(float x) { return fabsf(x); }
FORCED double size_of(double x) { return fabs(x); }

// 2^x for x ≤ 0; 0 if the result is below the smallest normal number.
FORCED float power(float x)
{
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}
FORCED double power(double x) { return exp2(x); }

// a/b with an error of one or two units in the last place, for arguments of moderate size. On the host the error is as
// large as on a GPU and always of the same sign, so that the tests include its effect on sums of many steps.
FORCED float quotient(float a, float b)
{
#ifdef __CUDACC__
    return __fdividef(a, b);
#else
    return a * nextafterf(1.0f / b, 0.0f);
#endif
}
FORCED double quotient(double a, double b) { return a / b; }

// A word with the sign of x as its highest bit.
FORCED u32 sign_word(float x)
{
    union { float number; u32 bits; } same;
    same.number = x;
    return same.bits;
}
FORCED u32 sign_word(double x)
{
    union { double number; u64 bits; } same;
    same.number = x;
    return (u32)(same.bits >> 32);
}

// ln(top/bottom) of positive normal numbers: top = 2^n·m·bottom, ln m = 2 artanh((m − 1)/(m + 1)). It is computed from
// the difference of the two, so that its relative error is small. The increment of a step is as small as the step, and
// the logarithm of a rounded quotient near 1 would add a bias to every step.
FORCED float log_ratio(float top, float bottom)
{
    union { float number; int bits; } part, below;
    part.number = top, below.number = bottom;
    int n = (part.bits - below.bits + (1 << 22)) >> 23;
    part.bits -= n << 23; // The result is between 2/3 and 3/2 of `bottom`, so their difference is exact.
    float s = quotient(part.number - bottom, part.number + bottom), q = s * s;
    float series = fmaf(q, 2.0f / 9.0f, 2.0f / 7.0f);
    series = fmaf(series, q, 2.0f / 5.0f);
    series = fmaf(series, q, 2.0f / 3.0f);
    series = fmaf(series, q, 2.0f);
    return fmaf((float)n, 0.69314718f, s * series);
}
FORCED double log_ratio(double top, double bottom) { return log(top / bottom); }

#define TWICE_LOG2_E ((real)2.8853900817779268)
#define LOG2_E ((real)1.4426950408889634)

// e = exp(−2|a|)
FORCED real boltzmann(real a) { return power(size_of(a) * -TWICE_LOG2_E); }

// (w + ½)/2^32
FORCED real uniform(u32 word)
{
    return multiply_add((real)word, (real)2.3283064365386963e-10, (real)1.1641532182693481e-10);
}

// Whether a spin in the field a is up: it is sign(a) with probability 1/(1+e). A field of −0 counts as +0.
FORCED bool spin_up(real a, real e, u32 word)
{
    real u = uniform(word);
    return (a >= (real)0) != (multiply_add(u, e, u) < e);
}

// (|now| − |before|)·per_step, where now − before = slope/per_step; equal signs cause no cancellation.
FORCED real rise(real now, real before, real slope, real per_step)
{
    if ((now < (real)0) == (before < (real)0)) return now < (real)0 ? -slope : slope;
    return (size_of(now) - size_of(before)) * per_step;
}

struct alignas(16) Words { u32 w[4]; };

struct Keys { u32 of[20]; };
#ifdef MANY
// A launch has a row of blocks for each of many models. A model has a seed of two words, from which the keys of the ten
// rounds of Philox follow. Arrays contain the parts of all models in sequence.
#define KEYS const u32 *seeds
#define GIVEN_KEYS keys_of(seeds + 2 * blockIdx.y)
#define OWN_PART(array, size) array += (u64)blockIdx.y * (size)
FORCED Keys keys_of(const u32 *seed)
{
    Keys keys;
#pragma unroll
    for (int r = 0; r < 10; ++r) keys.of[2 * r] = seed[0] + r * 0x9E3779B9u, keys.of[2 * r + 1] = seed[1] + r * 0xBB67AE85u;
    return keys;
}
#else
#define OWN_PART(array, size)
// The keys are separate kernel arguments, which multiprocessors read at no cost.
#define KEYS \
    u32 a0, u32 b0, u32 a1, u32 b1, u32 a2, u32 b2, u32 a3, u32 b3, u32 a4, u32 b4, \
    u32 a5, u32 b5, u32 a6, u32 b6, u32 a7, u32 b7, u32 a8, u32 b8, u32 a9, u32 b9
#define GIVEN_KEYS {{a0, b0, a1, b1, a2, b2, a3, b3, a4, b4, a5, b5, a6, b6, a7, b7, a8, b8, a9, b9}}
#endif

// Philox-4x32-10 (Salmon et al., SC 2011) at the counter (chain, step, group, side).
FORCED Words philox(u32 chain, u32 step, u32 group, u32 side, const Keys &keys)
{
    u32 c0 = chain, c1 = step, c2 = group, c3 = side;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u64 p0 = (u64)c0 * 0xD2511F53u, p1 = (u64)c2 * 0xCD9E8D57u;
        c0 = (u32)(p1 >> 32) ^ c1 ^ keys.of[2 * round];
        c1 = (u32)p1;
        c2 = (u32)(p0 >> 32) ^ c3 ^ keys.of[2 * round + 1];
        c3 = (u32)p0;
    }
    return {{c0, c1, c2, c3}};
}

// Addresses, as in random.py.
#define SIDE_JOINT 2u
#define SIDE_MIXTURE 5u
#define SIDE_METROPOLIS 16u
