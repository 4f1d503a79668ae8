uint64_t now(struct tdl_host *host);
struct tdl_link *take(struct tdl_host *host);
void before_poll(struct tdl_host *host);
void poll(struct tdl_host *host, uint64_t timeout_ns, struct tdl_queue *io);
