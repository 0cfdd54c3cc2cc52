/* A device as ggml sees a graphics card: memory that the host may not touch, pinned host memory, copies
   that run beside computation, and events. It computes with the CPU backend. Bytes that are copied
   asynchronously arrive late, and are taken from where they lie only then: whoever does not wait
   computes with wrong ones. A backend is for one thread at a time: between a thread's first copy and
   its wait for it, no other thread may use that backend. (Vulkan resets command buffers in that wait.)

   fake_device() registers it; fake_counts() says what was asked of it; fake_limits() sets the largest
   buffer, the largest tensor of experts that it takes, and how much memory can be pinned. Preloaded with
   FAKE_CLOCK set, ggml's clock is a day ahead. With FAKE_REORDER set, a prompt's graph is reordered: a mat-mul of
   shared experts runs between those of routed experts.

   The structures are those of ggml/src/ggml-backend-impl.h of the pinned llama.cpp.                */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
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
    void * cpy_tensor_async;
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
    tensor_t ** nodes;
    /* and more */
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
    void * offload_op;
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

/* ---- streams: what was asked of a backend, done in order by a thread ---------------------------- */

enum { max_task = 4096, arrival_us = 300, max_few_token = 8 };

struct task {
    void * to;
    const void * from;
    size_t size;
    atomic_long * event; /* instead of a copy: counts down to nothing */
};

struct stream {
    ggml_backend_t cpu;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct task tasks[max_task];
    size_t n_asked, n_done;
    bool over;
    bool is_used; /* by this thread, which has not waited yet */
    pthread_t user;
};

struct event {
    atomic_long n_open;
    struct stream * stream;
};

struct counts {
    atomic_long n_backend, n_async, n_shared, n_pinned_bytes, n_few, n_many, n_cut, n_sync, n_upload, n_view;
};
static struct counts counts;

static atomic_long n_memory_bytes; /* allocated; the kernels' is taken when many tokens are first computed */
static const long kernel_bytes = 300L << 20;
static atomic_bool has_kernels;

static size_t max_buffer_bytes = SIZE_MAX, max_tensor_bytes = SIZE_MAX, max_pinned_bytes = SIZE_MAX;

