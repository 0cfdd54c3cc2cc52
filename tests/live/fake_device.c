/* A device as ggml sees a graphics card: memory that the host may not touch, pinned host memory, streams that
   run beside the host, and events. It computes with the CPU backend, but like a card:

   - Every request to a backend is a task of its stream and runs later, in a thread of the stream. A graph is
     what its nodes were when it was launched. Bytes for the host are garbage until they were waited for. A copy
     from pinned memory takes the bytes that lie there when it runs.
   - New memory is not a number. Rows of quantised matrices are read in steps of 512 columns, so the bytes
     behind the last one must have been written.
   - A clock for each stream and for the host says which task comes after which (vector clocks). Each task notes
     the bytes that it reads and writes, of a matrix of experts only those of the chosen ones. Two tasks that
     use the same bytes, one of them writing, must be in order. Memory in use must not be freed.
   - A graph that was launched twice with the same nodes is captured, and replayed while its key stays: its first
     node and ggml's number for it, as in ggml-cuda. A replay uses the pointers of the captured graph.
   - A backend is for one thread at a time: between a thread's first copy and its wait for it, no other thread
     may use that backend. (Vulkan resets command buffers in that wait.)

   fake_device() registers it; fake_counts() says what was asked of it; fake_failure() gives the first thing that
   was wrong; fake_limits() sets the largest buffer, the largest tensor of experts that it takes, and how much
   memory can be pinned; fake_refuse() lets allocations fail, and fake_room() limits the memory. With FAKE_NO_WAIT
   set, nobody waits for a backend, and with FAKE_NO_EVENT no stream waits for another, so that fake_failure() must
   find something. Preloaded with FAKE_CLOCK set, ggml's clock is a day ahead. With FAKE_REORDER set to "shared", a prompt's graph is reordered: a mat-mul of shared experts runs
   between those of routed experts. Set to a number, every graph gets a random legal order; with a "+" behind the
   number, another one for more than eight tokens.

   The structures are those of ggml/src/ggml-backend-impl.h and ggml-impl.h of the pinned llama.cpp.          */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ggml-backend.h"
#include "ggml-cpu.h"

typedef struct ggml_tensor tensor_t;

struct ggml_backend_buffer_type {
    const char * (*get_name)(ggml_backend_buffer_type_t);
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t, size_t);
    size_t (*get_alignment)(ggml_backend_buffer_type_t);
    size_t (*get_max_size)(ggml_backend_buffer_type_t);
    size_t (*get_alloc_size)(ggml_backend_buffer_type_t, const tensor_t *);
    bool (*is_host)(ggml_backend_buffer_type_t);
    ggml_backend_dev_t device;
    void * context;
};

struct ggml_backend_buffer {
    void * iface[11];
    ggml_backend_buffer_type_t buft;
    /* the rest stays as the CPU made it */
};

struct ggml_backend {
    ggml_guid_t guid;
    const char * (*get_name)(ggml_backend_t);
    void (*free)(ggml_backend_t);
    void (*set_tensor_async)(ggml_backend_t, tensor_t *, const void *, size_t, size_t);
    void (*get_tensor_async)(ggml_backend_t, const tensor_t *, void *, size_t, size_t);
    void * set_tensor_2d_async;
    void * get_tensor_2d_async;
    bool (*cpy_tensor_async)(ggml_backend_t, ggml_backend_t, const tensor_t *, tensor_t *);
    void (*synchronize)(ggml_backend_t);
    void * plans[4];
    enum ggml_status (*graph_compute)(ggml_backend_t, struct ggml_cgraph *);
    void (*event_record)(ggml_backend_t, ggml_backend_event_t);
    void (*event_wait)(ggml_backend_t, ggml_backend_event_t);
    void (*graph_optimize)(ggml_backend_t, struct ggml_cgraph *, void *);
    ggml_backend_dev_t device;
    void * context;
};

struct ggml_cgraph {
    int size, n_nodes, n_leafs;
    tensor_t **nodes, **grads, **grad_accs, **leafs;
    int32_t * use_counts;
    struct {
        size_t size;
        void *used, *keys;
    } visited;
    int order;
    uint64_t uid;
};

struct ggml_backend_event {
    ggml_backend_dev_t device;
    void * context;
};

struct ggml_backend_device {
    const char * (*get_name)(ggml_backend_dev_t);
    const char * (*get_description)(ggml_backend_dev_t);
    void (*get_memory)(ggml_backend_dev_t, size_t *, size_t *);
    enum ggml_backend_dev_type (*get_type)(ggml_backend_dev_t);
    void (*get_props)(ggml_backend_dev_t, struct ggml_backend_dev_props *);
    ggml_backend_t (*init_backend)(ggml_backend_dev_t, const char *);
    ggml_backend_buffer_type_t (*get_buffer_type)(ggml_backend_dev_t);
    ggml_backend_buffer_type_t (*get_host_buffer_type)(ggml_backend_dev_t);
    void * buffer_from_host_ptr;
    bool (*supports_op)(ggml_backend_dev_t, const tensor_t *);
    bool (*supports_buft)(ggml_backend_dev_t, ggml_backend_buffer_type_t);
    bool (*offload_op)(ggml_backend_dev_t, const tensor_t *);
    ggml_backend_event_t (*event_new)(ggml_backend_dev_t);
    void (*event_free)(ggml_backend_dev_t, ggml_backend_event_t);
    void (*event_synchronize)(ggml_backend_dev_t, ggml_backend_event_t);
    ggml_backend_reg_t reg;
    void * context;
};

struct ggml_backend_reg {
    int api_version;
    const char * (*get_name)(ggml_backend_reg_t);
    size_t (*get_device_count)(ggml_backend_reg_t);
    ggml_backend_dev_t (*get_device)(ggml_backend_reg_t, size_t);
    void * (*get_proc_address)(ggml_backend_reg_t, const char *);
    void * context;
};

