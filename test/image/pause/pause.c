// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// The first process of a pod's sandbox: it keeps the pod's namespaces, buries the dead of a shared process namespace, and goes when
// it gets SIGTERM. In C, since a pod's sandbox should cost next to nothing.

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal) {
  (void)signal;
  _exit(0);
}

static void bury(int signal) {
  (void)signal;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(void) {
  struct sigaction go = {.sa_handler = leave};
  struct sigaction dead = {.sa_handler = bury, .sa_flags = SA_NOCLDSTOP};
  if (sigaction(SIGINT, &go, NULL) || sigaction(SIGTERM, &go, NULL) || sigaction(SIGCHLD, &dead, NULL))
    return EXIT_FAILURE;
  for (;;)
    pause();
}
