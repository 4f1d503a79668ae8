/* host alone: an item that was posted and one whose pipe became readable run, then the loop ends. */
#include <sys/epoll.h>
#include <unistd.h>

#include <treadle/host.h>

static struct tdl_epoll_host host;
static struct tdl_epoll_watch watch;
static struct tdl_item posted;
static int ran;

static void run(struct tdl_item *item)
{
    if (item == &watch.item) {
        tdl_epoll_host_unwatch(&host, &watch);
    }
    if (++ran == 2) {
        tdl_sched_stop(&host.sched);
    }
}

int main(void)
{
    int ends[2];

    if (pipe(ends) != 0 || tdl_epoll_host_open(&host, NULL) != 0) {
        return 1;
    }
    tdl_item_init(&posted, run);
    tdl_item_init(&watch.item, run);
    if (tdl_epoll_host_watch(&host, &watch, ends[0], EPOLLIN) != 0 || write(ends[1], "x", 1) != 1 ||
        tdl_epoll_host_post(&host, &posted) != 0) {
        return 1;
    }
    tdl_epoll_host_run(&host);
    tdl_epoll_host_close(&host);
    return ran == 2 ? 0 : 1;
}