enum {
    max_task = 4096,
    max_stream = 128,
    max_record = 1024,
    max_buffer = 4096,
    max_captured = 64,
    max_few_token = 8,
    min_offloaded_token = 32,
    alignment_bytes = 128,
    row_columns = 512,
    n_kept = 16,
    copy_us = 300,
    launch_us = 30,
};

struct counts {
    atomic_long n_backend, n_async, n_shared, n_pinned_bytes, n_few, n_many, n_cut, n_sync, n_upload, n_view;
    atomic_long n_fused, n_captured, n_replayed, n_async_bytes, n_alone, n_drained, n_wait, n_awaited;
};
static struct counts counts;

static atomic_long n_memory_bytes; /* allocated; the kernels' is taken when many tokens are first computed */
static const long kernel_bytes = 300L << 20;
static atomic_bool has_kernels;

static size_t max_buffer_bytes = SIZE_MAX, max_tensor_bytes = SIZE_MAX, max_pinned_bytes = SIZE_MAX;
static atomic_long max_memory_bytes = LONG_MAX;
static atomic_long n_failing; /* allocations that fail next */
static atomic_long n_until_refusal = -1; /* allocations that still succeed; negative: all */

/* One lock for everything but the work itself. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* ---- what is wrong -------------------------------------------------------------------------------- */

static char failure[512]; /* the first */

static void fail(const char * format, ...) {
    if (failure[0]) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure, sizeof failure, format, arguments);
    va_end(arguments);
    fprintf(stderr, "fake device: %s\n", failure);
}

/* ---- memory as the checker sees it; REQUIRES: locked ---------------------------------------------- */

struct memory {
    const char *begin, *end;
    bool is_pinned;
};
static struct memory memories[max_buffer];
static int n_memory;

static const struct memory * memory_at(const void * begin, size_t size) {
    const char * from = begin;
    for (int i = 0; i < n_memory; i++) {
        if (from >= memories[i].begin && from + size <= memories[i].end) {
            return &memories[i];
        }
    }
    return NULL;
}

static bool is_pinned(const void * begin, size_t size) {
    const struct memory * m = memory_at(begin, size);
    return m && m->is_pinned;
}

/* ---- order: which task comes after which; REQUIRES: locked ---------------------------------------- */

/* [stream]: tasks up to this number are over, or come before. Stream 0 is the host. */
struct clock {
    long of[max_stream];
};

struct range {
    const char *begin, *end;
    bool writes;
    char name[GGML_MAX_NAME];
};

struct record {
    int stream;
    long number;
    struct clock after;
    int n_range, n_room;
    struct range * ranges;
};
static struct record records[max_record]; /* the last ones */
static long n_record;
static struct clock host;

static void join(struct clock * clock, const struct clock * with) {
    for (int i = 0; i < max_stream; i++) {
        clock->of[i] = clock->of[i] > with->of[i] ? clock->of[i] : with->of[i];
    }
}

static struct record * new_record(int stream, long number, const struct clock * after) {
    struct record * r = &records[n_record++ % max_record];
    r->stream = stream;
    r->number = number;
    r->after = *after;
    r->n_range = 0;
    return r;
}

static bool in_order(const struct record * a, const struct record * b) {
    return b->after.of[a->stream] >= a->number || a->after.of[b->stream] >= b->number;
}

static void note(struct record * r, const void * begin, size_t size, bool writes, const char * name) {
    if (size == 0) {
        return;
    }
    if (r->n_range == r->n_room) {
        r->n_room = r->n_room ? 2 * r->n_room : 4;
        r->ranges = realloc(r->ranges, (size_t) r->n_room * sizeof *r->ranges);
    }
    struct range * x = &r->ranges[r->n_range++];
    *x = (struct range){begin, (const char *) begin + size, writes, ""};
    snprintf(x->name, sizeof x->name, "%s", name);
}

/* Compare the ranges of `r` from number `first` on with those of all records that are not in order with it. */
static void compare(const struct record * r, int first) {
    for (int i = 0; i < max_record && i < n_record; i++) {
        const struct record * o = &records[i];
        if (o == r || in_order(o, r)) {
            continue;
        }
        for (int a = first; a < r->n_range; a++) {
            for (int b = 0; b < o->n_range; b++) {
                const struct range *x = &r->ranges[a], *y = &o->ranges[b];
                if ((x->writes || y->writes) && x->begin < y->end && y->begin < x->end) {
                    fail("%s of stream %d and %s of stream %d use the same bytes without order", y->name, o->stream,
                         x->name, r->stream);
                }
            }
        }
    }
}

/* The host uses a device's memory at once. */
static void host_uses(const void * begin, size_t size, bool writes, const char * name) {
    pthread_mutex_lock(&lock);
    if (!memory_at(begin, size)) {
        fail("the host uses memory of %s that is not allocated", name);
    }
    host.of[0]++;
    struct record * r = new_record(0, host.of[0], &host);
    note(r, begin, size, writes, name);
    compare(r, 0);
    pthread_mutex_unlock(&lock);
}

/* ---- streams: what was asked of a backend, done in order by a thread ---------------------------- */

struct event {
    struct stream * stream;
    long number;
    struct clock clock;
};

/* A graph as it was launched. `sources` holds copies of what the nodes read. */
struct launch {
    int n_node;
    tensor_t *nodes, *sources;
    atomic_int n_user;
};

struct task {
    enum { copy_in, copy_out, compute_graph, wait_event } kind;
    void * to;
    const void * from; /* of pinned memory; otherwise NULL */
    void * kept;       /* the bytes of `from` when the copy was asked for */
    size_t size;
    char name[GGML_MAX_NAME];
    struct launch * launch;
    struct event event;
    struct record * record;
};

