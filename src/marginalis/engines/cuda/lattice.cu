// Bipartite lattices of spins without fields, whose couplings are all ±J; 32 chains share a word.
//
// A block has 32 chains, a lane processes a site, and the word of a site has one bit per chain, which is set if the
// spin is up. A site has few possible fields, |field| = c·|J| with c = degree, degree − 2, …, so probabilities are
// tabulated as whole numbers of 32 bits, and neighbours are counted by logic on words. Random bits are compared with
// the probabilities. With PLANES this is done bit by bit from the highest one, for all chains of a word at once, until
// all are decided. Otherwise each site and chain has a word, lanes are chains, and the resulting words are transposed.
//
// Sites are sorted by degree; those of the sampled side come first. Bit d of DEGREES_V and DEGREES_H is set if the side
// has sites of degree d. BITS is the number of bits of the number of sites that a thread counts.

#define MOST 8 // Number of possible c, and more than any degree.
#define CLASSES(d) (((d) + 1) / 2) // Classes other than c = 0.
#define CLASS(d, i) ((d) - 2 * (i))
#define DIGITS 4 // Largest number of classes of a degree, with c = 0.
#define ALL 0xffffffffu
#ifdef PLANES
#define BATCH 4 // Sites that are counted together.
#else
#define BATCH 1 // Longer code would not fit into the instruction cache.
#endif
#define ROUND 4 // Planes per call of Philox.
#define SURE 3 // Calls before the first check: after 12 planes all chains are mostly decided, after 8 they are not.

FORCED u32 majority(u32 a, u32 b, u32 c) { return (a & b) | (a & c) | (b & c); }

// The number of set bits among up to seven words, as three words.
struct Count {
    u32 ones, twos, fours;
    MEMBER Count(const u32 *w)
    {
        u32 a = w[0] ^ w[1] ^ w[2], b = w[3] ^ w[4] ^ w[5];
        u32 from_a = majority(w[0], w[1], w[2]), from_b = majority(w[3], w[4], w[5]), from_ones = majority(a, b, w[6]);
        ones = a ^ b ^ w[6];
        twos = from_a ^ from_b ^ from_ones;
        fours = majority(from_a, from_b, from_ones);
    }
    // The bits where the count is one of those in the set `which`.
    MEMBER u32 among(u32 which) const
    {
        u32 found = 0;
#pragma unroll
        for (int n = 0; n < 8; ++n)
            if (which >> n & 1) found |= (n & 1 ? ones : ~ones) & (n & 2 ? twos : ~twos) & (n & 4 ? fours : ~fours);
        return found;
    }
};

struct Run {
    const Keys &keys;
    u32 group, side, k;
    const u32 *thresholds; // Thresholds of the step, by c.
    const Words *planes; // The bits of the thresholds as words, [call][c].
    int lane;
};

#ifdef PLANES
// Planes of CALLS calls of Philox: the bits where the random number is less than the threshold, or equal so far.
template <int D, int CALLS>
FORCED void compare(const Run &run, u32 unit, u32 call, const u32 *masks, u32 zero, u32 *less, u32 *same)
{
    *less = 0u, *same = ~0u;
#pragma unroll
    for (int q = CALLS - 1; q >= 0; --q) { // The loop goes from the lowest plane up.
        Words random = philox(run.group, run.k, 8 * unit + call + q, run.side, run.keys);
        u32 bits[ROUND] = {call + q == 0 ? zero : 0u, 0u, 0u, 0u};
#pragma unroll
        for (int i = 0; i < CLASSES(D); ++i) {
            Words of = run.planes[(call + q) * MOST + CLASS(D, i)];
#pragma unroll
            for (int p = 0; p < ROUND; ++p) bits[p] |= masks[i] & of.w[p];
        }
#pragma unroll
        for (int p = ROUND - 1; p >= 0; --p) {
            *less = majority(~random.w[p], bits[p], *less);
            *same &= ~(random.w[p] ^ bits[p]);
        }
    }
}

template <int D> FORCED u32 drawn_less(const Run &run, u32 unit, const u32 *masks, u32 zero)
{
    u32 less, undecided;
    compare<D, SURE>(run, unit, 0, masks, zero, &less, &undecided);
#pragma unroll 1
    for (int call = SURE; call < 32 / ROUND && undecided; ++call) {
        u32 further, same;
        compare<D, 1>(run, unit, call, masks, zero, &further, &same);
        less |= undecided & further, undecided &= same;
    }
    return less;
}
#else
// Transpose: bit i of lane j becomes bit j of lane i.
FORCED u32 turned(u32 word, int lane)
{
    u32 low = 0x0000ffffu;
#pragma unroll
    for (int apart = 16; apart; apart /= 2, low ^= low << apart) {
        u32 theirs = __shfl_xor_sync(ALL, word, apart);
        word = lane & apart ? (word & ~low) | (theirs >> apart & low) : (word & low) | (theirs << apart & ~low);
    }
    return word;
}

