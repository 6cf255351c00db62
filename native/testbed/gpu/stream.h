/* A stand-in for streams of a GPU: work runs in order on a thread per stream; calls that enqueue return at once. */
#ifndef TESTBED_STREAM_H
#define TESTBED_STREAM_H

#include "bed.h"

typedef struct testbed_stream *testbed_stream_t;
typedef struct testbed_event *testbed_event_t;
/* Called again and again until it returns 1; then the next work of the stream starts. */
typedef int (*testbed_work)(void *argument);

TESTBED_API int testbed_stream_create(testbed_stream_t *stream);
/* Waits for the stream's work, then ends it. */
TESTBED_API int testbed_stream_destroy(testbed_stream_t stream);
/* A compute kernel that takes `us` microseconds. */
TESTBED_API int testbed_launch(testbed_stream_t stream, long us);
/* NULL is the default stream. */
TESTBED_API int testbed_enqueue(testbed_stream_t stream, testbed_work work, void *argument);
TESTBED_API int testbed_stream_synchronize(testbed_stream_t stream);
/* 1 where the stream has nothing left to do. */
TESTBED_API int testbed_stream_query(testbed_stream_t stream);
TESTBED_API int testbed_event_create(testbed_event_t *event);
TESTBED_API int testbed_event_destroy(testbed_event_t event);
TESTBED_API int testbed_event_record(testbed_event_t event, testbed_stream_t stream);
TESTBED_API int testbed_stream_wait_event(testbed_stream_t stream, testbed_event_t event);

#endif