struct captured {
    const tensor_t * key;
    uint64_t uid;
    bool is_warm;
    struct launch *last, *graph;
    long used;
};

struct stream {
    int number; /* of the stream */
    ggml_backend_t cpu;
    struct ggml_context * context;
    struct ggml_cgraph * empty;
    pthread_t thread;
    struct task tasks[max_task];
    long n_asked, n_done;
    long n_waited, last_graph; /* tasks that the host waited for; the last one that computes something */
    struct clock clock;
    bool over;
    bool is_used; /* by this thread, which has not waited yet */
    pthread_t user;
    struct captured captured[max_captured];
    long n_launch;
};
static bool stream_taken[max_stream] = {true};
static long tasks_before[max_stream]; /* of streams with this number that are gone */

static void release(struct launch * launch) {
    if (launch && atomic_fetch_sub(&launch->n_user, 1) == 1) {
        free(launch->nodes);
        free(launch->sources);
        free(launch);
    }
}

static struct launch * keep(struct launch * launch) {
    atomic_fetch_add(&launch->n_user, 1);
    return launch;
}

static bool is_nothing(const tensor_t * t) {
    return t->op == GGML_OP_NONE || t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE ||
           t->op == GGML_OP_TRANSPOSE;
}

static struct launch * launch_of(const struct ggml_cgraph * graph) {
    struct launch * l = calloc(1, sizeof *l);
    int n_source = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            n_source += graph->nodes[i]->src[j] != NULL;
        }
    }
    l->n_node = graph->n_nodes;
    l->n_user = 1;
    l->nodes = calloc((size_t) graph->n_nodes + 1, sizeof(tensor_t));
    l->sources = calloc((size_t) n_source + 1, sizeof(tensor_t));
    n_source = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        l->nodes[i] = *graph->nodes[i];
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            if (graph->nodes[i]->src[j]) {
                l->nodes[i].src[j] = &l->sources[n_source];
                l->sources[n_source++] = *graph->nodes[i]->src[j];
            }
        }
    }
    return l;
}

/* As ggml-cuda compares nodes: everything of the nodes, and place and shape of what they read. */
static bool is_same(const struct launch * a, const struct launch * b) {
    if (a->n_node != b->n_node) {
        return false;
    }
    for (int i = 0; i < a->n_node; i++) {
        tensor_t x = a->nodes[i], y = b->nodes[i];
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            const tensor_t *s = x.src[j], *t = y.src[j];
            if (!s != !t || (s && (s->data != t->data || memcmp(s->ne, t->ne, sizeof s->ne) ||
                                   memcmp(s->nb, t->nb, sizeof s->nb)))) {
                return false;
            }
            x.src[j] = y.src[j] = NULL;
        }
        if (memcmp(&x, &y, sizeof x)) {
            return false;
        }
    }
    return true;
}

/* Return what runs for a launch of `key`: itself, or an earlier one that was captured. Takes `now`. */
static struct launch * replayed(struct stream * s, const tensor_t * key, uint64_t uid, struct launch * now) {
    struct captured * c = &s->captured[0];
    for (int i = 0; i < max_captured; i++) {
        struct captured * other = &s->captured[i];
        c = other->key == key || (c->key != key && other->used < c->used) ? other : c;
    }
    if (c->key != key) {
        release(c->last);
        release(c->graph);
        *c = (struct captured){.key = key};
    }
    c->used = ++s->n_launch;
    const bool is_steady = c->last && ((uid && uid == c->uid) || is_same(c->last, now));
    if (!(uid && uid == c->uid)) {
        release(c->last);
        c->last = keep(now);
    }
    c->uid = uid;
    if (!is_steady) {
        c->is_warm = false;
        release(c->graph);
        c->graph = NULL;
        return now;
    }
    if (!c->is_warm) {
        c->is_warm = true;
        c->graph = keep(now);
        counts.n_captured++;
        return now;
    }
    counts.n_replayed++;
    release(now);
    return keep(c->graph);
}

static int n_until_experts(const struct launch * l, int from) {
    int n = 0;
    while (from + n < l->n_node && (n == 0 || l->nodes[from + n].op != GGML_OP_MUL_MAT_ID)) {
        n++;
    }
    return n;
}

/* Kernels read quantised rows in steps. REQUIRES: locked. */
static void check_behind(const tensor_t * matrices, const char * end) {
    if (!ggml_is_quantized(matrices->type)) {
        return;
    }
    if ((uintptr_t) matrices->data % alignment_bytes && !matrices->view_src) {
        fail("%s is not aligned", matrices->name);
    }
    if (matrices->ne[0] % row_columns == 0) {
        return;
    }
    const size_t size = ggml_row_size(matrices->type, row_columns - matrices->ne[0] % row_columns);
    if (!memory_at(end, size)) {
        fail("a kernel reads behind the memory of %s", matrices->name);
        return;
    }
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char) end[i] != 0xff) {
            return;
        }
    }
    fail("a kernel reads behind %s, where nobody has written", matrices->name);
}

/* A wave's padding comes last and may read any slot: only the rows before it are written. */
static int64_t n_used_row(const struct launch * l) {
    const tensor_t * last = &l->nodes[l->n_node - 1];
    const bool is_wave = last->op == GGML_OP_SET_ROWS && strncmp(last->src[2]->name, "cache", 5);
    return is_wave ? last->src[0]->ne[1] : INT64_MAX;
}

static int32_t id_of(const tensor_t * ids, int64_t choice, int64_t token) {
    return *(const int32_t *) ((const char *) ids->data + token * (int64_t) ids->nb[1] + choice * (int64_t) ids->nb[0]);
}

