// Half a step of all chains, for weights that are fetched anew for every ROWS chains. A block processes ROWS chains and
// 64 units, a warp 16·HALVES chains and 32 units. SUMMED is 1 for the half step that sums out a side.

#define THREADS (4 * ROWS / HALVES)
#define DEPTH 2 // Groups of 32 inputs that are fetched together; the lengths of bands are multiples of it.
#define STAGES 4 // Number of fetches in progress.
#define PIECE (2 * 6 * 32) // Operands for 32 inputs: two warps, six times two products, 32 lanes.

// `packed` is [64 units][32 inputs][PIECE]; `bands` has the range of groups of 32 inputs that are not zero for each 64
// units. The step is k = *clock + ahead, so that the same launches can be repeated.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) half_step(
    const u32 *in, int in_words, u32 *out, int out_words, const Operands2 *packed, const int *bands, SIDE(),
    const real *betas, const double *differences, KEYS, u32 first, GAINS, const int *clock, int ahead)
{
    SHARED_BYTES(bytes);
    Operands2 *stages = (Operands2 *)bytes;
    u32 *bits = (u32 *)(bytes + STAGES * DEPTH * PIECE * sizeof(Operands2));
    const Keys keys = GIVEN_KEYS;
    const Gains gains = GIVEN_GAINS;
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, g = lane / 4, q = lane % 4;
    const int row0 = blockIdx.x * ROWS, tile = blockIdx.y, stride = in_words | 1; // Odd, to avoid bank conflicts.
    const int k = ahead + (clock ? *clock : 0);
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
    for (int i = thread; i < ROWS * in_words; i += THREADS) {
        int row = i / in_words, word = i % in_words;
        bits[row * stride + word] = row0 + row < chains ? in[(long)(row0 + row) * in_words + word] : 0u;
    }

    Sums sums = {};
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

    const int word = 2 * tile + warp % 2, at = 32 * word;
    const Step step = {betas[k], betas[k - 1], differences[k - 1]};
    const Side drawn = {scale + at, slopes + at, bases + at, high + at, low + at, units, side};
    draw<SUMMED>(sums, word, q, row0 + my_row, first, out, out_words, k, step, drawn, gains, keys);
}

extern "C" __global__ void set_clock(int *clock, int add, int to)
{
    *clock = add ? *clock + add : to;
}
