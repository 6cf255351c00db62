/* NCCL tells functions, types, algorithms and protocols as words from v2 on. */
#include <string.h>

#include "profiler/hooks.h"

struct word { const char *text; uint8_t number; };

static const struct word functions[] = {
    {"AllReduce", SHIM_ALL_REDUCE}, {"AllGather", SHIM_ALL_GATHER}, {"ReduceScatter", SHIM_REDUCE_SCATTER}, {"Send", SHIM_SEND},
    {"Recv", SHIM_RECV}, {"Broadcast", SHIM_BROADCAST}, {"Reduce", SHIM_REDUCE}, {"AlltoAll", SHIM_ALL_TO_ALL},
    {"Gather", SHIM_GATHER}, {"Scatter", SHIM_SCATTER}, {"PutSignal", SHIM_PUT_SIGNAL}, {"Signal", SHIM_SIGNAL},
    {"WaitSignal", SHIM_WAIT_SIGNAL}, {NULL, 0},
};
static const struct word types[] = {
    {"ncclBfloat16", 9}, {"ncclFloat32", 7}, {"ncclFloat16", 6}, {"ncclInt8", 0}, {"ncclUint8", 1}, {"ncclInt32", 2},
    {"ncclUint32", 3}, {"ncclInt64", 4}, {"ncclUint64", 5}, {"ncclFloat64", 8}, {"ncclFloat8e4m3", 10},
    {"ncclFloat8e5m2", 11}, {NULL, 255},
};
static const struct word algorithms[] = {
    {"RING", 1}, {"TREE", 0}, {"COLLNET_DIRECT", 2}, {"COLLNET_CHAIN", 3}, {"NVLS", 4}, {"NVLS_TREE", 5}, {"PAT", 6},
    {NULL, 255},
};
static const struct word protocols[] = {{"SIMPLE", 2}, {"LL128", 1}, {"LL", 0}, {NULL, 255}};

static uint8_t look_up(const struct word *word, const char *text)
{
    while (word->text != NULL && (text == NULL || strcmp(word->text, text) != 0))
        word++;
    return word->number;
}

enum shim_kind kind_of_name(const char *name) { return (enum shim_kind)look_up(functions, name); }
uint8_t dtype_of_name(const char *name) { return look_up(types, name); }
uint8_t algorithm_of_name(const char *name) { return look_up(algorithms, name); }
uint8_t protocol_of_name(const char *name) { return look_up(protocols, name); }

/* ncclFunc_t of 2.23, the only one that speaks v1. */
enum shim_kind kind_of_number(uint8_t number)
{
    static const uint8_t kinds[] = {SHIM_BROADCAST, SHIM_REDUCE, SHIM_ALL_GATHER, SHIM_REDUCE_SCATTER, SHIM_ALL_REDUCE,
                                    0, SHIM_SEND, SHIM_RECV};

    return (enum shim_kind)(number < sizeof kinds ? kinds[number] : 0);
}
