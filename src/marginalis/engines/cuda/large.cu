// Large dense models of spins, two independent sides: half a step of all chains is one product of matrices.
//
// Spins are bits, [chain][word]; the weights into a unit are whole numbers of 24 bits times a power of 2 of its own, cut
// into three signed bytes, so that tensor cores add them up without rounding: the fields do not depend on how the work
// is cut up. What a chain's weight gains goes in whole numbers as well, four units at a time, which share a call of
// Philox. A block takes ROWS chains and 64 units, a warp 32 of each; SUMMED is the half step that sums a side out.
//
// Bit b of an input word is the input with number 8j + q + 4r of its 32, in byte j of register r of the threads with
// lane % 4 = q: so shifting the word makes the operand. Likewise units are dealt to columns so that a thread gets four
// neighbours. `large.py` packs the weights accordingly.

#define ROWS 128
#define THREADS (2 * ROWS)
#ifndef BLOCKS
#define BLOCKS 1
#endif
#define DEPTH 2 // groups of 32 inputs that are fetched together,
#define STAGES 3 // and such fetches under way
#define PIECE (8 * 3 * 32) // pairs of registers of 32 inputs: eight times eight columns, three bytes, 32 lanes

struct Pair { u32 x, y; };

FORCED void multiply(int *c, const u32 *a, Pair b)
{
#ifdef __CUDACC__
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
#else
    host_multiply(c, a, b.x, b.y);
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
// times `unit_v`, for even and odd k.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) half_step(
    const u32 *in, int in_words, u32 *out, int out_words, int units, const Pair *packed, const int *bands,
    const real *scale, const real *slopes, const real *bases, const int *high, const int *low,
    const real *betas, const double *differences, KEYS, u32 side, u32 first, int chains, int k,
    real unit, real unit_v, long long *gained, long long *gained_joint, long long *rises, double *weights, double *joint)
{
    SHARED_BYTES(bytes);
    Pair *stages = (Pair *)bytes;
    u32 *bits = (u32 *)(bytes + STAGES * DEPTH * PIECE * sizeof(Pair));
    const Keys keys = GIVEN_KEYS;
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, g = lane / 4, q = lane % 4;
    const int row0 = blockIdx.x * ROWS, tile = blockIdx.y, stride = in_words | 1; // odd: no two rows in one bank
    const int from = bands[2 * tile], to = bands[2 * tile + 1];
    packed += (long)tile * in_words * PIECE;

    int next = from; // to be fetched
#define FETCH_STAGE(s) \
    for (int i = thread; i < DEPTH * PIECE / 2; i += THREADS) \
        if (next + i / (PIECE / 2) < to) \
            fetch(stages + (s) * DEPTH * PIECE + 2 * i, packed + (long)next * PIECE + 2 * i); \
    FETCHED(); \
    next += DEPTH
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) { FETCH_STAGE(s); }
    for (int i = thread; i < ROWS * in_words; i += THREADS) {
        int row = i / in_words, word = i % in_words;
        bits[row * stride + word] = row0 + row < chains ? in[(long)(row0 + row) * in_words + word] : 0u;
    }

    int sums[2][4][3][4] = {};
    const int my_row = warp / 2 * 32 + g, my_columns = warp % 2 * 4; // of this warp: rows, and first eight columns
    int stage = 0;
    for (int at = from; at < to; at += DEPTH) {
        WAIT_FETCHES(STAGES - 2);
        __syncthreads();
        { FETCH_STAGE((stage + STAGES - 1) % STAGES); }
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            if (at + d >= to) break;
            u32 a[2][4];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                u32 upper = bits[(my_row + 16 * half) * stride + at + d] >> q;
                u32 lower = bits[(my_row + 16 * half + 8) * stride + at + d] >> q;
                a[half][0] = upper & 0x01010101u, a[half][1] = lower & 0x01010101u;
                a[half][2] = (upper >> 4) & 0x01010101u, a[half][3] = (lower >> 4) & 0x01010101u;
            }
            const Pair *piece = stages + (stage * DEPTH + d) * PIECE;
