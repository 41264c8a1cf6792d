// Small dense models of spins on two independent sides, NV sampled and NH summed-out ones, as bits in registers.
//
// Fields are looked up: SPINS spins have 2^SPINS states, and their contribution to a field is one number of a table in
// shared memory. One thread advances a chain if there are many chains (GROUP 1), and a warp if there are few (GROUP
// 32). Both give the same bits. Couplings are multiples of a power of 2, so that fields are exact for any SPINS, and so
// are the increments of log-weights. Sums and products over units have a fixed order: first over the rounds of 32
// units, then in pairs over the 32 places of a round, neighbours first. Padding units have no fields and no couplings,
// so that their factors are powers of 2, which cancel.
//
// In stored states unit u is bit 31 − u % 32 of word u / 32, and a bit is set if the spin is down.

#define ROUNDS(n) (((n) + 31) / 32)
#define GROUPS(n) (((n) + SPINS - 1) / SPINS)
#define TILES_OF(n) (((n) + 3) / 4) // Groups of units that share a call of Philox.
#define ALL 0xffffffffu

#ifdef MANY
#define GRID const double *grids
#define OWN_PARTS \
    OWN_PART(numbers, NUMBERS); OWN_PART(states, ROUNDS(NV) * (u64)chains); \
    OWN_PART(weights, chains); OWN_PART(joint, chains); const double grid = grids[blockIdx.y]
#else
#define GRID double grid
#define OWN_PARTS
#endif

struct Sums { real linear, top, bottom, drawn; };

FORCED Sums both(Sums a, Sums b)
{
    return {a.linear + b.linear, a.top * b.top, a.bottom * b.bottom, a.drawn + b.drawn};
}

struct Step {
    u32 k, signs, signs_before; // `signs` masks the sign bit of a field; 0 if β is 0.
    real beta, before, scale, scale_before, per_step; // `scale` is −2 log2(e)·β.
};

FORCED void set_beta(Step *step, int k, real beta, real before)
{
    step->k = k;
    step->beta = beta, step->scale = beta * -TWICE_LOG2_E, step->signs = beta == (real)0 ? 0u : ~0u;
    step->before = before, step->scale_before = before * -TWICE_LOG2_E, step->signs_before = before == (real)0 ? 0u : ~0u;
}

// Whether a spin in the field a is down (against sign(a) with probability e/(1 + e)), as the highest bit or a bool.
FORCED u32 down(real a, u32 signs, real e, real one_and_e, u32 word)
{
    real against = multiply_add(uniform(word), one_and_e, -e);
    if (GROUP == 1) return sign_word(against) ^ (sign_word(a) & signs);
    return (against < (real)0) != (a < (real)0 && signs);
}

// A unit of the summed-out side: its contribution to the weight, added to those of earlier rounds, and its spin.
FORCED u32 draw_h(const Step &step, real slope, const real *base, u32 word, u32 earlier, bool first, Sums *sums)
{
    real drawn = (real)0;
#ifdef BASE
    real now = multiply_add(slope, step.beta, *base), before = multiply_add(slope, step.before, *base);
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
    u32 is_down = down(before, signs_before, e_before, bottom, earlier);
    drawn = (GROUP == 1 ? (int)is_down < 0 : is_down) ? -slope : slope;
#endif
    u32 bit = down(now, signs, e, top, word);
    if (!first) {
        linear = sums->linear + linear, drawn = sums->drawn + drawn;
        top = multiply_add(sums->top, e, sums->top);
        bottom = multiply_add(sums->bottom, e_before, sums->bottom);
    }
    *sums = {linear, top, bottom, drawn};
    return bit;
}

// Draw a unit of the sampled side.
FORCED u32 draw_v(const Step &step, real slope, const real *base, u32 word)
{
#ifdef BASE
    real a = multiply_add(slope, step.beta, *base), e = boltzmann(a);
    return down(a, ~0u, e, (real)1 + e, word);
#else
    real e = power(size_of(slope) * step.scale);
    return down(slope, step.signs, e, (real)1 + e, word);
#endif
}

