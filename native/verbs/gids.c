/* Addresses of our own ports, as the program asked for them: what a queue pair's peer calls its remote address. */
#include <string.h>

#include "verbs/hooks.h"

#define GIDS 128u

static struct { const struct verbs_context *context; int index; uint8_t port, gid[16]; } gids[GIDS];
static uint32_t known;

static uint32_t find(const struct verbs_context *context, uint8_t port, int index)
{
    uint32_t at = 0;

    while (at < known && (gids[at].context != context || gids[at].port != port || gids[at].index != index))
        at++;
    return at;
}

void learn_gid(const struct verbs_context *context, uint8_t port, int index, const uint8_t *gid)
{
    uint32_t at;

    verbs_lock();
    at = find(context, port, index);
    if (at < GIDS) {
        gids[at].context = context;
        gids[at].port = port;
        gids[at].index = index;
        memcpy(gids[at].gid, gid, sizeof gids[at].gid);
        known = at == known ? known + 1 : known;
    }
    verbs_unlock();
}

bool known_gid(const struct verbs_context *context, uint8_t port, int index, uint8_t *gid)
{
    uint32_t at;
    bool is_known;

    verbs_lock();
    at = find(context, port, index);
    is_known = at < known;
    if (is_known)
        memcpy(gid, gids[at].gid, sizeof gids[at].gid);
    verbs_unlock();
    return is_known;
}
