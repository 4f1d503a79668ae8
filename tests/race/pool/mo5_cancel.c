/* Goal (MO-5): of cancel and start exactly one wins; a canceled job is released once and never worked, any
 * other arrives once. Method: real workers and an owner that cancels at once or a little later, many rounds;
 * each job counts what happened to it. */
#include "../../unit/pool/post_box.h"
#include "stall.h"

#define JOBS 64u

struct counted {
    struct tdl_job job;
    struct tdl_link done;
    tdl_atomic_u32 worked;
    tdl_atomic_u32 released;
};

static void count_work(struct tdl_job *job)
{
    struct counted *counted = TDL_CONTAINER_OF(job, struct counted, job);
    (void)tdl_fetch_add_relaxed_u32(&counted->worked, 1);
    (void)tdl_fetch_add_relaxed_u32(&stall_worker_step, 1);
}

static void count_release(struct tdl_job *job)
{
    struct counted *counted = TDL_CONTAINER_OF(job, struct counted, job);
    (void)tdl_fetch_add_acq_rel_u32(&counted->released, 1);
}

static void dawdle(unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        tdl_cpu_pause();
    }
}

static void one_round(struct tdl_pool *pool, struct post_box *box, struct counted jobs[JOBS], unsigned round)
{
    bool canceled[JOBS];
    unsigned expected = 0;
    unsigned arrived[JOBS] = {0};
    for (unsigned i = 0; i < JOBS; i++) {
        tdl_job_init(&jobs[i].job, count_work, count_release);
        tdl_atomic_init_u32(&jobs[i].worked, 0);
        tdl_atomic_init_u32(&jobs[i].released, 0);
        TDL_ASSERT(tdl_pool_submit(pool, &jobs[i].job, 0, &box->inbox, &jobs[i].done) == 0);
    }
    for (unsigned i = 0; i < JOBS; i++) {
        dawdle((round * 7u + i * 3u) % 40u);
        canceled[i] = tdl_job_cancel(pool, &jobs[i].job);
        expected += canceled[i] ? 0 : 1;
    }
    tdl_store_seq_u32(&stall_owner_step, expected);
    for (; expected > 0; expected--) {
        arrived[TDL_CONTAINER_OF(post_box_wait(box), struct counted, done) - jobs]++;
    }
    for (unsigned i = 0; i < JOBS; i++) {
        while (canceled[i] && tdl_load_acquire_u32(&jobs[i].released) == 0) {
            sched_yield();
        }
        TDL_ASSERT(tdl_load_acquire_u32(&jobs[i].worked) == (canceled[i] ? 0u : 1u));
        TDL_ASSERT(tdl_load_acquire_u32(&jobs[i].released) == (canceled[i] ? 1u : 0u));
        TDL_ASSERT(arrived[i] == (canceled[i] ? 0u : 1u));
    }
}

int main(void)
{
    static struct counted jobs[JOBS];
    struct post_box box;
    unsigned rounds = stall_rounds(3000);
    stall_watch();
    post_box_open(&box);
    struct tdl_pool *pool = pool_of(3, 0);
    for (unsigned round = 0; round < rounds; round++) {
        tdl_store_seq_u32(&stall_round, round);
        one_round(pool, &box, jobs, round);
    }
    TDL_ASSERT(post_box_poll(&box) == NULL);
    tdl_pool_close(pool);
    wait_no_pool_alive();
    post_box_close(&box);
    return 0;
}
