/* Whether it pays to watch a word for a moment before sleeping on it: the memory of how that went before.
 *
 * A hand-over between two running threads costs a fraction of one that wakes a sleeper, but a watch in vain
 * burns its whole time. So each one in vain doubles how many are left out before the next is tried, and each
 * that paid halves it.
 *
 * Example:
 *     struct tdl_patience patience = {0};
 *     if (tdl_patience_watches(&patience))
 *         tdl_patience_tell(&patience, false);
 *     printf("%d\n", tdl_patience_watches(&patience));
 */
#ifndef TREADLE_PATIENCE_H
#define TREADLE_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a watch in vain costs is spread over this many occasions at most. */
#define TDL_PATIENCE_LONGEST 255u

/* All zero watches at once. All fields are private to wake. */
struct tdl_patience {
    uint32_t left_out; /* occasions still to be left out */
    uint32_t pause;    /* how many are left out after a watch that did not pay */
};

/* Says whether to watch on this occasion; if so, tell what became of it.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
bool tdl_patience_watches(struct tdl_patience *patience);

/* Tells whether the watch paid.
 * Thread:  owner, after tdl_patience_watches said yes
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
void tdl_patience_tell(struct tdl_patience *patience, bool paid);

#ifdef __cplusplus
}
#endif

#endif