// Add the increments of a step to the weights. Adding `grid` rounds to the common unit of all weights.
FORCED void add_step(Sums sums, real linear, double difference, double grid, double *weight, double *joint)
{
    double rise_v = (double)linear * difference;
    double part = rise_v + (double)sums.linear * difference + (double)log_ratio(sums.top, sums.bottom);
    *weight += (part + grid) - grid;
#ifdef JOINT
    *joint += ((rise_v + (double)sums.drawn * difference) + grid) - grid;
#endif
}

#if GROUP == 1

#define WIDTH(n) (4 * TILES_OF(n))
#define SOME(n, r, t) (32 * (r) + 4 * (t) < (n)) // Whether the t-th tile of a round has any units.

// The states of each five of N spins.
template <int N> struct States {
    u32 at[GROUPS(N)];
    MEMBER States(const u32 *words)
    {
#pragma unroll
        for (int g = 0; g < GROUPS(N); ++g) {
            const int word = 5 * g / 32, last = 5 * g % 32 + 5; // The bits before `last`, from the highest one on.
            u32 bits = last <= 32 ? words[word] >> (32 - last < 0 ? 0 : 32 - last) : words[word] << (last - 32 & 31);
            if (last > 32 && word + 1 < ROUNDS(N)) bits |= words[word + 1 < ROUNDS(N) ? word + 1 : 0] >> (64 - last & 31);
            at[g] = bits & 31;
        }
    }
    MEMBER real field(const real *table, int width, int unit) const
    {
        real a = table[unit * 32 + at[0]];
#pragma unroll
        for (int g = 1; g < GROUPS(N); ++g) a += table[(g * width + unit) * 32 + at[g]];
        return a;
    }
};

struct Chain { const Keys &keys; u32 number, side_v, side_h; };

// The t-th tile of the summed-out side in all rounds: its contribution to the weight, and its spins.
FORCED Sums tile_h(const Chain &chain, const Step &step, const States<NV> &v, const real *table, const real *base, int t, u32 *h)
{
    Sums parts[4];
#pragma unroll
    for (int r = 0; r < ROUNDS(NH); ++r) {
        if (!SOME(NH, r, t)) continue;
        Words words = philox(chain.number, step.k, 8 * r + t, chain.side_h, chain.keys), earlier = words;
#ifdef JOINT
        earlier = philox(chain.number, step.k - 1, 8 * r + t, SIDE_JOINT, chain.keys);
#endif
        u32 bits = 0;
        real slopes[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) slopes[m] = v.field(table, WIDTH(NH), 32 * r + 4 * t + m);
#pragma unroll
        for (int m = 0; m < 4; ++m) {
            const real *own = base + 32 * r + 4 * t + m;
            u32 bit = draw_h(step, slopes[m], own, words.w[m], earlier.w[m], r == 0, parts + m);
            bits = __funnelshift_l(bit, bits, 1);
        }
        h[r] |= bits << (28 - 4 * t);
    }
    return both(both(parts[0], parts[1]), both(parts[2], parts[3]));
}

template <int FIRST, int COUNT>
FORCED Sums tiles_h(const Chain &chain, const Step &step, const States<NV> &v, const real *table, const real *base, u32 *h)
{
    if constexpr (COUNT == 1) return tile_h(chain, step, v, table, base, FIRST, h);
    else {
        Sums first = tiles_h<FIRST, COUNT / 2>(chain, step, v, table, base, h);
        if constexpr (!SOME(NH, 0, FIRST + COUNT / 2)) return first;
        else return both(first, tiles_h<FIRST + COUNT / 2, COUNT / 2>(chain, step, v, table, base, h));
    }
}

