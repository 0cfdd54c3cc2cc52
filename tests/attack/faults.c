/* Preloaded by `make attack`: the n-th call of a function fails, or the clock jumps.

   A process that preloads it behaves normally until attack_arm(function, n, error, lasting) is called.
   Then the n-th call of the function from now on fails with this error number (and with `lasting` all
   later ones); error 0 makes a read or write short. "clock": from the n-th look on, the time of day has
   jumped by `error` seconds. "malloc": only allocations of 64 KiB and more count, "mmap": only files and
   2 MiB and more. Python's threads take less: one that starts without memory is awaited for ever. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

static const char * const names[] = {"read", "write", "open", "fsync", "mmap", "malloc",
                                     "thread", "rename", "truncate", "clock"};
enum { READ, WRITE, OPEN, FSYNC, MMAP, MALLOC, THREAD, RENAME, TRUNCATE, CLOCK, N };
static int armed = -1, error_number, lasts;
static atomic_int n_left;

__attribute__((visibility("default"))) int attack_arm(const char * name, int n, int error, int lasting) {
    for (int i = 0; i < N; i++) {
        if (strcmp(names[i], name) == 0) {
            n_left = n;
            error_number = error;
            lasts = lasting;
            armed = i;
            return 0;
        }
    }
    return -1;
}

/* Return the calls that are left until the fault; 0 or less: it has happened. */
__attribute__((visibility("default"))) int attack_left(void) { return n_left; }

static int fails(int kind) {
    if (kind != armed) {
        return 0;
    }
    const int left = atomic_fetch_sub(&n_left, 1);
    return left == 1 || (left < 1 && lasts);
}

#define REAL(result, name, ...)                                     \
    static result (*real)(__VA_ARGS__);                             \
    if (!real) {                                                    \
        real = (result (*)(__VA_ARGS__)) dlsym(RTLD_NEXT, #name);   \
    }
#define FAIL(kind, value)                  \
    if (fails(kind)) {                     \
        errno = error_number;              \
        return value;                      \
    }
/* A short read or write where the error is 0. */
#define CUT(kind, size)                                   \
    if (fails(kind)) {                                    \
        if (error_number) {                               \
            errno = error_number;                         \
            return -1;                                    \
        }                                                 \
        size = size > 1 ? size / 2 : size;                \
    }

ssize_t read(int fd, void * to, size_t size) {
    REAL(ssize_t, read, int, void *, size_t)
    CUT(READ, size)
    return real(fd, to, size);
}
ssize_t pread(int fd, void * to, size_t size, off_t at) {
    REAL(ssize_t, pread, int, void *, size_t, off_t)
    CUT(READ, size)
    return real(fd, to, size, at);
}
ssize_t pread64(int fd, void * to, size_t size, off64_t at) {
    REAL(ssize_t, pread64, int, void *, size_t, off64_t)
    CUT(READ, size)
    return real(fd, to, size, at);
}
ssize_t preadv(int fd, const struct iovec * pieces, int n, off_t at) {
    REAL(ssize_t, preadv, int, const struct iovec *, int, off_t)
    CUT(READ, n)
    return real(fd, pieces, n, at);
}
ssize_t write(int fd, const void * from, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t)
    if (fd > 2) { /* not what a child says */
        CUT(WRITE, size)
    }
    return real(fd, from, size);
}
ssize_t pwrite(int fd, const void * from, size_t size, off_t at) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t)
    CUT(WRITE, size)
    return real(fd, from, size, at);
}
ssize_t pwrite64(int fd, const void * from, size_t size, off64_t at) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t)
    CUT(WRITE, size)
    return real(fd, from, size, at);
}

static mode_t mode_of(int flags, va_list arguments) {
    return flags & (0100 | 020000000) ? va_arg(arguments, mode_t) : 0; /* O_CREAT, O_TMPFILE */
}
#define OPEN_AS(name)                                               \
    int name(const char * path, int flags, ...) {                   \
        REAL(int, name, const char *, int, ...)                     \
        va_list arguments;                                          \
        va_start(arguments, flags);                                 \
        const mode_t mode = mode_of(flags, arguments);              \
        va_end(arguments);                                          \
        FAIL(OPEN, -1)                                              \
        return real(path, flags, mode);                             \
    }
OPEN_AS(open)
OPEN_AS(open64)

int fsync(int fd) {
    REAL(int, fsync, int)
    FAIL(FSYNC, -1)
    return real(fd);
}
int fdatasync(int fd) {
    REAL(int, fdatasync, int)
    FAIL(FSYNC, -1)
    return real(fd);
}
int rename(const char * from, const char * to) {
    REAL(int, rename, const char *, const char *)
    FAIL(RENAME, -1)
    return real(from, to);
}
int ftruncate64(int fd, off64_t size) {
    REAL(int, ftruncate64, int, off64_t)
    FAIL(TRUNCATE, -1)
    return real(fd, size);
}
int posix_fallocate64(int fd, off64_t at, off64_t size) {
    REAL(int, posix_fallocate64, int, off64_t, off64_t)
    if (fails(TRUNCATE)) {
        return error_number;
    }
    return real(fd, at, size);
}
void * mmap64(void * at, size_t size, int protection, int flags, int fd, off64_t offset) {
    REAL(void *, mmap64, void *, size_t, int, int, int, off64_t)
    if (fd >= 0 || size >= 2 << 20) {
        FAIL(MMAP, MAP_FAILED)
    }
    return real(at, size, protection, flags, fd, offset);
}
void * mmap(void * at, size_t size, int protection, int flags, int fd, off_t offset) {
    REAL(void *, mmap, void *, size_t, int, int, int, off_t)
    if (fd >= 0 || size >= 2 << 20) {
        FAIL(MMAP, MAP_FAILED)
    }
    return real(at, size, protection, flags, fd, offset);
}
extern void * __libc_malloc(size_t);
void * malloc(size_t size) {
    if (size >= 1 << 16) {
        FAIL(MALLOC, NULL)
    }
    return __libc_malloc(size);
}
int posix_memalign(void ** to, size_t alignment, size_t size) {
    REAL(int, posix_memalign, void **, size_t, size_t)
    if (size >= 1 << 16 && fails(MALLOC)) {
        return ENOMEM;
    }
    return real(to, alignment, size);
}
int pthread_create(pthread_t * thread, const pthread_attr_t * how, void * (*run)(void *), void * of) {
    REAL(int, pthread_create, pthread_t *, const pthread_attr_t *, void * (*) (void *), void *)
    if (fails(THREAD)) {
        return EAGAIN;
    }
    return real(thread, how, run, of);
}
int clock_gettime(clockid_t clock, struct timespec * now) {
    REAL(int, clock_gettime, clockid_t, struct timespec *)
    const int status = real(clock, now);
    if (clock == CLOCK_REALTIME && armed == CLOCK && atomic_fetch_sub(&n_left, 1) <= 1) {
        now->tv_sec += error_number;
    }
    return status;
}
