#include "treadle/hold.h"

#include "sender.h"

#include <string.h>

#include "treadle/alloc.h"
#include "treadle/assert.h"
#include "treadle/clock.h"
#include "treadle/status.h"

enum {
    HELD_CAP_MIN = 1024,
    SPARE_MAX = 8, /* blocks kept: about as many connections as write in one step of a program */
};

void tdl_hold_init(struct tdl_hold *h)
{
    tdl_node_init(&h->entries);
    tdl_atomic_init_u32(&h->word, TDL__HOLD_NONE);
    tdl_atomic_init_u64(&h->begun_ns, 0);
    h->limit_ns = TDL_HOLD_LIMIT_NS;
    h->seen = 0;
    h->spare = NULL;
    h->spare_count = 0;
    tdl__sender_open(h);
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
    if (h->entries.next == NULL) {
        return;
    }
    TDL_ASSERT(!tdl_node_is_linked(&h->entries));
    struct tdl_held *held;
    while ((held = spare_pop(h)) != NULL) {
        block_free(held);
    }
    h->entries.next = NULL;
    tdl__sender_close(h);
}

/* Makes room for more bytes. */
static int grow(struct tdl_held *held, size_t len)
{
    size_t cap = held->cap > 0 ? held->cap : HELD_CAP_MIN;
    while (cap < held->len + len) {
        cap *= 2;
    }
    char *data = cap <= UINT32_MAX ? tdl_realloc(held->data, cap) : NULL;
    if (data == NULL) {
        return TDL_ENOMEM;
    }
    held->data = data;
    held->cap = (uint32_t)cap;
    return 0;
}

static int append(struct tdl_held *held, const void *data, size_t len)
{
    if (held->cap - held->len < len && grow(held, len) < 0) {
        return TDL_ENOMEM;
    }
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
    if (held == NULL && (held = tdl_calloc(1, sizeof *held)) == NULL) {
        return NULL;
    }
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

/* The first entry. Nobody looks at the list while nothing is held, and nobody but the owner ends that. The
 * store and the look at the thread stand against the thread's going to sleep (MO-9). */
static bool publish_first(struct tdl_hold *h, struct tdl_held *held)
{
    uint32_t word = tdl_load_relaxed_u32(&h->word) + TDL__HOLD_COUNT_ONE + TDL__HOLD_HELD;
    tdl_node_insert_before(&h->entries, &held->node);
    tdl_store_relaxed_u64(&h->begun_ns, tdl_clock_ns());
    tdl_store_seq_u32(&h->word, word);
    if (tdl__sender_is_awake() || tdl__sender_rouse()) {
        return true;
    }
    if (!tdl__hold_enter(h, TDL__HOLD_NONE)) {
        return true; /* a fork has sent it meanwhile */
    }
    tdl_node_remove(&held->node);
    return false;
}

static bool publish(struct tdl_hold *h, struct tdl_held *held)
{
    if (!tdl_node_is_linked(&h->entries)) {
        return publish_first(h, held);
    }
    if (!tdl__hold_enter(h, TDL__HOLD_BUSY)) {
        return false;
    }
    tdl_node_insert_before(&h->entries, &held->node);
    tdl__hold_leave(h, TDL__HOLD_HELD);
    return true;
}

struct tdl_held *tdl_hold_begin(struct tdl_hold *h, int fd, const int *fd_now, const void *data, size_t len)
{
    struct tdl_held *held = tdl_hold_is_late(h) ? NULL : block_new(h, data, len);
    if (held == NULL) {
        return NULL;
    }
    held->fd = fd;
    held->fd_now = fd_now;
    if (publish(h, held)) {
        return held;
    }
    tdl_hold_end(h, held);
    return NULL;
}

int tdl_held_append(struct tdl_hold *h, struct tdl_held *held, const void *data, size_t len)
{
    TDL_ASSERT(tdl_node_is_linked(&held->node));
    if (!tdl__hold_enter(h, TDL__HOLD_BUSY)) {
        return TDL_EAGAIN;
    }
    int code = append(held, data, len);
    tdl__hold_leave(h, TDL__HOLD_HELD);
    return code;
}

struct tdl_held *tdl_hold_first(struct tdl_hold *h)
{
    return tdl_node_is_linked(&h->entries) ? TDL_CONTAINER_OF(h->entries.next, struct tdl_held, node) : NULL;
}

void tdl_hold_take(struct tdl_hold *h, struct tdl_held *held)
{
    TDL_ASSERT(tdl_node_is_linked(&held->node));
    bool last = h->entries.next == &held->node && h->entries.prev == &held->node;
    bool mine = tdl__hold_enter(h, last ? TDL__HOLD_NONE : TDL__HOLD_BUSY);
    tdl_node_remove(&held->node);
    if (mine && !last) {
        tdl__hold_leave(h, TDL__HOLD_HELD);
    }
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
    return (tdl_load_relaxed_u32(&h->word) & TDL__HOLD_STATE) == TDL__HOLD_SENT;
}

void tdl_hold_over(struct tdl_hold *h)
{
    TDL_ASSERT(!tdl_node_is_linked(&h->entries));
    if (tdl_hold_is_late(h)) {
        tdl__hold_leave(h, TDL__HOLD_NONE);
    }
}