/* Sorting many tokens by expert, ggml-cuda counts each expert of a token once. REQUIRES: locked. */
static void check_distinct(const tensor_t * node) {
    const tensor_t * ids = node->src[2];
    for (int64_t t = 0; t < ids->ne[1] && ids->ne[1] > max_few_token; t++) {
        for (int64_t k = 1; k < ids->ne[0]; k++) {
            for (int64_t j = 0; j < k; j++) {
                if (id_of(ids, j, t) == id_of(ids, k, t)) {
                    fail("%s uses an expert twice for one token", node->name);
                }
            }
        }
    }
}

/* Note the experts that a mat-mul reads: its ids are known now. */
static void note_experts(struct record * r, const tensor_t * node, int64_t n_row) {
    const tensor_t *experts = node->src[0], *ids = node->src[2];
    pthread_mutex_lock(&lock);
    const int first = r->n_range;
    check_distinct(node);
    for (int64_t t = 0; t < ids->ne[1]; t++) {
        for (int64_t k = 0; k < ids->ne[0] && n_row-- > 0; k++) {
            const int32_t id = id_of(ids, k, t);
            if (id < 0 || id >= experts->ne[2]) {
                fail("%s reads expert %d of %d", node->name, (int) id, (int) experts->ne[2]);
                continue;
            }
            const char * begin = (const char *) experts->data + (size_t) id * experts->nb[2];
            note(r, begin, experts->nb[1] * (size_t) experts->ne[1], false, experts->name);
            check_behind(experts, begin + experts->nb[1] * (size_t) experts->ne[1]);
        }
    }
    compare(r, first);
    pthread_mutex_unlock(&lock);
}

static void run_graph(struct stream * s, struct launch * l, struct record * r) {
    tensor_t ** nodes = malloc((size_t) l->n_node * sizeof *nodes);
    for (int i = 0; i < l->n_node; i++) {
        nodes[i] = &l->nodes[i];
    }
    for (int i = 0, n; i < l->n_node; i += n) {
        if (l->nodes[i].op == GGML_OP_MUL_MAT_ID) {
            note_experts(r, &l->nodes[i], n_used_row(l));
        }
        n = n_until_experts(l, i);
        struct ggml_cgraph part = *s->empty;
        part.nodes = nodes + i;
        part.n_nodes = n;
        if (ggml_backend_graph_compute(s->cpu, &part) != GGML_STATUS_SUCCESS) {
            fail("the kernels failed");
        }
    }
    free(nodes);
}

static void run_task(struct stream * s, struct task * t) {
    switch (t->kind) {
    case copy_in:
        usleep(copy_us);
        if (t->from && memcmp(t->from, t->kept, t->size)) {
            fail("the source of the copy to %s was written to before the copy ended", t->name);
        }
        memcpy(t->to, t->kept, t->size);
        break;
    case copy_out:
        usleep(copy_us);
        memcpy(t->to, t->from, t->size);
        break;
    case compute_graph:
        usleep(launch_us);
        run_graph(s, t->launch, t->record);
        release(t->launch);
        break;
    case wait_event:
        pthread_mutex_lock(&lock);
        while (t->event.stream && t->event.stream->n_done < t->event.number) {
            pthread_cond_wait(&changed, &lock);
        }
        pthread_mutex_unlock(&lock);
        break;
    }
    free(t->kept);
}

