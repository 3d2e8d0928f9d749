// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// euid says whose rights it has. Installed setuid root, it shows whether a container may gain rights.

#include <stdio.h>
#include <unistd.h>

int main(void)
{
	return printf("Effective uid: %d\n", (int)geteuid()) < 0;
}
