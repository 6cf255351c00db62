/* Element types and reductions. Half precision and eight-bit floats can be moved, not reduced. */
#include <string.h>

#include "comm.h"

size_t chunk_bytes(void)
{
    static _Atomic size_t known;
    size_t bytes = atomic_load(&known);

    if (bytes == 0) {
        bytes = (size_t)bed_number("TESTBED_CHUNK", 4096) / 8 * 8;
        atomic_store(&known, bytes);
    }
    return bytes;
}

size_t type_size(ncclDataType_t type)
{
    static const unsigned char SIZES[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

    return (unsigned)type < ncclNumTypes ? SIZES[type] : 0;
}

#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#define COMBINE(out, a, b, op)                                             \
    ((out) = (op) == ncclProd  ? (a) * (b)                                 \
             : (op) == ncclMax ? LARGER(a, b)                              \
             : (op) == ncclMin ? SMALLER(a, b)                             \
                               : (a) + (b))

#define REDUCE(c_type)                                                        \
    do {                                                                      \
        const c_type *left = a, *right = b;                                   \
        c_type *to = out;                                                     \
        for (size_t index = 0; index < elements; index++)                     \
            COMBINE(to[index], left[index], right[index], op);                \
    } while (0)

static float widened(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof value);
    return value;
}

static uint16_t narrowed(float value)
{
    uint32_t wide;

    memcpy(&wide, &value, sizeof wide);
    return (uint16_t)((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
}

static void reduce_bfloat(uint16_t *out, const uint16_t *a, const uint16_t *b, size_t elements, ncclRedOp_t op)
{
    for (size_t index = 0; index < elements; index++) {
        float left = widened(a[index]), right = widened(b[index]), result;

        COMBINE(result, left, right, op);
        out[index] = narrowed(result);
    }
}

void reduce_into(void *out, const void *a, const void *b, size_t elements, ncclDataType_t type, ncclRedOp_t op)
{
    switch (type) {
    case ncclInt32:
        REDUCE(int32_t);
        break;
    case ncclUint32:
        REDUCE(uint32_t);
        break;
    case ncclInt64:
        REDUCE(int64_t);
        break;
    case ncclUint64:
        REDUCE(uint64_t);
        break;
    case ncclFloat32:
        REDUCE(float);
        break;
    case ncclFloat64:
        REDUCE(double);
        break;
    case ncclBfloat16:
        reduce_bfloat(out, a, b, elements, op);
        break;
    case ncclUint8:
        for (size_t index = 0; index < elements; index++)
            COMBINE(((uint8_t *)out)[index], ((const uint8_t *)a)[index], ((const uint8_t *)b)[index], op);
        break;
    default:
        for (size_t index = 0; index < elements * type_size(type); index++)
            COMBINE(((int8_t *)out)[index], ((const int8_t *)a)[index], ((const int8_t *)b)[index], op);
    }
}

#define DIVIDE(c_type)                                    \
    for (size_t index = 0; index < elements; index++)     \
        ((c_type *)data)[index] /= (c_type)divisor

void divide_by(void *data, size_t elements, ncclDataType_t type, int divisor)
{
    switch (type) {
    case ncclInt32:
        DIVIDE(int32_t);
        break;
    case ncclInt64:
        DIVIDE(int64_t);
        break;
    case ncclFloat32:
        DIVIDE(float);
        break;
    case ncclFloat64:
        DIVIDE(double);
        break;
    default: /* other averages stay sums: the trainer takes none */
        break;
    }
}
