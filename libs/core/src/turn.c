#include "treadle/turn.h"

size_t tdl_turn(struct tdl_sched *s, struct tdl_host *host)
{
    struct tdl_queue io;
    uint64_t timeout_ns = 0;

    host->before_poll(host); /* turn step 1 */

    if (!tdl_sched_has_ready(s) && !tdl_sched_stopping(s)) {
        timeout_ns = UINT64_MAX;
        if (tdl_sched_has_timers(s)) {
            timeout_ns = tdl_sched_timeout(s, host->now_ns(host));
        }
    }
    tdl_queue_init(&io);
    host->poll(host, timeout_ns, &io); /* turn step 2 */

    tdl_sched_push_queue(s, &io); /* turn step 3 */

    /* A remote item that was posted before the I/O items were queued goes in front of them, by its mark. */
    tdl_sched_merge(s, host->take(host)); /* turn step 4 */

    if (tdl_sched_has_timers(s)) {
        (void)tdl_sched_expire(s, host->now_ns(host)); /* turn step 5 */
    }

    (void)tdl_sched_freeze(s); /* turn step 6 */
    return tdl_sched_run(s);   /* turn step 7 */
}
