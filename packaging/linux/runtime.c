// The head of an AppImage (https://github.com/AppImage/AppImageSpec, type 2): mounts the squashfs that follows this
// program in its file, and runs AppRun in it. Without FUSE it unpacks the image into a folder of its own, and removes
// that folder after the run. Written against Debian's libsquashfuse_ll and libfuse3; packaging/release.py compiles it.
// Of the compressions of squashfs it knows zstd only, which the image has: the others' libraries are not linked.
//
//     --appimage-offset, --appimage-version, --appimage-updateinformation
//     --appimage-extract             unpack into ./squashfs-root
//     --appimage-extract-and-run     unpack, run, remove; APPIMAGE_EXTRACT_AND_RUN=1 does the same
//     --appimage-mount               mount, print the folder, and wait
#define _GNU_SOURCE
#define FUSE_USE_VERSION 32
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <squashfuse/ll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

// Where an updater looks for a newer image; packaging/release.py writes it.
__attribute__((section(".upd_info"), used)) static volatile char update_information[1024] = {0};

static char self[PATH_MAX];
static const char *place = ".";  // where it is mounted or unpacked
static char unpacked[PATH_MAX];  // the folder to remove at the end; empty if there is none

// libsquashfuse would call this for an image of another compression. It then says that the image cannot be read.
int lzo1x_decompress_safe(void) { return -1; }
int LZ4_decompress_safe(void) { return -1; }
int uncompress(void) { return -1; }
int lzma_stream_buffer_decode(void) { return -1; }

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *f) {
  (void)s, (void)kind, (void)f;
  return remove(path);
}