// Draw the sampled side, given the states of the other.
FORCED void draw_side_v(const Chain &chain, const Step &step, const States<NH> &h, const real *table, const real *base, u32 *v)
{
#pragma unroll
    for (int r = 0; r < ROUNDS(NV); ++r) {
        v[r] = 0;
#pragma unroll
        for (int t = 0; t < 8; ++t) {
            if (!SOME(NV, r, t)) continue;
            Words words = philox(chain.number, step.k, 8 * r + t, chain.side_v, chain.keys);
            u32 bits = 0;
            real slopes[4];
#pragma unroll
            for (int m = 0; m < 4; ++m) slopes[m] = h.field(table, WIDTH(NV), 32 * r + 4 * t + m);
#pragma unroll
            for (int m = 0; m < 4; ++m)
                bits = __funnelshift_l(draw_v(step, slopes[m], base + 32 * r + 4 * t + m, words.w[m]), bits, 1);
            v[r] |= bits << (28 - 4 * t);
        }
    }
}

// Advance chains from one step of 0 … K to another. `numbers` are the tables in sequence: of the summed-out side, of
// the sampled side, of the slope of its own fields along the path, and the fields of the base.
extern "C" __global__ void BOUNDS anneal(
    const real *numbers, const real *betas, const double *differences, KEYS, u32 side_v, u32 side_h, u32 first,
    int chains, u32 *states, double *weights, double *joint, GRID, int from, int to, int steps, int fresh)
{
    OWN_PARTS;
    SHARED(real, shared, numbers, NUMBERS);
    const real *table_h = shared, *table_v = table_h + GROUPS(NV) * WIDTH(NH) * 32;
    const real *slope = table_v + GROUPS(NH) * WIDTH(NV) * 32, *base_v = slope + GROUPS(NV) * 32, *base_h = base_v + WIDTH(NV);
    const Keys keys = GIVEN_KEYS;
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= chains) return;
    const Chain chain = {keys, first + t, side_v, side_h};
    Step step;
    u32 v[ROUNDS(NV)], h[ROUNDS(NH)] = {};
    if (fresh == 1) { // β = 0 leaves the couplings out
        set_beta(&step, 0, (real)0, (real)0);
        draw_side_v(chain, step, States<NH>(h), table_v, base_v, v);
    } else {
#pragma unroll
        for (int r = 0; r < ROUNDS(NV); ++r) v[r] = states[(u64)r * chains + t];
    }
    double weight = weights[t], on_joint = 0.0;
#ifdef JOINT
    on_joint = joint[t];
#endif
    double difference, next_difference = differences[from];
    real beta = betas[from], next_beta = betas[from + 1];
#pragma unroll 1
    for (int k = from + 1; k <= to; ++k) {
        set_beta(&step, k, next_beta, beta);
        beta = next_beta, difference = next_difference;
        int next = k < to ? k : k - 1; // The next step is loaded in advance.
        next_beta = betas[next + 1], next_difference = differences[next];
#ifdef BASE
        step.per_step = (real)(1.0 / difference);
#endif
        States<NV> up(v);
        real linear = up.field(slope, 1, 0);
#pragma unroll
        for (int r = 0; r < ROUNDS(NH); ++r) h[r] = 0;
        Sums sums = tiles_h<0, 8>(chain, step, up, table_h, base_h, h);
        u32 moved[ROUNDS(NV)];
        draw_side_v(chain, step, States<NH>(h), table_v, base_v, moved);
        add_step(sums, linear, difference, grid, &weight, &on_joint);
#pragma unroll
        for (int r = 0; r < ROUNDS(NV); ++r) v[r] = k < steps ? moved[r] : v[r];
    }
#pragma unroll
    for (int r = 0; r < ROUNDS(NV); ++r) states[(u64)r * chains + t] = v[r];
    weights[t] = weight;
#ifdef JOINT
    joint[t] = on_joint;
#endif
}

#else // One warp per chain: work that does not delay the next step is postponed.

