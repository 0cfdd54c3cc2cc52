/* Preloaded by `make attack`: the n-th call of a function fails, or the clock jumps.

   A process that preloads it behaves normally until attack_arm(function, n, error, lasting) is called.
   Then the n-th call of the function from now on fails with this error number (and with `lasting` all
   later ones); error 0 makes a read or write short. "clock": from the n-th look on, the time of day has
   jumped by `error` seconds. "malloc": only allocations of 64 KiB and more count, "mmap": only files and
   2 MiB and more. Python's threads take less: one that starts without memory is awaited for ever.

   From attack_journal(folder, file) on, the file gets a record of each change below the folder, in order:
   the data that is written, sizes, names and syncs. power.py makes from it what a loss of power may leave.
   Pages that are mapped for writing are not recorded; SQLite's index of its journal is the only such file,
   and it is made again after a crash. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

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

static int journal = -1;
static char root[4096];
static pthread_mutex_t one_by_one = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static void put(const void * from, size_t size) { /* not through write(), which is recorded */
    for (const char * at = from; size > 0;) {
        const long n = syscall(SYS_write, journal, at, size);
        if (n < 0) {
            _exit(71);
        }
        at += n;
        size -= n;
    }
}

/* power.py reads this as "<cxHHxxQqQ", the two names and the data. */
struct record {
    char kind, pad;
    uint16_t n_name, n_other, pads;
    uint64_t file;
    int64_t offset;
    uint64_t n_data;
};

static int is_below(const char * name) {
    const size_t n = strlen(root);
    return journal >= 0 && strncmp(name, root, n) == 0 && (name[n] == '/' || name[n] == 0);
}

static void record(char kind, const char * name, const char * other, uint64_t file, int64_t offset, const void * data,
                   uint64_t n_data) {
    const int status = errno;
    const struct record head = {kind, 0, strlen(name), strlen(other), 0, file, offset, n_data};
    put(&head, sizeof head);
    put(name, head.n_name);
    put(other, head.n_other);
    if (data) {
        put(data, n_data);
    }
    errno = status;
}

static void name_of(int fd, char * name) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, name, 4095);
    name[n < 0 ? 0 : n] = 0;
}

/* Record what was done to an open file: its folder's names where it is a folder. */
static void record_file(char kind, int fd, int64_t offset, const void * data, uint64_t n_data) {
    if (journal < 0) {
        return;
    }
    const int status = errno;
    char name[4096];
    struct stat found;
    name_of(fd, name);
    if (is_below(name) && fstat(fd, &found) == 0) {
        record(S_ISDIR(found.st_mode) ? 'f' : kind, name, "", found.st_ino, offset, data, n_data);
    }
    errno = status;
}

static void record_name(char kind, const char * name, const char * other) {
    if (journal >= 0 && is_below(name)) {
        record(kind, name, other, 0, 0, NULL, 0);
    }
}

__attribute__((visibility("default"))) void attack_journal(const char * folder, const char * file) {
    snprintf(root, sizeof root, "%s", folder);
    journal = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

/* Nothing else that is recorded happens between a call and its record. */
#define DO(result, call)                            \
    if (journal >= 0) {                             \
        pthread_mutex_lock(&one_by_one);            \
    }                                               \
    const result done = call;
#define DONE                                        \
    if (journal >= 0) {                             \
        pthread_mutex_unlock(&one_by_one);          \
    }                                               \
    return done;

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
    DO(ssize_t, real(fd, from, size))
    if (journal >= 0 && done > 0) {
        record_file('w', fd, lseek(fd, 0, SEEK_CUR) - done, from, done);
    }
    DONE
}
/* Only the scenarios use it, to acknowledge; faults leave it alone. */
ssize_t writev(int fd, const struct iovec * pieces, int n) {
    REAL(ssize_t, writev, int, const struct iovec *, int)
    DO(ssize_t, real(fd, pieces, n))
    if (journal >= 0 && done > 0) {
        record_file('y', fd, 0, pieces[0].iov_base, pieces[0].iov_len);
    }
    DONE
}
ssize_t pwrite(int fd, const void * from, size_t size, off_t at) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t)
    CUT(WRITE, size)
    DO(ssize_t, real(fd, from, size, at))
    if (done > 0) {
        record_file('w', fd, at, from, done);
    }
    DONE
}
ssize_t pwrite64(int fd, const void * from, size_t size, off64_t at) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t)
    CUT(WRITE, size)
    DO(ssize_t, real(fd, from, size, at))
    if (done > 0) {
        record_file('w', fd, at, from, done);
    }
    DONE
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
        DO(int, real(path, flags, mode))                            \
        if (done >= 0 && (flags & (O_CREAT | O_TRUNC))) {           \
            record_file('o', done, (flags & O_TRUNC) != 0, NULL, 0);\
        }                                                           \
        DONE                                                        \
    }
OPEN_AS(open)
OPEN_AS(open64)

int fsync(int fd) {
    REAL(int, fsync, int)
    FAIL(FSYNC, -1)
    DO(int, real(fd))
    if (done == 0) {
        record_file('s', fd, 0, NULL, 0);
    }
    DONE
}
int fdatasync(int fd) {
    REAL(int, fdatasync, int)
    FAIL(FSYNC, -1)
    DO(int, real(fd))
    if (done == 0) {
        record_file('s', fd, 0, NULL, 0);
    }
    DONE
}
int rename(const char * from, const char * to) {
    REAL(int, rename, const char *, const char *)
    FAIL(RENAME, -1)
    DO(int, real(from, to))
    if (done == 0) {
        record_name('r', from, to);
    }
    DONE
}
int link(const char * from, const char * to) {
    REAL(int, link, const char *, const char *)
    DO(int, real(from, to))
    if (done == 0) {
        record_name('l', from, to);
    }
    DONE
}
#define ONE_NAME(name, kind, more, ...)                             \
    int name(const char * path __VA_OPT__(,) __VA_ARGS__) {         \
        REAL(int, name, const char * __VA_OPT__(,) __VA_ARGS__)     \
        DO(int, real(path more))                                    \
        if (done == 0) {                                            \
            record_name(kind, path, "");                            \
        }                                                           \
        DONE                                                        \
    }
#define AND ,
ONE_NAME(unlink, 'u', )
ONE_NAME(rmdir, 'u', )
ONE_NAME(mkdir, 'm', AND mode, mode_t mode)
int unlinkat(int folder, const char * path, int flags) {
    REAL(int, unlinkat, int, const char *, int)
    char name[8192] = "";
    if (journal >= 0 && path[0] != '/' && folder != AT_FDCWD) {
        name_of(folder, name);
        strcat(name, "/");
    }
    DO(int, real(folder, path, flags))
    if (journal >= 0 && done == 0) {
        record_name('u', strcat(name, path), "");
    }
    DONE
}
int ftruncate64(int fd, off64_t size) {
    REAL(int, ftruncate64, int, off64_t)
    FAIL(TRUNCATE, -1)
    DO(int, real(fd, size))
    if (done == 0) {
        record_file('t', fd, size, NULL, 0);
    }
    DONE
}
int posix_fallocate64(int fd, off64_t at, off64_t size) {
    REAL(int, posix_fallocate64, int, off64_t, off64_t)
    if (fails(TRUNCATE)) {
        return error_number;
    }
    DO(int, real(fd, at, size))
    if (done == 0) {
        record_file('a', fd, at + size, NULL, 0);
    }
    DONE
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