static void clean_up(void) {
  if (unpacked[0] != 0) nftw(unpacked, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

// Say why in one sentence, leave nothing behind, and end.
static void fail(const char *sentence, ...) {
  va_list values;
  va_start(values, sentence);
  vfprintf(stderr, sentence, values);
  va_end(values);
  fputc('\n', stderr);
  clean_up();
  exit(127);
}

// Return where this program ends in its file and the image begins.
static size_t image_offset(void) {
  Elf64_Ehdr head;
  int file = open(self, O_RDONLY | O_CLOEXEC);
  if (file < 0 || read(file, &head, sizeof head) != sizeof head)
    fail("This AppImage cannot be read: %s.", strerror(errno));
  close(file);
  return head.e_shoff + (size_t)head.e_shentsize * head.e_shnum;
}

// Serve the image at a folder until the last process that holds the other end of `alive` is gone.
static struct fuse_session *session;

static void *watch(void *alive) {
  struct pollfd end = {.fd = (int)(intptr_t)alive, .events = POLLIN};
  while (!(end.revents & POLLHUP)) poll(&end, 1, -1);
  fuse_session_exit(session);
  fuse_session_unmount(session);
  return NULL;
}

static void serve(const char *folder, size_t offset, int alive, int ready) {
  struct fuse_lowlevel_ops operations = {
      .getattr = sqfs_ll_op_getattr, .opendir = sqfs_ll_op_opendir, .releasedir = sqfs_ll_op_releasedir,
      .readdir = sqfs_ll_op_readdir, .lookup = sqfs_ll_op_lookup,   .open = sqfs_ll_op_open,
      .create = sqfs_ll_op_create,   .release = sqfs_ll_op_release, .read = sqfs_ll_op_read,
      .readlink = sqfs_ll_op_readlink, .listxattr = sqfs_ll_op_listxattr, .getxattr = sqfs_ll_op_getxattr,
      .forget = sqfs_ll_op_forget,   .statfs = stfs_ll_op_statfs};
  char *words[] = {"outrider", "-o", "ro,nodev,nosuid,subtype=squashfuse"};
  struct fuse_args arguments = FUSE_ARGS_INIT(3, words);
  sqfs_ll *image = sqfs_ll_open(self, offset);
  sqfs_ll_chan channel = {0};
  if (image == NULL || sqfs_ll_mount(&channel, folder, &arguments, &operations, sizeof operations, image) != SQFS_OK)
    _exit(1);
  session = channel.session;
  setsid();  // Ctrl+C in the terminal is for the application
  pthread_t watcher;
  if (pthread_create(&watcher, NULL, watch, (void *)(intptr_t)alive) != 0) _exit(1);
  if (write(ready, "1", 1) != 1) _exit(1);
  close(ready);
  fuse_session_loop(session);
  pthread_join(watcher, NULL);  // an ordinary user's folder is unmounted by another program, fusermount3
  rmdir(folder);
  _exit(0);
}

// Mount the image at a folder. Return false if this system does not let us.
static bool mount_image(const char *folder, size_t offset) {
  int alive[2], ready[2];
  if (access("/dev/fuse", R_OK | W_OK) != 0 || pipe(alive) != 0 || pipe(ready) != 0) return false;
  pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    close(alive[1]);
    close(ready[0]);
    if (fork() != 0) _exit(0);  // the server belongs to nobody, so that the application waits for no strange child
    int nowhere = open("/dev/null", O_RDWR);
    dup2(nowhere, 1);
    dup2(nowhere, 2);
    serve(folder, offset, alive[0], ready[1]);
  }
  waitpid(child, NULL, 0);
  close(alive[0]);  // the other end stays open in the application and its children
  close(ready[1]);
  char byte;
  bool is_mounted = read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  return is_mounted;
}

// Return a signal that asks this program to end, if one came since they were blocked; otherwise 0.
static int asked_to_end(void) {
  sigset_t waiting;
  sigpending(&waiting);
  const int numbers[] = {SIGTERM, SIGHUP, SIGINT};
  for (int i = 0; i < 3; i++)
    if (sigismember(&waiting, numbers[i])) return numbers[i];
  return 0;
}

static void cannot_write(const char *folder, const char *path) {
  if (errno == ENOSPC || errno == EDQUOT)
    fail("There is no room to unpack this AppImage in %s. TMPDIR=FOLDER names a folder with more.", place);
  fail("This AppImage cannot be unpacked: %s: %s.", path, strerror(errno));
}

static void extract(const char *folder, size_t offset) {
  sqfs image;
  sqfs_inode inode;
  sqfs_traverse walk;
  sqfs_err error;
  static char buffer[1 << 20];
  char path[PATH_MAX];
  if (sqfs_open_image(&image, self, offset) != SQFS_OK ||
      sqfs_inode_get(&image, &inode, sqfs_inode_root(&image)) != SQFS_OK ||
      sqfs_traverse_open_inode(&walk, &image, &inode) != SQFS_OK)
    fail("This AppImage is damaged.");
  while (sqfs_traverse_next(&walk, &error)) {
    int number = asked_to_end();
    if (number != 0) {
      clean_up();
      exit(128 + number);
    }
    if (walk.dir_end) continue;
    snprintf(path, sizeof path, "%s/%s", folder, walk.path);
    if (sqfs_inode_get(&image, &inode, sqfs_dentry_inode(&walk.entry)) != SQFS_OK) fail("This AppImage is damaged.");
    if (S_ISDIR(inode.base.mode)) {
      if (mkdir(path, 0755) != 0 && errno != EEXIST) cannot_write(folder, path);
    } else if (S_ISLNK(inode.base.mode)) {
      size_t size = sizeof buffer;
      unlink(path);
      if (sqfs_readlink(&image, &inode, buffer, &size) != SQFS_OK) fail("This AppImage is damaged.");
      if (symlink(buffer, path) != 0) cannot_write(folder, path);
    } else if (S_ISREG(inode.base.mode)) {
      int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, inode.base.mode & 0777);
      if (file < 0) cannot_write(folder, path);
      for (sqfs_off_t at = 0, size; at < (sqfs_off_t)inode.xtra.reg.file_size; at += size) {
        size = sizeof buffer;
        if (sqfs_read_range(&image, &inode, at, &size, buffer) != SQFS_OK || size == 0)
          fail("This AppImage is damaged.");
        for (sqfs_off_t done = 0, n; done < size; done += n)  // the first part of a write may be all that fits
          if ((n = write(file, buffer + done, size - done)) < 0) cannot_write(folder, path);
      }
      close(file);
    }
  }
  if (error != SQFS_OK) fail("This AppImage is damaged.");
  sqfs_traverse_close(&walk);
}