// Count the next site of a chain, whose bits in `of_class` are the lowest ones.
template <int D> FORCED u32 is_less(u32 word, u32 *of_class, const u32 *thresholds)
{
    u32 threshold = D % 2 ? thresholds[CLASSES(D) - 1] : 0x80000000u;
#pragma unroll
    for (int i = 0; i < CLASSES(D) - D % 2; ++i) {
        threshold = of_class[i] & 1u ? thresholds[i] : threshold;
        of_class[i] >>= 1;
    }
    return word < threshold;
}

template <int D> FORCED u32 drawn_less(const Run &run, u32 unit, const u32 *masks, u32 zero)
{
    u32 of_class[CLASSES(D) + 1], thresholds[CLASSES(D) + 1], less = 0u, tile = ~0u;
    Words random;
#pragma unroll
    for (int i = 0; i < CLASSES(D); ++i) {
        of_class[i] = turned(masks[i], run.lane);
        thresholds[i] = run.thresholds[CLASS(D, i)];
    }
#ifdef SORTED
#pragma unroll 1
    for (int j = 0; j < 32; ++j) {
        u32 at = __shfl_sync(ALL, unit, j);
        if (at / 4 != tile) tile = at / 4, random = philox(32 * run.group + run.lane, run.k, tile, run.side, run.keys);
        u32 word = at & 2 ? (at & 1 ? random.w[3] : random.w[2]) : (at & 1 ? random.w[1] : random.w[0]);
        less = less >> 1 | is_less<D>(word, of_class, thresholds) << 31;
    }
#else
#pragma unroll
    for (int t = 0; t < 8; ++t) {
        random = philox(32 * run.group + run.lane, run.k, (unit - run.lane) / 4 + t, run.side, run.keys);
#pragma unroll
        for (int j = 0; j < 4; ++j) less = less >> 1 | is_less<D>(random.w[j], of_class, thresholds) << 31;
    }
#endif
    return turned(less, run.lane);
}
#endif

// Draw the sites of 32 lanes; `masks` are the bits where |field| is c·|J|, for each c.
template <int D>
FORCED void update(const Run &run, const u32 *inputs, int pitch, const u32 *units, u32 *x, u32 *own, int at, int end, u32 *masks)
{
    int place = at + run.lane;
    bool is_there = place < end;
    if (!is_there) place = end - 1; // Lanes without a site repeat the last one, because the whole warp takes part.
    u32 words[7] = {};
#pragma unroll
    for (int i = 0; i < D; ++i) {
        u32 input = inputs[i * pitch + place];
#ifdef SIGNED // The highest bit is set if the coupling is negative.
        words[i] = x[input & 0x7fffffffu] ^ (u32)((int)input >> 31);
#else
        words[i] = x[input];
#endif
    }
    Count count(words);
    u32 some = 0u;
#pragma unroll
    for (int i = 0; i < CLASSES(D); ++i) {
        masks[i] = count.among(1u << i | 1u << (D - i));
        some |= masks[i];
    }
#ifdef SORTED
    u32 unit = units[place];
#else
    u32 unit = at + run.lane;
#endif
    u32 less = drawn_less<D>(run, unit, masks, ~some);
    u32 up = count.among(0xffu << (D + 1) / 2 & 0xffu); // A field of zero counts as positive.
    if (is_there) own[place] = up ^ less;
#pragma unroll
    for (int i = 0; i < CLASSES(D); ++i)
        if (!is_there) masks[i] = 0u;
}

