// Whole steps of all chains, for weights that fit into the shared memory of several multiprocessors together. A group
// of blocks, one per multiprocessor, holds all weights of both half steps, and advances its part of the chains.
//
// A block holds the weights into some units of both sides, 32 at a time, and the other data of these units. Its
// `shares` list the word of the side, the range of words of inputs that are not zero, and the position of the weights.
// TEAMS teams of TEAM threads process ROWS chains at a time, in turns, without waiting for each other. If there are few
// warps, only TOKENS of the teams multiply at a time, while the others draw. The blocks of a group wait for each other
// only when chains proceed to the next half step: `arrived` counts the blocks that have finished some chains. All
// blocks must run at the same time.
//
// With TOGETHER the four warps of a team multiply together (`wgmma` of Hopper), with weights directly from shared
// memory.

#define PIECE (6 * 32) // Operands for 32 inputs and 32 units: six times two products, 32 lanes.
#define TILES (ROWS / (16 * HALVES))
#define AHEAD 3 // Number of operands that are read in advance.
#define COUNT_SUMS ((int)(sizeof(Sums) / sizeof(int)))

struct alignas(16) Share { int word, from, to, at; };
struct alignas(16) Own { // The other data of 32 units.
    Share share;
    real scale[32], slopes[32], bases[32];
    int high[32], low[32];
};

// Wait for the threads of a team; signal an arrival; wait for a number of arrivals.
#ifdef __CUDACC__
FORCED void team_barrier(int team) { asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(TEAM) : "memory"); }
FORCED void arrive(u32 *at) { asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(at) : "memory"); }
FORCED void wait_for(const u32 *arrived, u32 number)
{
    u32 now; // Acquiring invalidates the cache for all threads, so it is done only once.
    do asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
    while ((int)(now - number) < 0);
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
}
#else
#define team_barrier(team) host_barrier((team) + 1, TEAM)
#define arrive(at) (*(at) += 1)
FORCED void wait_for(const u32 *arrived, u32 number)
{
    while ((int)(*(const volatile u32 *)arrived - number) < 0) pause_fiber();
}
#endif

// Take a token, waiting until one is free; return it.
FORCED void take(u32 *token, int lane)
{
#ifdef __CUDACC__
    if (TOKENS >= TEAMS) return;
    if (lane == 0)
        while (atomicCAS(token, 0u, 1u)) __nanosleep(20);
    __syncwarp();
#endif
}
FORCED void give(u32 *token, int lane)
{
#ifdef __CUDACC__
    if (TOKENS >= TEAMS) return;
    __syncwarp();
    if (lane == 0) atomicExch(token, 0u);
#endif
}