static void * run(void * argument) {
    struct stream * s = argument;
    pthread_mutex_lock(&lock);
    while (true) {
        while (!s->over && s->n_done == s->n_asked) {
            pthread_cond_wait(&changed, &lock);
        }
        if (s->n_done == s->n_asked) {
            break;
        }
        struct task t = s->tasks[s->n_done % max_task];
        pthread_mutex_unlock(&lock);
        run_task(s, &t);
        pthread_mutex_lock(&lock);
        s->n_done++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* REQUIRES: locked. */
static void use(struct stream * s, bool goes_on) {
    if (s->is_used && !pthread_equal(s->user, pthread_self())) {
        counts.n_shared++;
    }
    s->is_used = goes_on;
    s->user = pthread_self();
}

/* Begin a task: what the host knows comes before it. Return its record. REQUIRES: locked, until push(). */
static struct record * begin_task(struct stream * s) {
    use(s, true);
    while (s->n_asked - s->n_done == max_task) {
        pthread_cond_wait(&changed, &lock);
    }
    join(&s->clock, &host);
    s->clock.of[s->number] = tasks_before[s->number] + s->n_asked + 1;
    return new_record(s->number, s->clock.of[s->number], &s->clock);
}

/* The host waits for the tasks up to this number. REQUIRES: locked. */
static void count_wait(struct stream * s, long number) {
    counts.n_drained += s->n_waited < s->last_graph && s->last_graph <= number;
    s->n_waited = s->n_waited > number ? s->n_waited : number;
}

static void push(struct stream * s, struct task task) {
    s->tasks[s->n_asked++ % max_task] = task;
    pthread_cond_broadcast(&changed);
}

static void finish(struct stream * s) {
    pthread_mutex_lock(&lock);
    count_wait(s, s->n_asked);
    while (s->n_done != s->n_asked) {
        pthread_cond_wait(&changed, &lock);
    }
    join(&host, &s->clock);
    use(s, false);
    pthread_mutex_unlock(&lock);
}

static pthread_t decoder; /* the thread that launched a graph last */

/* Count a wait of the thread that launches graphs. */
static void host_waits(void) { counts.n_wait += pthread_equal(decoder, pthread_self()) != 0; }

static void backend_synchronize(ggml_backend_t backend) {
    counts.n_sync++;
    host_waits();
    if (!getenv("FAKE_NO_WAIT")) {
        finish(backend->context);
    }
}

/* ---- a backend --------------------------------------------------------------------------------- */

static const char * backend_name(ggml_backend_t backend) {
    (void) backend;
    return "FAKE0";
}

static void backend_free(ggml_backend_t backend) {
    struct stream * s = backend->context;
    finish(s);
    pthread_mutex_lock(&lock);
    s->over = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_lock(&lock);
    tasks_before[s->number] += s->n_asked;
    stream_taken[s->number] = false;
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < max_captured; i++) {
        release(s->captured[i].last);
        release(s->captured[i].graph);
    }
    ggml_free(s->context);
    ggml_backend_free(s->cpu);
    free(s);
    free(backend);
}

static void set_async(ggml_backend_t backend, tensor_t * tensor, const void * from, size_t offset, size_t size) {
    counts.n_async++;
    counts.n_async_bytes += (long) size;
    struct task t = {.kind = copy_in, .to = (char *) tensor->data + offset, .size = size};
    snprintf(t.name, sizeof t.name, "%s", tensor->name);
    t.kept = malloc(size);
    memcpy(t.kept, from, size);
    pthread_mutex_lock(&lock);
    struct record * r = begin_task(backend->context);
    t.from = is_pinned(from, size) ? from : NULL;
    if (!memory_at(t.to, size)) {
        fail("a copy to %s goes to memory that is not allocated", tensor->name);
    }
    note(r, t.to, size, true, tensor->name);
    compare(r, 0);
    push(backend->context, t);
    pthread_mutex_unlock(&lock);
}

static void copy_later(ggml_backend_t backend, struct task t, const char * from, const char * to) {
    pthread_mutex_lock(&lock);
    struct record * r = begin_task(backend->context);
    note(r, t.from, t.size, false, from);
    note(r, t.to, t.size, true, to);
    compare(r, 0);
    push(backend->context, t);
    pthread_mutex_unlock(&lock);
}

static void get_async(ggml_backend_t backend, const tensor_t * tensor, void * to, size_t offset, size_t size) {
    struct task t = {.kind = copy_out, .to = to, .from = (const char *) tensor->data + offset, .size = size};
    const struct stream * s = backend->context;
    bool is_garbage = false; /* from an earlier request, which has not ended */
    pthread_mutex_lock(&lock);
    for (long i = s->n_done; i < s->n_asked; i++) {
        is_garbage |= s->tasks[i % max_task].to == to;
    }
    pthread_mutex_unlock(&lock);
    if (!is_garbage) {
        memset(to, 0xff, size);
    }
    copy_later(backend, t, tensor->name, "bytes for the host");
}

static struct ggml_backend_buffer_type memory, pinned;

static bool copy_async(ggml_backend_t backend, ggml_backend_t other, const tensor_t * from, tensor_t * to) {
    if (backend != other || from->buffer->buft != &memory || to->buffer->buft != &memory) {
        return false;
    }
    struct task t = {.kind = copy_out, .to = to->data, .from = from->data, .size = ggml_nbytes(from)};
    copy_later(backend, t, from->name, to->name);
    return true;
}

/* Nodes that a card computes in one kernel where they follow each other in a graph. */
static const enum ggml_op fused[][4] = {
    {GGML_OP_RMS_NORM, GGML_OP_MUL, GGML_OP_NONE},
    {GGML_OP_SOFT_MAX, GGML_OP_RESHAPE, GGML_OP_ARGSORT, GGML_OP_NONE},
    {GGML_OP_ARGSORT, GGML_OP_VIEW, GGML_OP_GET_ROWS, GGML_OP_NONE},
    {GGML_OP_MUL_MAT_ID, GGML_OP_MUL_MAT_ID, GGML_OP_GLU, GGML_OP_NONE},
    {GGML_OP_MUL_MAT_ID, GGML_OP_MUL, GGML_OP_VIEW, GGML_OP_NONE},
    {GGML_OP_MUL, GGML_OP_VIEW, GGML_OP_VIEW, GGML_OP_NONE},
    {GGML_OP_ROPE, GGML_OP_VIEW, GGML_OP_SET_ROWS, GGML_OP_NONE},
};

static long n_fused(const struct ggml_cgraph * graph) {
    long n = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        for (size_t p = 0; p < sizeof fused / sizeof *fused; p++) {
            int k = 0;
            while (k < 4 && fused[p][k] != GGML_OP_NONE && i + k < graph->n_nodes &&
                   graph->nodes[i + k]->op == fused[p][k]) {
                k++;
            }
            n += k == 4 || fused[p][k] == GGML_OP_NONE;
        }
    }
    return n;
}

static void count_kernels(const struct ggml_cgraph * graph) {
    counts.n_view++;
    counts.n_fused += n_fused(graph);
    for (int i = 0; i < graph->n_nodes; i++) {
        const tensor_t * node = graph->nodes[i];
        if (node->op == GGML_OP_MUL_MAT_ID) {
            (node->src[2]->ne[1] <= max_few_token ? &counts.n_few : &counts.n_many)[0]++;
            counts.n_alone += node->src[2]->ne[1] > max_few_token && node->src[2]->ne[0] == 1;
            has_kernels |= node->src[2]->ne[1] > max_few_token;
        }
    }
    counts.n_cut += strncmp(graph->nodes[graph->n_nodes - 1]->name, "ffn_moe_topk", 12) == 0;
}

