/* What the stand-in with deferred communicators has beyond the NCCL ABI. */
#include "nccl_double.h"

void nccl_fail_groups(int result); /* what the next outermost ends of groups return; 0: they succeed */
