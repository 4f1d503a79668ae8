/* loop.getaddrinfo and loop.getnameinfo without the GIL: requests, their answers, cancel, close and fork. */
#include "dns/dns_internal.h"
#include "ground/audit.h"
#include "loop/executor.h"

#include "treadle/alloc.h"
#include "treadle/status.h"

/* A lookup under way. The pool frees it, without Python, once the loop has let go of it. */
struct tdl_dns_request {
    struct tdl_lookup lookup;
    struct tdl_item item;
    struct tdl_node node; /* in the loop's requests while it has a future */
    TdlLoop *loop;        /* borrowed: the loop lets go of its requests before it ends */
    PyObject *future;
};

static struct tdl_dns_request *request_of_node(struct tdl_node *node)
{
    return TDL_CONTAINER_OF(node, struct tdl_dns_request, node);
}

/* On any thread, without the GIL: the future was let go before. */
static void request_release(struct tdl_lookup *lookup)
{
    tdl_free(TDL_CONTAINER_OF(lookup, struct tdl_dns_request, lookup));
}

/* Takes the future out; the request then belongs to whoever frees it. */
static PyObject *request_steal_future(struct tdl_dns_request *request)
{
    PyObject *future = request->future;
    request->future = NULL;
    tdl_node_remove(&request->node);
    return future;
}

static PyObject *request_answer(struct tdl_dns_request *request)
{
    struct tdl_dns_state *st = request->loop->state->dns;
    const struct tdl_lookup *lookup = &request->lookup;
    if (lookup->eai != 0) {
        tdl__dns_raise(st, lookup->eai, lookup->system_errno);
        return NULL;
    }
    return lookup->reverse ? tdl__dns_names(lookup->host_name, lookup->service_name)
                           : tdl__dns_rows(st, lookup->rows);
}

static int is_done(TdlLoop *loop, PyObject *future)
{
    PyObject *done = PyObject_CallMethodNoArgs(future, loop->state->str_done);
    int truth = done != NULL ? PyObject_IsTrue(done) : -1;
    Py_XDECREF(done);
    return truth;
}

/* Resolves the future with what was built, or with the exception that is set. */
static void future_resolve(TdlLoop *loop, PyObject *future, PyObject *answer)
{
    PyObject *exc = answer == NULL ? PyErr_GetRaisedException() : NULL;
    PyObject *result = NULL;
    int done = is_done(loop, future);
    if (done == 0) {
        PyObject *name = answer != NULL ? loop->state->str_set_result : loop->state->str_set_exception;
        result = PyObject_CallMethodOneArg(future, name, answer != NULL ? answer : exc);
    }
    if (done < 0 || (done == 0 && result == NULL)) {
        PyErr_WriteUnraisable(future);
    }
    Py_XDECREF(result);
    Py_XDECREF(exc);
}

static void request_run(struct tdl_item *item)
{
    struct tdl_dns_request *request = TDL_CONTAINER_OF(item, struct tdl_dns_request, item);
    if (request->future != NULL) {
        TdlLoop *loop = request->loop;
        PyObject *future = request_steal_future(request);
        if (!loop->closed) {
            PyObject *answer = request_answer(request);
            future_resolve(loop, future, answer);
            Py_XDECREF(answer);
        }
        Py_DECREF(future);
    }
    tdl_lookup_clear(&request->lookup);
    tdl_free(request);
}

static int pool_open(struct tdl_dns *dns)
{
    if (dns->pool != NULL) {
        return 0;
    }
    if (dns->slots == 0) {
        dns->slots = tdl_lookup_slots();
    }
    const struct tdl_pool_options options = {
        .slots = &dns->slots, .classes = 1, .name = "treadle", .linger_ns = TDL_WATCH_NS};
    return tdl_pool_open(&dns->pool, &options);
}

static PyObject *future_new(TdlLoop *loop)
{
    return tdl__future_new(loop);
}

/* In debug mode every answer is a future, since the caller logs how long it took. Takes over the
 * reference. */
static PyObject *future_of(TdlLoop *loop, PyObject *answer)
{
    PyObject *future = future_new(loop);
    PyObject *result =
        future != NULL ? PyObject_CallMethodOneArg(future, loop->state->str_set_result, answer) : NULL;
    if (result == NULL) {
        Py_CLEAR(future);
    }
    Py_XDECREF(result);
    Py_DECREF(answer);
    return future;
}

/* The lookup was prepared; gives the future that its answer resolves. */
static PyObject *request_submit(TdlLoop *loop, struct tdl_dns_request *request)
{
    struct tdl_dns *dns = loop->dns;
    request->loop = loop;
    request->item = (struct tdl_item){.run = request_run};
    request->future = future_new(loop);
    if (request->future == NULL) {
        tdl_lookup_clear(&request->lookup);
        tdl_free(request);
        return NULL;
    }
    tdl_node_insert_before(&dns->requests, &request->node);
    int code = pool_open(dns);
    if (code == 0) {
        code = tdl_lookup_submit(&request->lookup, dns->pool, 0, &loop->inbox, &request->item.link);
    }
    if (code != 0) {
        Py_DECREF(request_steal_future(request));
        tdl_lookup_clear(&request->lookup);
        tdl_free(request);
        PyErr_SetString(PyExc_RuntimeError, "can't start new thread");
        return NULL;
    }
    dns->native_count++;
    return Py_NewRef(request->future);
}