#define LAST(n) ((n) - (GROUPS(n) - 1) * SPINS)
#define STATES(n) (((GROUPS(n) - 1) << SPINS) + (1 << LAST(n))) // States of all tables together.
#ifdef JOINT
#define PARTS 4
#define SLOTS (2 * TILES_OF(NH) + TILES_OF(NV)) // Calls of Philox in a step.
#else
#define PARTS 3
#define SLOTS (TILES_OF(NH) + TILES_OF(NV))
#endif
#define FETCHES ((2 * SLOTS + 31) / 32)
#define SHARE (32 / BATCH) // Lanes that compute the weight of one of BATCH steps.
#define PITCH (32 * PARTS + 4) // Numbers stored for the weight of a step, and its bits.

#define PLACE (sizeof(real) == 4 ? 7 : 8) // The units of a round take 2^PLACE bytes.

// The state of the g-th SPINS of N spins, times 2^shift; unit u is bit u % 32 of word u / 32.
template <int N> FORCED u32 state_of(const u32 *words, int g, int shift)
{
    const int word = SPINS * g / 32, first = SPINS * g % 32, count = g == GROUPS(N) - 1 ? LAST(N) : SPINS;
    u32 bits = words[word];
    if (first < shift) bits <<= shift - first;
    else if (first + count <= 32) bits >>= first - shift;
    else bits = __funnelshift_r(bits, words[word + 1 < ROUNDS(N) ? word + 1 : word], first - shift);
    return bits & ((1u << count) - 1) << shift;
}

// Fields of the units of a lane, one in each round; sums are exact in any order, so the fastest one is used.
template <int N, int OUT> FORCED void fields(const real *table, const u32 *words, u32 lane, real *a)
{
    real parts[GROUPS(N)][ROUNDS(OUT)];
#pragma unroll
    for (int g = 0; g < GROUPS(N); ++g) {
        const unsigned char *at = (const unsigned char *)table + (state_of<N>(words, g, PLACE) | lane * sizeof(real));
#pragma unroll
        for (int r = 0; r < ROUNDS(OUT); ++r)
            parts[g][r] = *(const real *)(at + ((r * STATES(N) + (g << SPINS)) << PLACE));
    }
#pragma unroll
    for (int r = 0; r < ROUNDS(OUT); ++r) {
#pragma unroll
        for (int apart = 1; apart < GROUPS(N); apart *= 2)
#pragma unroll
            for (int g = 0; g + apart < GROUPS(N); g += 2 * apart) parts[g][r] += parts[g + apart][r];
        a[r] = parts[0][r];
    }
}

// Random words of two steps at a time, each computed by one lane, exchanged through shared memory.
struct Random {
    const Keys &keys;
    u32 chain, lane, side[FETCHES], slot[FETCHES], later[FETCHES];
    MEMBER Random(const Keys &given, u32 number, u32 place, u32 side_v, u32 side_h) : keys(given), chain(number), lane(place)
    {
#pragma unroll
        for (int i = 0; i < FETCHES; ++i) {
            u32 at = 32 * i + lane;
            later[i] = at >= SLOTS, slot[i] = at - later[i] * SLOTS, side[i] = side_h;
            if (slot[i] >= TILES_OF(NH) + TILES_OF(NV)) slot[i] -= TILES_OF(NH) + TILES_OF(NV), side[i] = SIDE_JOINT, --later[i];
            else if (slot[i] >= TILES_OF(NH)) slot[i] -= TILES_OF(NH), side[i] = side_v;
        }
    }
    MEMBER void make(u32 k, Words *words) const // Some of the words are not used.
    {
#pragma unroll
        for (int i = 0; i < FETCHES; ++i) words[i] = philox(chain, k + later[i], slot[i], side[i], keys);
    }
    MEMBER void leave(u32 *room, const Words *words) const
    {
#pragma unroll
        for (int i = 0; i < FETCHES; ++i) *(Words *)(room + 128 * i + 4 * lane) = words[i];
    }
    // The words of the lane's units, of N from place `first` on.
    template <int N> MEMBER void load(const u32 *room, int first, u32 *words) const
    {
#pragma unroll
        for (int r = 0; r < ROUNDS(N); ++r) {
            int unit = 32 * r + lane;
            words[r] = room[4 * first + (unit < 4 * TILES_OF(N) ? unit : 4 * TILES_OF(N) - 1)];
        }
    }
};

