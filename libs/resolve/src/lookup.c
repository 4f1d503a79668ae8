#include "treadle/lookup.h"

#include <errno.h>
#include <string.h>

#include "treadle/alloc.h"
#include "treadle/pool.h"
#include "treadle/status.h"

/* Named and not inlined, so that a stack trace of a stuck thread says what it waits for. */
__attribute__((noinline)) static void ask_forward(struct tdl_lookup *lookup)
{
    errno = 0;
    const struct addrinfo hints = {
        .ai_flags = lookup->ask.hints.flags,
        .ai_family = lookup->ask.hints.family,
        .ai_socktype = lookup->ask.hints.socktype,
        .ai_protocol = lookup->ask.hints.protocol,
    };
    lookup->eai = getaddrinfo(lookup->node, lookup->service, &hints, &lookup->rows);
    lookup->system_errno = lookup->eai == EAI_SYSTEM ? errno : 0;
    if (lookup->eai != 0) {
        lookup->rows = NULL;
    }
}

/* Both names in one block, since the buffers they came in are much longer. */
static bool keep_names(struct tdl_lookup *lookup, const char *host, const char *service)
{
    size_t host_size = strlen(host) + 1;
    size_t service_size = strlen(service) + 1;
    lookup->result_text = tdl_malloc(host_size + service_size);
    if (lookup->result_text == NULL) {
        return false;
    }
    memcpy(lookup->result_text, host, host_size);
    memcpy(lookup->result_text + host_size, service, service_size);
    lookup->host_name = lookup->result_text;
    lookup->service_name = lookup->result_text + host_size;
    return true;
}

__attribute__((noinline)) static void ask_reverse(struct tdl_lookup *lookup)
{
    char host[NI_MAXHOST];
    char service[NI_MAXSERV];
    host[0] = '\0';
    service[0] = '\0';
    errno = 0;
    lookup->eai = getnameinfo((const struct sockaddr *)&lookup->ask.address, lookup->address_length, host,
                              sizeof host, service, sizeof service, lookup->flags);
    lookup->system_errno = lookup->eai == EAI_SYSTEM ? errno : 0;
    if (lookup->eai == 0 && !keep_names(lookup, host, service)) {
        lookup->eai = EAI_MEMORY;
    }
}

static void lookup_work(struct tdl_job *job)
{
    struct tdl_lookup *lookup = TDL_CONTAINER_OF(job, struct tdl_lookup, job);
    if (lookup->reverse) {
        ask_reverse(lookup);
    } else {
        ask_forward(lookup);
    }
}

static void lookup_release(struct tdl_job *job)
{
    struct tdl_lookup *lookup = TDL_CONTAINER_OF(job, struct tdl_lookup, job);
    tdl_lookup_clear(lookup);
    if (lookup->release != NULL) {
        lookup->release(lookup);
    }
}

static void lookup_init(struct tdl_lookup *lookup, tdl_lookup_fn release)
{
    tdl_job_init(&lookup->job, lookup_work, lookup_release);
    lookup->release = release;
    lookup->eai = 0;
    lookup->system_errno = 0;
    lookup->rows = NULL;
    lookup->host_name = NULL;
    lookup->service_name = NULL;
    lookup->result_text = NULL;
    lookup->node = NULL;
    lookup->service = NULL;
    lookup->text = NULL;
    lookup->reverse = false;
    lookup->flags = 0;
    lookup->address_length = 0;
}

static const char *put_text(char **at, const char *text, size_t size)
{
    if (text == NULL) {
        return NULL;
    }
    const char *copy = memcpy(*at, text, size);
    *at += size;
    return copy;
}

int tdl_lookup_forward(struct tdl_lookup *lookup, const char *node, const char *service,
                       const struct addrinfo *hints, tdl_lookup_fn release)
{
    size_t node_size = node != NULL ? strlen(node) + 1 : 0;
    size_t service_size = service != NULL ? strlen(service) + 1 : 0;
    lookup_init(lookup, release);
    char *at = lookup->text_inline;
    if (node_size + service_size > sizeof lookup->text_inline) {
        lookup->text = tdl_malloc(node_size + service_size);
        if (lookup->text == NULL) {
            return TDL_ENOMEM;
        }
        at = lookup->text;
    }
    lookup->node = put_text(&at, node, node_size);
    lookup->service = put_text(&at, service, service_size);
    memset(&lookup->ask.hints, 0, sizeof lookup->ask.hints);
    if (hints != NULL) {
        lookup->ask.hints.flags = hints->ai_flags;
        lookup->ask.hints.family = hints->ai_family;
        lookup->ask.hints.socktype = hints->ai_socktype;
        lookup->ask.hints.protocol = hints->ai_protocol;
    }
    return 0;
}

int tdl_lookup_reverse(struct tdl_lookup *lookup, const struct sockaddr *address, socklen_t length, int flags,
                       tdl_lookup_fn release)
{
    lookup_init(lookup, release);
    if (address == NULL || length > sizeof lookup->ask.address) {
        return TDL_EINVAL;
    }
    lookup->reverse = true;
    lookup->flags = flags;
    lookup->address_length = length;
    memcpy(&lookup->ask.address, address, length);
    return 0;
}

static void clear_result(struct tdl_lookup *lookup)
{
    if (lookup->rows != NULL) {
        freeaddrinfo(lookup->rows);
    }
    lookup->rows = NULL;
    tdl_free(lookup->result_text);
    lookup->result_text = NULL;
    lookup->host_name = NULL;
    lookup->service_name = NULL;
}

int tdl_lookup_submit(struct tdl_lookup *lookup, struct tdl_pool *pool, uint32_t job_class,
                      struct tdl_inbox *inbox, struct tdl_link *done)
{
    /* In a forked child there may be a result that its worker had no time to post. */
    clear_result(lookup);
    return tdl_pool_submit(pool, &lookup->job, job_class, inbox, done);
}

bool tdl_lookup_drop(struct tdl_lookup *lookup, struct tdl_pool *pool)
{
    return tdl_job_abandon(pool, &lookup->job);
}

int tdl_lookup_status(const struct tdl_lookup *lookup)
{
    return tdl_eai_status(lookup->eai);
}

void tdl_lookup_clear(struct tdl_lookup *lookup)
{
    clear_result(lookup);
    tdl_free(lookup->text);
    lookup->text = NULL;
    lookup->node = NULL;
    lookup->service = NULL;
}
