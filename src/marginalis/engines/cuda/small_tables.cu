// The tables of `small.cu` for many models, a row of blocks for each; a thread computes one number.
//
// All sums are exact, because couplings and fields are multiples of powers of 2, so the numbers are those that
// `small.tables` computes for one model.

#define ROUNDS(n) (((n) + 31) / 32)
#define GROUPS(n) (((n) + SPINS - 1) / SPINS)
#if GROUP == 1
#define WIDTH(n) (((n) + 3) / 4 * 4)
#define STATES(n) (32 * GROUPS(n))
#else
#define WIDTH(n) (32 * ROUNDS(n))
#define STATES(n) (((GROUPS(n) - 1) << SPINS) + (1 << ((n) - (GROUPS(n) - 1) * SPINS)))
#endif

// The contribution of some spins in a given state to the field of a unit, and its bias in the first table.
FORCED double entry(const double *couplings, int inputs, int units, int table, int state, int unit)
{
    if (unit >= units) return 0.0;
    double sum = table == 0 ? couplings[inputs * units + unit] : 0.0; // The biases follow the couplings.
    for (int i = 0; i < SPINS && table * SPINS + i < inputs; ++i) {
        const double w = couplings[(table * SPINS + i) * units + unit];
        sum += state >> (GROUP == 1 ? SPINS - 1 - i : i) & 1 ? -w : w;
    }
    return sum;
}

// The number at a place of all tables of a side of `units` units, of which `width` have room.
FORCED double number(const double *couplings, int inputs, int units, int width, int place)
{
    const int last = GROUPS(inputs) - 1;
#if GROUP == 1 // [table, unit, state]
    const int table = place / (32 * width), state = place % 32, unit = place / 32 % width;
#else // [32 units, state of all tables, unit]
    const int lanes = width < 32 ? width : 32, all = place / lanes % STATES(inputs);
    const int table = all >> SPINS < last ? all >> SPINS : last, state = all - (table << SPINS);
    const int unit = place / (lanes * STATES(inputs)) * 32 + place % lanes;
#endif
    return entry(couplings, inputs, units, table, state, unit);
}

// `given` are couplings and biases of the summed-out side, the same of the sampled side and of the slope of its own
// fields, all rounded, and the fields of the base.
extern "C" __global__ void lay_out(const double *given, real *numbers)
{
    const int up = NV * NH + NH, down = NH * NV + NV, slope = NV + 1;
    given += (u64)blockIdx.y * (up + down + slope + NV + NH), numbers += (u64)blockIdx.y * NUMBERS;
    const int all = blockIdx.x * blockDim.x + threadIdx.x;
    if (all >= NUMBERS) return;
    int place = all;
    double found = 0.0;
    if (place < STATES(NV) * WIDTH(NH)) found = number(given, NV, NH, WIDTH(NH), place);
    else if ((place -= STATES(NV) * WIDTH(NH)) < STATES(NH) * WIDTH(NV)) found = number(given + up, NH, NV, WIDTH(NV), place);
    else if ((place -= STATES(NH) * WIDTH(NV)) < STATES(NV)) found = number(given + up + down, NV, 1, 1, place);
    else if ((place -= STATES(NV)) < WIDTH(NV)) found = place < NV ? given[up + down + slope + place] : 0.0;
    else if ((place -= WIDTH(NV)) < NH) found = given[up + down + slope + NV + place];
    numbers[all] = (real)found;
}
