/* ring alone: a no-op goes through the kernel, or the kernel's refusal is a code. */
#include <treadle/filter.h>
#include <treadle/ring.h>

int main(void)
{
    struct tdl_filter filter;
    struct tdl_ring ring;
    struct tdl_ring_options options = {8, 0, 0, 0, false, false};
    int code = tdl_ring_open(&ring, &options);

    tdl_filter_init(&filter, true);
    if (tdl_filter_skips(&filter, 0)) {
        return 1;
    }
    if (code != 0) {
        return code < 0 ? 0 : 1;
    }
    tdl_sqe_fill(tdl_ring_sqe(&ring), IORING_OP_NOP, -1, 0, 0, 0);
    if (tdl_ring_enter(&ring, tdl_ring_publish(&ring), 1, IORING_ENTER_GETEVENTS, UINT64_MAX) < 0) {
        tdl_ring_close(&ring);
        return 0;
    }
    code = tdl_ring_ready(&ring) == 1 && tdl_ring_cqe(&ring, 0)->res == 0 ? 0 : 1;
    tdl_ring_seen(&ring, 1);
    tdl_ring_close(&ring);
    return code;
}
