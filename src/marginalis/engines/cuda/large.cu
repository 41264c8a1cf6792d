// Large dense models of spins, two independent sides: half a step of all chains is one product of matrices.
//
// Spins are bits, [chain][word]; the weights into a unit are whole numbers of 24 bits times a power of 2 of its own, cut
// into three signed bytes, so that tensor cores add them up without rounding: the fields do not depend on how the work
// is cut up. What a chain's weight gains goes in whole numbers as well, four units at a time, which share a call of
// Philox. A block takes ROWS chains and 64 units, a warp 16 or 32 chains (HALVES) and 32 units; SUMMED is the half step that sums a side out.
//
// Bit b of an input word is the input with number 8j + q + 4r of its 32, in byte j of register r of the threads with
// lane % 4 = q: so shifting the word makes the operand. Likewise units are dealt to columns so that a thread gets four
// neighbours. `large.py` packs the weights accordingly.

#define THREADS (4 * ROWS / HALVES)
#define DEPTH 2 // groups of 32 inputs that are fetched together; bands are whole numbers of them
#define STAGES 4 // such fetches under way
#define PIECE (2 * 6 * 32) // for 32 inputs: two warps, six times two products, 32 lanes

struct alignas(16) Operands2 { u32 of[4]; }; // of two products

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

// Start to copy 16 bytes into shared memory
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
#define WAIT_FETCHES(n) asm volatile("cp.async.wait_group %0;" ::"n"(n))
#else
#define FETCHED()
#define WAIT_FETCHES(n)
#endif

FORCED int rounded(float x)
{
#ifdef __CUDACC__
    return __float2int_rn(x);
#else
    return (int)rint(x);
#endif
}

// `packed`: [64 units][32 inputs][PIECE]; `bands`: for each 64 units the first and the last group of 32 inputs that
// matter. Of every unit: `scale` of its weights, its own field at β = 0 (`bases`) and the slope of that, and the sums of
// the weights into it (`high`, `low`: an input is 2·bit − 1). `gained`: whole numbers times 1/`unit`, by chain: of ln Λ, and of ln W for AIS. `rises`: slopes of −E_k in β,
// times `unit_v`, for even and odd k. The step is k = *clock + ahead, so that the same launches serve again.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) half_step(
    const u32 *in, int in_words, u32 *out, int out_words, int units, const Operands2 *packed, const int *bands,
    const real *scale, const real *slopes, const real *bases, const int *high, const int *low,
    const real *betas, const double *differences, KEYS, u32 side, u32 first, int chains,
    const int *clock, int ahead, real unit, real unit_v, long long *gained, long long *gained_joint, long long *rises, double *weights, double *joint)
{
    SHARED_BYTES(bytes);
    Operands2 *stages = (Operands2 *)bytes;
    u32 *bits = (u32 *)(bytes + STAGES * DEPTH * PIECE * sizeof(Operands2));
    const Keys keys = GIVEN_KEYS;
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, g = lane / 4, q = lane % 4;
    const int row0 = blockIdx.x * ROWS, tile = blockIdx.y, stride = in_words | 1; // odd: no two rows in one bank
    const int k = ahead + (clock ? *clock : 0);
    const int from = bands[2 * tile], to = bands[2 * tile + 1];
    packed += (long)tile * in_words * PIECE;

    int next = from; // to be fetched
#define FETCH_STAGE(s) \
    if (next < to) \
        for (int i = thread; i < DEPTH * PIECE; i += THREADS) \
            fetch(stages + (s) * DEPTH * PIECE + i, packed + (long)next * PIECE + i); \
    FETCHED(); \
    next += DEPTH
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) { FETCH_STAGE(s); }
    for (int i = thread; i < ROWS * in_words; i += THREADS) {
        int row = i / in_words, word = i % in_words;
        bits[row * stride + word] = row0 + row < chains ? in[(long)(row0 + row) * in_words + word] : 0u;
    }

    int sums[HALVES][4][3][4] = {};
    const int my_row = warp / 2 * 16 * HALVES + g, mine = warp % 2 * 6 * 32; // rows and operands of this warp
    int stage = 0;
    for (int at = from; at < to; at += DEPTH) {
        WAIT_FETCHES(STAGES - 2);
        __syncthreads();
        { FETCH_STAGE((stage + STAGES - 1) % STAGES); }
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            u32 a[HALVES][4];
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                u32 upper = bits[(my_row + 16 * half) * stride + at + d] >> q;
                u32 lower = bits[(my_row + 16 * half + 8) * stride + at + d] >> q;
                a[half][0] = upper & 0x01010101u, a[half][1] = lower & 0x01010101u;
                a[half][2] = (upper >> 4) & 0x01010101u, a[half][3] = (lower >> 4) & 0x01010101u;
            }
            const Operands2 *piece = stages + (stage * DEPTH + d) * PIECE + mine + lane;
#pragma unroll
            for (int p = 0; p < 6; ++p) {
                Operands2 b = piece[p * 32];
#pragma unroll
                for (int half = 0; half < HALVES; ++half) {
                    multiply(sums[half][2 * p / 3][2 * p % 3], a[half], b.of[0], b.of[1]);
                    multiply(sums[half][(2 * p + 1) / 3][(2 * p + 1) % 3], a[half], b.of[2], b.of[3]);
                }
            }
        }
        stage = (stage + 1) % STAGES;
    }

    const real beta = betas[k];
