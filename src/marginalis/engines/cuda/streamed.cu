// Half a step of all chains, for weights that are fetched anew for every ROWS chains. A block processes ROWS chains and
// 64 units, a warp 16·HALVES chains and 32 units. SUMMED is 1 for the half step that sums out a side.

#define THREADS (4 * ROWS / HALVES)
#define DEPTH 2 // Groups of 32 inputs that are fetched together; the lengths of bands are multiples of it.
#define STAGES 4 // Number of fetches in progress.
#define PIECE (2 * 6 * 32) // Operands for 32 inputs: two warps, six times two products, 32 lanes.

// The products of the inputs of ROWS chains from row0, for the 64 units of a tile. `packed` is
// [64 units][32 inputs][PIECE]; `bands` has the range of groups of 32 inputs that are not zero for each 64 units. The
// words of inputs stay in `bits`, and are copied there if this is the first tile.
FORCED void add_tile(
    Sums &sums, unsigned char *bytes, const u32 *in, int in_words, const Operands2 *packed, const int *bands, int tile,
    int row0, int chains, bool is_first)
{
    Operands2 *stages = (Operands2 *)bytes;
    u32 *bits = (u32 *)(bytes + STAGES * DEPTH * PIECE * sizeof(Operands2));
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, g = lane / 4, q = lane % 4;
    const int stride = in_words | 1; // Odd, to avoid bank conflicts.
    const int from = bands[2 * tile], to = bands[2 * tile + 1];
    packed += (long)tile * in_words * PIECE;

    int next = from; // The next group to fetch.
#define FETCH_STAGE(s) \
    if (next < to) \
        for (int i = thread; i < DEPTH * PIECE; i += THREADS) \
            fetch(stages + (s) * DEPTH * PIECE + i, packed + (long)next * PIECE + i); \
    FETCHED(); \
    next += DEPTH
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) { FETCH_STAGE(s); }
    if (is_first)
        for (int i = thread; i < ROWS * in_words; i += THREADS) {
            int row = i / in_words, word = i % in_words;
            bits[row * stride + word] = row0 + row < chains ? in[(long)(row0 + row) * in_words + word] : 0u;
        }

    const int my_row = warp / 2 * 16 * HALVES + g, mine = warp % 2 * 6 * 32; // Rows and operands of this warp.
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
                const u32 *row = bits + (my_row + 16 * half) * stride + at + d;
                spread(a[half], row[0], row[8 * stride], q);
            }
            const Operands2 *piece = stages + (stage * DEPTH + d) * PIECE + mine + lane;
            Operands2 b[6];
#pragma unroll
            for (int p = 0; p < 6; ++p) b[p] = piece[p * 32];
#pragma unroll
            for (int p = 0; p < 6; ++p) add_products(sums, a, b[p], p);
        }
        stage = (stage + 1) % STAGES;
    }
}

#ifdef DRAWN
// Add sums of products to the exponents of the components of a mixture, [row][pitch] for the chains of a thread.
FORCED void add_exponents(const Sums &sums, int q, const Side &side, real *exponents, long pitch, int rows)
{
    real products[CHAINS][8];
#pragma unroll
    for (int second = 0; second < 2; ++second) find_slopes(products, second, sums, q, side);
#pragma unroll
    for (int i = 0; i < CHAINS; ++i)
        if (8 * i < rows)
#pragma unroll
            for (int m = 0; m < 8; ++m) exponents[8 * i * pitch + 8 * q + m] = products[i][m];
}
#endif

// The step is k = *clock + ahead, so that the same launches can be repeated. With a mixture, the tiles
// behind those of the units are components, whose B_z·v are stored in `logits` for their draw.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) half_step(
    const u32 *in, int in_words, u32 *out, int out_words, const Operands2 *packed, const int *bands, SIDE(),
    const real *betas, const double *differences, KEYS, u32 first, GAINS, const int *clock, int ahead MIXED
#ifdef DRAWN
    , real *logits, int logits_pitch
