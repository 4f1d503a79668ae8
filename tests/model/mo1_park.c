/* Goal: no interleaving of park and post loses a wake (MO-1) or writes the descriptor twice for one park
 * (MO-2). Method: explore a parker against one or two posters, with and without spinning; a lost wake
 * shows as every thread asleep. */
#include "model.h"

#include <poll.h>
#include <unistd.h>

#include "treadle/inbox.h"
#include "treadle/wake.h"

ssize_t model_read(int fd, void *bytes, size_t size);
int model_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const void *mask);

static struct tdl_wake wake;
static struct tdl_inbox inbox;
static struct tdl_link links[2];
static unsigned parks;
static unsigned wanted;
static bool edge;

static void setup_with(uint64_t spin_ns, unsigned posts, bool with_edge)
{
    struct tdl_wake_options options = {.spin_ns = spin_ns, .edge = with_edge};
    edge = with_edge;
    (void)tdl_wake_open(&wake, &options);
    tdl_inbox_init(&inbox, &wake, NULL);
    model_name(&wake.state, "wake.state");
    model_name(&inbox.head, "inbox.head");
    model_name(&inbox.gate, "inbox.gate");
    model_name(&links[0], "first link");
    model_name(&links[1], "second link");
    parks = 0;
    wanted = posts;
}

static void setup_one(void)
{
    setup_with(0, 1, false);
}

static void setup_two(void)
{
    setup_with(0, 2, false);
}

static void setup_spinning(void)
{
    setup_with(1, 1, false);
}

static void setup_one_edge(void)
{
    setup_with(0, 1, true);
}

static void setup_two_edge(void)
{
    setup_with(0, 2, true);
}

/* An edge-triggered poller: it tells of a write once, so what it told of is gone when it returns. */
static int edge_wait(void)
{
    uint64_t told;
    struct pollfd pfd = {tdl_wake_fd(&wake), POLLIN, 0};
    int n = model_ppoll(&pfd, 1, NULL, NULL);
    return n == 1 && model_read(pfd.fd, &told, sizeof told) == (ssize_t)sizeof told ? 0 : -1;
}

static unsigned take_all(void)
{
    unsigned count = 0;
    const struct tdl_link *last = NULL;
    for (const struct tdl_link *link = tdl_inbox_take(&inbox); link != NULL; link = link->next) {
        model_plain_read(link);
        /* Where one thread posts both, they come in its order. */
        MODEL_CHECK(last == NULL || last->user == 0 || link->user == 0 || last->user < link->user);
        last = link;
        count++;
    }
    return count;
}

static void parker(void)
{
    for (unsigned got = 0; got < wanted; got += take_all()) {
        tdl_wake_park_begin(&wake);
        parks++;
        if (tdl_inbox_is_empty(&inbox)) {
            MODEL_CHECK((edge ? edge_wait() : tdl_wake_wait(&wake, UINT64_MAX)) == 0);
        }
        (void)tdl_wake_park_end(&wake);
        MODEL_CHECK(model_eventfd_writes() <= parks);
    }
}

static void post_first(void)
{
    links[0].user = 0;
    MODEL_CHECK(tdl_inbox_post(&inbox, &links[0]) == 0);
}

static void post_second(void)
{
    links[1].user = 0;
    MODEL_CHECK(tdl_inbox_post(&inbox, &links[1]) == 0);
}

static void post_both(void)
{
    links[0].user = 1;
    links[1].user = 2;
    MODEL_CHECK(tdl_inbox_post(&inbox, &links[0]) == 0);
    MODEL_CHECK(tdl_inbox_post(&inbox, &links[1]) == 0);
}

static void finish(void)
{
    MODEL_CHECK(model_eventfd_writes() <= parks);
    /* What the descriptor still holds is what the owner knows it is owed. */
    MODEL_CHECK(edge ? wake.owed == 0 : model_eventfd_value() == wake.owed);
}

int main(int argc, char **argv)
{
    static const struct model_scenario scenarios[] = {
        {"one post", setup_one, {parker, post_first}, finish},
        {"one post while spinning", setup_spinning, {parker, post_first}, finish},
        {"two posts of one thread", setup_two, {parker, post_both}, finish},
        {"two posters", setup_two, {parker, post_first, post_second}, finish},
        {"one post, edge-triggered", setup_one_edge, {parker, post_first}, finish},
        {"two posts of one thread, edge-triggered", setup_two_edge, {parker, post_both}, finish},
        {"two posters, edge-triggered", setup_two_edge, {parker, post_first, post_second}, finish},
    };
    return model_main(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0]);
}
