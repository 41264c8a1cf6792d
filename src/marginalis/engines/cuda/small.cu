// Small dense models of spins, two independent sides: NV sampled ones, NH summed out, both as bits in registers.
//
// Fields need no products: five spins have 32 states, and their part of a field is one number of a table in shared
// memory. A chain is advanced by GROUP threads: 1 where there are many chains, up to 32 where there are few. A round
// takes 32 units, a tile four of them, which share a call of Philox. Sums and products over units go in one order
// whatever GROUP is: first over the rounds, then in pairs over the 32 places of a round, neighbours first. So all
// arrangements give the same bits. Units beyond the last have no fields and no couplings: factors of theirs are powers
// of 2, and cancel.
//
// Unit u is bit 31 − u % 32 of word u / 32; a bit is set where the spin is down.

#define ROUNDS(n) (((n) + 31) / 32)
#define FIVES(n) (((n) + 4) / 5)
#if GROUP == 1
#define WIDTH(n) (((n) + 3) / 4 * 4)
#else
#define WIDTH(n) (32 * ROUNDS(n))
#endif
#define OWN (GROUP == 32 ? 1 : 4) // units of a tile that a thread draws
#define TILES (GROUP == 32 ? 1 : 8 / GROUP) // tiles of a round that a thread has
#define ALL 0xffffffffu
#define LATE (GROUP == 32) // whether sums over the threads come last: what was faster
#if GROUP == 32
#define SYNC_ROOM() SYNC_WARP()
#else
#define SYNC_ROOM()
#endif

struct Sums { real linear, top, bottom, drawn; };

FORCED Sums both(Sums a, Sums b)
{
    return {a.linear + b.linear, a.top * b.top, a.bottom * b.bottom, a.drawn + b.drawn};
}

struct alignas(16) Four { real of[4]; };

// Where in the tables the numbers of each five of N spins lie; the tables have WIDTH(OUT) units
template <int N, int OUT> struct Places {
    u32 at[FIVES(N)];
    MEMBER Places(const u32 *words)
    {
#pragma unroll
        for (int g = 0; g < FIVES(N); ++g) {
            const int word = 5 * g / 32, last = 5 * g % 32 + 5; // the bits before `last`, from the highest one on
            u32 bits = last <= 32 ? words[word] >> (32 - last < 0 ? 0 : 32 - last) : words[word] << (last - 32 & 31);
            if (last > 32 && word + 1 < ROUNDS(N)) bits |= words[word + 1 < ROUNDS(N) ? word + 1 : 0] >> (64 - last & 31);
            at[g] = GROUP == 1 ? (bits & 31) : (bits & 31) * WIDTH(OUT);
        }
    }
    // Of the units that a thread draws, from `unit` on
    MEMBER void fields(const real *table, int unit, real *a) const
    {
#pragma unroll
        for (int g = 0; g < FIVES(N); ++g) {
            Four part;
            if (GROUP == 1)
#pragma unroll
                for (int m = 0; m < 4; ++m) part.of[m] = table[(g * WIDTH(OUT) + unit + m) * 32 + at[g]];
            else if (GROUP == 32) part.of[0] = table[g * 32 * WIDTH(OUT) + at[g] + unit];
            else part = *(const Four *)(table + g * 32 * WIDTH(OUT) + at[g] + unit); // one access for all
#pragma unroll
            for (int m = 0; m < OWN; ++m) a[m] = g == 0 ? part.of[m] : a[m] + part.of[m];
        }
    }
    MEMBER real sum(const real *table) const
    {
        real a = (real)0;
#pragma unroll
        for (int g = 0; g < FIVES(N); ++g) a += table[g * 32 + (GROUP == 1 ? at[g] : at[g] / WIDTH(OUT))];
        return a;
    }
};

typedef Places<NV, NH> Up;
typedef Places<NH, NV> Down;

struct Step {
    u32 chain, k, side_v, side_h, signs, signs_before; // signs: which bit of a field says it is negative; 0 if β is 0
    real beta, before, scale, scale_before, per_step; // scale: −2 log2(e)·β
    int lane;
};

// The tile of a thread, t-th of a round
FORCED int tile_at(const Step &step, int t) { return GROUP == 32 ? step.lane / 4 : t * GROUP + step.lane; }
FORCED int unit_at(const Step &step, int t) { return GROUP == 32 ? step.lane : 4 * tile_at(step, t); }
#define SOME(n, r, t) (32 * (r) + (GROUP == 32 ? 0 : 4 * GROUP * (t)) < (n)) // whether such a tile has any units

