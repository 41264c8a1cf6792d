// Copy the sampled spins of its ancestor to every chain; `ancestors` has an entry for each chain of all groups.
extern "C" __global__ void gather(int n, long pitch, const long *ancestors, const u32 *states, u32 *chosen)
{
    int lane = threadIdx.x % 32;
    long from = ancestors[32 * blockIdx.x + lane];
    for (int i = threadIdx.x / 32; i < n; i += blockDim.x / 32) {
        u32 word = states[from / 32 * pitch + i];
        WRITE_BIT(chosen[blockIdx.x * pitch + i], lane, word >> (from & 31) & 1u);
    }
}
