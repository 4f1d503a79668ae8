/* Staged syncs of one file become one call: it serves each request that was made before it began. */
#include "internal.h"

static bool is_sync(const struct tdl_fop *op)
{
    return op->code == TDL_FOP_FSYNC || op->code == TDL_FOP_FDATASYNC;
}

static struct tdl_fop **place_of(struct tdl_fio *f, const struct tdl_fop *op)
{
    return &f->leaders[(unsigned)op->fd % TDL_FIO_LEADERS];
}

static struct tdl_fop *of_node(struct tdl_node *node)
{
    return TDL_CONTAINER_OF(node, struct tdl_fop, node);
}

bool tdl__join(struct tdl_fio *f, struct tdl_fop *op)
{
    if (!is_sync(op) || f->options.no_join) {
        return false;
    }
    struct tdl_fop **place = place_of(f, op), *leader = *place;
    if (leader == NULL || leader->fd != op->fd || leader->code != op->code) {
        *place = op;
        return false;
    }
    tdl_node_remove(&op->node);
    tdl_node_insert_before(&f->joined, &op->node);
    TDL_ASSERT(leader != op && leader->link.state != TDL_FOP_DONE);
    op->with.leader = leader;
    leader->leads = 1;
    f->stats.joined++;
    return true;
}

void tdl__join_ends(struct tdl_fio *f, const struct tdl_fop *leader)
{
    struct tdl_fop **place = place_of(f, leader);
    if (*place == leader) {
        *place = NULL;
    }
}

void tdl__join_finish(struct tdl_fio *f, struct tdl_fop *leader, int64_t result)
{
    TDL_ASSERT(leader->leads && leader->link.state == TDL_FOP_DONE);
    leader->leads = 0;
    for (struct tdl_node *node = f->joined.next; node != &f->joined;) {
        struct tdl_fop *op = of_node(node);
        node = node->next;
        if (op->with.leader == leader) {
            tdl__fio_finish(f, op, result);
        }
    }
}

void tdl__join_promote(struct tdl_fio *f, struct tdl_fop *leader)
{
    struct tdl_fop *heir = NULL;
    TDL_ASSERT(leader->leads && leader->link.state != TDL_FOP_INFLIGHT);
    for (struct tdl_node *node = f->joined.next; node != &f->joined;) {
        struct tdl_fop *op = of_node(node);
        node = node->next;
        if (op->with.leader != leader) {
            continue;
        }
        if (heir != NULL) {
            op->with.leader = heir;
            heir->leads = 1;
            continue;
        }
        heir = op;
        tdl_node_remove(&heir->node);
        tdl_node_insert_before(&leader->node, &heir->node);
        heir->with.leader = NULL;
        heir->link.state = leader->link.state;
        f->staged_count += leader->link.state == TDL_FOP_STAGED;
        if (*place_of(f, leader) == leader) {
            *place_of(f, leader) = heir;
        }
    }
    leader->leads = 0;
}