// A word whose highest bit says that a spin in the field a is down: against sign(a) with probability e/(1 + e)
FORCED u32 down_bit(real a, u32 signs, real e, real one_and_e, u32 word)
{
    return sign_word(multiply_add(uniform(word), one_and_e, -e)) ^ (sign_word(a) & signs);
}

// Random words of the units of both sides: by a chain's only thread when it needs them; by several threads a half step
// ahead, since they wait for each other; by a whole warp a step ahead, through shared memory, each tile once.
#ifdef JOINT
#define SLOTS (2 * TILES_OF(NH) + TILES_OF(NV))
#else
#define SLOTS (TILES_OF(NH) + TILES_OF(NV))
#endif
#define TILES_OF(n) (((n) + 3) / 4)
#define ROOM (128 * ((SLOTS + 31) / 32)) // words of a step
#define FIRST_H 0 // words of the units in their order
#define FIRST_V (4 * TILES_OF(NH))
#define FIRST_JOINT (FIRST_V + 4 * TILES_OF(NV))

struct Random {
    const Keys &keys;
    u32 *words; // of this warp: ROOM for even and for odd steps
    Words ahead_h[GROUP > 1 && GROUP < 32 ? ROUNDS(NH) : 1][TILES], ahead_v[GROUP > 1 && GROUP < 32 ? ROUNDS(NV) : 1][TILES];
    MEMBER Random(const Keys &given, u32 *room) : keys(given), words(room) {}
    template <int N> MEMBER void some(const Step &step, u32 k, u32 side, Words (*ahead)[TILES])
    {
#pragma unroll
        for (int r = 0; r < ROUNDS(N); ++r)
#pragma unroll
            for (int t = 0; t < TILES; ++t)
                if (SOME(N, r, t)) ahead[r][t] = philox(step.chain, k, 8 * r + tile_at(step, t), side, keys);
    }
    MEMBER void fetch_h(const Step &step, u32 k)
    {
        if (GROUP > 1 && GROUP < 32) some<NH>(step, k, step.side_h, ahead_h);
        if (GROUP != 32) return;
#pragma unroll
        for (int i = 0; i < (SLOTS + 31) / 32; ++i) {
            u32 slot = 32 * i + step.lane, side = step.side_h, at = k;
            if (slot >= TILES_OF(NH) + TILES_OF(NV)) slot -= TILES_OF(NH) + TILES_OF(NV), side = SIDE_JOINT, --at;
            else if (slot >= TILES_OF(NH)) slot -= TILES_OF(NH), side = step.side_v;
            *(Words *)(words + (k & 1) * ROOM + 128 * i + 4 * step.lane) = philox(step.chain, at, slot, side, keys);
        }
    }
    MEMBER void fetch_v(const Step &step, u32 k)
    {
        if (GROUP > 1 && GROUP < 32) some<NV>(step, k, step.side_v, ahead_v);
    }
    // Words of a thread's units: of a tile, or of one unit
    MEMBER Words of_warp(const Step &step, int first, int n, int r) const
    {
        int unit = 32 * r + step.lane;
        return {{unit < 4 * TILES_OF(n) ? words[(step.k & 1) * ROOM + first + unit] : 0u, 0, 0, 0}};
    }
    MEMBER Words h(const Step &step, int r, int t) const
    {
        if (GROUP == 32) return of_warp(step, FIRST_H, NH, r);
        if (GROUP == 1) return philox(step.chain, step.k, 8 * r + t, step.side_h, keys);
        return ahead_h[r][t];
    }
    MEMBER Words v(const Step &step, int r, int t) const
    {
        if (GROUP == 32) return of_warp(step, FIRST_V, NV, r);
        if (GROUP == 1) return philox(step.chain, step.k, 8 * r + t, step.side_v, keys);
        return ahead_v[r][t];
    }
    MEMBER Words joint(const Step &step, int r, int t) const
    {
        if (GROUP == 32) return of_warp(step, FIRST_JOINT, NH, r);
        return philox(step.chain, step.k - 1, 8 * r + tile_at(step, t), SIDE_JOINT, keys);
    }
};

// Put the bits of a thread's tile where they belong in the word of the round
FORCED void place(const Step &step, int t, u32 bits, u32 *word)
{
    if (GROUP == 32) *word = __brev(__ballot_sync(ALL, bits));
    else *word |= bits << (28 - 4 * tile_at(step, t));
}

// Every thread of a chain gets the bits that all of them have drawn
template <int N> FORCED void share(u32 *words)
{
    if (GROUP == 32) return;
#pragma unroll
    for (int r = 0; r < ROUNDS(N); ++r)
#pragma unroll
        for (int other = 1; other < GROUP; other *= 2) words[r] |= __shfl_xor_sync(ALL, words[r], other);
}

