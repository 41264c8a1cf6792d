// Whole steps of all chains, for weights that fit into the shared memory of some multiprocessors: a group of blocks, one
// on each, has all weights of both halves, and takes its share of the chains through all steps.
//
// A block has the weights into some units of both sides, 32 at a time (its `shares`: which word of the side they are,
// the first and the last word of inputs that matters, and where the weights lie). TEAMS teams of TEAM threads each take
// `rows` chains at a time, in turns, without waiting for each other; where there are few warps, TOKENS of the teams
// multiply at a time, and the others draw meanwhile. The blocks of a group wait for each other only where
// chains go from one half step to the next: `arrived` counts the blocks that are through with some chains. All blocks
// must run at the same time.

#define PIECE (6 * 32) // for 32 inputs and 32 units: six times two products, 32 lanes
#define TILE (16 * HALVES)
#define AHEAD 3 // operands that are read before they are used

struct alignas(16) Share { int word, from, to, at; };

// Wait for the threads of a team; say that one has arrived; wait for so many to have done so
#ifdef __CUDACC__
FORCED void team_barrier(int team) { asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(TEAM) : "memory"); }
FORCED void arrive(u32 *at) { asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(at) : "memory"); }
FORCED void wait_for(const u32 *arrived, u32 number)
{
    u32 now;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
    while ((int)(now - number) < 0);
}
#else
#define team_barrier(team) host_barrier((team) + 1, TEAM)
#define arrive(at) (*(at) += 1)
FORCED void wait_for(const u32 *arrived, u32 number)
{
    while ((int)(*(const volatile u32 *)arrived - number) < 0) pause_fiber();
}
#endif

// Take a token that another warp may have, and give it back
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

FORCED void copy_weights(Operands2 *to, const Operands2 *packed, int in_words, const Share *shares, int most)
{
    for (int s = 0; s < most; ++s) {
        const Share share = shares[s]; // packed by 64 units
        const Operands2 *from = packed + ((long)(share.word / 2) * in_words + share.from) * 2 * PIECE;
        for (int i = threadIdx.x; i < (share.to - share.from) * PIECE; i += TEAMS * TEAM)
            to[share.at * PIECE + i] = from[(i / PIECE * 2 + share.word % 2) * PIECE + i % PIECE];
    }
}

// The products of all words of inputs; the last operands that are read ahead are read in vain
FORCED void add_words(Sums &sums, const u32 *row, int stride, const Operands2 *weights, int words, int q)
{
    Operands2 b[AHEAD];
    u32 bits[CHAINS];
#pragma unroll
    for (int p = 0; p < AHEAD; ++p) b[p] = weights[p * 32];
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) bits[i] = row[8 * i * stride];
#pragma unroll 1
    for (; words; --words) {
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

// Half a step of `rows` chains from `row0`, for the units of this block; the chains lie as far apart as in `bits`
template <bool summed>
FORCED void half_step(
    const u32 *in, int in_words, u32 *out, int out_words, const Operands2 *weights, const Share *shares, int most,
    const Side &side, u32 *bits, u32 *token, int row0, int rows, int team, int thread, int k, const real *betas,
    const double *differences, const Keys &keys, u32 first, const Gains &gains)
{
    const int lane = thread % 32, g = lane / 4, q = lane % 4, tiles = rows / TILE;
    const u32 *from = in + (long)row0 * in_words;
    for (int i = 4 * thread; i < rows * in_words; i += 4 * TEAM) fetch(bits + i, from + i);
    FETCHED();
    WAIT_FETCHES(0);
    team_barrier(team);
    for (int item = thread / 32; item < most * tiles; item += TEAM / 32) {
        const Share share = shares[item / tiles];
        if (share.at < 0) break; // no more of them
        const int row = item % tiles * TILE + g;
        const u32 *mine = bits + row * in_words;
        const Operands2 *of = weights + share.at * PIECE + lane;
        Sums sums = {};
        take(token, lane);
        if (share.from < share.to) add_words(sums, mine + share.from, in_words, of, share.to - share.from, q);
        give(token, lane);
        draw<summed>(
            sums, share.word, q, row0 + row, first, out, out_words, k, side, betas, differences, gains, keys);
    }
    team_barrier(team);
}

// `v`, `h`: [chain][words], for whole `rows`; `packed_words_*`: words as the weights have them; `before`: half steps of
// earlier launches
extern "C" __global__ void __launch_bounds__(TEAMS *TEAM, 1) steps(
    u32 *v, u32 *h, int words_v, int words_h, const Operands2 *packed_h, int packed_words_v, const Operands2 *packed_v,
    int packed_words_h, SIDE(_h), SIDE(_v), const Share *shares_h, const Share *shares_v, int most_h, int most_v,
    int inside, int group_size, int rows, const real *betas, const double *differences, KEYS, u32 first, GAINS,
    int from, int to, int last, u32 *arrived, u32 before)
{
    SHARED_BYTES(bytes);
    Operands2 *weights_own = (Operands2 *)bytes;
    const int team = threadIdx.x / TEAM, thread = threadIdx.x % TEAM;
    const int block = blockIdx.x % group_size, group = blockIdx.x / group_size, groups = gridDim.x / group_size;
    u32 *tokens = (u32 *)(weights_own + inside * PIECE), *token = tokens + team % TOKENS * (TEAM / 32) + thread / 32;
    u32 *bits = tokens + 32 + team * rows * (words_v > words_h ? words_v : words_h);
    const Keys keys = GIVEN_KEYS;
    const Side of_h = GIVEN_SIDE(_h), of_v = GIVEN_SIDE(_v);
    const Gains gains = GIVEN_GAINS;
    shares_h += block * most_h, shares_v += block * most_v;
    copy_weights(weights_own, packed_h, packed_words_v, shares_h, most_h);
    copy_weights(weights_own, packed_v, packed_words_h, shares_v, most_v);
    if (threadIdx.x < 32) tokens[threadIdx.x] = 0;
    __syncthreads();

    // parts of the chains, half step after half step: the teams take turns, so that none has more to do
    const int all = (chains + rows - 1) / rows, parts = (all - group + groups - 1) / groups;
    const int halves = 2 * (to - from) - (to == last);
    if (parts < 1) return;
    for (int half = 0, at = team;; at += TEAMS) {
        for (; at >= parts; at -= parts) ++half;
        if (half >= halves) return;
        const int part = group + groups * at, row0 = part * rows, k = from + 1 + half / 2;
        if (thread == 0) wait_for(arrived + part, (before + half) * group_size);
        team_barrier(team);
        if (half % 2 == 0)
            half_step<true>(
                v, words_v, h, words_h, weights_own, shares_h, most_h, of_h, bits, token, row0, rows, team, thread, k,
                betas, differences, keys, first, gains);
        else
            half_step<false>(
                h, words_h, v, words_v, weights_own, shares_v, most_v, of_v, bits, token, row0, rows, team, thread, k,
                betas, differences, keys, first, gains);
        if (thread == 0) arrive(arrived + part);
    }
}
