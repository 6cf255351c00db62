/* A small job: what a rank does with NCCL, without caring how it got it. Built into a program or into a library. */
#include "nccl_double.h"

int run(int rounds);

int run(int rounds)
{
    ncclUniqueId id;
    ncclComm_t world, half;
    int error = 0;

    ncclGetUniqueId(&id);
    ncclCommInitRank(&world, 4, id, 1);
    for (int round = 0; round < rounds; round++)
        ncclAllReduce(0, 0, 10, 7, 0, world, (void *)0x10);
    ncclAllReduceConfig(0, 0, 11, 9, 2, world, (void *)0x10, 0);
    ncclBcast(0, 12, 7, 3, world, (void *)0x20);
    ncclGroupStart();
    ncclSend(0, 13, 7, 2, world, (void *)0x20);
    ncclRecv(0, 13, 7, 0, world, (void *)0x20);
    ncclGroupEnd();
    ncclSend(0, 14, 7, 2, world, (void *)0x20);
    ncclCommSplit(world, 1, 0, &half, 0);
    ncclAllReduce(0, 0, 15, 7, 0, half, (void *)0x10);
    ncclCommGetAsyncError(world, &error);
    ncclCommDestroy(half);
    ncclCommDestroy(world);
    return error;
}

#ifdef PROGRAM
int main(void)
{
    return run(5);
}
#endif