// Numbers of 32 chains, with one word per binary digit.
struct Counter {
    u32 bits[BITS + 5];
    MEMBER u32 add(int bit, u32 a, u32 b)
    {
        u32 carry = majority(bits[bit], a, b);
        bits[bit] ^= a ^ b;
        return carry;
    }
    MEMBER void add(const u32 *some, int apart)
    {
        u32 carry = some[0];
        int next = 0;
        if (BATCH > 1) carry = add(0, some[0], some[apart]), next = 1;
        if (BATCH > 2) carry = add(1, carry, add(0, some[2 * apart], some[3 * apart])), next = 2;
#pragma unroll
        for (int i = 0; i < BITS; ++i) {
            if (i < next) continue;
            u32 both = bits[i] & carry;
            bits[i] ^= carry;
            carry = both;
        }
    }
    // The sum over all lanes of the number of this lane's chain.
    MEMBER u32 total(int lane)
    {
#pragma unroll
        for (int stage = 0; stage < 5; ++stage) {
            u32 carry = 0u;
#pragma unroll
            for (int i = 0; i < BITS + stage; ++i) {
                u32 mine = bits[i], theirs = __shfl_xor_sync(ALL, mine, 1 << stage);
                bits[i] = mine ^ theirs ^ carry;
                carry = majority(mine, theirs, carry);
            }
            bits[BITS + stage] = carry;
        }
        u32 sum = 0u;
#pragma unroll
        for (int i = 0; i < BITS + 5; ++i) sum |= (bits[i] >> lane & 1u) << i;
        return sum;
    }
};

struct Side { const u32 *inputs, *units; const int *starts; int size; u32 *own; };

// Draw the sites of degree D, and count their fields if requested.
template <int D, bool COUNTED>
FORCED void sweep_degree(const Run &run, const Side &side, u32 *x, u32 *counts, int start, int end)
{
    const int each = blockDim.x, first = start + threadIdx.x / 32 * 32;
    if (!COUNTED) {
        u32 masks[CLASSES(D) + 1];
#pragma unroll 1
        for (int at = first; at < end; at += each)
            update<D>(run, side.inputs, side.size, side.units, x, side.own, at, end, masks);
        return;
    }
    Counter counters[CLASSES(D) + 1] = {};
#pragma unroll 1
    for (int at = first; at < end; at += BATCH * each) {
        u32 masks[BATCH][CLASSES(D) + 1] = {};
#pragma unroll
        for (int j = 0; j < BATCH; ++j)
            if (at + j * each < end)
                update<D>(run, side.inputs, side.size, side.units, x, side.own, at + j * each, end, masks[j]);
#pragma unroll
        for (int i = 0; i < CLASSES(D); ++i) counters[i].add(masks[0] + i, CLASSES(D) + 1);
    }
#pragma unroll
    for (int i = 0; i < CLASSES(D); ++i) atomicAdd(counts + 32 * i + run.lane, counters[i].total(run.lane));
}

// `counts` are [degree that occurs][class][chain].
template <int D, int DEGREES, bool COUNTED> FORCED void sweep(const Run &run, const Side &side, u32 *x, u32 *counts)
{
    if constexpr (D < MOST) {
        constexpr bool occurs = (DEGREES >> D & 1) != 0;
        if constexpr (occurs) sweep_degree<D, COUNTED>(run, side, x, counts, side.starts[D], side.starts[D + 1]);
        sweep<D + 1, DEGREES, COUNTED>(run, side, x, counts + (occurs ? 32 * DIGITS : 0));
    }
}

// Add the contribution of a step to a chain's log-weight, in the order of the CPU. `table` is that of the step;
// `counts` are those of the chain, and are reset to 0.
template <int D, int DEGREES>
FORCED void weigh(double *weight, u32 *counts, const double *table, const int *starts)
{
    if constexpr (D < MOST) {
        constexpr bool occurs = (DEGREES >> D & 1) != 0;
        if constexpr (occurs) {
            u32 of_class[DIGITS] = {}, rest = starts[D + 1] - starts[D];
#ifdef PLANES
            *weight += table[D * DIGITS] * (double)rest;
#endif
#pragma unroll
            for (int i = 0; i < CLASSES(D); ++i) {
                of_class[i] = counts[32 * i], counts[32 * i] = 0u, rest -= of_class[i];
#ifndef PLANES
                *weight += (double)of_class[i] * table[CLASS(D, i)];
#endif
            }
#ifdef PLANES
            if (D % 2 == 0) of_class[D / 2] = rest; // Sites without a field.
#pragma unroll
            for (int p = 1; p <= D / 2; ++p) {
                u32 sum = 0u; // Sites of the classes whose number has these digits.
#pragma unroll
                for (int i = p; i < DIGITS; ++i)
                    if ((i & p) == p) sum += of_class[i];
                *weight = multiply_add((double)sum, table[D * DIGITS + p], *weight);
            }
#endif
        }
        weigh<D + 1, DEGREES>(weight, counts + (occurs ? 32 * DIGITS : 0), table, starts);
    }
}

