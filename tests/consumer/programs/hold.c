/* hold alone: two messages held for a socket become one. */
#include <treadle/hold.h>

int main(void)
{
    struct tdl_hold hold;
    struct tdl_held *held;
    const int gone = -1;
    int good;

    tdl_hold_init(&hold);
    tdl_hold_set_limit(&hold, UINT64_MAX / 2); /* the sender stays out of it */
    held = tdl_hold_begin(&hold, 1, &gone, "head", 4);
    good = held != NULL && tdl_held_append(&hold, held, "body", 4) == 0;
    if (held != NULL) {
        tdl_hold_take(&hold, held);
        good = good && held->len == 8 && held->sent == 0;
        tdl_hold_end(&hold, held);
    }
    tdl_hold_close(&hold);
    return good ? 0 : 1;
}
