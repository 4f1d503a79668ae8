#include "treadle/patience.h"

bool tdl_patience_watches(struct tdl_patience *patience)
{
    if (patience->left_out == 0) {
        return true;
    }
    patience->left_out--;
    return false;
}

void tdl_patience_tell(struct tdl_patience *patience, bool paid)
{
    if (paid) {
        patience->pause /= 2;
        return;
    }
    patience->pause = patience->pause < TDL_PATIENCE_LONGEST ? 2 * patience->pause + 1 : TDL_PATIENCE_LONGEST;
    patience->left_out = patience->pause;
}