// The t-th tile of the summed-out side in all rounds: its part of the weight, and its spins
FORCED Sums tile_h(const Step &step, const Up &up, const real *table, const real *base, const Random &random, int t, u32 *h)
{
    Sums parts[4];
#pragma unroll
    for (int r = 0; r < ROUNDS(NH); ++r) {
        if (!SOME(NH, r, t)) continue;
        Words words = random.h(step, r, t);
#ifdef JOINT
        Words earlier = random.joint(step, r, t);
#endif
        u32 bits = 0;
        real slopes[4];
        up.fields(table, 32 * r + unit_at(step, t), slopes);
#pragma unroll
        for (int m = 0; m < OWN; ++m) {
            int unit = 32 * r + unit_at(step, t) + m;
            real slope = slopes[m], drawn = (real)0;
#ifdef BASE
            real now = multiply_add(slope, step.beta, base[unit]), before = multiply_add(slope, step.before, base[unit]);
            real linear = rise(now, before, slope, step.per_step);
            real e = boltzmann(now), e_before = boltzmann(before);
            const u32 signs = ~0u, signs_before = ~0u;
#else
            real now = slope, before = slope, linear = size_of(slope);
            real e = power(linear * step.scale), e_before = power(linear * step.scale_before);
            const u32 signs = step.signs, signs_before = step.signs_before;
#endif
            real top = (real)1 + e, bottom = (real)1 + e_before;
#ifdef JOINT
            drawn = (int)down_bit(before, signs_before, e_before, bottom, earlier.w[m]) < 0 ? -slope : slope;
#endif
            bits = __funnelshift_l(down_bit(now, signs, e, top, words.w[m]), bits, 1);
            if (r > 0) {
                linear = parts[m].linear + linear, drawn = parts[m].drawn + drawn;
                top = multiply_add(parts[m].top, e, parts[m].top);
                bottom = multiply_add(parts[m].bottom, e_before, parts[m].bottom);
            }
            parts[m] = {linear, top, bottom, drawn};
        }
        place(step, t, bits, h + r);
    }
    if (OWN == 1) return parts[0];
    return both(both(parts[0], parts[1]), both(parts[2], parts[3]));
}


// The sampled side, given the fields
FORCED void draw_v(const Step &step, const Down &down, const real *table, const real *base, const Random &random, u32 *v)
{
#pragma unroll
    for (int r = 0; r < ROUNDS(NV); ++r) {
        v[r] = 0;
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
            if (!SOME(NV, r, t)) continue;
            Words words = random.v(step, r, t);
            u32 bits = 0;
            real slopes[4];
            down.fields(table, 32 * r + unit_at(step, t), slopes);
#pragma unroll
            for (int m = 0; m < OWN; ++m) {
                int unit = 32 * r + unit_at(step, t) + m;
                real a = slopes[m], e;
#ifdef BASE
                a = multiply_add(a, step.beta, base[unit]);
                e = boltzmann(a);
                const u32 signs = ~0u;
#else
                e = power(size_of(a) * step.scale);
                const u32 signs = step.signs;
#endif
                bits = __funnelshift_l(down_bit(a, signs, e, (real)1 + e, words.w[m]), bits, 1);
            }
            place(step, t, bits, v + r);
        }
    }
    share<NV>(v);
}

FORCED Sums over_threads(Sums sums)
{
#pragma unroll
    for (int other = 1; other < GROUP; other *= 2) {
        Sums theirs = {
            __shfl_xor_sync(ALL, sums.linear, other), __shfl_xor_sync(ALL, sums.top, other),
            __shfl_xor_sync(ALL, sums.bottom, other), (real)0};
#ifdef JOINT
        theirs.drawn = __shfl_xor_sync(ALL, sums.drawn, other);
#endif
        sums = both(sums, theirs);
    }
    return sums;
}

// Sums over the tiles from FIRST on: drawn here by a chain's only thread, or by all of them before
template <int FIRST, int COUNT>
FORCED Sums tiles_h(const Step &step, const Up &up, const real *table, const real *base, const Random &random, u32 *h,
                    const Sums *drawn)
{
    if constexpr (COUNT == 1) {
        if (GROUP == 1) return tile_h(step, up, table, base, random, FIRST, h);
        return over_threads(drawn[FIRST]);
    } else if constexpr (!SOME(NH, 0, FIRST + COUNT / 2))
        return tiles_h<FIRST, COUNT / 2>(step, up, table, base, random, h, drawn);
    else {
        Sums first = tiles_h<FIRST, COUNT / 2>(step, up, table, base, random, h, drawn);
        return both(first, tiles_h<FIRST + COUNT / 2, COUNT / 2>(step, up, table, base, random, h, drawn));
    }
}

