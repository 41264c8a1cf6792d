// The kernel for any graph, any kind of unit, and a base with or without couplings or a mixture; one thread per chain.
//
// The formulas are those of `engines/reference/loop.py`. All states are one array, [unit][chain]: the sampled units in
// the order of the sweep, then the summed-out ones. If all units are spins (SPINS), 32 chains share a word. With DRAWN
// the component of the mixture is part of the state. KIND_V and KIND_H are 0 for spins, 1 for Gaussian units, 2 for
// categorical variables (one-hot features), 3 for ReLU and 4 for dReLU units (`rectified.cu`). The number of units,
// except for categorical variables, is padded to a multiple of four; padding units have no fields or couplings.

#define FLUSH 64 // Number of factors in [1, 2] whose product stays in range.
#define FEW 4 // Categorical variables per logarithm.

#ifdef SPINS
typedef u32 state;
#else
typedef real state;
#endif

struct Chain {
    state *x;
    long pitch, t; // Number of chains, and the place of this one.
    u32 number;
};

#ifdef SPINS
#define AT(c, unit) ((long)(unit) * ((c).pitch >> 5) + ((c).t >> 5))
FORCED real times(real w, const Chain &c, int unit) // ± w
{
    return (c.x[AT(c, unit)] >> (c.t & 31)) & 1u ? w : -w;
}
FORCED real added(real w, const Chain &c, int unit, real a) { return a + times(w, c, unit); }
FORCED real get(const Chain &c, int unit) { return times((real)1, c, unit); }
FORCED void put(const Chain &c, int unit, real value) { WRITE_BIT(c.x[AT(c, unit)], c.t & 31, value > (real)0); }
#else
FORCED real get(const Chain &c, int unit) { return c.x[(long)unit * c.pitch + c.t]; }
FORCED real added(real w, const Chain &c, int unit, real a) { return multiply_add(w, get(c, unit), a); }
FORCED void put(const Chain &c, int unit, real value) { c.x[(long)unit * c.pitch + c.t] = value; }
#endif

// Couplings into every unit: from[p], w[p] for p from at[unit] to at[unit + 1]; without couplings there are no lists.
struct Lists { const int *at, *from; const real *w; };

FORCED real field(const Lists &lists, const Chain &c, int unit, real start)
{
    for (int p = lists.at[unit], end = lists.at[unit + 1]; p < end; ++p) start = added(lists.w[p], c, lists.from[p], start);
    return start;
}

// The same if all lists are padded to an equal length of at most eight: without `at`, and with all loads at once.
template <int LENGTH> FORCED real even_field(const Lists &lists, const Chain &c, int unit, real start)
{
    if (LENGTH == 0) return field(lists, c, unit, start);
#pragma unroll
    for (int i = 0; i < LENGTH; ++i)
        start = added(lists.w[unit * LENGTH + i], c, lists.from[unit * LENGTH + i], start);
    return start;
}

#define UP(unit, start) even_field<LENGTH_UP>(up, c, unit, start)
#define AFTER(unit, start) even_field<LENGTH_AFTER>(after, c, unit, start)
#if LATERAL
#define BEFORE(unit, start) field(before, c, unit, start)
#else
#define BEFORE(unit, start) (start)
#endif
#ifdef COUPLED // the base
#define UP0(unit, start) field(up0, c, unit, start)
#define INTO0(unit, start) field(into0, c, unit, start)
#else
#define UP0(unit, start) (start)
#define INTO0(unit, start) (start)
#endif

// Wichura, Algorithm AS 241, Applied Statistics 37, 477 (1988); uniforms of 32 bits never need its third branch.
FORCED real horner(real x, const double *c)
{
    real value = (real)c[0];
#pragma unroll
    for (int i = 1; i < 8; ++i) value = multiply_add(value, x, (real)c[i]);
    return value;
}

FORCED real normal(u32 word)
{
    const double near_top[8] = {
        2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
        1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0};
    const double near_bottom[8] = {
        5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
        5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0};
    const double far_top[8] = {
        7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
        3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0};
    const double far_bottom[8] = {
        1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
        6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0};
    u32 other = ~word;
    real p = uniform(word < other ? word : other), sign = word < other ? (real)-1 : (real)1;
    real q = p - (real)0.5, r = multiply_add(q * q, (real)-1, (real)0.180625);
    if (-q <= (real)0.425) return sign * (real)-1 * (q * (horner(r, near_top) / horner(r, near_bottom)));
    real s = (real)sqrt(-log_ratio(p, (real)1)) - (real)1.6;
    return sign * (horner(s, far_top) / horner(s, far_bottom));
}