static struct tdl_dns_request *request_new(void)
{
    struct tdl_dns_request *request = tdl_malloc(sizeof *request);
    if (request == NULL) {
        PyErr_NoMemory();
    }
    return request;
}

static PyObject *ask_forward(TdlLoop *loop, const struct tdl_dns_ask *ask)
{
    struct tdl_dns_request *request = request_new();
    if (request == NULL) {
        return NULL;
    }
    if (tdl_lookup_forward(&request->lookup, ask->node, ask->service, &ask->hints, request_release) != 0) {
        tdl_free(request);
        return PyErr_NoMemory();
    }
    return request_submit(loop, request);
}

static PyObject *ask_reverse(TdlLoop *loop, const struct tdl_dns_ask_reverse *ask)
{
    struct tdl_dns_request *request = request_new();
    if (request == NULL) {
        return NULL;
    }
    int code = tdl_lookup_reverse(&request->lookup, (const struct sockaddr *)&ask->address, ask->length,
                                  ask->flags, request_release);
    TDL_ASSERT(code == 0);
    return request_submit(loop, request);
}

/* Whether asyncio's lookup would end in socket's own functions, past a pool and a run_in_executor() that
 * nobody replaced. */
static bool is_standard(TdlLoop *loop, PyObject *name)
{
    struct tdl_module_state *st = loop->state;
    return tdl__dns_is_standard(st->dns) && tdl__pools_in_place(loop) &&
           tdl__loop_patched(loop, name) == NULL &&
           (tdl__loop_is_whole(loop) || !tdl__loop_overridden(loop, st->str_run_in_executor));
}

static PyObject *left_to_python(TdlLoop *loop)
{
    loop->dns->python_count++;
    Py_RETURN_NONE;
}

/* _getaddrinfo(host, port, family, type, proto, flags): rows at once, a future of them, or None for a call
 * that is asyncio's to make. */
static PyObject *loop_getaddrinfo(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    TdlLoop *loop = TDL_LOOP(self);
    struct tdl_dns_state *st = loop->state->dns;
    struct tdl_dns_ask ask;
    struct tdl_numeric answer;
    if (nargs != 6) {
        PyErr_SetString(PyExc_TypeError, "_getaddrinfo() takes 6 arguments");
        return NULL;
    }
    if (tdl__check_closed(loop) < 0) {
        return NULL;
    }
    if (!is_standard(loop, st->str_getaddrinfo) || !tdl__dns_shape(st, args, &ask)) {
        return left_to_python(loop);
    }
    /* A hook may run Python and close the loop. */
    if (TDL_REFUSED("socket.getaddrinfo", "OOiii", args[0], args[1], ask.hints.ai_family,
                    ask.hints.ai_socktype, ask.hints.ai_protocol) ||
        tdl__check_closed(loop) < 0) {
        return NULL;
    }
    if (tdl_numeric_forward(&answer, ask.node, ask.service, &ask.hints)) {
        loop->dns->inline_count++;
        PyObject *rows = tdl__dns_numeric_rows(st, &answer);
        return loop->debug && rows != NULL ? future_of(loop, rows) : rows;
    }
    return ask_forward(loop, &ask);
}

/* _getnameinfo(sockaddr, flags): likewise. */
static PyObject *loop_getnameinfo(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    TdlLoop *loop = TDL_LOOP(self);
    struct tdl_dns_state *st = loop->state->dns;
    struct tdl_dns_ask_reverse ask;
    char host[TDL_NUMERIC_HOST_MAX];
    char service[TDL_NUMERIC_SERVICE_MAX];
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "_getnameinfo() takes 2 arguments");
        return NULL;
    }
    if (tdl__check_closed(loop) < 0) {
        return NULL;
    }
    if (!is_standard(loop, st->str_getnameinfo) || !tdl__dns_shape_reverse(st, args[0], args[1], &ask)) {
        return left_to_python(loop);
    }
    if (TDL_REFUSED("socket.getnameinfo", "(O)", args[0]) || tdl__check_closed(loop) < 0) {
        return NULL;
    }
    if (tdl_numeric_reverse(host, service, (const struct sockaddr *)&ask.address, ask.length, ask.flags)) {
        loop->dns->inline_count++;
        return tdl__dns_names(host, service);
    }
    return ask_reverse(loop, &ask);
}

