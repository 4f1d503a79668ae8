/* What the fault tests of wake run: a loop that opens, is posted to, parks, reopens as after a fork and
 * closes. Every failure is answered as a caller would; the result is the first status that ended it, or 0. */
#ifndef TREADLE_TEST_WAKE_SCENARIO_H
#define TREADLE_TEST_WAKE_SCENARIO_H

#include <dirent.h>

#include "treadle/alloc.h"
#include "treadle/inbox.h"
#include "treadle/sched.h"
#include "treadle/status.h"
#include "treadle/wake.h"

enum { SCENARIO_ITEMS = 3 };

static int scenario_ran;

static inline void scenario_run_item(struct tdl_item *item)
{
    tdl_free(item);
    scenario_ran++;
}

static inline unsigned scenario_open_descriptors(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL) {
        return 0;
    }
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count;
}

/* Waits until notified, over interruptions. */
static inline int scenario_wait(struct tdl_wake *wake)
{
    int rc = TDL_EINTR;
    for (int tries = 0; rc == TDL_EINTR && tries < 4; tries++) {
        rc = tdl_wake_wait(wake, UINT64_MAX);
    }
    return rc;
}

static inline int scenario_post_and_run(struct tdl_sched *sched, struct tdl_inbox *inbox,
                                        struct tdl_wake *wake)
{
    int rc = 0, posted = 0;

    tdl_wake_park_begin(wake);
    for (; posted < SCENARIO_ITEMS; posted++) {
        struct tdl_item *item = tdl_malloc(sizeof *item);
        if (item == NULL) {
            rc = TDL_ENOMEM;
            break;
        }
        tdl_item_init(item, scenario_run_item);
        (void)tdl_inbox_post(inbox, &item->link);
    }
    if (posted > 0 && scenario_wait(wake) != 0) {
        rc = TDL_EIO;
    }
    if (tdl_wake_park_end(wake) != (posted > 0)) {
        rc = TDL_EIO;
    }
    tdl_sched_merge(sched, tdl_inbox_take(inbox));
    (void)tdl_sched_freeze(sched);
    (void)tdl_sched_run(sched);
    return rc;
}

static inline int scenario(void)
{
    struct tdl_sched sched;
    struct tdl_wake wake;
    struct tdl_inbox inbox;

    scenario_ran = 0;
    int rc = tdl_wake_open(&wake, NULL);
    if (rc != 0) {
        return rc;
    }
    tdl_sched_init(&sched);
    tdl_inbox_init(&inbox, &wake, tdl_sched_mark_source(&sched));
    rc = scenario_post_and_run(&sched, &inbox, &wake);
    if (rc == 0 && (rc = tdl_wake_after_fork(&wake)) == 0) {
        tdl_inbox_after_fork(&inbox);
        rc = scenario_post_and_run(&sched, &inbox, &wake);
    }
    if (tdl_inbox_close(&inbox) != NULL) {
        rc = TDL_EIO;
    }
    tdl_wake_close(&wake);
    return rc;
}

#endif