static enum ggml_status compute(ggml_backend_t backend, struct ggml_cgraph * graph) {
    struct stream * s = backend->context;
    decoder = pthread_self();
    count_kernels(graph);
    struct launch * l = replayed(s, graph->nodes[0], graph->uid, launch_of(graph));
    pthread_mutex_lock(&lock);
    struct record * r = begin_task(s);
    for (int i = 0; i < l->n_node; i++) {
        const tensor_t * node = &l->nodes[i];
        if (is_nothing(node) || ggml_is_empty(node)) {
            continue;
        }
        note(r, node->data, ggml_nbytes(node), true, node->name);
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            const tensor_t * of = node->src[j];
            if (of && !(node->op == GGML_OP_MUL_MAT_ID && j == 0)) {
                note(r, of->data, ggml_nbytes(of), false, of->name);
            }
            if (of && ggml_nbytes(of) > 0 && !memory_at(of->data, 1)) {
                fail("%s reads %s, whose memory is not allocated", node->name, of->name);
            }
        }
        if (node->op == GGML_OP_MUL_MAT) {
            check_behind(node->src[0], (const char *) node->src[0]->data + ggml_nbytes(node->src[0]));
        }
        if (!memory_at(node->data, ggml_nbytes(node))) {
            fail("%s is computed into memory that is not allocated", node->name);
        }
    }
    compare(r, 0);
    push(s, (struct task){.kind = compute_graph, .launch = l, .record = r});
    s->last_graph = r->n_range > 0 ? s->n_asked : s->last_graph;
    pthread_mutex_unlock(&lock);
    return GGML_STATUS_SUCCESS;
}

static bool is_of(const tensor_t * node, enum ggml_op op, const char * part) {
    return node->op == op && strstr(node->src[0]->name, part);
}

/* Move the first mat-mul of each layer's shared experts, which read what the routed ones read. */
static void reorder_shared(struct ggml_cgraph * graph) {
    for (int i = 0; i < graph->n_nodes; i++) {
        if (!is_of(graph->nodes[i], GGML_OP_MUL_MAT_ID, "_exps") || graph->nodes[i]->src[2]->ne[1] <= max_few_token) {
            continue;
        }
        int from = i + 1;
        while (from < graph->n_nodes && !is_of(graph->nodes[from], GGML_OP_MUL_MAT, "_shexp")) {
            from++;
        }
        if (from < graph->n_nodes) {
            tensor_t * moved = graph->nodes[from];
            memmove(&graph->nodes[i + 2], &graph->nodes[i + 1], (size_t) (from - i - 1) * sizeof moved);
            graph->nodes[i + 1] = moved;
            i = from + 1;
        }
    }
}

static const tensor_t * root_of(const tensor_t * t) { return t->view_src ? t->view_src : t; }

static bool writes_into_view(const tensor_t * t) { return t->view_src && !is_nothing(t); }

static bool reads(const tensor_t * node, const tensor_t * root) {
    for (int j = 0; j < GGML_MAX_SRC; j++) {
        if (node->src[j] && root_of(node->src[j]) == root) {
            return true;
        }
    }
    return node->view_src == root;
}

/* Whether `later` must stay behind `earlier`. */
static bool depends(const tensor_t * later, const tensor_t * earlier) {
    for (int j = 0; j < GGML_MAX_SRC; j++) {
        if (later->src[j] == earlier) {
            return true;
        }
    }
    return later->view_src == earlier || (writes_into_view(later) && reads(earlier, later->view_src)) ||
           (writes_into_view(earlier) && reads(later, earlier->view_src));
}

static void reorder_at_random(struct ggml_cgraph * graph, uint64_t seed, bool by_tokens) {
    for (int i = 0; by_tokens && i < graph->n_nodes; i++) {
        const tensor_t * node = graph->nodes[i];
        seed = node->op == GGML_OP_MUL_MAT_ID && node->src[2]->ne[1] > max_few_token ? seed | (uint64_t) 1 << 32 : seed;
    }
    for (int i = 1; i < graph->n_nodes; i++) { /* let each node rise a random number of places, as far as it may */
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        int n_rise = (int) (seed >> 33) % 4;
        for (int at = i; n_rise-- > 0 && at > 0 && !depends(graph->nodes[at], graph->nodes[at - 1]); at--) {
            tensor_t * moved = graph->nodes[at];
            graph->nodes[at] = graph->nodes[at - 1];
            graph->nodes[at - 1] = moved;
        }
    }
}

static void reorder(ggml_backend_t backend, struct ggml_cgraph * graph, void * parameters) {
    (void) backend;
    (void) parameters;
    const char * how = getenv("FAKE_REORDER");
    if (strcmp(how, "shared") == 0) {
        reorder_shared(graph);
    } else {
        reorder_at_random(graph, strtoull(how, NULL, 10), strchr(how, '+') != NULL);
    }
}

static void event_record(ggml_backend_t backend, ggml_backend_event_t event) {
    struct stream * s = backend->context;
    pthread_mutex_lock(&lock);
    *(struct event *) event->context = (struct event){s, s->n_asked, s->clock};
    pthread_mutex_unlock(&lock);
}

static void event_synchronize(ggml_backend_dev_t device, ggml_backend_event_t event) {
    (void) device;
    struct event * e = event->context;
    host_waits();
    pthread_mutex_lock(&lock);
    if (e->stream) {
        count_wait(e->stream, e->number);
    }
    while (e->stream && e->stream->n_done < e->number) {
        pthread_cond_wait(&changed, &lock);
    }
    if (e->stream) {
        join(&host, &e->clock);
        use(e->stream, false);
    }
    pthread_mutex_unlock(&lock);
}

static void event_wait(ggml_backend_t backend, ggml_backend_event_t event) {
    struct stream * s = backend->context;
    pthread_mutex_lock(&lock);
    begin_task(s);
    counts.n_awaited += pthread_equal(decoder, pthread_self()) != 0;
    const struct event awaited = getenv("FAKE_NO_EVENT") ? (struct event){0} : *(struct event *) event->context;
    join(&s->clock, &awaited.clock);
    push(s, (struct task){.kind = wait_event, .event = awaited});
    pthread_mutex_unlock(&lock);
}

static ggml_backend_event_t event_new(ggml_backend_dev_t device) {
    ggml_backend_event_t event = malloc(sizeof *event);
    event->device = device;
    event->context = calloc(1, sizeof(struct event));
    return event;
}

static void event_free(ggml_backend_dev_t device, ggml_backend_event_t event) {
    (void) device;
    free(event->context);
    free(event);
}