static void * run(void * argument) {
    struct stream * s = argument;
    pthread_mutex_lock(&s->mutex);
    while (true) {
        while (!s->over && s->n_done == s->n_asked) {
            pthread_cond_wait(&s->changed, &s->mutex);
        }
        if (s->n_done == s->n_asked) {
            break;
        }
        const struct task t = s->tasks[s->n_done % max_task];
        pthread_mutex_unlock(&s->mutex);
        if (t.event) {
            atomic_fetch_sub(t.event, 1);
        } else {
            usleep(arrival_us);
            memcpy(t.to, t.from, t.size);
        }
        pthread_mutex_lock(&s->mutex);
        s->n_done++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* REQUIRES: the stream is locked. */
static void use(struct stream * s, bool goes_on) {
    if (s->is_used && !pthread_equal(s->user, pthread_self())) {
        counts.n_shared++;
    }
    s->is_used = goes_on;
    s->user = pthread_self();
}

static void ask(struct stream * s, struct task task) {
    pthread_mutex_lock(&s->mutex);
    use(s, true);
    while (s->n_asked - s->n_done == max_task) {
        pthread_cond_wait(&s->changed, &s->mutex);
    }
    s->tasks[s->n_asked++ % max_task] = task;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static void finish(struct stream * s) {
    pthread_mutex_lock(&s->mutex);
    while (s->n_done != s->n_asked) {
        pthread_cond_wait(&s->changed, &s->mutex);
    }
    use(s, false);
    pthread_mutex_unlock(&s->mutex);
}

static void backend_synchronize(ggml_backend_t backend) {
    counts.n_sync++;
    finish(backend->context);
}

/* ---- a backend --------------------------------------------------------------------------------- */

static const char * backend_name(ggml_backend_t backend) {
    (void) backend;
    return "FAKE0";
}

static void backend_free(ggml_backend_t backend) {
    struct stream * s = backend->context;
    finish(s);
    pthread_mutex_lock(&s->mutex);
    s->over = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    ggml_backend_free(s->cpu);
    free(s);
    free(backend);
}

static void set_async(ggml_backend_t backend, tensor_t * tensor, const void * from, size_t offset, size_t size) {
    counts.n_async++;
    ask(backend->context, (struct task){(char *) tensor->data + offset, from, size, NULL});
}

static void get_async(ggml_backend_t backend, const tensor_t * tensor, void * to, size_t offset, size_t size) {
    finish(backend->context);
    memcpy(to, (const char *) tensor->data + offset, size);
}

static enum ggml_status compute(ggml_backend_t backend, struct ggml_cgraph * graph) {
    finish(backend->context);
    counts.n_view++;
    const int n_node = ggml_graph_n_nodes(graph);
    for (int i = 0; i < n_node; i++) {
        const tensor_t * node = ggml_graph_node(graph, i);
        if (node->op == GGML_OP_MUL_MAT_ID) {
            (node->src[2]->ne[1] <= max_few_token ? &counts.n_few : &counts.n_many)[0]++;
            has_kernels |= node->src[2]->ne[1] > max_few_token;
        }
    }
    counts.n_cut += strncmp(ggml_graph_node(graph, n_node - 1)->name, "ffn_moe_topk", 12) == 0;
    return ggml_backend_graph_compute(((struct stream *) backend->context)->cpu, graph);
}

static bool is_of(const tensor_t * node, enum ggml_op op, const char * part) {
    return node->op == op && strstr(node->src[0]->name, part);
}

/* Move the first mat-mul of each layer's shared experts, which read what the routed ones read. */
static void reorder(ggml_backend_t backend, struct ggml_cgraph * graph, void * parameters) {
    (void) backend;
    (void) parameters;
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

static void event_record(ggml_backend_t backend, ggml_backend_event_t event) {
    struct event * e = event->context;
    e->stream = backend->context;
    atomic_fetch_add(&e->n_open, 1);
    ask(backend->context, (struct task){NULL, NULL, 0, &e->n_open});
}

static void event_synchronize(ggml_backend_dev_t device, ggml_backend_event_t event) {
    (void) device;
    struct event * e = event->context;
    while (atomic_load(&e->n_open) > 0) {
        usleep(20);
    }
    if (e->stream) {
        pthread_mutex_lock(&e->stream->mutex);
        use(e->stream, false);
        pthread_mutex_unlock(&e->stream->mutex);
    }
}

static void event_wait(ggml_backend_t backend, ggml_backend_event_t event) {
    event_synchronize(backend->device, event);
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
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_create(&s->thread, NULL, run, s);
    ggml_backend_t backend = calloc(1, sizeof *backend);
    backend->guid = &guid;
    backend->get_name = backend_name;
    backend->free = backend_free;
    backend->set_tensor_async = set_async;
    backend->get_tensor_async = get_async;
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

static struct ggml_backend_buffer_type memory, pinned;

static const char * memory_name(ggml_backend_buffer_type_t buft) { return buft == &pinned ? "FAKE_Host" : "FAKE0"; }

static void upload(ggml_backend_buffer_t buffer, tensor_t * tensor, const void * from, size_t offset, size_t size) {
    (void) buffer;
    counts.n_upload++;
    memcpy((char *) tensor->data + offset, from, size);
}

static void (*free_cpu)(ggml_backend_buffer_t);

static void free_buffer(ggml_backend_buffer_t buffer) {
    n_memory_bytes -= (long) ggml_backend_buffer_get_size(buffer);
    free_cpu(buffer);
}

static ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t buft, size_t size) {
    if (size > max_buffer_bytes) {
        return NULL;
    }
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
    if (buffer && buft == &memory) {
        buffer->buft = buft;
        free_cpu = (void (*)(ggml_backend_buffer_t)) buffer->iface[0];
        buffer->iface[0] = (void *) free_buffer;
        buffer->iface[4] = (void *) upload; /* set_tensor */
        n_memory_bytes += (long) size;
    } else if (buffer && counts.n_pinned_bytes + size <= max_pinned_bytes) { /* otherwise ordinary memory */
        buffer->buft = buft;
        counts.n_pinned_bytes += (long) size;
    }
    return buffer;
}

static size_t alignment(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return 64;
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
    memory_name, alloc_buffer, alignment, max_size, NULL, is_host, &device, NULL,
};
static struct ggml_backend_buffer_type pinned = {
    memory_name, alloc_buffer, alignment, max_size, NULL, is_host, &device, NULL,
};
static struct ggml_backend_device device = {
    device_name,        device_name,          device_memory, device_type, device_props,  init_backend,
    device_memory_type, pinned_memory_type,   NULL,          supports_op, supports_buft, NULL,
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

int64_t ggml_time_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t day_us = getenv("FAKE_CLOCK") ? INT64_C(86400000000) : 0;
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000 + day_us;
}

/* So far: backends made, asynchronous copies, uses of a backend that another thread had not waited for,
   bytes of memory that were pinned, mat-muls of experts for up to eight tokens and for more, graphs that end
   at a router's choice, within what a graphics card computes in one kernel; waits for a backend, blocking
   uploads, and graphs. */
void fake_counts(long * into) {
    into[0] = counts.n_backend;
    into[1] = counts.n_async;
    into[2] = counts.n_shared;
    into[3] = counts.n_pinned_bytes;
    into[4] = counts.n_few;
    into[5] = counts.n_many;
    into[6] = counts.n_cut;
    into[7] = counts.n_sync;
    into[8] = counts.n_upload;
    into[9] = counts.n_view;
}
