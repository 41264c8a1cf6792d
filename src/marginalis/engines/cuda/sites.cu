// Sparse bipartite graphs of spins, with any couplings and fields; 32 chains share a word and a block.
//
// A lane is a chain. The warps of a block divide the sites, four at a time, which share a call of Philox. Padding sites
// have no fields and no couplings, and their draws are ignored. The contribution of four sites to a log-weight is
// rounded to a multiple of a power of 2, so that the sum is the same in any order and for any number of warps. LENGTH_V
// and LENGTH_H are the numbers of neighbours of a site, four or eight; missing neighbours have couplings of 0.

#define ALL 0xffffffffu

struct alignas(16) Places { u32 at[4]; };
struct alignas(16) Couplings { real w[4]; };

struct Side {
    const Places *from; // Places of the neighbours in x.
    const Couplings *weights;
    const real *slope, *base; // Slopes and base values of the fields.
    u32 *own;
    int tiles;
    u32 number; // Number of the side in addresses of random numbers.
};

struct Run {
    const Keys &keys;
    const u32 *x;
    u32 chain, k;
    int lane;
    real beta, before, per_step;
};

FORCED real with_sign(real w, u32 word, int lane)
{
#ifdef DOUBLE
    return word >> lane & 1u ? w : -w;
#else
    union { float number; u32 bits; } same;
    same.number = w;
    same.bits ^= ~word << (31 - lane) & 0x80000000u;
    return same.number;
#endif
}

// The slope of a site's field along the path.
template <int LENGTH> FORCED real field(const Run &run, const Side &side, int unit)
{
#ifdef FIELDS
    real a = side.slope[unit];
#else
    real a = (real)0;
#endif
#pragma unroll
    for (int i = 0; i < LENGTH / 4; ++i) {
        Places from = side.from[unit * (LENGTH / 4) + i];
        Couplings of = side.weights[unit * (LENGTH / 4) + i];
#pragma unroll
        for (int j = 0; j < 4; ++j) a += with_sign(of.w[j], run.x[from.at[j]], run.lane);
    }
    return a;
}

FORCED real under(const Side &side, real beta, real slope, int unit)
{
#ifdef BASE
    return multiply_add(slope, beta, side.base[unit]);
#else
    return slope * beta;
#endif
}

template <int LENGTH> FORCED void sweep_v(const Run &run, const Side &side)
{
    for (int tile = threadIdx.x / 32; tile < side.tiles; tile += blockDim.x / 32) {
        Words words = philox(run.chain, run.k, tile, side.number, run.keys);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            int unit = 4 * tile + i;
            real slope = LENGTH ? field<LENGTH>(run, side, unit) : (real)0, a = under(side, run.beta, slope, unit);
            WRITE_BIT(side.own[unit], run.lane, spin_up(a, boltzmann(a), words.w[i]));
        }
    }
}

FORCED double rounded(double part, double grid) { return (part + grid) - grid; }

template <int LENGTH>
FORCED void sweep_h(const Run &run, const Side &side, double difference, double grid, double *weight, double *joint)
{
    for (int tile = threadIdx.x / 32; tile < side.tiles; tile += blockDim.x / 32) {
        Words words = philox(run.chain, run.k, tile, side.number, run.keys);
#ifdef JOINT
        Words earlier = philox(run.chain, run.k - 1, tile, SIDE_JOINT, run.keys);
#endif
        real linear = (real)0, top = (real)1, bottom = (real)1, drawn = (real)0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            int unit = 4 * tile + i;
            real slope = field<LENGTH>(run, side, unit);
            real now = under(side, run.beta, slope, unit), before = under(side, run.before, slope, unit);
            real e = boltzmann(now), e_before = boltzmann(before);
#ifdef BASE
            linear += rise(now, before, slope, run.per_step);
#else
            linear += size_of(slope);
#endif
            top = multiply_add(top, e, top), bottom = multiply_add(bottom, e_before, bottom);
#ifdef JOINT
            drawn += spin_up(before, e_before, earlier.w[i]) ? slope : -slope;
#endif
            WRITE_BIT(side.own[unit], run.lane, spin_up(now, e, words.w[i]));
        }
        *weight += rounded((double)linear * difference + (double)log_ratio(top, bottom), grid);
#ifdef JOINT
        *joint += rounded((double)drawn * difference, grid);
#endif
    }
}