static ggml_backend_t init_backend(ggml_backend_dev_t device, const char * parameters) {
    (void) parameters;
    static uint8_t guid[16] = "fake device here";
    counts.n_backend++;
    struct stream * s = calloc(1, sizeof *s);
    s->cpu = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(s->cpu, 1);
    s->context = ggml_init((struct ggml_init_params){ggml_graph_overhead_custom(8, false) + 1024, NULL, true});
    s->empty = ggml_new_graph_custom(s->context, 8, false);
    pthread_mutex_lock(&lock);
    while (s->number < max_stream - 1 && stream_taken[s->number]) {
        s->number++;
    }
    stream_taken[s->number] = true;
    pthread_mutex_unlock(&lock);
    pthread_create(&s->thread, NULL, run, s);
    ggml_backend_t backend = calloc(1, sizeof *backend);
    backend->guid = &guid;
    backend->get_name = backend_name;
    backend->free = backend_free;
    backend->set_tensor_async = set_async;
    backend->get_tensor_async = get_async;
    backend->cpy_tensor_async = copy_async;
    backend->synchronize = backend_synchronize;
    backend->graph_compute = compute;
    backend->event_record = event_record;
    backend->event_wait = event_wait;
    backend->graph_optimize = getenv("FAKE_REORDER") ? reorder : NULL;
    backend->device = device;
    backend->context = s;
    return backend;
}

/* ---- memory ------------------------------------------------------------------------------------ */

static const char * memory_name(ggml_backend_buffer_type_t buft) { return buft == &pinned ? "FAKE_Host" : "FAKE0"; }

static void upload(ggml_backend_buffer_t buffer, tensor_t * tensor, const void * from, size_t offset, size_t size) {
    (void) buffer;
    counts.n_upload++;
    host_waits();
    host_uses((char *) tensor->data + offset, size, true, tensor->name);
    memcpy((char *) tensor->data + offset, from, size);
}

static void download(ggml_backend_buffer_t buffer, const tensor_t * tensor, void * to, size_t offset, size_t size) {
    (void) buffer;
    host_waits();
    host_uses((const char *) tensor->data + offset, size, false, tensor->name);
    memcpy(to, (const char *) tensor->data + offset, size);
}

static bool copy_within(ggml_backend_buffer_t buffer, const tensor_t * from, tensor_t * to) {
    (void) buffer;
    if (from->buffer->buft != &memory) {
        return false;
    }
    host_waits();
    host_uses(from->data, ggml_nbytes(from), false, from->name);
    host_uses(to->data, ggml_nbytes(to), true, to->name);
    memcpy(to->data, from->data, ggml_nbytes(from));
    return true;
}

static size_t size_with_padding(ggml_backend_buffer_type_t buft, const tensor_t * tensor) {
    (void) buft;
    const int64_t rest = tensor->ne[0] % row_columns;
    return ggml_nbytes(tensor) +
           (ggml_is_quantized(tensor->type) && rest ? ggml_row_size(tensor->type, row_columns - rest) : 0);
}

static enum ggml_status clear_padding(ggml_backend_buffer_t buffer, tensor_t * tensor) {
    const size_t size = ggml_nbytes(tensor);
    if (!tensor->view_src && ggml_backend_buffer_get_usage(buffer) != GGML_BACKEND_BUFFER_USAGE_COMPUTE) {
        memset((char *) tensor->data + size, 0, size_with_padding(buffer->buft, tensor) - size);
    }
    return GGML_STATUS_SUCCESS;
}

static void free_buffer(ggml_backend_buffer_t buffer) {
    char * base = ggml_backend_buffer_get_base(buffer);
    const size_t size = ggml_backend_buffer_get_size(buffer);
    pthread_mutex_lock(&lock);
    host.of[0]++;
    struct record * r = new_record(0, host.of[0], &host);
    note(r, base, size, true, "freed memory");
    compare(r, 0);
    for (int i = 0; i < n_memory; i++) {
        if (memories[i].begin == base) {
            memories[i] = memories[--n_memory];
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    n_memory_bytes -= buffer->buft == &memory ? (long) size : 0;
    memset(base, 0xff, size);
    static char * _Atomic kept[n_kept]; /* so that new memory has another address for a while */
    static atomic_long n_freed;
    free(atomic_exchange(&kept[n_freed++ % n_kept], base));
}

static ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t buft, size_t size) {
    const bool of_device = buft == &memory;
    if (size > max_buffer_bytes) {
        return NULL;
    }
    if (of_device && n_until_refusal >= 0 && n_until_refusal-- <= 0) {
        n_until_refusal = 0;
        return NULL;
    }
    if (of_device && (n_memory_bytes + (long) size > max_memory_bytes || (n_failing > 0 && n_failing--))) {
        return NULL;
    }
    if (!of_device && counts.n_pinned_bytes + size > max_pinned_bytes) {
        return ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size); /* ordinary memory, as ggml does */
    }
    void * base;
    if (posix_memalign(&base, alignment_bytes, size + alignment_bytes)) {
        return NULL;
    }
    memset(base, 0xff, size);
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(base, size);
    buffer->buft = buft;
    buffer->iface[0] = (void *) free_buffer;
    if (of_device) {
        buffer->iface[2] = (void *) clear_padding; /* init_tensor */
        buffer->iface[4] = (void *) upload;        /* set_tensor */
        buffer->iface[5] = (void *) download;      /* get_tensor */
        buffer->iface[8] = (void *) copy_within;   /* cpy_tensor */
        n_memory_bytes += (long) size;
    } else {
        counts.n_pinned_bytes += (long) size;
    }
    pthread_mutex_lock(&lock);
    if (n_memory == max_buffer) {
        fail("there are too many buffers");
        n_memory--;
    }
    memories[n_memory++] = (struct memory){base, (char *) base + size, !of_device};
    pthread_mutex_unlock(&lock);
    return buffer;
}

