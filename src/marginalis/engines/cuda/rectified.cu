// Rectified units: the integrals over both sides of zero and draws by inversion, as in `engines/cpu/rectified.py`.
//
// A side of zero has the density exp(−αx − x²/2) in units of 1/√γ. The integral over it is g·exp(m)/√γ, up to a
// constant factor: for α > 0, g = erfcx(α/√2) and m = 0; otherwise g = 2 − exp(−α²/2)·erfcx(|α|/√2) and m = α²/2.
// The parameters of a unit are four numbers: θ and 1/√γ of the positive side, and the same of the negative side, both
// in the direction away from zero. Units of kind 3 have the positive side only, those of kind 4 both.

#define SQRT_HALF ((real)0.70710678118654752)
#define SQRT_HALF_PI ((real)1.2533141373155003)
#define TINY ((real)1e-37) // Lower bound of tail probabilities, which must not be zero.
#define LEAST_FAR ((real)5) // Least α of the series in 1/α².
#define WIDEST ((real)37)

template <int COUNT> FORCED real polynomial(real x, const double (&c)[COUNT]) // The lowest coefficient first.
{
    real value = (real)c[COUNT - 1];
#pragma unroll
    for (int i = COUNT - 2; i >= 0; --i) value = multiply_add(value, x, (real)c[i]);
    return value;
}

// exp(x²)·erfc(x) for x ≥ 0, from a polynomial for (1 + 2x)·erfcx(x) in (x − 3.75)/(x + 3.75).
FORCED real erfcx_of(real x)
{
#ifdef DOUBLE
    const double c[23] = {
        1.2375126308378281, -0.14024059858554708, 0.0035854154851610309, 0.082276738490106346,
        -0.10880393012742191, 0.092304321161738645, -0.058693398836515927, 0.028362277400078038,
        -0.0097465774340478283, 0.0017556259983864027, 0.000293703158831704, -0.00029015476654036394,
        5.1681166338391414e-05, 2.23862975130744e-05, -1.1506374547657881e-05, -9.7755058880505641e-07,
        1.8282203002498765e-06, -5.2249600665400853e-08, -3.159271411435759e-07, 1.9432501057567796e-08,
        6.1619135996569776e-08, -2.0802911856900091e-09, -8.2401801710543423e-09};
#else
    const double c[11] = {
        1.2375126308378277, -0.14024310696628142, 0.0035857068057914138, 0.082327116242866025,
        -0.10880983869406288, 0.092019168564295983, -0.058659114965807516, 0.02902818211019887,
        -0.0098306164037454229, 0.0010584335426787302, 0.00039079593312346168};
#endif
    real scale = multiply_add(x, (real)2, (real)1), beyond = x + (real)3.75;
    real inverse = quotient((real)1, scale * beyond);
    return polynomial((x - (real)3.75) * scale * inverse, c) * (beyond * inverse);
}

struct Side {
    real alpha, erfcx, bulk, share; // erfcx is taken at |α|/√2, and bulk is exp(−α²/2).
};

// Both sides under a field, and the root of the larger m, which was taken out of their shares; the root is negative if
// it belongs to the negative side.
struct Both {
    Side plus, minus;
    real root;
    MEMBER real shares() const { return plus.share + minus.share; }
};

FORCED Side side_under(real slope, real width, real *root)
{
    Side side;
    side.alpha = -(slope * width);
    real x = size_of(side.alpha) * SQRT_HALF;
    side.erfcx = erfcx_of(x), side.bulk = power(x * x * -LOG2_E);
    bool is_body = side.alpha < (real)0;
    side.share = is_body ? multiply_add(-side.bulk, side.erfcx, (real)2) : side.erfcx;
    *root = is_body ? x : (real)0;
    return side;
}

FORCED Both both_sides(int kind, real field, const real *of)
{
    Both both;
    real up, down = (real)0;
    both.plus = side_under(field + of[0], of[1], &up);
    both.root = up, both.minus = both.plus, both.minus.share = (real)0;
    if (kind == 3) return both;
    both.minus = side_under(of[2] - field, of[3], &down);
    real small = power(size_of(up - down) * (up + down) * -LOG2_E);
    both.plus.share *= (up > down ? (real)1 : small) * of[1];
    both.minus.share *= (up > down ? small : (real)1) * of[3];
    both.root = up > down ? up : -down;
    return both;
}

// (m − m_before)·per_step from the roots of both; equal signs cause no cancellation.
FORCED real rise_of_exponent(real now, real before, real slope, real per_step, const real *of)
{
    real width = now > (real)0 ? of[1] : of[3];
    real change = now * before > (real)0 ? slope * width * SQRT_HALF : (now - before) * per_step;
    return change * (now + before);
}

