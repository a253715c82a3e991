/* A fork server for a program that is started hundreds of times. Half of the cost of starting an Envoy is relocation and
 * static initialisation, which are the same each time. Preloaded (LD_PRELOAD), this library lets them happen once, stops
 * before main, forks once for each command, and lets every child run main with its own arguments.
 *
 * The children must cost as much as separately started ones, or a study would measure this file. So before main each
 * child copies every page that initialisation has written, instead of sharing them with its siblings.
 *
 * Standard input: the commands, each argument ended by NUL and each command by an empty argument.
 * Standard output: the children's process ids, one per line, in the order of the commands.
 * Standard error: also used by the children for their output.
 *
 * The children wait until all of them exist and the server has ended. They then belong to the server's parent, which is
 * a subreaper (PR_SET_CHILD_SUBREAPER), and are killed when it ends. If the server fails before that, they end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { MOST_MAPPINGS = 4096, MOST_ARGUMENTS = 64, BATCH = 512 };

typedef int main_function(int, char **, char **);
typedef int start_function(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

struct mapping {
  uintptr_t from, to;
  int protection;
};

static main_function *program_main;

static _Noreturn void fail(const char *what) {
  dprintf(STDERR_FILENO, "forkserver: %s: %s\n", what, strerror(errno));
  _exit(126);
}

/* Write to each page without changing it, so that the kernel copies pages shared since the fork. */
static void copy_pages(const struct mapping *m, uintptr_t from, uintptr_t to, size_t page) {
  /* Pages that the loader relocated and then made read-only were written too. */
  const int sealed = !(m->protection & PROT_WRITE);
  if (sealed && mprotect((void *)from, to - from, m->protection | PROT_WRITE)) fail("mprotect");
  if (madvise((void *)from, to - from, MADV_POPULATE_WRITE)) {
    if (errno != EINVAL) fail("copying pages");
    for (uintptr_t at = from; at < to; at += page) *(volatile char *)at = *(volatile char *)at;
  }
  if (sealed && mprotect((void *)from, to - from, m->protection)) fail("mprotect");
}

/* Copy the pages of one mapping that are in memory and not a file's: those that were written. */
static void copy_mapping(int pagemap, const struct mapping *m, size_t page) {
  static const uint64_t present = 1ULL << 63, of_file = 1ULL << 61;
  uint64_t entries[BATCH];
  for (uintptr_t at = m->from; at < m->to;) {
    size_t asked = (m->to - at) / page;
    if (asked > BATCH) asked = BATCH;
    ssize_t got = pread(pagemap, entries, asked * sizeof *entries, (off_t)(at / page * sizeof *entries));
    if (got < (ssize_t)sizeof *entries) fail("/proc/self/pagemap");
    size_t n = (size_t)got / sizeof *entries;
    for (size_t first = 0; first < n;) {
      size_t last = first;
      while (last < n && (entries[last] & (present | of_file)) == present) last++;
      if (last > first) copy_pages(m, at + first * page, at + last * page, page);
      first = last + 1;
    }
    at += n * page;
  }
}

static size_t private_mappings(struct mapping *found) {
  FILE *maps = fopen("/proc/self/maps", "re");
  if (!maps) fail("/proc/self/maps");
  char line[4352], permissions[5];
  size_t n = 0;
  unsigned long from, to;
  while (fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%lx-%lx %4s", &from, &to, permissions) != 3) continue;
    /* [vvar] and [vdso] are the kernel's own. */
    if (permissions[0] != 'r' || permissions[3] != 'p' || strstr(line, " [v")) continue;
    if (n == MOST_MAPPINGS) {
      errno = E2BIG;
      fail("/proc/self/maps");
    }
    int protection = PROT_READ | (permissions[1] == 'w' ? PROT_WRITE : 0) | (permissions[2] == 'x' ? PROT_EXEC : 0);
    found[n++] = (struct mapping){from, to, protection};
  }
  fclose(maps);
  return n;
}

static void own_all_pages(void) {
  static struct mapping mappings[MOST_MAPPINGS];
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (pagemap < 0) fail("/proc/self/pagemap");
  size_t n = private_mappings(mappings);
  for (size_t i = 0; i < n; i++)
    if (!(mappings[i].protection & PROT_EXEC)) copy_mapping(pagemap, &mappings[i], page); /* code is never written */
  close(pagemap);
}

/* Read one command; return the number of its arguments, 0 at the end. */
static int read_command(char **arguments) {
  int n = 0;
  for (;;) {
    char *argument = NULL;
    size_t room = 0;
    ssize_t length = getdelim(&argument, &room, '\0', stdin);
    if (length <= 1) {
      free(argument);
      arguments[n] = NULL;
      return n;
    }
    if (n + 1 == MOST_ARGUMENTS) {
      errno = E2BIG;
      fail("arguments");
    }
    arguments[n++] = argument;
  }
}

static void wait_for_all(int gate, const int *complete, pid_t server, pid_t launcher) {
  char nothing;
  while (read(gate, &nothing, 1) < 0 && errno == EINTR) {
  }
  close(gate);
  /* A process closes its files before its children get another parent. */
  while (getppid() == server) usleep(1000);
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (!*complete || getppid() != launcher) _exit(0);
}

static int serve(int argc, char **argv, char **environment) {
  (void)argc, (void)argv, (void)environment;
  const pid_t server = getpid(), launcher = getppid();
  int gate[2];
  int *complete = mmap(NULL, sizeof *complete, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (complete == MAP_FAILED || pipe2(gate, O_CLOEXEC)) fail("starting");
  char *arguments[MOST_ARGUMENTS];
  int n;
  while ((n = read_command(arguments)) > 0) {
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child > 0) {
      dprintf(STDOUT_FILENO, "%d\n", (int)child);
      for (int i = 0; i < n; i++) free(arguments[i]);
      continue;
    }
    close(gate[1]);
    /* By descriptor: stdio would move the offset in the commands, which the server shares. */
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (dup2(null, STDIN_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) fail("output");
    close(null);
    /* One session each, as for every other component: the kernel divides the CPU by session (autogroup). */
    setsid();
    wait_for_all(gate[0], complete, server, launcher);
    munmap(complete, sizeof *complete);
    own_all_pages();
    return program_main(n, arguments, environ);
  }
  *complete = 1;
  _exit(0);
}

/* glibc's entry: runs the static initialisers, then the main that it is given. */
__attribute__((visibility("default"))) int __libc_start_main(main_function *main, int argc, char **argv,
                                                             void (*init)(void), void (*fini)(void),
                                                             void (*rtld_fini)(void), void *stack_end) {
  start_function *next = (start_function *)dlsym(RTLD_NEXT, "__libc_start_main");
  unsetenv("LD_PRELOAD");
  program_main = main;
  return next(serve, argc, argv, init, fini, rtld_fini, stack_end);
}