struct alignas(16) Four { real of[4]; };

// The weights of up to BATCH steps, with several lanes for each.
struct Weigher {
    real *room;
    const real *slope;
    double grid;
    int lane;
    MEMBER void leave(int at, Sums sums, const u32 *v)
    {
        real *row = room + at * PITCH;
        row[lane] = sums.linear, row[32 + lane] = sums.top, row[64 + lane] = sums.bottom;
        if (PARTS == 4) row[96 + lane] = sums.drawn;
        u32 *words = (u32 *)(row + 32 * PARTS);
#pragma unroll
        for (int r = 0; r < ROUNDS(NV); ++r)
            if (lane == 0) words[r] = v[r];
    }
    MEMBER void weigh(const double *differences, int count, double *weight, double *joint)
    {
        const int at = lane / SHARE, part = lane % SHARE;
        const real *row = room + at * PITCH;
        Sums some[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i += 4) {
            Four of[4];
#pragma unroll
            for (int p = 0; p < PARTS; ++p) of[p] = *(const Four *)(row + 32 * p + BATCH * part + i);
            if (PARTS == 3) of[3] = of[0];
#pragma unroll
            for (int m = 0; m < 4; ++m) some[i + m] = {of[0].of[m], of[1].of[m], of[2].of[m], of[3].of[m]};
        }
#pragma unroll
        for (int apart = 1; apart < BATCH; apart *= 2)
#pragma unroll
            for (int i = 0; i < BATCH; i += 2 * apart) some[i] = both(some[i], some[i + apart]);
        Sums sums = some[0];
#pragma unroll
        for (int other = 1; other < SHARE; other *= 2) {
            Sums theirs = {
                __shfl_xor_sync(ALL, sums.linear, other), __shfl_xor_sync(ALL, sums.top, other),
                __shfl_xor_sync(ALL, sums.bottom, other), (real)0};
            if (PARTS == 4) theirs.drawn = __shfl_xor_sync(ALL, sums.drawn, other);
            sums = both(sums, theirs);
        }
        const u32 *words = (const u32 *)(row + 32 * PARTS);
        u32 v[ROUNDS(NV)];
#pragma unroll
        for (int r = 0; r < ROUNDS(NV); ++r) v[r] = words[r];
        real linear = (real)0;
#pragma unroll
        for (int g = 0; g < GROUPS(NV); ++g) linear += slope[(g << SPINS) + state_of<NV>(v, g, 0)];
        if (part == 0 && at < count) add_step(sums, linear, differences[at], grid, weight, joint);
    }
};

FORCED double over_lanes(double part) // The sum is exact in any order.
{
#pragma unroll
    for (int other = 1; other < 32; other *= 2) part += __shfl_xor_sync(ALL, part, other);
    return part;
}