// x where α ≤ LEAST_FAR: p = Q(α + x), q = 1 − p; `scaled` is p without the factor exp(−α²/2) for α > 0. The quantile is
// (q − p) times a ratio of polynomials in −ln(4pq).
FORCED real near_zero(const Side &side, real tail, real rest)
{
    const double top[7] = {
        1.2533142839338149, 0.45792653428428309, 0.093944588627654202, 0.012982356648991947, 0.0011854931617697611,
        5.3334979866333168e-05, 1.5678369968424804e-07};
    const double bottom[6] = {
        1, 0.10357571988311164, 0.034799928079582258, 0.002543999762127496, 0.00023728911850389277,
        3.19930919745005e-06};
    bool is_body = side.alpha < (real)0;
    real other = side.bulk * side.erfcx * (real)0.5;
    real scaled = tail * (is_body ? (real)1 - other : side.erfcx * (real)0.5);
    real p = is_body ? scaled : scaled * side.bulk, q = is_body ? multiply_add(tail, other, rest) : (real)1 - p;
    real exponent = is_body ? (real)0 : side.alpha * side.alpha * (real)0.5, floor = scaled * q * (real)4;
    real w = exponent - log_ratio(floor > TINY ? floor : TINY, (real)1);
    w = w > WIDEST ? WIDEST : w > (real)0 ? w : (real)0;
    real z = (q - p) * quotient(polynomial(w, top), polynomial(w, bottom));
#ifdef DOUBLE // A step of Newton's method for Q(z) = p.
    bool is_lower = p > q;
    real s = size_of(z), least = is_lower ? q : scaled, e = erfcx_of(s * SQRT_HALF);
    least = least > TINY ? least : TINY;
    real excess = (is_lower ? (real)0 : exponent) - s * s * 0.5 + log(e / (least + least));
    s = multiply_add(excess * e, SQRT_HALF_PI, s);
    z = is_lower ? -s : s;
#endif
    return z - side.alpha;
}

FORCED real log_series(real v) // (ln E)/v·v with E = α·√(π/2)·erfcx(α/√2) and v = 1/α²
{
    const double c[5] = {
        -0.99999940478337945, 2.4992214801244397, -12.166332559260514, 75.058352485292431, -334.47707047422};
    return polynomial(v, c) * v;
}

// x where α ≥ LEAST_FAR, from y = αx + x²/2, which solves y + ½ln(1 + 2vy) − ln E(v/(1 + 2vy)) + ln E(v) = t with v = 1/α²
// and t = −ln(tail). The step from y = t is of third order.
FORCED real far_from_zero(const Side &side, real tail)
{
    real t = -log_ratio(tail, (real)1), inverse = quotient((real)1, side.alpha), v = inverse * inverse;
    real scale = multiply_add(t * (real)2, v, (real)1), beyond = quotient(v, scale), low = log_series(beyond);
    real slope = multiply_add(low * low, (real)0.5, low) + (real)1;
    real step = (log_ratio(scale, (real)1) * (real)0.5 - low + log_series(v)) * slope;
    real y = multiply_add(step * beyond, step * beyond, t - step);
    y = y > (real)0 ? y : (real)0;
    real x = quotient(y * (real)2 * inverse, (real)sqrt(multiply_add(y * (real)2, v, (real)1)) + (real)1);
#ifdef DOUBLE
    real here = erfcx_of((side.alpha + x) * SQRT_HALF);
    x -= (x * multiply_add(x, 0.5, side.alpha) - log(here / side.erfcx) - t) * here * SQRT_HALF_PI;
#endif
    return x;
}

// The x ≥ 0 above which the density has the fraction `tail` = 1 − `rest` of its mass.
FORCED real beyond_zero(const Side &side, real tail, real rest)
{
    real x = side.alpha > LEAST_FAR ? far_from_zero(side, tail) : near_zero(side, tail, rest);
    return x > (real)0 ? x : (real)0;
}

// Draw a unit: its side of zero, and then its distance from zero.
FORCED real draw_rectified(int kind, const Both &both, u32 word, const real *of)
{
    real u = uniform(word), rest = uniform(~word);
    if (kind == 3) return beyond_zero(both.plus, rest, u) * of[1];
    real total = both.shares(), over = u * total - both.minus.share;
    bool is_minus = over < (real)0;
    const Side &side = is_minus ? both.minus : both.plus;
    real inverse = quotient((real)1, side.share), tail = (is_minus ? u : rest) * total * inverse;
    real x = beyond_zero(side, tail > (real)1 ? (real)1 : tail, size_of(over) * inverse);
    return is_minus ? -(x * of[3]) : x * of[1];
}