FORCED void set_beta(Step *step, real beta, real before)
{
    step->beta = beta, step->scale = beta * -TWICE_LOG2_E, step->signs = beta == (real)0 ? 0u : ~0u;
    step->before = before, step->scale_before = before * -TWICE_LOG2_E, step->signs_before = before == (real)0 ? 0u : ~0u;
}

// Carry chains from one step of 0 … K to another. `numbers`: the tables, one after the other: of the summed-out side,
// of the sampled side, of its fields' slope along the path, and the fields of the base.
extern "C" __global__ void BOUNDS anneal(
    const real *numbers, const real *betas, const double *differences, KEYS, u32 side_v, u32 side_h, u32 first,
    int chains, u32 *states, double *weights, double *joint, int from, int to, int steps, int fresh)
{
    SHARED(real, shared, numbers, NUMBERS);
    const real *table_h = shared, *table_v = table_h + FIVES(NV) * WIDTH(NH) * 32;
    const real *slope = table_v + FIVES(NH) * WIDTH(NV) * 32, *base_v = slope + FIVES(NV) * 32, *base_h = base_v + WIDTH(NV);
    const Keys keys = GIVEN_KEYS;
    int thread = blockIdx.x * blockDim.x + threadIdx.x, t = thread / GROUP;
    bool beyond = t >= chains; // such a thread goes along, for the others of its warp
    if (beyond) t = chains - 1;
    Step step;
    step.chain = first + t, step.side_v = side_v, step.side_h = side_h, step.lane = thread % GROUP;
    u32 v[ROUNDS(NV)], h[ROUNDS(NH)] = {};
    SHARED_AFTER(u32, rooms, NUMBERS * sizeof(real));
    Random random(keys, rooms + threadIdx.x / 32 * 2 * ROOM);
    if (fresh == 1) { // β = 0 leaves the couplings out
        step.k = 0, step.per_step = (real)0;
        set_beta(&step, (real)0, (real)0);
        random.fetch_h(step, 0), random.fetch_v(step, 0);
        SYNC_ROOM();
        draw_v(step, Down(h), table_v, base_v, random, v);
    } else {
#pragma unroll
        for (int r = 0; r < ROUNDS(NV); ++r) v[r] = states[(u64)r * chains + t];
    }
    double weight = weights[t];
#ifdef JOINT
    double on_joint = joint[t];
#endif
    random.fetch_h(step, from + 1);
    double difference, next_difference = differences[from];
    real beta = betas[from], next_beta = betas[from + 1];
#pragma unroll 1
    for (int k = from + 1; k <= to; ++k) {
        step.k = k;
        set_beta(&step, next_beta, beta);
        beta = next_beta, difference = next_difference;
        int next = k < to ? k : k - 1; // loaded a step ahead
        next_beta = betas[next + 1], next_difference = differences[next];
#ifdef BASE
        step.per_step = (real)(1.0 / difference);
#endif
        Up up(v);
        real linear = up.sum(slope);
        random.fetch_v(step, k);
        SYNC_ROOM();
#pragma unroll
        for (int r = 0; r < ROUNDS(NH); ++r) h[r] = 0;
        Sums drawn[TILES], sums;
        if (GROUP == 1) sums = tiles_h<0, TILES>(step, up, table_h, base_h, random, h, drawn);
        else {
#pragma unroll
            for (int i = 0; i < TILES; ++i)
                if (SOME(NH, 0, i)) drawn[i] = tile_h(step, up, table_h, base_h, random, i, h);
            share<NH>(h);
            if (!LATE) sums = tiles_h<0, TILES>(step, up, table_h, base_h, random, h, drawn);
            random.fetch_h(step, k + 1);
        }
        u32 moved[ROUNDS(NV)];
        draw_v(step, Down(h), table_v, base_v, random, moved);
        if (GROUP > 1 && LATE) sums = tiles_h<0, TILES>(step, up, table_h, base_h, random, h, drawn);
        double rise_v = (double)linear * difference;
        weight += rise_v + (double)sums.linear * difference + (double)logarithm(quotient(sums.top, sums.bottom));
#ifdef JOINT
        on_joint += rise_v + (double)sums.drawn * difference;
#endif
#pragma unroll
        for (int r = 0; r < ROUNDS(NV); ++r) v[r] = k < steps ? moved[r] : v[r];
    }
    if (beyond || step.lane) return;
#pragma unroll
    for (int r = 0; r < ROUNDS(NV); ++r) states[(u64)r * chains + t] = v[r];
    weights[t] = weight;
#ifdef JOINT
    joint[t] = on_joint;
#endif
}
