// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sandboxinit is the first process of a sandbox: see package sandbox, which starts it.
package main

import (
	"fmt"
	"os"

	"github.com/kubedevice/kubedevice/test/sandbox"
)

func main() {
	if err := sandbox.Main(); err != nil {
		fmt.Fprintln(os.Stderr, "sandboxinit:", err)
		os.Exit(1)
	}
}