// Advance chains from one step of 0 … K to another; the `chains` chains from `lead` on count, and the others of the
// groups are padding. `x` holds the states group by group, with room for both sides unless they are in shared memory.
// `thresholds` are listed by step from `origin` on and by c, times 2^32; `worth` are the contributions of sites to a
// log-weight by step (`lattice.py`).
//
// With MANY, models have lists of inputs of their own, of `wires_v` and `wires_h` numbers, and the tables of number
// `tables[model]`, which have `rows` steps.
#ifdef MANY
#define OWN_TABLES const int *tables, int rows, int wires_v, int wires_h,
#else
#define OWN_TABLES
#endif
#ifdef PLANES
#define PER_STEP (MOST * DIGITS)
#else
#define PER_STEP MOST
#endif

extern "C" __global__ void BOUNDS anneal(
    OWN_TABLES int n, int m, const u32 *inputs_v, const u32 *inputs_h, const u32 *units_v, const u32 *units_h,
    const int *starts_v, const int *starts_h, const u32 *thresholds, const double *worth, int origin, KEYS, u32 side_v, u32 side_h,
    u32 first_group, int lead, int chains, u32 *states, double *weights, int from, int to, int steps, int fresh)
{
#ifdef MANY
    OWN_PART(inputs_v, wires_v), OWN_PART(inputs_h, wires_h), OWN_PART(weights, chains);
    thresholds += (u64)tables[blockIdx.y] * rows * MOST, worth += (u64)tables[blockIdx.y] * rows * PER_STEP;
#ifdef INSIDE
    OWN_PART(states, (u64)gridDim.x * n);
#else
    OWN_PART(states, (u64)gridDim.x * (n + m));
#endif
#endif
    SHARED_BYTES(shared_bytes);
    const Keys keys = GIVEN_KEYS;
    int lane = threadIdx.x % 32, t = 32 * blockIdx.x + lane - lead;
    Words *planes = (Words *)shared_bytes; // Bits of thresholds for an even and an odd step.
    u32 *counts = (u32 *)(planes + 2 * (32 / ROUND) * MOST);
    int places = 0; // Number of places for counts.
#pragma unroll
    for (int d = 0; d < MOST; ++d) places += (DEGREES_H >> d & 1) * 32 * DIGITS;
#ifdef INSIDE
    u32 *x = counts + places, *outside = states + (long)blockIdx.x * n;
    if (fresh != 1)
        for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = outside[i];
#else
    u32 *x = states + (long)blockIdx.x * (n + m);
#endif
    Run run = {keys, first_group + blockIdx.x, side_v, 0u, thresholds, planes, lane};
    Side of_v = {inputs_v, units_v, starts_v, n, x}, of_h = {inputs_h, units_h, starts_h, m, x + n};
    for (int i = threadIdx.x; i < places; i += blockDim.x) counts[i] = 0u;
    if (fresh == 1) sweep_degree<0, false>(run, of_v, x, counts, 0, n);
    const bool weighs = threadIdx.x < 32 && t >= 0 && t < chains;
    double weight = weighs ? weights[t] : 0.0;
#pragma unroll 1
    for (int k = from + 1; k <= to; ++k) {
        run.k = k, run.thresholds = thresholds + (long)(k - origin) * MOST, run.planes = planes + (k & 1) * (32 / ROUND) * MOST;
#ifdef PLANES
        for (int i = threadIdx.x; i < 32 * MOST; i += blockDim.x) {
            int plane = i / (ROUND * MOST) * ROUND + i % ROUND, c = i / ROUND % MOST;
            ((u32 *)run.planes)[i] = (u32)((int)(run.thresholds[c] << plane) >> 31);
        }
#endif
        __syncthreads();
        run.side = side_h;
        sweep<0, DEGREES_H, true>(run, of_h, x, counts);
        __syncthreads();
        if (threadIdx.x < 32) {
#ifdef PLANES
            weigh<0, DEGREES_H>(&weight, counts + lane, worth + (long)(k - origin) * PER_STEP, starts_h);
#else
            double sum = 0.0;
            const double *table = worth + (long)(k - origin) * PER_STEP;
            weigh<0, DEGREES_H>(&sum, counts + lane, table, starts_h);
            weight = multiply_add(sum, table[0], weight);
#endif
        }
        run.side = side_v;
        if (k < steps) sweep<0, DEGREES_V, false>(run, of_v, x, counts);
    }
    if (weighs) weights[t] = weight;
#ifdef INSIDE
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) outside[i] = x[i];
#endif
}