#endif
)
{
    SHARED_BYTES(bytes);
    const Keys keys = GIVEN_KEYS;
    const Gains gains = GIVEN_GAINS;
    const Mixed mixed = GIVEN_MIXED;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, q = lane % 4;
    const int row0 = blockIdx.x * ROWS, tile = blockIdx.y, my_row = row0 + warp / 2 * 16 * HALVES + lane / 4;
    Sums sums = {};
    add_tile(sums, bytes, in, in_words, packed, bands, tile, row0, chains, true);

    const int word = 2 * tile + warp % 2, at = 32 * word, k = ahead + (clock ? *clock : 0);
    const Side drawn = {scale + at, slopes + at, bases + at, high + at, low + at, units, side};
#ifdef DRAWN
    if (word >= out_words) {
        real *to = logits + (long)my_row * logits_pitch + 32 * (word - out_words);
        add_exponents(sums, q, drawn, to, logits_pitch, chains - my_row);
        return;
    }
#endif
    const Step step = {betas[k], betas[k - 1], differences[k - 1]};
    draw<SUMMED>(sums, word, q, my_row, first, out, out_words, k, step, drawn, mixed, gains, keys);
}

#if defined DRAWN && HALVES == 1
// Draw the component of the mixture of each chain given all its other variables, from c_z + (1 − β)·(a_z + B_z·v + C_z·h),
// of which `logits` has B_z·v. The slopes of this `side` are a_z, its bases c_z. Four threads draw for each chain.
extern "C" __global__ void __launch_bounds__(THREADS) draw_component(
    const u32 *in, int in_words, const Operands2 *packed, const int *bands, SIDE(), const real *betas, KEYS, u32 first,
    int chains, int *component, const real *logits, int logits_pitch, const int *clock, int ahead)
{
    SHARED_BYTES(bytes);
    const Keys keys = GIVEN_KEYS;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, q = lane % 4, row0 = blockIdx.x * ROWS;
    const int k = ahead + (clock ? *clock : 0), pitch = logits_pitch | 1;
    real *exponents = (real *)(bytes + STAGES * DEPTH * PIECE * sizeof(Operands2)) + ROWS * (in_words | 1);
    for (int tile = 0; 64 * tile < logits_pitch; ++tile) {
        const int at = 64 * tile + 32 * (warp % 2), my_row = warp / 2 * 16 + lane / 4;
        const Side own = {scale + at, slopes + at, bases + at, high + at, low + at, units, side};
        Sums sums = {};
        if (tile) __syncthreads(); // The weights of the tile before are still in use.
        add_tile(sums, bytes, in, in_words, packed, bands, tile, row0, chains, tile == 0);
        add_exponents(sums, q, own, exponents + my_row * pitch + at, pitch, ROWS);
    }
    __syncthreads();

    // Each thread takes a quarter of the components, in order.
    const int row = threadIdx.x / 4, share = (units + 3) / 4, from = q * share;
    const int to = from + share < units ? from + share : units, there = row0 + row < chains ? row0 + row : chains - 1;
    const real cold = (real)1 - betas[k], *of_v = logits + (long)there * logits_pitch;
    real *own = exponents + row * pitch, most = (real)-3e38;
    for (int z = from; z < to; ++z) {
        own[z] = (own[z] + of_v[z]) * cold + bases[z];
        most = own[z] > most ? own[z] : most;
    }
    for (int other = 1; other <= 2; other *= 2) {
        real there = __shfl_xor_sync(0xffffffffu, most, other);
        most = there > most ? there : most;
    }
    real sum = (real)0;
    for (int z = from; z < to; ++z) sum += own[z] = power((own[z] - most) * LOG2_E);
    const real next = __shfl_xor_sync(0xffffffffu, sum, 1), pair = q & 1 ? next + sum : sum + next;
    const real others = __shfl_xor_sync(0xffffffffu, pair, 2), total = q & 2 ? others + pair : pair + others;
    real below = (q & 2 ? others : (real)0) + (q & 1 ? next : (real)0);
    real threshold = uniform(philox(first + row0 + row, k, 0, SIDE_MIXTURE, keys).w[0]) * total;
    // In single precision u may be rounded to 1.
    if (threshold >= total) threshold = total * (real)0.99999994;
    // The first component whose cumulative sum exceeds the threshold; the last also takes the remainder from rounding.
    int chosen = units, last = 0;
    for (int z = from; z < to; ++z) {
        if (own[z] == (real)0) continue;
        below += own[z], last = z;
        if (below > threshold && chosen == units) chosen = z;
    }
    for (int other = 1; other <= 2; other *= 2) {
        const int there = __shfl_xor_sync(0xffffffffu, chosen, other), end = __shfl_xor_sync(0xffffffffu, last, other);
        chosen = there < chosen ? there : chosen, last = end > last ? end : last;
    }
    if (q == 0 && row0 + row < chains) component[row0 + row] = chosen < units ? chosen : last;
}
#endif

extern "C" __global__ void set_clock(int *clock, int add, int to)
{
    *clock = add ? *clock + add : to;
}
