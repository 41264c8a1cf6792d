// ln of the mean of e^x over every group of consecutive numbers; a warp has a group.

#define ALL 0xffffffffu

extern "C" __global__ void log_means(int groups, int size, const double *numbers, double *means)
{
    const int group = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (group >= groups) return;
    numbers += (u64)group * size;
    double top = numbers[0], sum = 0.0;
    for (int i = lane; i < size; i += 32) top = fmax(top, numbers[i]);
    for (int other = 1; other < 32; other *= 2) top = fmax(top, __shfl_xor_sync(ALL, top, other));
    for (int i = lane; i < size; i += 32) sum += exp(numbers[i] - top);
    for (int other = 1; other < 32; other *= 2) sum += __shfl_xor_sync(ALL, sum, other);
    if (lane == 0) means[group] = top + log(sum / size);
}
