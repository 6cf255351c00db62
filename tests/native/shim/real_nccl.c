/* What a real NCCL answers without a GPU: its version, a unique id, an empty group; making a communicator fails in CUDA. */
#include <stdio.h>

struct unique_id {
    char internal[128];
};

int ncclGetVersion(int *version);
int ncclGetUniqueId(struct unique_id *id);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclCommInitRank(void **comm, int ranks, struct unique_id id, int rank);

static int is_filled(const struct unique_id *id)
{
    for (size_t place = 0; place < sizeof(*id); place++)
        if (id->internal[place] != 0)
            return 1;
    return 0;
}

int main(void)
{
    struct unique_id id = {{0}};
    void *comm = NULL;
    int version = 0;
    int told = ncclGetVersion(&version), made = ncclGetUniqueId(&id);
    int begun = ncclGroupStart(), ended = ncclGroupEnd();

    printf("version %d %d\nunique_id %d %d\ngroup %d %d\n", told, version, made, is_filled(&id), begun, ended);
    fflush(stdout);
    printf("init %d %d\n", ncclCommInitRank(&comm, 1, id, 0) != 0, comm != NULL);
    return 0;
}