// As above, with a table for each round of 32 units.
extern "C" __global__ void BOUNDS anneal(
    const real *numbers, const real *betas, const double *differences, KEYS, u32 side_v, u32 side_h, u32 first,
    int chains, u32 *states, double *weights, double *joint, GRID, int from, int to, int steps, int fresh)
{
    OWN_PARTS;
    SHARED(real, shared, numbers, NUMBERS);
    const real *table_h = shared, *table_v = table_h + ROUNDS(NH) * STATES(NV) * 32;
    const real *slope = table_v + ROUNDS(NV) * STATES(NH) * 32, *base_v = slope + STATES(NV), *base_h = base_v + 32 * ROUNDS(NV);
    const Keys keys = GIVEN_KEYS;
    int thread = blockIdx.x * blockDim.x + threadIdx.x, t = thread / 32, lane = thread % 32;
    bool beyond = t >= chains;
    if (beyond) t = chains - 1;
    SHARED_AFTER(u32, rooms, NUMBERS * sizeof(real));
    u32 *now = rooms + threadIdx.x / 32 * (ROOM_BYTES / 4), *then = now + 128 * FETCHES;
    Weigher weigher = {(real *)(then + 128 * FETCHES), slope, grid, lane};
    const Random random(keys, first + t, lane, side_v, side_h);
    Step step;
    Words made[FETCHES];
    u32 v[ROUNDS(NV)], h[ROUNDS(NH)] = {}, words[2][ROUNDS(NH)], words_v[2][ROUNDS(NV)], earlier[2][ROUNDS(NH)];
    real a[ROUNDS(NH)], b[ROUNDS(NV)];
    if (fresh == 1) { // β = 0 leaves the couplings out
        random.make(0, made), random.leave(now, made);
        SYNC_WARP();
        random.load<NV>(now, TILES_OF(NH), words_v[0]);
        set_beta(&step, 0, (real)0, (real)0);
#pragma unroll
        for (int r = 0; r < ROUNDS(NV); ++r)
            v[r] = __ballot_sync(ALL, draw_v(step, (real)0, base_v + 32 * r + lane, words_v[0][r]));
        SYNC_WARP();
    } else {
#pragma unroll
        for (int r = 0; r < ROUNDS(NV); ++r) v[r] = __brev(states[(u64)r * chains + t]);
    }
    double weight = 0.0, on_joint = 0.0;
    random.make(from + 1, made), random.leave(now, made);
    SYNC_WARP();
    real beta[3] = {betas[from], betas[from + 1], betas[from + 2 < to ? from + 2 : to]};
    int held = 0;
#pragma unroll 1
    for (int k = from + 1; k <= to; k += 2) { // Two steps; the second one has no effect if it is after the last.
        const real next_beta[2] = {betas[k + 2 < to ? k + 2 : to], betas[k + 3 < to ? k + 3 : to]};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            random.load<NH>(now + 4 * SLOTS * i, 0, words[i]);
            random.load<NV>(now + 4 * SLOTS * i, TILES_OF(NH), words_v[i]);
#ifdef JOINT
            random.load<NH>(now + 4 * SLOTS * i, TILES_OF(NH) + TILES_OF(NV), earlier[i]);
#endif
        }
        random.make(k + 2, made);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            set_beta(&step, k + i, beta[i + 1], beta[i]);
#ifdef BASE
            step.per_step = (real)(1.0 / differences[k + i <= to ? k + i - 1 : k - 1]);
#endif
            Sums sums;
            fields<NV, NH>(table_h, v, lane, a);
#pragma unroll
            for (int r = 0; r < ROUNDS(NH); ++r) {
                const real *base = base_h + 32 * r + lane;
                h[r] = __ballot_sync(ALL, draw_h(step, a[r], base, words[i][r], earlier[i][r], r == 0, &sums));
            }
            weigher.leave(held + i, sums, v);
            fields<NH, NV>(table_v, h, lane, b);
#pragma unroll
            for (int r = 0; r < ROUNDS(NV); ++r) {
                u32 moved = __ballot_sync(ALL, draw_v(step, b[r], base_v + 32 * r + lane, words_v[i][r]));
                v[r] = k + i < steps && k + i <= to ? moved : v[r];
            }
        }
        beta[0] = beta[2], beta[1] = next_beta[0], beta[2] = next_beta[1];
        held += 2;
        random.leave(then, made);
        SYNC_WARP();
        if (held == BATCH || k + 2 > to) {
            int start = k + 2 - held;
            weigher.weigh(differences + start - 1, to - start + 1, &weight, &on_joint);
            held = 0;
            SYNC_WARP();
        }
        u32 *other = now;
        now = then, then = other;
    }
    weight = over_lanes(weight), on_joint = over_lanes(on_joint);
    if (beyond || lane) return;
#pragma unroll
    for (int r = 0; r < ROUNDS(NV); ++r) states[(u64)r * chains + t] = __brev(v[r]);
    weights[t] += weight;
#ifdef JOINT
    joint[t] += on_joint;
#endif
}
#endif
