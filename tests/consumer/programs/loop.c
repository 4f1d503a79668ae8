/* A loop of one's own on core and wake: runs one local and one remote item. */
#include <stdio.h>

#include <treadle/inbox.h>
#include <treadle/turn.h>
#include <treadle/version.h>

static struct tdl_sched sched;
static struct tdl_wake wake;
static struct tdl_inbox inbox;
static int ran;

static void run(struct tdl_item *item)
{
    (void)item;
    ran++;
}

int main(void)
{
    struct tdl_item local, remote;

    if (tdl_wake_open(&wake, NULL) != 0) {
        return 1;
    }
    tdl_sched_init(&sched);
    tdl_inbox_init(&inbox, &wake, tdl_sched_mark_source(&sched));
    tdl_item_init(&local, run);
    tdl_item_init(&remote, run);
    tdl_sched_push(&sched, &local);
    tdl_inbox_post(&inbox, &remote.link);
    tdl_sched_merge(&sched, tdl_inbox_take(&inbox));
    tdl_sched_freeze(&sched);
    tdl_sched_run(&sched);
    tdl_inbox_close(&inbox);
    tdl_wake_close(&wake);
    printf("treadle %s: %d items\n", TDL_VERSION, ran);
    return ran == 2 ? 0 : 1;
}
