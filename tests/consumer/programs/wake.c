/* wake alone: what was posted before the park is found. */
#include <treadle/inbox.h>

int main(void)
{
    struct tdl_wake wake;
    struct tdl_inbox inbox;
    struct tdl_link link;
    int good;

    if (tdl_wake_open(&wake, NULL) != 0) {
        return 1;
    }
    tdl_inbox_init(&inbox, &wake, NULL);
    tdl_wake_park_begin(&wake);
    good = tdl_inbox_post(&inbox, &link) == 0 && tdl_wake_wait(&wake, UINT64_MAX) == 0;
    good = tdl_wake_park_end(&wake) && good;
    good = tdl_inbox_take(&inbox) == &link && good;
    (void)tdl_inbox_close(&inbox);
    tdl_wake_close(&wake);
    return good ? 0 : 1;
}