#ifdef SUMMED
    const real beta_before = betas[k - 1], step_size = (real)differences[k - 1];
#ifdef BASE
    const real per_step = (real)(1.0 / differences[k - 1]);
#endif
#endif
    u32 drawn[2 * HALVES] = {}; // of the rows of this thread
    int gain[2 * HALVES] = {}, with_h[2 * HALVES] = {};
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
        const int at = 64 * tile + 32 * (warp % 2) + 16 * pair + 4 * q;
        real scales[4], own[4], base[4];
        int highs[4], lows[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
            scales[m] = scale[at + m], own[m] = slopes[at + m], base[m] = bases[at + m];
            highs[m] = high[at + m], lows[m] = low[at + m];
        }
#pragma unroll
        for (int i = 0; i < 2 * HALVES; ++i) {
            const u32 chain = first + row0 + my_row + 8 * i;
            Words words = philox(chain, k, at / 4, side, keys);
#ifdef JOINT
            Words earlier = philox(chain, k - 1, at / 4, SIDE_JOINT, keys);
            real on_joint = (real)0;
#endif
#ifdef SUMMED
            real top = (real)1, bottom = (real)1;
#endif
            real linear = (real)0;
#pragma unroll
            for (int m = 0; m < 4; ++m) {
                const int j = 2 * pair + m / 2, c = 2 * (i % 2) + m % 2;
                int more = 2 * (sums[i / 2][j][2][c] * 256 + sums[i / 2][j][1][c]) - highs[m];
                int less = 2 * sums[i / 2][j][0][c] - lows[m];
                real slope = multiply_add((real)more, (real)256 * scales[m], multiply_add((real)less, scales[m], own[m]));
                real now = multiply_add(slope, beta, base[m]), e = boltzmann(now);
                bool up = spin_up(now, e, words.w[m]);
#ifdef SUMMED
                real was = multiply_add(slope, beta_before, base[m]), e_before = boltzmann(was);
#ifdef BASE
                linear += rise(now, was, slope, per_step);
#else
                linear += size_of(slope);
#endif
                top = multiply_add(top, e, top), bottom = multiply_add(bottom, e_before, bottom);
#ifdef JOINT
                on_joint += spin_up(was, e_before, earlier.w[m]) ? slope : -slope;
#endif
#else
                linear += up ? own[m] : -own[m];
#endif
                drawn[i] |= (u32)up << (16 * pair + 4 * q + m);
            }
            if (at < units) {
#ifdef SUMMED
                gain[i] += rounded(multiply_add(linear, step_size, logarithm(quotient(top, bottom))) * unit);
#ifdef JOINT
                with_h[i] += rounded(on_joint * step_size * unit);
#endif
#else
                gain[i] += rounded(linear * unit_v);
#endif
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 2 * HALVES; ++i) {
        const int row = row0 + my_row + 8 * i;
#pragma unroll
        for (int other = 1; other < 4; other *= 2) {
            drawn[i] |= __shfl_xor_sync(0xffffffffu, drawn[i], other);
            gain[i] += __shfl_xor_sync(0xffffffffu, gain[i], other);
#ifdef JOINT
            with_h[i] += __shfl_xor_sync(0xffffffffu, with_h[i], other);
#endif
        }
        if (q || row >= chains) continue;
        out[(long)row * out_words + 2 * tile + warp % 2] = drawn[i];
#ifdef SUMMED
        atomicAdd((u64 *)gained + row, (u64)(long long)gain[i]);
#ifdef JOINT
        atomicAdd((u64 *)gained_joint + row, (u64)(long long)with_h[i]);
#endif
        if (tile == 0 && warp % 2 == 0) {
            double rise_v = (double)rises[(long)(k - 1 & 1) * chains + row] / (double)unit_v * differences[k - 1];
            rises[(long)(k & 1) * chains + row] = 0;
            weights[row] += rise_v;
#ifdef JOINT
            joint[row] += rise_v;
#endif
        }
#else
        atomicAdd((u64 *)rises + (long)(k & 1) * chains + row, (u64)(long long)gain[i]);
#endif
    }
}

#ifndef SUMMED
extern "C" __global__ void set_clock(int *clock, int add, int to)
{
    *clock = add ? *clock + add : to;
}

// Draw the sampled side from the base, if it is fresh, and weigh what it has
extern "C" __global__ void start(
    u32 *out, int out_words, int units, const real *slopes, const real *bases, KEYS, u32 side, u32 first, int chains,
    int k, int fresh, real unit_v, long long *rises)
{
    const Keys keys = GIVEN_KEYS;
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= chains) return;
    long long gain = 0;
    for (int at = 0; at < units; at += 4) {
        u32 *word = out + (long)row * out_words + at / 32;
        if (fresh) {
            Words words = philox(first + row, 0, at / 4, side, keys);
            u32 four = 0;
#pragma unroll
            for (int m = 0; m < 4; ++m) four |= (u32)spin_up(bases[at + m], boltzmann(bases[at + m]), words.w[m]) << m;
            *word = at % 32 ? *word | four << at % 32 : four;
        }
        real linear = (real)0;
#pragma unroll
        for (int m = 0; m < 4; ++m) linear += *word >> (at % 32 + m) & 1u ? slopes[at + m] : -slopes[at + m];
        gain += rounded(linear * unit_v);
    }
    rises[(long)(k & 1) * chains + row] = gain;
}
#endif
