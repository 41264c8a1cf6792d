// The sum over all states of one side, in double precision (`enumeration.py` has the formula). A row of blocks sums one
// of several models of one shape, whose tables follow each other.
//
// The enumerated units have three parts. Each thread of a block has one state of the first eight units and loops over
// all states of the next eight; each block has states of the remaining units. Factors e^{slope·a} of the summed-out
// units are products of one number from each part. Numbers are mantissa·2^exponent, so that nothing overflows.

#define PART 256 // Number of states of eight units.
#define TOGETHER 8 // States of the second part that are processed together.

FORCED double power_of_2(int n) // The result is 0 if the power is too small.
{
    union { u64 bits; double number; } x;
    x.bits = n < -1022 ? 0 : (u64)(n + 1023) << 52;
    return x.number;
}

struct Number { double mantissa; int exponent; };

FORCED void normalise(double *x, int *exponent) // The number is at least 1.
{
    union { double number; u64 bits; } y;
    y.number = *x;
    *exponent += (int)(y.bits >> 52) - 1023;
    y.bits = (y.bits & 0xfffffffffffffull) | 0x3ff0000000000000ull;
    *x = y.number;
}

FORCED void add(Number *total, double mantissa, int exponent)
{
    int more = exponent - total->exponent;
    if (more <= 0) total->mantissa = fma(mantissa, power_of_2(more), total->mantissa);
    else {
        total->mantissa = fma(total->mantissa, power_of_2(-more), mantissa);
        total->exponent = exponent;
    }
}

// `low` holds the factors of the first part as [unit][state], `mid` those of the second as [states / 8][unit][8]. `top`
// holds log2 of the factor of each unit of the third part that is up, as [unit of the part][unit]; its last column is
// the own exponent of that unit. The own exponents of the states of the first two parts are mantissas and exponents.
extern "C" __global__ void sum_states(
    int units, int flush, int tops, const double *low, const double *mid, const double *top,
    const double *low_mantissas, const int *low_exponents, const double *mid_mantissas, const int *mid_exponents,
    u64 first, int count, double *mantissas, int *exponents)
{
    SHARED_BYTES(bytes);
    const long model = blockIdx.y;
    low += model * units * PART, mid += model * units * PART, top += model * tops * (units + 1);
    low_mantissas += model * PART, low_exponents += model * PART;
    mid_mantissas += model * PART, mid_exponents += model * PART;
    double *factors = (double *)bytes; // Products of the first and the third part, indexed by [unit][state].
    const int state = threadIdx.x;
    const long place = (model * gridDim.x + blockIdx.x) * PART + state;
    Number total = {mantissas[place], exponents[place]};
    for (int block = blockIdx.x; block < count; block += gridDim.x) {
        const u64 bits = first + block;
        double own = 0.0;
        for (int i = 0; i < tops; ++i) own += bits >> i & 1 ? top[i * (units + 1) + units] : -top[i * (units + 1) + units];
        for (int j = 0; j < units; ++j) {
            double exponent = 0.0;
            for (int i = 0; i < tops; ++i) exponent += bits >> i & 1 ? top[i * (units + 1) + j] : -top[i * (units + 1) + j];
            factors[j * PART + state] = low[j * PART + state] * exp2(exponent); // Only this thread uses these factors.
        }
        const double whole = floor(own), part = exp2(own - whole) * low_mantissas[state];
        const int exponent = (int)whole + low_exponents[state];
        for (int at = 0; at < PART; at += TOGETHER) {
            double p[TOGETHER];
            int x[TOGETHER];
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) p[i] = 1.0, x[i] = exponent + mid_exponents[at + i];
            for (int start = 0; start < units; start += flush) {
                const int end = start + flush < units ? start + flush : units;
                for (int j = start; j < end; ++j) {
                    const double factor = factors[j * PART + state];
                    const double *others = mid + ((long)(at / TOGETHER) * units + j) * TOGETHER;
#pragma unroll
                    for (int i = 0; i < TOGETHER; ++i) p[i] *= fma(factor, others[i], 1.0);
                }
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i) normalise(p + i, x + i);
            }
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) add(&total, p[i] * part * mid_mantissas[at + i], x[i]);
        }
    }
    mantissas[place] = total.mantissa, exponents[place] = total.exponent;
}