// Draw a unit of another kind than 2 given its field; `e` is exp(−2|field|) for a spin.
FORCED real draw(int kind, real a, real e, u32 word, const real *variance, const real *deviation, int unit)
{
    if (kind == 0) return spin_up(a, e, word) ? (real)1 : (real)-1;
    if (kind >= 3) return draw_rectified(kind, both_sides(kind, a, variance + 4 * unit), word, variance + 4 * unit);
    return multiply_add(a, variance[unit], normal(word) * deviation[unit]);
}

// Fields of the features of one categorical variable, a = start + β·slope, in scratch: max a and Σ exp(a − max a).
struct Features {
    real *slopes; // The starts are `count` places further.
    long pitch;
    int count;
    MEMBER real slope(int f) const { return slopes[f * pitch]; }
    MEMBER real under(int f, real beta) const
    {
        return multiply_add(slopes[f * pitch], beta, slopes[(count + f) * pitch]);
    }
    MEMBER void set(int f, real slope, real start) const
    {
        slopes[f * pitch] = slope;
        slopes[(count + f) * pitch] = start;
    }
    MEMBER real sum(real beta, real *most) const
    {
        *most = under(0, beta);
        for (int f = 1; f < count; ++f) *most = under(f, beta) > *most ? under(f, beta) : *most;
        real total = (real)0;
        for (int f = 0; f < count; ++f) total += power((under(f, beta) - *most) * LOG2_E);
        return total;
    }
    // Draw the first feature whose cumulative sum exceeds u·total; the last also takes the remainder from rounding.
    MEMBER int pick(real beta, real most, real total, u32 word) const
    {
        real threshold = uniform(word) * total, below = (real)0;
        // In single precision u may be rounded to 1, and the last feature be drawn although its probability is zero.
        if (threshold >= total) threshold = total * (real)0.99999994;
        for (int f = 0; f < count - 1; ++f) {
            below += power((under(f, beta) - most) * LOG2_E);
            if (below > threshold) return f;
        }
        return count - 1;
    }
};

#ifdef METROPOLIS
// Metropolis sweeps over the summed-out spins (`moves.metropolis`); y holds the fields of the sampled ones.
FORCED void flip(const Chain &c, const Lists &up, real *y, int n, int unit, real own, real beta, u32 word)
{
    real spin = get(c, n + unit), change = spin * ((real)-2 * beta);
    real gain = spin * ((real)-2 * own), top = (real)1, bottom = (real)1;
    int first = LENGTH_UP ? unit * LENGTH_UP : up.at[unit], end = LENGTH_UP ? first + LENGTH_UP : up.at[unit + 1];
    for (int p = first; p < end; ++p) {
        real a = y[up.from[p] * c.pitch], b = multiply_add(up.w[p], change, a);
        if (p > first && (p - first) % FLUSH == 0) gain += log_ratio(top, bottom), top = bottom = (real)1;
        gain += size_of(b) - size_of(a);
        real e = boltzmann(b), e_before = boltzmann(a);
        top = multiply_add(top, e, top), bottom = multiply_add(bottom, e_before, bottom);
    }
    gain *= LOG2_E;
    real small = power(-size_of(gain)), left = uniform(word) * bottom;
    bool yes = gain > (real)0 ? left * small < top : left < top * small;
    put(c, n + unit, yes ? -spin : spin);
    if (yes)
        for (int p = first; p < end; ++p) y[up.from[p] * c.pitch] = multiply_add(up.w[p], change, y[up.from[p] * c.pitch]);
}
#endif

// Add the fields of each chain's component of a mixture, if it is drawn, to the base of the summed-out side.
#ifdef DRAWN
#define PULL_H(unit) pulls_h[(long)z * m + (unit)]
#else
#define PULL_H(unit) ((real)0)
#endif

#ifdef DRAWN
FORCED real own_logit(const Chain &c, int n, int z, const real *mixture, const real *pulls)
{
    real logit = mixture[z];
    for (int i = 0; i < n; ++i) logit = added(pulls[(long)z * n + i], c, i, logit);
    return logit;
}

