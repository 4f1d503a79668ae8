/* Python's audit events. Where C does what CPython tells audit hooks of, it raises CPython's event first;
 * where that takes objects that only CPython's way has, the short cut is not taken while somebody listens.
 * Thread: with the GIL. */
#ifndef TDL_PYLOOP_AUDIT_H
#define TDL_PYLOOP_AUDIT_H

#include "ground/compat.h"

#include <stdbool.h>

/* Whether there is an audit hook but treadle's own. */
bool tdl__audited(void);

/* Whether treadle hears of what ends or replaces the process; the first call sets its hook, which others may
 * refuse. */
bool tdl__audit_hears_ends(void);

/* Tell the hooks, if there are any; true if one raised. What the arguments cost is paid for hooks of others
 * only. */
#define TDL_REFUSED(...) (tdl__audited() && PySys_Audit(__VA_ARGS__) < 0)

#endif