// The contribution of the fields of the sampled sites.
FORCED void add_v(const Run &run, const Side &side, double difference, double grid, double *weight, double *joint)
{
    for (int tile = threadIdx.x / 32; tile < side.tiles; tile += blockDim.x / 32) {
        real linear = (real)0;
#pragma unroll
        for (int i = 0; i < 4; ++i) linear += with_sign(side.slope[4 * tile + i], side.own[4 * tile + i], run.lane);
        double part = rounded((double)linear * difference, grid);
        *weight += part, *joint += part;
    }
}

// Advance chains from one step of 0 … K to another; the `chains` chains from `lead` on count, and the others of the
// groups are padding. `states` are stored group by group, with room for both sides unless they are in shared memory.
extern "C" __global__ void BOUNDS anneal(
    int n, int m, const Places *from_v, const Couplings *weights_v, const Places *from_h, const Couplings *weights_h,
    const real *slope_v, const real *slope_h, const real *base_v, const real *base_h, const real *betas,
    const double *differences, KEYS, u32 side_v, u32 side_h, u32 first_group, int lead, int chains, u32 *states,
    double *weights, double *joint, double grid, int from, int to, int steps, int fresh)
{
    SHARED_BYTES(shared_bytes);
    const Keys keys = GIVEN_KEYS;
    int lane = threadIdx.x % 32, t = 32 * blockIdx.x + lane - lead;
    double *sums = (double *)shared_bytes; // The sums of the warps.
#ifdef INSIDE
    u32 *x = (u32 *)(sums + 2 * blockDim.x), *outside = states + (long)blockIdx.x * n;
    if (fresh != 1)
        for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = outside[i];
#else
    u32 *x = states + (long)blockIdx.x * (n + m);
#endif
    Run run = {keys, x, 32 * (first_group + blockIdx.x) + lane, 0u, lane, (real)0, (real)0, (real)0};
    const Side of_v = {from_v, weights_v, slope_v, base_v, x, n / 4, side_v};
    const Side of_h = {from_h, weights_h, slope_h, base_h, x + n, m / 4, side_h};
    if (fresh == 1) sweep_v<0>(run, of_v);
    double weight = 0.0, on_joint = 0.0;
#pragma unroll 1
    for (int k = from + 1; k <= to; ++k) {
        double difference = differences[k - 1];
        run.k = k, run.beta = betas[k], run.before = betas[k - 1], run.per_step = (real)(1.0 / difference);
        __syncthreads();
#ifdef FIELDS
        add_v(run, of_v, difference, grid, &weight, &on_joint);
#endif
        sweep_h<LENGTH_H>(run, of_h, difference, grid, &weight, &on_joint);
        __syncthreads();
        if (k < steps) sweep_v<LENGTH_V>(run, of_v);
    }
    sums[threadIdx.x] = weight, sums[blockDim.x + threadIdx.x] = on_joint;
    __syncthreads();
    if (threadIdx.x < 32 && t >= 0 && t < chains) {
        weight = weights[t];
        for (int i = lane; i < blockDim.x; i += 32) weight += sums[i];
        weights[t] = weight;
#ifdef JOINT
        on_joint = joint[t];
        for (int i = lane; i < blockDim.x; i += 32) on_joint += sums[blockDim.x + i];
        joint[t] = on_joint;
#endif
    }
#ifdef INSIDE
    for (int i = threadIdx.x; i < n; i += blockDim.x) outside[i] = x[i];
#endif
}