// Draw the component given all other variables.
FORCED int draw_component(
    const Chain &c, const Features &of, int n, int m, const real *mixture, const real *pulls, const real *pulls_h, real beta, u32 word)
{
    for (int z = 0; z < of.count; ++z) {
        real logit = own_logit(c, n, z, mixture, pulls);
        for (int j = 0; j < m; ++j) logit = added(pulls_h[(long)z * m + j], c, n + j, logit);
        of.set(z, -logit, logit + mixture[of.count + z]);
    }
    real most, total = of.sum(beta, &most);
    return of.pick(beta, most, total, word);
}
#endif

// Advance chains from one step of 0 … K to another. `pitch`, a multiple of 32, includes padding chains.
extern "C" __global__ void BOUNDS anneal(
    int n, int m, const int *starts_v, const int *starts_h, int variables_v, int variables_h,
    const int *up_at, const int *up_from, const real *up_w, const int *up0_at, const int *up0_from, const real *up0_w,
    const int *before_at, const int *before_from, const real *before_w,
    const int *after_at, const int *after_from, const real *after_w,
    const int *into0_at, const int *into0_from, const real *into0_w,
    const real *slope_v, const real *slope_h, const real *base_v, const real *base_h,
    const real *variance_v, const real *deviation_v, const real *variance_h, const real *deviation_h,
    int components, const real *mixture, const real *pulls, const real *pulls_h, int drawn_last, int sweeps,
    const real *betas, const double *differences, KEYS, u32 side_v, u32 side_h, u32 first,
    long pitch, state *x, real *scratch, double *rises, double *weights, double *joint, int *component,
    int from, int to, int steps, int fresh)
{
    Chain c;
    c.t = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (c.t >= pitch) return;
    c.x = x, c.pitch = pitch, c.number = first + (u32)c.t;
    const Keys keys = GIVEN_KEYS;
    const Lists up = {up_at, up_from, up_w}, up0 = {up0_at, up0_from, up0_w}, into0 = {into0_at, into0_from, into0_w};
    const Lists before = {before_at, before_from, before_w}, after = {after_at, after_from, after_w};
    real *own = scratch + c.t;
    Words words;
#ifdef DRAWN
    int z = component[c.t];
    const Features exponents = {own, pitch, components};
#endif
    double weight = weights[c.t], on_joint = joint ? joint[c.t] : 0.0, rise_v = rises[c.t];

    if (fresh == 1) { // The units of the base are independent.
        if (KIND_V == 2) {
            for (int i = 0; i < variables_v; ++i) {
                Features of = {own, pitch, starts_v[i + 1] - starts_v[i]};
                for (int f = 0; f < of.count; ++f) of.set(f, (real)0, base_v[starts_v[i] + f]);
                if (i % 4 == 0) words = philox(c.number, 0, i / 4, side_v, keys);
                real most, total = of.sum((real)0, &most);
                int chosen = of.pick((real)0, most, total, words.w[i % 4]);
                for (int f = 0; f < of.count; ++f) put(c, starts_v[i] + f, f == chosen ? (real)1 : (real)0);
            }
        } else {
            for (int i = 0; i < n; ++i) {
                if (i % 4 == 0) words = philox(c.number, 0, i / 4, side_v, keys);
                real a = base_v[i];
                put(c, i, draw(KIND_V, a, boltzmann(a), words.w[i % 4], variance_v, deviation_v, i));
            }
        }
        SYNC_WARP();
    }
    if (fresh) {
        rise_v = 0.0;
        for (int i = 0; i < n; ++i) rise_v += (double)(get(c, i) * BEFORE(i, slope_v[i]));
    }

    for (int k = from + 1; k <= to; ++k) {
        double difference = differences[k - 1];
        real beta = betas[k], beta_before = betas[k - 1];
        real per_step = difference == 0.0 ? (real)0 : (real)(1.0 / difference); // A step may repeat its β.
        double drawn = 0.0;
#ifdef DRAWN // The couplings between the component and v vanish along the path.
        rise_v -= (double)own_logit(c, n, z, mixture, pulls);
#endif
        weight += rise_v * difference;

        // The summed-out side: ln λ_k for the weight, and h from P_k(h|v).
        if (KIND_H == 2) {
            real top = (real)1, bottom = (real)1;
            Words earlier;
            for (int j = 0; j < variables_h; ++j) {
                Features of = {own, pitch, starts_h[j + 1] - starts_h[j]};
                for (int f = 0; f < of.count; ++f) {
                    int unit = starts_h[j] + f;
                    of.set(f, UP(unit, slope_h[unit]) - PULL_H(unit), UP0(unit, base_h[unit]) + PULL_H(unit));
                }
                if (j % 4 == 0) {
                    words = philox(c.number, k, j / 4, side_h, keys);
                    if (joint) earlier = philox(c.number, k - 1, j / 4, SIDE_JOINT, keys);
                }
                real most, most_before, total = of.sum(beta, &most), total_before = of.sum(beta_before, &most_before);
                weight += (double)(most - most_before);
                top *= total, bottom *= total_before;
                if (j % FEW == FEW - 1) weight += (double)log_ratio(top, bottom), top = bottom = (real)1;
                if (joint) drawn += (double)of.slope(of.pick(beta_before, most_before, total_before, earlier.w[j % 4]));
                int chosen = of.pick(beta, most, total, words.w[j % 4]);
                for (int f = 0; f < of.count; ++f) put(c, n + starts_h[j] + f, f == chosen ? (real)1 : (real)0);
            }
            weight += (double)log_ratio(top, bottom);
        } else {
            real linear = (real)0, top = (real)1, bottom = (real)1, with_h = (real)0;
            for (int tile = 0; 4 * tile < m; ++tile) {
                words = philox(c.number, k, tile, side_h, keys);
                Words earlier = words;
                if (joint) earlier = philox(c.number, k - 1, tile, SIDE_JOINT, keys);
                real h[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    int unit = 4 * tile + i;
                    real slope = UP(unit, slope_h[unit]) - PULL_H(unit), start = UP0(unit, base_h[unit]) + PULL_H(unit);
                    real now = multiply_add(slope, beta, start), was = multiply_add(slope, beta_before, start);
                    real e = (real)0, e_before = (real)0;
                    if (KIND_H >= 3) {
                        const real *of = variance_h + 4 * unit;
                        const Both sides = both_sides(KIND_H, now, of), sides_before = both_sides(KIND_H, was, of);
                        linear += rise_of_exponent(sides.root, sides_before.root, slope, per_step, of);
                        top *= sides.shares(), bottom *= sides_before.shares();
                        if (joint)
                            with_h = multiply_add(draw_rectified(KIND_H, sides_before, earlier.w[i], of), slope, with_h);
                        h[i] = draw_rectified(KIND_H, sides, words.w[i], of);
                        continue;
                    }
                    if (KIND_H == 0) { // ln 2cosh a = |a| + ln(1 + e)
                        e = boltzmann(now), e_before = boltzmann(was);
                        linear += rise(now, was, slope, per_step);
                        top = multiply_add(top, e, top), bottom = multiply_add(bottom, e_before, bottom);
                    } else // (a_k² − a_{k−1}²)/2γ
                        linear = multiply_add(slope * (now + was), variance_h[unit] * (real)0.5, linear);
                    if (joint)
                        with_h = multiply_add(draw(KIND_H, was, e_before, earlier.w[i], variance_h, deviation_h, unit), slope, with_h);
                    h[i] = draw(KIND_H, now, e, words.w[i], variance_h, deviation_h, unit);
                }
#pragma unroll
                for (int i = 0; i < 4; ++i) put(c, n + 4 * tile + i, h[i]);
                if (KIND_H >= 3 || tile % (FLUSH / 4) == FLUSH / 4 - 1) { // Shares of sides may be small.
                    weight += (double)linear * difference + (double)log_ratio(top, bottom);
                    drawn += (double)with_h;
                    linear = with_h = (real)0, top = bottom = (real)1;
                }
            }
            weight += (double)linear * difference + (double)log_ratio(top, bottom);
            drawn += (double)with_h;
        }
        if (joint) on_joint += (rise_v + drawn) * difference;
        SYNC_WARP();

        // The component of a mixture is another summed-out variable, whose fields on v vanish along the path.
        const real *pull = 0;
#ifdef DRAWN
        if (k < steps && !drawn_last)
            z = draw_component(c, exponents, n, m, mixture, pulls, pulls_h, beta, philox(c.number, k, 0, SIDE_MIXTURE, keys).w[0]);
        pull = pulls + (long)z * n;
#else
        if (components) {
            Features of = {own, pitch, components};
            for (int z = 0; z < components; ++z) {
                real logit = mixture[z];
                for (int i = 0; i < n; ++i) logit = added(pulls[(long)z * n + i], c, i, logit);
                of.set(z, -logit, logit);
            }
            real most, most_before, total = of.sum(beta, &most), total_before = of.sum(beta_before, &most_before);
            double release = (double)(most - most_before) + (double)log_ratio(total, total_before);
            weight += release, on_joint += release;
            words = philox(c.number, k, 0, SIDE_MIXTURE, keys);
            pull = pulls + (long)of.pick(beta, most, total, words.w[0]) * n;
        }
#endif
        if (k == steps) break;

#ifdef METROPOLIS
        for (int i = 0; i < n; ++i) own[i * pitch] = multiply_add(AFTER(i, slope_v[i]), beta, base_v[i]);
        for (int sweep = 0; sweep < sweeps; ++sweep) {
            for (int j = 0; j < m; ++j) {
                if (j % 4 == 0) words = philox(c.number, k, j / 4, SIDE_METROPOLIS + sweep, keys);
                flip(c, up, own, n, j, multiply_add(slope_h[j], beta, base_h[j]), beta, words.w[j % 4]);
            }
            SYNC_WARP();
        }
#endif
        // The sweep through the sampled units; `low` is the slope of their fields without the units after them.
        rise_v = 0.0;
        if (KIND_V == 2) {
            for (int i = 0; i < variables_v; ++i) {
                Features of = {own, pitch, starts_v[i + 1] - starts_v[i]};
                for (int f = 0; f < of.count; ++f) {
                    int unit = starts_v[i] + f;
                    real low = BEFORE(unit, slope_v[unit]), start = INTO0(unit, base_v[unit]);
                    if (pull) start += ((real)1 - beta) * pull[unit];
                    of.set(f, AFTER(unit, low), start);
                }
                if (i % 4 == 0) words = philox(c.number, k, i / 4, side_v, keys);
                real most, total = of.sum(beta, &most);
                int chosen = of.pick(beta, most, total, words.w[i % 4]);
                rise_v += (double)BEFORE(starts_v[i] + chosen, slope_v[starts_v[i] + chosen]);
                for (int f = 0; f < of.count; ++f) put(c, starts_v[i] + f, f == chosen ? (real)1 : (real)0);
                SYNC_WARP();
            }
        } else {
            for (int tile = 0; 4 * tile < n; ++tile) {
                words = philox(c.number, k, tile, side_v, keys);
                real linear = (real)0, v[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    int unit = 4 * tile + i;
                    real low = BEFORE(unit, slope_v[unit]), a;
#ifdef METROPOLIS
                    a = own[unit * pitch];
#else
                    a = multiply_add(AFTER(unit, low), beta, INTO0(unit, base_v[unit]));
#endif
                    if (pull) a += ((real)1 - beta) * pull[unit];
                    v[i] = draw(KIND_V, a, boltzmann(a), words.w[i], variance_v, deviation_v, unit);
                    linear = multiply_add(v[i], low, linear);
                    if (LATERAL) {
                        put(c, unit, v[i]);
                        SYNC_WARP();
                    }
                }
                if (!LATERAL) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) put(c, 4 * tile + i, v[i]);
                }
                rise_v += (double)linear;
            }
            SYNC_WARP();
        }
#ifdef DRAWN
        if (drawn_last)
            z = draw_component(c, exponents, n, m, mixture, pulls, pulls_h, beta, philox(c.number, k, 0, SIDE_MIXTURE, keys).w[0]);
#endif
    }
#ifdef DRAWN
    component[c.t] = z;
#endif
    weights[c.t] = weight, rises[c.t] = rise_v;
    if (joint) joint[c.t] = on_joint;
}

#ifdef SPINS
// Copy the sampled spins of its ancestor to every chain.
extern "C" __global__ void gather(int n, const long *ancestors, long pitch, const u32 *x, u32 *chosen)
{
    long t = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= pitch) return;
    long from = ancestors[t];
    for (int unit = 0; unit < n; ++unit) {
        u32 word = x[unit * (pitch >> 5) + (from >> 5)];
        WRITE_BIT(chosen[unit * (pitch >> 5) + (t >> 5)], t & 31, (word >> (from & 31)) & 1u);
    }
}
#endif
