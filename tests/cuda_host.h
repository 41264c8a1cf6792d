// The kernels of the GPU as C++ for the host: the threads of a block take turns, in fibers.
#include <math.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __launch_bounds__(...)
struct Place { int x, y; };
static Place threadIdx, blockIdx, blockDim, gridDim;
static int blocks_x, blocks_y, block_size;
static bool at_once; // all blocks, each with memory of its own
static int running; // the block whose turn it is, then
static const int ROOM = 1 << 18, GUARDED = 1 << 12; // bytes
static unsigned char shared_memories[8][ROOM + GUARDED];
static int shared_size; // behind it nothing may be written
#define shared_memory shared_memories[running]
#define SHARED_BYTES(name) unsigned char *name = shared_memory
#define SHARED(type, name, from, count) const type *name = from
#define SHARED_AFTER(type, name, before) type *name = (type *)shared_memory
#define SYNC_WARP() pause_fiber()
#define WRITE_BIT(word, lane, up) { if (up) word |= 1u << (lane); else word &= ~(1u << (lane)); }

static const int MOST = 1024;
static ucontext_t scheduler, fibers[MOST];
static int current;
static void pause_fiber() { swapcontext(&fibers[current], &scheduler); }

// For threads that do not all do the same in between
static void host_barrier(int number, int threads)
{
    static struct { int waiting, times; } barriers[8][16];
    auto &barrier = barriers[running][number];
    int times = barrier.times;
    if (++barrier.waiting == threads) barrier.waiting = 0, ++barrier.times;
    while (barrier.times == times) pause_fiber();
}
static void __syncthreads() { host_barrier(0, block_size); }

// All threads come by in turn: when one goes on, the others of its warp have left their values here.
template <class T> struct Exchange {
    T left[2][MOST];
    int turn[MOST];
    const T *pass(T value)
    {
        int now = turn[current]++ & 1;
        left[now][current] = value;
        pause_fiber();
        return left[now];
    }
};
template <class T> static T __shfl_xor_sync(unsigned, T value, int other)
{
    static Exchange<T> exchange;
    return exchange.pass(value)[current ^ other];
}
template <class T> static T __shfl_sync(unsigned, T value, int from)
{
    static Exchange<T> exchange;
    return exchange.pass(value)[current / 32 * 32 + from];
}
static unsigned __ballot_sync(unsigned, unsigned word)
{
    static Exchange<unsigned> exchange;
    const unsigned *words = exchange.pass(word);
    unsigned all = 0;
    for (int lane = 0; lane < 32; ++lane) all |= (unsigned)(words[current / 32 * 32 + lane] != 0) << lane;
    return all;
}
static unsigned __brev(unsigned x)
{
    unsigned y = 0;
    for (int i = 0; i < 32; ++i) y |= (x >> i & 1u) << (31 - i);
    return y;
}
static unsigned __funnelshift_l(unsigned low, unsigned high, int n) { return high << n | low >> (32 - n); }
static unsigned __funnelshift_r(unsigned low, unsigned high, int n) { return high << (32 - n) | low >> n; }
template <class T> static void atomicAdd(T *to, T what) { *to += what; }
static void host_copy(void *to, const void *from, int bytes) { memcpy(to, from, bytes); }

// mma.m16n8k32 of signed bytes, with the operands where the PTX manual says
struct Operands { signed char a[4][4], b[2][4]; };
static void host_multiply(int *c, const unsigned *a, unsigned b0, unsigned b1)
{
    static Exchange<Operands> exchange;
    Operands mine;
    memcpy(mine.a, a, 16), memcpy(mine.b[0], &b0, 4), memcpy(mine.b[1], &b1, 4);
    const Operands *warp = exchange.pass(mine) + current / 32 * 32;
    int g = current % 32 / 4, q = current % 4;
    for (int i = 0; i < 4; ++i)
        for (int k = 0; k < 32; ++k) {
            int column = 2 * q + i % 2, from = k % 16 / 4, byte = k % 4;
            c[i] += warp[4 * g + from].a[i / 2 + 2 * (k / 16)][byte] * warp[4 * column + from].b[k / 16][byte];
        }
}

template <auto Kernel> struct Host;
template <class... A, void (*Kernel)(A...)> struct Host<Kernel> {
    static void run(A... arguments)
    {
        auto call = [&]() { Kernel(arguments...); };
        static decltype(&call) work;
        static char stacks[MOST][1 << 16];
        static bool done[MOST];
        work = &call;
        blockDim.x = block_size, gridDim.x = blocks_x;
        const int blocks = blocks_x * blocks_y, together = at_once ? blocks : 1, size = together * block_size;
        for (int first = 0; first < blocks; first += together) {
            for (int i = 0; i < size; ++i) {
                done[i] = false;
                getcontext(&fibers[i]);
                fibers[i].uc_stack.ss_sp = stacks[i];
                fibers[i].uc_stack.ss_size = sizeof stacks[i];
                fibers[i].uc_link = &scheduler;
                makecontext(&fibers[i], (void (*)()) + []() { (*work)(); done[current] = true; }, 0);
            }
            for (int left = size; left;)
                for (int i = 0; i < size; ++i)
                    if (!done[i]) {
                        current = i, running = i / block_size, threadIdx.x = i % block_size;
                        blockIdx.x = (first + running) % blocks_x, blockIdx.y = (first + running) / blocks_x;
                        swapcontext(&scheduler, &fibers[i]);
                        left -= done[i];
                    }
        }
    }
};

extern "C" void set_launch(int x, int y, int threads, int all, int shared)
{
    blocks_x = x, blocks_y = y, block_size = threads, at_once = all, shared_size = shared;
    for (auto &memory : shared_memories) memset(memory + shared, 0xa5, GUARDED);
}
extern "C" int went_too_far()
{
    for (auto &memory : shared_memories)
        for (int i = 0; i < GUARDED; ++i)
            if (memory[shared_size + i] != 0xa5) return 1;
    return 0;
}