/* _drop_lookup(future): the caller waits no more; a lookup that waits for a slot never reaches libc. */
static PyObject *loop_drop_lookup(PyObject *self, PyObject *future)
{
    struct tdl_dns *dns = TDL_LOOP(self)->dns;
    for (struct tdl_node *node = dns->requests.next; node != &dns->requests; node = node->next) {
        struct tdl_dns_request *request = request_of_node(node);
        if (request->future != future) {
            continue;
        }
        Py_DECREF(request_steal_future(request));
        /* When it was done before, its item is on its way and finds no future. */
        (void)tdl_lookup_drop(&request->lookup, dns->pool);
        break;
    }
    Py_RETURN_NONE;
}

static PyObject *loop_lookup_info(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    struct tdl_dns *dns = TDL_LOOP(self)->dns;
    struct tdl_pool_counts counts = {0};
    if (dns->pool != NULL) {
        tdl_pool_counts(dns->pool, &counts);
    }
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:I,s:I,s:I,s:I,s:I}", "inline", (unsigned long long)dns->inline_count, "native",
        (unsigned long long)dns->native_count, "python", (unsigned long long)dns->python_count, "slots",
        dns->slots != 0 ? dns->slots : tdl_lookup_slots(), "threads", counts.threads, "threads_started",
        counts.threads_started, "executing", counts.running[0], "waiting", counts.waiting[0]);
}

/* Before the first lookup; Python has checked the range. */
static PyObject *loop_set_lookup_slots(PyObject *self, PyObject *value)
{
    unsigned long slots = PyLong_AsUnsignedLong(value);
    if (slots == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    TDL_LOOP(self)->dns->slots = (uint32_t)slots;
    Py_RETURN_NONE;
}

PyMethodDef tdl__dns_methods[] = {
    {"_getaddrinfo", (PyCFunction)(void (*)(void))loop_getaddrinfo, METH_FASTCALL, NULL},
    {"_getnameinfo", (PyCFunction)(void (*)(void))loop_getnameinfo, METH_FASTCALL, NULL},
    {"_drop_lookup", loop_drop_lookup, METH_O, NULL},
    {"_lookup_info", loop_lookup_info, METH_NOARGS, NULL},
    {"_set_lookup_slots", loop_set_lookup_slots, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static int part_open(TdlLoop *loop)
{
    loop->dns = tdl_calloc(1, sizeof *loop->dns);
    if (loop->dns == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    tdl_node_init(&loop->dns->requests);
    return 0;
}

static int part_traverse(TdlLoop *loop, visitproc visit, void *arg)
{
    struct tdl_node *requests = loop->dns != NULL ? &loop->dns->requests : NULL;
    for (struct tdl_node *node = requests != NULL ? requests->next : NULL; node != requests;
         node = node->next) {
        Py_VISIT(request_of_node(node)->future);
    }
    return 0;
}

static void part_clear(TdlLoop *loop)
{
    while (loop->dns != NULL && tdl_node_is_linked(&loop->dns->requests)) {
        Py_XDECREF(request_steal_future(request_of_node(loop->dns->requests.next)));
    }
}

/* A loop that has nothing else to do watches for an answer before it sleeps. */
static struct tdl_patience *part_watches(TdlLoop *loop, uint64_t timeout_ns)
{
    struct tdl_dns *dns = loop->dns;
    bool watches = tdl_node_is_linked(&dns->requests) && timeout_ns > TDL_WATCH_NS &&
                   tdl_patience_watches(&dns->patience);
    return watches ? &dns->patience : NULL;
}

/* Never waits for libc: the pool's last worker frees what is still being looked up. The futures go first,
 * since after close a request may be freed at any moment. */
static void part_close(TdlLoop *loop)
{
    struct tdl_pool *pool = loop->dns != NULL ? loop->dns->pool : NULL;
    if (pool != NULL) {
        loop->dns->pool = NULL;
        part_clear(loop);
        tdl_pool_close(pool);
    }
}

static void part_release(TdlLoop *loop)
{
    tdl_free(loop->dns);
    loop->dns = NULL;
}

/* The child's own threads take over what was waiting or executing in the parent. */
static void part_after_fork(TdlLoop *loop)
{
    struct tdl_dns *dns = loop->dns;
    struct tdl_job *job;
    while (dns->pool != NULL && (job = tdl_pool_take_forked(dns->pool)) != NULL) {
        struct tdl_dns_request *request = TDL_CONTAINER_OF(job, struct tdl_dns_request, lookup.job);
        if (tdl_lookup_submit(&request->lookup, dns->pool, 0, &loop->inbox, &request->item.link) != 0) {
            request->lookup.eai = EAI_AGAIN;
            (void)tdl_inbox_post(&loop->inbox, &request->item.link);
        }
    }
}

const struct tdl_part tdl__dns_part = {
    .open = part_open,
    .watches = part_watches,
    .after_fork = part_after_fork,
    .close = part_close,
    .traverse = part_traverse,
    .clear = part_clear,
    .release = part_release,
};
