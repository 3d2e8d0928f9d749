// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Command roominit is the first process of a room: see package room, which starts it.
package main

import (
	"fmt"
	"os"

	"github.com/kubedevice/kubedevice/test/room"
)

func main() {
	if err := room.Main(); err != nil {
		fmt.Fprintln(os.Stderr, "roominit:", err)
		os.Exit(1)
	}
}