// Copy the block's data of one side.
FORCED void copy_own(
    Own *own, Operands2 *weights, const Operands2 *packed, int in_words, const Share *shares, int most, const Side &side)
{
    for (int s = 0; s < most; ++s) {
        const Share share = shares[s]; // The weights are packed by 64 units.
        if (threadIdx.x == 0) own[s].share = share;
        if (share.at < 0) continue;
        for (int i = threadIdx.x; i < 32; i += TEAMS * TEAM) {
            const int unit = 32 * share.word + i;
            own[s].scale[i] = side.scale[unit], own[s].slopes[i] = side.slopes[unit], own[s].bases[i] = side.bases[unit];
            own[s].high[i] = side.high[unit], own[s].low[i] = side.low[unit];
        }
        const Operands2 *from = packed + ((long)(share.word / 2) * in_words + share.from) * 2 * PIECE;
        for (int i = threadIdx.x; i < (share.to - share.from) * PIECE; i += TEAMS * TEAM) {
            const Operands2 two = from[(i / PIECE * 2 + share.word % 2) * PIECE + i % PIECE];
#ifdef TOGETHER // of a piece: [16 inputs][product][lane], which makes eight columns of 16 bytes of each product
            u32 *piece = (u32 *)(weights + (share.at + i / PIECE) * PIECE) + i % PIECE / 32 * 64 + i % 32;
            piece[0] = two.of[0], piece[2 * PIECE] = two.of[1], piece[32] = two.of[2], piece[2 * PIECE + 32] = two.of[3];
#else
            weights[share.at * PIECE + i] = two;
#endif
        }
    }
#if defined TOGETHER && defined __CUDACC__
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#ifdef TOGETHER
#ifdef __CUDACC__
#define HELD(x) asm volatile("" : "+r"(x)::"memory") // The compiler must compute the value here, and not later.
#define FENCE_OPERANDS() asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define PRODUCTS_SENT() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT_PRODUCTS() asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory")
#else
#define HELD(x)
#define FENCE_OPERANDS()
#define PRODUCTS_SENT()
#define WAIT_PRODUCTS()
#endif

// The matrix descriptor of a piece of weights for the tensor cores: eight columns and 16 inputs are 128 bytes, which is
// the stride by columns, and a twelfth of the stride by inputs.
FORCED u32 described(const Operands2 *piece)
{
#ifdef __CUDACC__
    return (u32)__cvta_generic_to_shared(piece) >> 4 | (12 * 128 >> 4) << 16;
#else
    return (u32)((const unsigned char *)piece - shared_memory) >> 4;
#endif
}
#define NEXT_PIECE ((u32)(PIECE * sizeof(Operands2) >> 4)) // Difference between the descriptors of successive pieces.

// Add all twelve products of 32 inputs, for the 64 chains of four warps; the first products start from zero.
template <bool first> FORCED void multiply_together(Sums &sums, const u32 (&a)[4], u32 weights)
{
    int *c = &sums[0][0][0][0];
#ifdef __CUDACC__
#define FOUR(i) "+r"(c[i]), "+r"(c[i + 1]), "+r"(c[i + 2]), "+r"(c[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)
    asm volatile(
        "{ .reg .pred add; .reg .b64 where; setp.eq.u32 add, %53, 0; mov.b64 where, {%52, 8};" // 8: 128 bytes
        "wgmma.mma_async.sync.aligned.m64n96k32.s32.s8.s8 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"
        "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47},"
        "{%48,%49,%50,%51}, where, add; }"
        : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(weights), "n"(first));
#else
    const u32 *b = (const u32 *)(shared_memory + (weights << 4)) + threadIdx.x % 32;
    if (first) memset(sums, 0, sizeof sums);
    for (int p = 0; p < 12; ++p) host_multiply(c + 4 * p, a, b[32 * p], b[2 * PIECE + 32 * p]);
#endif
}

// The products of two words of inputs, which are read while previous products are in progress.
template <bool first> FORCED void add_two(Sums &sums, const u32 *upper, const u32 *lower, u32 weights, int q)
{
    struct alignas(8) Two { u32 of[2]; };
    const Two above = *(const Two *)upper, below = *(const Two *)lower;
    u32 a[2][4];
    if (!first) WAIT_PRODUCTS();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        spread(a[i], above.of[i], below.of[i], q);
#pragma unroll
        for (int j = 0; j < 4; ++j) HELD(a[i][j]);
    }
    FENCE_OPERANDS();
    multiply_together<first>(sums, a[0], weights);
    multiply_together<false>(sums, a[1], weights + NEXT_PIECE);
    PRODUCTS_SENT();
}

// The products of all words of inputs, whose number is even.
FORCED void add_words(Sums &sums, const u32 *upper, int stride, const Operands2 *weights, int words, int q)
{
    const u32 *lower = upper + 8 * stride;
    u32 at = described(weights);
    add_two<true>(sums, upper, lower, at, q);
#pragma unroll 1
    while (words -= 2) upper += 2, lower += 2, at += 2 * NEXT_PIECE, add_two<false>(sums, upper, lower, at, q);
    WAIT_PRODUCTS();
    int *all = &sums[0][0][0][0];
#pragma unroll
    for (int i = 0; i < COUNT_SUMS; ++i) HELD(all[i]); // No sum is used before this.
}
#else
// The products of all words of inputs; the last operands that are read in advance are not used.
FORCED void add_words(Sums &sums, const u32 *row, int stride, const Operands2 *weights, int words, int q)
{
    int *all = &sums[0][0][0][0];
#pragma unroll
    for (int i = 0; i < COUNT_SUMS; ++i) all[i] = 0;
    weights += threadIdx.x % 32;
    Operands2 b[AHEAD];
    u32 bits[CHAINS];
#pragma unroll
    for (int p = 0; p < AHEAD; ++p) b[p] = weights[p * 32];
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) bits[i] = row[8 * i * stride];
#pragma unroll 1
    for (; words > 0; --words) {
        u32 a[HALVES][4];
#pragma unroll
        for (int half = 0; half < HALVES; ++half) spread(a[half], bits[2 * half], bits[2 * half + 1], q);
        ++row;
#pragma unroll
        for (int i = 0; i < CHAINS; ++i) bits[i] = row[8 * i * stride];
#pragma unroll
        for (int p = 0; p < 6; ++p) {
            const Operands2 now = b[p % AHEAD];
            b[p % AHEAD] = weights[(p + AHEAD) * 32];
            add_products(sums, a, now, p);
        }
        weights += PIECE;
    }
}
#endif

