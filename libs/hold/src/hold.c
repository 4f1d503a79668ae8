#include "treadle/hold.h"

#include <string.h>

#include "sender.h"
#include "treadle/alloc.h"
#include "treadle/assert.h"
#include "treadle/status.h"

enum {
    HELD_CAP_MIN = 1024,
    SPARE_MAX = 8, /* blocks kept: about as many connections as write in one step of a program */
};

void tdl_hold_init(struct tdl_hold *h)
{
    tdl_node_init(&h->entries);
    tdl_node_init(&h->busy);
    h->since_ns = 0;
    h->limit_ns = TDL_HOLD_LIMIT_NS;
    tdl_atomic_init_u32(&h->late, false);
    h->spare = NULL;
    h->spare_count = 0;
    tdl__sender_open();
}

void tdl_hold_set_limit(struct tdl_hold *h, uint64_t limit_ns)
{
    tdl__sender_lock();
    h->limit_ns = limit_ns;
    tdl__sender_unlock();
}

static void block_free(struct tdl_held *held)
{
    tdl_free(held->data);
    tdl_free(held);
}

/* A spare block links to the next by `owner`. */
static struct tdl_held *spare_pop(struct tdl_hold *h)
{
    struct tdl_held *held = h->spare;
    if (held != NULL) {
        h->spare = held->owner;
        h->spare_count--;
    }
    return held;
}

void tdl_hold_close(struct tdl_hold *h)
{
    if (h->entries.next == NULL)
        return;
    TDL_ASSERT(!tdl_node_is_linked(&h->entries));
    struct tdl_held *held;
    while ((held = spare_pop(h)) != NULL)
        block_free(held);
    h->entries.next = NULL;
    tdl__sender_close();
}

/* Makes room for more bytes. */
static int grow(struct tdl_held *held, size_t len)
{
    size_t cap = held->cap > 0 ? held->cap : HELD_CAP_MIN;
    while (cap < held->len + len)
        cap *= 2;
    char *data = cap <= UINT32_MAX ? tdl_realloc(held->data, cap) : NULL;
    if (data == NULL)
        return TDL_ENOMEM;
    held->data = data;
    held->cap = (uint32_t)cap;
    return 0;
}

static int append(struct tdl_held *held, const void *data, size_t len)
{
    if (held->cap - held->len < len && grow(held, len) < 0)
        return TDL_ENOMEM;
    if (len > 0) {
        memcpy(held->data + held->len, data, len);
        held->len += (uint32_t)len;
        held->count++;
    }
    return 0;
}

/* A block with the first bytes, which nobody else sees yet. */
static struct tdl_held *block_new(struct tdl_hold *h, const void *data, size_t len)
{
    struct tdl_held *held = spare_pop(h);
    if (held == NULL && (held = tdl_calloc(1, sizeof *held)) == NULL)
        return NULL;
    tdl_node_init(&held->node);
    held->len = held->sent = held->count = 0;
    held->error = 0;
    held->owner = NULL;
    if (append(held, data, len) < 0) {
        tdl_hold_end(h, held);
        return NULL;
    }
    return held;
}

struct tdl_held *tdl_hold_begin(struct tdl_hold *h, int fd, const int *fd_now, const void *data, size_t len)
{
    struct tdl_held *held = tdl_hold_is_late(h) ? NULL : block_new(h, data, len);
    if (held == NULL)
        return NULL;
    held->fd = fd;
    held->fd_now = fd_now;
    bool wake = false;
    tdl__sender_lock();
    int code = tdl_hold_is_late(h) ? TDL_EAGAIN : 0;
    if (code == 0 && !tdl_node_is_linked(&h->busy))
        code = tdl__sender_busy_locked(h, &wake);
    if (code == 0)
        tdl_node_insert_before(&h->entries, &held->node);
    tdl__sender_unlock();
    if (wake)
        tdl__sender_wake();
    if (code < 0) {
        tdl_hold_end(h, held);
        return NULL;
    }
    return held;
}

int tdl_held_append(struct tdl_hold *h, struct tdl_held *held, const void *data, size_t len)
{
    TDL_ASSERT(tdl_node_is_linked(&held->node));
    tdl__sender_lock();
    int code = tdl_hold_is_late(h) ? TDL_EAGAIN : append(held, data, len);
    tdl__sender_unlock();
    return code;
}

struct tdl_held *tdl_hold_first(struct tdl_hold *h)
{
    return tdl_node_is_linked(&h->entries) ? TDL_CONTAINER_OF(h->entries.next, struct tdl_held, node) : NULL;
}

void tdl_hold_take(struct tdl_hold *h, struct tdl_held *held)
{
    TDL_ASSERT(tdl_node_is_linked(&held->node));
    tdl__sender_lock();
    tdl_node_remove(&held->node);
    if (!tdl_node_is_linked(&h->entries))
        tdl_node_remove(&h->busy);
    tdl__sender_unlock();
}

void tdl_hold_end(struct tdl_hold *h, struct tdl_held *held)
{
    TDL_ASSERT(!tdl_node_is_linked(&held->node));
    if (h->spare_count == SPARE_MAX) {
        block_free(held);
        return;
    }
    held->owner = h->spare;
    h->spare = held;
    h->spare_count++;
}

bool tdl_hold_is_late(const struct tdl_hold *h)
{
    return tdl_load_relaxed_u32(&h->late) != 0;
}

void tdl_hold_over(struct tdl_hold *h)
{
    if (tdl_hold_is_late(h))
        tdl_store_relaxed_u32(&h->late, false);
}