static void run(const char *folder, char **arguments) {
  char program[PATH_MAX];
  snprintf(program, sizeof program, "%s/AppRun", folder);
  execv(program, arguments);
  fprintf(stderr, "%s cannot be started: %s.\n", program, strerror(errno));
  _exit(127);
}

// Unpack the image, run the application, and remove the folder however it ends. Return its exit status.
static int run_unpacked(const char *folder, size_t offset, char **arguments) {
  struct statvfs system;
  strcpy(unpacked, folder);
  if (statvfs(folder, &system) == 0 && (system.f_flag & ST_NOEXEC) != 0)
    fail("No program may run in %s, and this AppImage is not mounted. TMPDIR=FOLDER names another folder.", place);
  sigset_t blocked, before;
  sigemptyset(&blocked);
  const int numbers[] = {SIGTERM, SIGHUP, SIGINT, SIGCHLD};
  for (int i = 0; i < 4; i++) sigaddset(&blocked, numbers[i]);
  signal(SIGCHLD, SIG_DFL);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  extract(folder, offset);
  pid_t child = fork();
  if (child < 0) fail("The application cannot be started: %s.", strerror(errno));
  if (child == 0) {
    sigprocmask(SIG_SETMASK, &before, NULL);
    run(folder, arguments);
  }
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    siginfo_t came;
    // Those of the terminal have reached the application, too; it decides.
    if (sigwaitinfo(&blocked, &came) > 0 && came.si_signo != SIGCHLD && came.si_code <= 0)
      kill(child, came.si_signo);
  }
  clean_up();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int n_argument, char **arguments) {
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length < 0) fail("This AppImage does not find itself: %s.", strerror(errno));
  self[length] = 0;
  size_t offset = image_offset();
  const char *first = n_argument > 1 ? arguments[1] : "";
  bool unpacks = getenv("APPIMAGE_EXTRACT_AND_RUN") != NULL;
  if (strcmp(first, "--appimage-offset") == 0) return printf("%zu\n", offset) < 0;
  if (strcmp(first, "--appimage-version") == 0) return puts("Outrider's runtime, type 2") < 0;
  if (strcmp(first, "--appimage-updateinformation") == 0) return printf("%s\n", (char *)update_information) < 0;
  if (strcmp(first, "--appimage-extract") == 0) {
    if (mkdir("squashfs-root", 0755) != 0 && errno != EEXIST)
      fail("The folder squashfs-root cannot be made: %s.", strerror(errno));
    extract("squashfs-root", offset);
    return 0;
  }
  if (strcmp(first, "--appimage-extract-and-run") == 0) {
    unpacks = true;
    memmove(arguments + 1, arguments + 2, (size_t)(n_argument - 1) * sizeof *arguments);
  }
  char folder[PATH_MAX];
  place = getenv("TMPDIR");
  if (place == NULL || place[0] == 0) place = "/tmp";
  snprintf(folder, sizeof folder, "%s/.mount_outriderXXXXXX", place);
  if (mkdtemp(folder) == NULL)
    fail("No folder can be made in %s: %s. TMPDIR=FOLDER names another one.", place, strerror(errno));
  setenv("APPIMAGE", self, 1);
  setenv("APPDIR", folder, 1);
  setenv("ARGV0", arguments[0], 1);
  if (!unpacks && mount_image(folder, offset)) {
    if (strcmp(first, "--appimage-mount") == 0) {
      puts(folder);
      fflush(stdout);
      pause();
    }
    run(folder, arguments);
  }
  return run_unpacked(folder, offset, arguments);
}