// Half a step of ROWS chains from `row0`, for the units of this block; the chains have the same distance as in `bits`.
template <bool summed>
FORCED void half_step(
    const u32 *in, int in_words, u32 *out, int out_words, const Operands2 *weights, const Own *owned, int most,
    int units, u32 side, u32 *bits, u32 *token, int row0, int team, int thread, int k, const Step &step,
    const Keys &keys, u32 first, const Gains &gains)
{
    const int lane = thread % 32, g = lane / 4, q = lane % 4;
    const u32 *from = in + (long)row0 * in_words;
    for (int i = 4 * thread; i < ROWS * in_words; i += 4 * TEAM) fetch(bits + i, from + i);
    FETCHED();
    WAIT_FETCHES(0);
    team_barrier(team);
    for (int item = thread / 32; item < most * TILES; item += TEAM / 32) {
        const Own &own = owned[item / TILES];
        const Share share = own.share;
        if (share.at < 0) break; // There are no more shares.
        const int row = item % TILES * 16 * HALVES + g;
        const u32 *mine = bits + row * in_words;
        const Operands2 *of = weights + share.at * PIECE;
        Sums sums;
        take(token, lane);
        add_words(sums, mine + share.from, in_words, of, share.to - share.from, q);
        give(token, lane);
        const Side drawn = {own.scale, own.slopes, own.bases, own.high, own.low, units, side};
        draw<summed>(sums, share.word, q, row0 + row, first, out, out_words, k, step, drawn, {}, gains, keys);
    }
    team_barrier(team);
}

// `v` and `h` are [chain][words], padded to multiples of ROWS chains. `packed_words_*` are the numbers of words in the
// packed weights, and `before` is the number of half steps of earlier launches.
extern "C" __global__ void __launch_bounds__(TEAMS *TEAM, 1) steps(
    u32 *v, u32 *h, int words_v, int words_h, const Operands2 *packed_h, int packed_words_v, const Operands2 *packed_v,
    int packed_words_h, SIDE(_h), SIDE(_v), const Share *shares_h, const Share *shares_v, int most_h, int most_v,
    int inside, int group_size, const real *betas, const double *differences, KEYS, u32 first, GAINS,
    int from, int to, int last, u32 *arrived, u32 before)
{
    SHARED_BYTES(bytes);
    Operands2 *weights_own = (Operands2 *)bytes;
    const int team = threadIdx.x / TEAM, thread = threadIdx.x % TEAM;
    const int block = blockIdx.x % group_size, group = blockIdx.x / group_size, groups = gridDim.x / group_size;
    Own *own_h = (Own *)(weights_own + inside * PIECE), *own_v = own_h + most_h;
    Step *step = (Step *)(own_v + most_v) + team;
    u32 *tokens = (u32 *)(step - team + TEAMS), *token = tokens + team % TOKENS * (TEAM / 32) + thread / 32;
    u32 *bits = tokens + 32 + team * ROWS * (words_v > words_h ? words_v : words_h);
    const Keys keys = GIVEN_KEYS;
    const Gains gains = GIVEN_GAINS;
    copy_own(own_h, weights_own, packed_h, packed_words_v, shares_h + block * most_h, most_h, GIVEN_SIDE(_h));
    copy_own(own_v, weights_own, packed_v, packed_words_h, shares_v + block * most_v, most_v, GIVEN_SIDE(_v));
    if (threadIdx.x < 32) tokens[threadIdx.x] = 0;
    __syncthreads();

    // The teams take parts of the chains in turns, half step after half step, so that all have the same work.
    const int all = (chains + ROWS - 1) / ROWS, parts = (all - group + groups - 1) / groups;
    const int halves = 2 * (to - from) - (to == last);
    if (parts < 1) return;
    for (int half = 0, at = team;; at += TEAMS) {
        for (; at >= parts; at -= parts) ++half;
        if (half >= halves) return;
        const int part = group + groups * at, row0 = part * ROWS, k = from + 1 + half / 2;
        if (thread == 0) {
            *step = {betas[k], betas[k - 1], differences[k - 1]};
            wait_for(arrived + part, (before + half) * group_size);
        }
        team_barrier(team);
        if (half % 2 == 0)
            half_step<true>(
                v, words_v, h, words_h, weights_own, own_h, most_h, units_h, side_h, bits, token, row0, team, thread, k,
                *step, keys, first, gains);
        else
            half_step<false>(
                h, words_h, v, words_v, weights_own, own_v, most_v, units_v, side_v, bits, token, row0, team, thread, k,
                *step, keys, first, gains);
        if (thread == 0) arrive(arrived + part);
    }
}