static size_t alignment(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return alignment_bytes;
}

static size_t max_size(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return max_buffer_bytes;
}

static bool is_host(ggml_backend_buffer_type_t buft) { return buft == &pinned; }

/* ---- the device -------------------------------------------------------------------------------- */

static const char * device_name(ggml_backend_dev_t device) {
    (void) device;
    return "FAKE0";
}

static void device_memory(ggml_backend_dev_t device, size_t * free_bytes, size_t * total_bytes) {
    (void) device;
    *total_bytes = (size_t) 4 << 30;
    *free_bytes = *total_bytes - (size_t) (n_memory_bytes + (has_kernels ? kernel_bytes : 0));
}

static enum ggml_backend_dev_type device_type(ggml_backend_dev_t device) {
    (void) device;
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void device_props(ggml_backend_dev_t device, struct ggml_backend_dev_props * props) {
    memset(props, 0, sizeof *props);
    props->name = props->description = "FAKE0";
    device_memory(device, &props->memory_free, &props->memory_total);
    props->type = GGML_BACKEND_DEVICE_TYPE_GPU;
    props->caps.async = props->caps.host_buffer = props->caps.events = true;
}

static ggml_backend_buffer_type_t device_memory_type(ggml_backend_dev_t device) {
    (void) device;
    return &memory;
}

static ggml_backend_buffer_type_t pinned_memory_type(ggml_backend_dev_t device) {
    (void) device;
    return &pinned;
}

static bool supports_op(ggml_backend_dev_t device, const tensor_t * op) {
    (void) device;
    if (op->op == GGML_OP_MUL_MAT_ID && ggml_nbytes(op->src[0]) > max_tensor_bytes) {
        return false;
    }
    return ggml_backend_dev_supports_op(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU), op);
}

static bool supports_buft(ggml_backend_dev_t device, ggml_backend_buffer_type_t buft) {
    (void) device;
    return buft == &memory;
}

/* As ggml-cuda's: of a prompt it also computes what has its weights in the host's memory. */
static bool offload_op(ggml_backend_dev_t device, const tensor_t * op) {
    (void) device;
    return (op->op == GGML_OP_MUL_MAT_ID ? op->ne[2] : op->ne[1]) >= min_offloaded_token;
}

static struct ggml_backend_device device;

static const char * reg_name(ggml_backend_reg_t reg) {
    (void) reg;
    return "FAKE";
}

static size_t device_count(ggml_backend_reg_t reg) {
    (void) reg;
    return 1;
}

static ggml_backend_dev_t get_device(ggml_backend_reg_t reg, size_t index) {
    (void) reg;
    (void) index;
    return &device;
}

static void * get_proc_address(ggml_backend_reg_t reg, const char * name) {
    (void) reg;
    (void) name;
    return NULL;
}

static struct ggml_backend_reg reg = {2, reg_name, device_count, get_device, get_proc_address, NULL};

static struct ggml_backend_buffer_type memory = {
    memory_name, alloc_buffer, alignment, max_size, size_with_padding, is_host, &device, NULL,
};
static struct ggml_backend_buffer_type pinned = {
    memory_name, alloc_buffer, alignment, max_size, NULL, is_host, &device, NULL,
};
static struct ggml_backend_device device = {
    device_name,        device_name,          device_memory, device_type, device_props,  init_backend,
    device_memory_type, pinned_memory_type,   NULL,          supports_op, supports_buft, offload_op,
    event_new,          event_free,           event_synchronize,          &reg,          NULL,
};

void * fake_device(void) {
    ggml_backend_device_register(&device);
    return &device;
}

void fake_limits(size_t of_a_buffer, size_t of_a_tensor, size_t of_pinned_bytes) {
    max_pinned_bytes = of_pinned_bytes;
    max_buffer_bytes = of_a_buffer;
    max_tensor_bytes = of_a_tensor;
}

/* After `n` more allocations of device memory, the others fail. Negative: none fails. */
void fake_refuse(long n) { n_until_refusal = n; }

/* From now on there is no more device memory than is allocated now, and `more` bytes; negative: no limit. The next
   `n` allocations fail in any case. */
void fake_room(long more, long n) {
    max_memory_bytes = more < 0 ? LONG_MAX : n_memory_bytes + more;
    n_failing = n;
}

/* The first thing that was wrong, or "". */
const char * fake_failure(void) { return failure; }

int64_t ggml_time_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t day_us = getenv("FAKE_CLOCK") ? INT64_C(86400000000) : 0;
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000 + day_us;
}

/* So far: backends made, asynchronous copies, uses of a backend that another thread had not waited for,
   bytes of memory that were pinned, mat-muls of experts for up to eight tokens and for more, graphs that end
   at a router's choice, within what a graphics card computes in one kernel; waits for a backend, blocking
   uploads, and graphs; groups of nodes that a card computes in one kernel, graphs captured and replayed; bytes of
   the asynchronous copies; mat-muls of experts for many tokens with one choice each, whose rows ggml-cuda sorts one
   after the other; waits after which a stream has nothing to compute; waits of the thread that launches graphs, those
   of blocking copies among them; waits of its streams for an event. */
void fake_counts(long * into) {
    const atomic_long * all[] = {
        &counts.n_backend, &counts.n_async, &counts.n_shared, &counts.n_pinned_bytes, &counts.n_few,
        &counts.n_many,    &counts.n_cut,   &counts.n_sync,   &counts.n_upload,       &counts.n_view,
        &counts.n_fused,   &counts.n_captured, &counts.n_replayed, &counts.n_async_bytes, &counts.n_alone,
        &counts.n_drained, &counts.n_wait, &counts.n_awaited,
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        into[i] = *all[i];
    }
}