#pragma unroll
            for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int byte = 0; byte < 3; ++byte) {
                    Pair b = piece[((my_columns + j) * 3 + byte) * 32 + lane];
                    multiply(sums[0][j][byte], a[0], b);
                    multiply(sums[1][j][byte], a[1], b);
                }
        }
        stage = (stage + 1) % STAGES;
    }

    const real beta = betas[k], beta_before = k > 0 ? betas[k - 1] : (real)0;
    const double difference = differences[k > 0 ? k - 1 : 0];
    const real step_size = (real)difference, per_step = (real)(1.0 / difference);
#pragma unroll
    for (int i = 0; i < 4; ++i) { // rows of this thread
        const int row = row0 + my_row + 8 * i;
        const u32 chain = first + row;
        u32 word = 0;
        int gain = 0, with_h = 0;
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
            const int at = 64 * tile + 32 * (warp % 2) + 16 * pair + 4 * q;
            Words words = philox(chain, k, at / 4, side, keys);
#ifdef JOINT
            Words earlier = philox(chain, k - 1, at / 4, SIDE_JOINT, keys);
#endif
            real linear = (real)0, top = (real)1, bottom = (real)1, drawn = (real)0;
#pragma unroll
            for (int m = 0; m < 4; ++m) {
                const int j = 2 * pair + m / 2, c = 2 * (i % 2) + m % 2, u = at + m;
                int more = 2 * (sums[i / 2][j][2][c] * 256 + sums[i / 2][j][1][c]) - high[u];
                int less = 2 * sums[i / 2][j][0][c] - low[u];
                real slope = multiply_add((real)more, (real)256 * scale[u], multiply_add((real)less, scale[u], slopes[u]));
                real now = multiply_add(slope, beta, bases[u]), e = boltzmann(now);
                bool up = spin_up(now, e, words.w[m]);
#ifdef SUMMED
                real was = multiply_add(slope, beta_before, bases[u]), e_before = boltzmann(was);
                linear += rise(now, was, slope, per_step);
                top = multiply_add(top, e, top), bottom = multiply_add(bottom, e_before, bottom);
#ifdef JOINT
                drawn += spin_up(was, e_before, earlier.w[m]) ? slope : -slope;
#endif
#else
                linear += up ? slopes[u] : -slopes[u];
#endif
                word |= (u32)up << (16 * pair + 4 * q + m);
            }
            if (at < units) {
#ifdef SUMMED
                gain += rounded(multiply_add(linear, step_size, logarithm(quotient(top, bottom))) * unit);
                with_h += rounded(drawn * step_size * unit);
#else
                gain += rounded(linear * unit_v);
#endif
            }
        }
#pragma unroll
        for (int other = 1; other < 4; other *= 2) {
            word |= __shfl_xor_sync(0xffffffffu, word, other);
            gain += __shfl_xor_sync(0xffffffffu, gain, other);
#ifdef JOINT
            with_h += __shfl_xor_sync(0xffffffffu, with_h, other);
#endif
        }
        if (q || row >= chains) continue;
        out[(long)row * out_words + 2 * tile + warp % 2] = word;
#ifdef SUMMED
        atomicAdd((u64 *)gained + row, (u64)(long long)gain);
#ifdef JOINT
        atomicAdd((u64 *)gained_joint + row, (u64)(long long)with_h);
#endif
        if (tile == 0 && warp % 2 == 0) {
            double rise_v = (double)rises[(long)(k - 1 & 1) * chains + row] / (double)unit_v * difference;
            rises[(long)(k & 1) * chains + row] = 0;
            weights[row] += rise_v;
#ifdef JOINT
            joint[row] += rise_v;
#endif
        }
#else
        atomicAdd((u64 *)rises + (long)(k & 1) * chains + row, (u64)(long long)gain);
#endif
    }
}

#ifndef SUMMED
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
