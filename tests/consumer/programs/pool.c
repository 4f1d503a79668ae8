/* pool alone: a job runs on a thread and its link comes back. */
#include <treadle/inbox.h>
#include <treadle/pool.h>

static int worked;

static void work(struct tdl_job *job)
{
    (void)job;
    worked = 1;
}

int main(void)
{
    const uint32_t slots[] = {1};
    struct tdl_pool_options options = {slots, 1, "consumer", 0, 0, 0, 0};
    struct tdl_pool *pool;
    struct tdl_wake wake;
    struct tdl_inbox inbox;
    struct tdl_link done;
    struct tdl_job job;
    int good;

    if (tdl_wake_open(&wake, NULL) != 0 || tdl_pool_open(&pool, &options) != 0) {
        return 1;
    }
    tdl_inbox_init(&inbox, &wake, NULL);
    tdl_job_init(&job, work, NULL);
    good = tdl_pool_submit(pool, &job, 0, &inbox, &done) == 0;
    tdl_wake_park_begin(&wake);
    while (good && tdl_inbox_is_empty(&inbox)) {
        (void)tdl_wake_wait(&wake, UINT64_MAX);
    }
    (void)tdl_wake_park_end(&wake);
    good = good && tdl_inbox_take(&inbox) == &done && worked;
    tdl_pool_close(pool);
    (void)tdl_inbox_close(&inbox);
    tdl_wake_close(&wake);
    return good ? 0 : 1;
}
