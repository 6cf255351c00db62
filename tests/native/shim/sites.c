/* More call sites than have a place near at hand, each of them twice. */
#include "nccl_double.h"

#define CALL ncclAllReduce(0, 0, 1, 7, 0, comm, 0);
#define TEN CALL CALL CALL CALL CALL CALL CALL CALL CALL CALL
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN

int main(void)
{
    ncclUniqueId id;
    ncclComm_t comm;

    ncclGetUniqueId(&id);
    ncclCommInitRank(&comm, 2, id, 0);
    for (int turn = 0; turn < 2; turn++) {
        HUNDRED HUNDRED HUNDRED
    }
    return 0;
}
