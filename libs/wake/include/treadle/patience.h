/* Adaptive spin: whether it pays to spin on a word for a moment before sleeping on it, by how that went
 * before.
 *
 * A hand-over between two running threads costs a fraction of one that wakes a sleeper, but a spin in vain
 * burns its whole time. So each one in vain doubles how many occasions are skipped before the next is tried,
 * and each that paid halves it.
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

/* At most this many occasions are skipped after a spin in vain. */
#define TDL_PATIENCE_LONGEST 255u

/* All zero spins at the first occasion. All fields are private to wake. */
struct tdl_patience {
    uint32_t left_out; /* occasions still to be skipped */
    uint32_t pause;    /* how many are skipped after a spin in vain */
};

/* Says whether to spin on this occasion; if so, tdl_patience_tell must be told how it went.
 * Thread:  owner
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
bool tdl_patience_watches(struct tdl_patience *patience);

/* Tells whether the spin paid.
 * Thread:  owner, after tdl_patience_watches said yes
 * Owns:    nothing
 * Errors:  none
 * Cost:    O(1) */
void tdl_patience_tell(struct tdl_patience *patience, bool paid);

#ifdef __cplusplus
}
#endif

#endif
