/* What a channel does for a collective: ring algorithms, cut into pieces of at most one chunk in and one chunk out. */
#include <string.h>

#include "comm.h"

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t parts_of(size_t whole, size_t part)
{
    return part > 0 ? (whole + part - 1) / part : 0;
}

/* Elements of a chunk at `offset` of a block with `elements`. */
static size_t left(size_t elements, size_t offset, size_t chunk)
{
    return offset < elements ? smaller(chunk, elements - offset) : 0;
}

static size_t chunk_of(const struct lane *lane)
{
    return chunk_bytes() / type_size(lane->task.type);
}

static int pieces_per_round(const struct lane *lane)
{
    switch (lane->task.func) {
    case FUNC_ALL_REDUCE:
        return 2 * lane->task.comm->count - 1;
    case FUNC_ALL_GATHER:
    case FUNC_REDUCE_SCATTER:
        return lane->task.comm->count;
    default:
        return 1;
    }
}

static size_t round_elements(const struct lane *lane)
{
    return chunk_of(lane) * (lane->task.func == FUNC_ALL_REDUCE ? (size_t)lane->task.comm->count : 1);
}

/* Block `block` of the round: offset and size go into the piece. */
static void all_reduce(const struct lane *lane, size_t round, int turn, struct piece *piece)
{
    int count = lane->task.comm->count, rank = lane->task.comm->rank;
    size_t base = round * round_elements(lane), rest = left(lane->elements, base, round_elements(lane));
    size_t chunk = smaller(chunk_of(lane), parts_of(rest, (size_t)count));
    int block = (rank + 3 * count - 1 - turn) % count;

    piece->receives = turn > 0;
    piece->sends = turn < 2 * count - 2;
    piece->reduces = turn > 0 && turn < count;
    piece->keeps = turn >= count - 1;
    piece->elements = left(rest, (size_t)block * chunk, chunk);
    piece->in = piece->out = lane->start + base + (size_t)block * chunk;
}

static void all_gather(const struct lane *lane, size_t round, int turn, struct piece *piece)
{
    int count = lane->task.comm->count, block = (lane->task.comm->rank + count - turn) % count;
    size_t offset = lane->start + round * chunk_of(lane);

    piece->receives = turn > 0;
    piece->sends = turn < count - 1;
    piece->keeps = 1;
    piece->elements = left(lane->elements, round * chunk_of(lane), chunk_of(lane));
    piece->in = offset;
    piece->out = (size_t)block * lane->task.count + offset;
}

static void reduce_scatter(const struct lane *lane, size_t round, int turn, struct piece *piece)
{
    int count = lane->task.comm->count, block = (lane->task.comm->rank + 2 * count - 1 - turn) % count;
    size_t offset = lane->start + round * chunk_of(lane);

    piece->receives = piece->reduces = turn > 0;
    piece->sends = turn < count - 1;
    piece->keeps = turn == count - 1;
    piece->elements = left(lane->elements, round * chunk_of(lane), chunk_of(lane));
    piece->in = (size_t)block * lane->task.count + offset;
    piece->out = offset;
}

static void chain(const struct lane *lane, size_t round, struct piece *piece)
{
    int count = lane->task.comm->count, rank = lane->task.comm->rank, root = lane->task.root;
    int is_last = (rank + 1) % count == root, is_root = rank == root, reduces = lane->task.func == FUNC_REDUCE;

    piece->receives = reduces ? (rank + count - 1) % count != root : !is_root;
    piece->sends = reduces ? !is_root : !is_last;
    piece->reduces = reduces && piece->receives;
    piece->keeps = !reduces || is_root;
    piece->elements = left(lane->elements, round * chunk_of(lane), chunk_of(lane));
    piece->in = piece->out = lane->start + round * chunk_of(lane);
}

void lane_piece(const struct lane *lane, uint64_t index, struct piece *piece)
{
    uint64_t turns = (uint64_t)pieces_per_round(lane), round = index / turns;

    memset(piece, 0, sizeof *piece);
    switch (lane->task.func) {
    case FUNC_ALL_REDUCE:
        all_reduce(lane, round, (int)(index % turns), piece);
        break;
    case FUNC_ALL_GATHER:
        all_gather(lane, round, (int)(index % turns), piece);
        break;
    case FUNC_REDUCE_SCATTER:
        reduce_scatter(lane, round, (int)(index % turns), piece);
        break;
    case FUNC_SEND:
    case FUNC_RECV:
        piece->sends = lane->task.func == FUNC_SEND;
        piece->receives = piece->keeps = lane->task.func == FUNC_RECV;
        piece->elements = left(lane->elements, round * chunk_of(lane), chunk_of(lane));
        piece->in = piece->out = lane->start + round * chunk_of(lane);
        break;
    default:
        chain(lane, round, piece);
    }
    if (lane->task.comm->count == 1 && lane->task.func < FUNC_SEND)
        *piece = (struct piece){.keeps = 1, .in = piece->in, .out = piece->out, .elements = piece->elements};
}

void lane_plan(struct lane *lane)
{
    struct piece piece;

    lane->pieces = parts_of(lane->elements, round_elements(lane)) * (size_t)pieces_per_round(lane);
    for (uint64_t index = 0; index < lane->pieces; index++) {
        lane_piece(lane, index, &piece);
        lane->sends += (uint64_t)piece.sends;
        lane->recvs += (uint64_t)piece.receives;
    }
}
