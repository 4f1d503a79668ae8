/* core alone: an item and a timer run in one generation. */
#include <treadle/sched.h>
#include <treadle/timer.h>

static int ran;

static void run(struct tdl_item *item)
{
    (void)item;
    ran++;
}

int main(void)
{
    struct tdl_sched sched;
    struct tdl_item item;
    struct tdl_timer timer;

    tdl_sched_init(&sched);
    tdl_item_init(&item, run);
    tdl_timer_init(&timer, run);
    tdl_sched_push(&sched, &item);
    if (tdl_timer_arm(&sched, &timer, 5) != 0 || tdl_sched_expire(&sched, 5) != 1) {
        return 1;
    }
    tdl_sched_freeze(&sched);
    return tdl_sched_run(&sched) == 2 && ran == 2 ? 0 : 1;
}
